"""URLs with several hosts of which the first is away: blocking client, Spark and command line; the
asyncio client is in test_client_session.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.cli import main
from sparrow.spark.options.connection import target_of
from sparrow.spark.options.source import read_source_options
from sparrow.spark.wire.connection import open_connection


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[str, str]]:
    """Yield the URL of two hosts of which the first refuses connections, and the second one's
    host:port.
    """
    with sparrow.testing.broker() as broker, socket.socket() as away:
        away.bind(("127.0.0.1", 0))  # and nobody listens
        yield (
            f"sparrow://127.0.0.1:{away.getsockname()[1]},{broker.host}:{broker.port}",
            f"{broker.host}:{broker.port}",
        )


def test_the_blocking_client_goes_to_the_second_host(hosts: tuple[str, str]) -> None:
    url, _ = hosts
    with sparrow.sync.connect(url) as client:
        assert client.publish("by-sync", b"value").offset == 0
        assert "by-sync" in {topic.name for topic in client.admin.list_topics()}


@pytest.mark.parametrize("option", ["url", "kafka.bootstrap.servers"])
def test_spark_goes_to_the_second_host(hosts: tuple[str, str], option: str) -> None:
    url, second = hosts
    text = url if option == "url" else url.rpartition("://")[2]
    target = target_of(read_source_options({option: text, "subscribe": "orders"}))
    assert [str(each) for each in target.address.brokers()][1:] == [second]
    connection = open_connection(target)
    assert str(connection.address) == second
    connection.close()


def test_the_command_line_goes_to_the_second_host(
    hosts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    url, _ = hosts
    assert main(["topic", "create", "by-command", "--url", url]) == 0
    capsys.readouterr()
    assert main(["topic", "list", "--url", url]) == 0
    assert "by-command" in capsys.readouterr().out
