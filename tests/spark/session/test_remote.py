"""A missing Spark Connect server is reported at once: PySpark would try for minutes."""

from __future__ import annotations

import os
import socket

import pytest

import sparrow.spark
from sparrow.base.errors import ConnectionLost, InvalidArgument


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(
            ConnectionLost, match=f"no Spark Connect server can be reached at 127.0.0.1:{port}"
        ):
            sparrow.spark.session(remote=f"sc://127.0.0.1:{port}/;user_id=me")


@pytest.mark.parametrize(
    "remote", ["host:15002", "http://host", "sc://", "sc://host:port", "sc://host:99999"]
)
def test_invalid_address_of_a_server_is_refused(remote: str) -> None:
    with pytest.raises(InvalidArgument, match="write sc://host:15002"):
        sparrow.spark.session(remote=remote)
