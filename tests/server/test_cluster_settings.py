"""Options of cluster mode: both engines or none, and no secret where others see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.cli.serve import serve
from sparrow.server.cluster_settings import ClusterSettings, check_cluster, check_flags
from sparrow.server.config import load

URL = "postgresql://sparrow:hidden-word@db/sparrow"


def test_options_come_from_variables_and_are_secret() -> None:
    config, resolved = load(
        {}, {"SPARROW_LEDGER": URL, "SPARROW_OBJECTS": "s3://b/p?secret_access_key=hidden-word"}
    )
    assert config.cluster.is_on
    assert config.cluster.ledger == URL
    from sparrow.server.bootstrap.plain import plain_options

    assert "hidden-word" not in str(plain_options(config, resolved))


def test_options_come_from_the_file(tmp_path: Path) -> None:
    lines = [f"ledger: {URL}", "objects: s3://b/p", "host: broker-a.lan", "linger: 20ms", "cache: 1 MiB"]
    file = tmp_path / "sparrow.yml"
    file.write_text("cluster:\n" + "".join(f"  {line}\n" for line in lines))
    config, _ = load({"config": str(file)}, {})
    assert config.cluster == ClusterSettings(
        URL, "s3://b/p", "broker-a.lan", linger_ms=20, cache_bytes=1 << 20
    )
    config, _ = load({"config": str(file)}, {"SPARROW_OBJECTS": "s3://other"})
    assert (config.cluster.ledger, config.cluster.objects) == (URL, "s3://other")


def test_a_wrong_option_of_the_file_is_refused_without_its_secrets(tmp_path: Path) -> None:
    file = tmp_path / "sparrow.yml"
    file.write_text(f"cluster:\n  ledger: {URL}\n  objekts: s3://b?secret_access_key=hidden-word\n")
    with pytest.raises(InvalidConfig, match=r"objekts") as raised:
        load({"config": str(file)}, {})
    assert "hidden-word" not in raised.value.text


@pytest.mark.parametrize(
    ("ledger", "objects", "text"),
    [
        (URL, "", r"cluster\.objects is not"),
        ("", "s3://bucket", r"cluster\.ledger is not"),
        ("mysql://sparrow:hidden-word@db/sparrow", "s3://bucket", "no URL of PostgreSQL"),
    ],
)
def test_half_a_cluster_is_refused(ledger: str, objects: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text) as raised:
        check_cluster(ClusterSettings(ledger, objects))
    assert "hidden-word" not in raised.value.text


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--ledger", URL),
        ("--ledger", "postgresql://sparrow@db/sparrow?password=hidden-word"),
        ("--objects", "s3://bucket/p?aws_secret_access_key=hidden-word"),
        ("--objects", "az://box/p?sas_token=hidden-word"),
    ],
)
def test_a_secret_on_the_command_line_is_refused(flag: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"\(ps\)") as raised:
        serve([flag, value])
    assert "hidden-word" not in raised.value.text


@pytest.mark.parametrize(
    ("objects", "linger_s"),
    [
        ("file:///a", 0.005),
        ("s3://b?endpoint=http://minio:9000", 0.005),
        ("s3://b/p", 0.1),
        ("gs://b", 0.1),
    ],
)
def test_uploads_that_are_paid_for_are_fewer(objects: str, linger_s: float) -> None:
    assert ClusterSettings(URL, objects).linger_s == linger_s
    assert ClusterSettings(URL, objects, linger_ms=7).linger_s == 0.007


def test_the_summary_names_both_engines_without_secrets() -> None:
    settings = ClusterSettings(URL, "s3://b/p?secret_access_key=hidden-word")
    assert settings.location == "postgresql://db/sparrow, s3://b/p"


def test_flags_without_secrets_are_taken() -> None:
    check_flags({"cluster_ledger": "postgresql://sparrow@db/sparrow", "cluster_objects": "s3://b/p?region=x"})


def test_a_broker_of_its_own_loads_nothing_of_the_cluster() -> None:
    code = (
        "import sys, sparrow.cli.serve, sparrow.server.run, sparrow.server.server, sparrow.broker.broker\n"
        "found = [n for n in sys.modules if n.startswith(('sparrow.cluster', 'sparrow.server.cluster.'))"
        " or n in ('asyncpg', 'obstore', 'sparrow.server.cluster')]\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
