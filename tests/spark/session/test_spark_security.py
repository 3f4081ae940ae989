"""TLS, passwords and tokens, for reading and writing; errors are one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrow.sync
import sparrow.testing
from tests.security.certificates import Certificates, make_certificates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.testing.running_broker import RunningBroker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_broker(certificates: Certificates) -> Iterator[RunningBroker]:
    with sparrow.testing.broker(
        tls_certificate=certificates.server.certificate,
        tls_key=certificates.server.key,
        users={"ann": "pencil-2B"},
        tokens={"bob": "b-token"},
        super_users="User:ann;User:bob",
    ) as broker:
        ann = {"ca_file": certificates.ca, "user": "ann", "password": "pencil-2B"}
        with sparrow.sync.connect(broker.url, **ann) as client:
            client.publish("orders", b"1")
        yield broker


def _read(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("sparrow").option("subscribe", "orders").options(**options).load()


def _logins(broker: RunningBroker, certificates: Certificates, folder: Path) -> list[dict[str, str]]:
    secret = folder / "secret"
    secret.write_text("pencil-2B\n")
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="pencil-2B";'
    )
    return [
        {"url": broker.url, "caFile": certificates.ca, "user": "ann", "passwordFile": str(secret)},
        {"url": broker.url, "caFile": certificates.ca, "token": "b-token"},
        {"url": broker.url.replace("://", "://ann:pencil-2B@"), "ca_file": certificates.ca},
        {
            "kafka.bootstrap.servers": broker.url.rpartition("/")[2],
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": certificates.ca,
        },
    ]


def test_every_way_to_log_in_reads_and_writes_over_tls(
    spark: SparkSession, tls_broker: RunningBroker, certificates: Certificates, tmp_path: Path
) -> None:
    for number, login in enumerate(_logins(tls_broker, certificates, tmp_path)):
        assert [row.value for row in _read(spark, **login).select("value").collect()] == [b"1"]
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("sparrow").mode("append").option("topic", f"copy{number}").options(**login).save()
        assert _read(spark, **{**login, "subscribe": f"copy{number}"}).count() == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"user": "ann", "password": "pen"}, "Invalid username or password"),
        ({"token": "c-token"}, "token"),
        ({"user": "ann", "password": "pencil-2B", "caFile": ""}, "cannot be trusted"),
        ({"user": "ann", "password": "pencil-2B", "caFile": "/no/such/ca.pem"}, "/no/such/ca.pem"),
        ({"url": "sparrows://127.0.0.1:1", "retries": "0"}, "127.0.0.1:1"),
        ({"url": "kafka://127.0.0.1"}, "its scheme is 'kafka'"),
        ({"user": "ann"}, "Invalid username or password"),
    ],
)
def test_wrong_connection_is_one_clear_line(
    spark: SparkSession,
    tls_broker: RunningBroker,
    certificates: Certificates,
    wrong: dict[str, str],
    said: str,
) -> None:
    options = {"url": tls_broker.url, "caFile": certificates.ca, "connectTimeout": "2s", **wrong}
    if not options["caFile"]:
        del options["caFile"]
    with pytest.raises(Exception, match=r"\w") as caught:  # AnalysisException or the error of a task
        _read(spark, **options).collect()
    sentences = str(caught.value).split("JVM stacktrace")[0]
    assert said in sentences
    assert "Traceback" not in sentences
    assert json.dumps(options.get("password", "pencil-2B")) not in sentences
