"""The example of a cluster: its files name options, services and metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparrow.base.settings import options_of
from sparrow.broker.metrics import table
from sparrow.cli import main
from sparrow.server.cluster_settings import check_cluster
from sparrow.server.config import ServerConfig, load

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster"
SUFFIXES = ("_bucket", "_count", "_sum")


@pytest.fixture
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yml").read_text())
    return found


def environment_of(service: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a service, with the values of `example.env`."""
    values = dict(line.split("=", 1) for line in (EXAMPLE / "example.env").read_text().split())

    def value(found: re.Match[str]) -> str:
        return values[found[1]]

    return {
        name: re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", value, text)
        for name, text in service["environment"].items()
    }


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
def test_the_brokers_have_options_that_there_are_and_make_a_cluster(
    compose: dict[str, Any], name: str
) -> None:
    broker = compose["services"][name]
    environment = environment_of(broker)
    known = {each.environment for each in options_of(ServerConfig)}
    assert {each for each in environment if each.startswith("SPARROW_")} <= known
    config, _ = load({}, environment)
    check_cluster(config.cluster)
    assert config.cluster.host == broker["hostname"] == name
    assert config.http_port == 9095
    assert config.cluster.location == "postgresql://postgres/sparrow, s3://sparrow/cluster"
    assert {"PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= environment.keys()
    host, port = config.kafka_advertised.split(":")
    assert broker["ports"] == [f"{host}:{port}:{config.kafka_port}"]


def test_services_and_files_of_the_example_fit_together(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (EXAMPLE / source).is_file()
    database = environment_of(services["postgres"])
    broker = environment_of(services["broker-a"])
    assert (
        broker["SPARROW_LEDGER"]
        == f"postgresql://{database['POSTGRES_USER']}@postgres/{database['POSTGRES_DB']}"
    )
    assert broker["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    store = environment_of(services["s3"])
    assert broker["AWS_SECRET_ACCESS_KEY"] == store["ROOT_SECRET_KEY"]
    assert "/data/sparrow" in services["bucket"]["command"]
    balancer = (EXAMPLE / "haproxy.cfg").read_text()
    servers = re.findall(r"server \w+ ([\w-]+):(\d+)", balancer)
    assert {host for host, _ in servers} == {"broker-a", "broker-b"}
    assert {f"127.0.0.1:{port}:{port}" for _, port in servers} == set(services["balancer"]["ports"])
    assert "httpchk GET /readyz" in balancer
    assert "check port 9095" in balancer
    assert "sparrow-broker[server,cluster]" in (EXAMPLE / "Dockerfile").read_text()


def test_alerts_name_metrics_that_there_are() -> None:
    known = {each.name for each in vars(table).values() if isinstance(each, table.Metric)}
    rules = [
        rule
        for group in yaml.safe_load((EXAMPLE / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    used = set()
    for rule in rules:
        names = re.findall(r"\bsparrow_\w+", rule["expr"])
        assert names, rule
        used |= {next((n.removesuffix(s) for s in SUFFIXES if n.endswith(s)), n) for n in names}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert used <= known, used - known
    cluster = {name for name in known if name.startswith("sparrow_cluster_")}
    assert len(used & cluster) >= 6


def test_commands_of_the_example_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(
        r"^(?:docker compose exec \S+ )?sparrow (.*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE
    )
    assert len(lines) >= 5
    for line in lines:
        words = line.split('"')[0].split()
        command = words[:2] if words[0] == "cluster" else words[:1]
        assert main([*command, "--help"]) == 0
        assert "Usage: sparrow" in capsys.readouterr().out
