"""Leases of a broker that is killed and restarted."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from sparrow.testing import broker as running_broker


def post(url: str, path: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}{path}", data, {"Content-Type": "application/json"}, method="POST"),
        timeout=10,
    ) as response:
        return json.loads(response.read())


@pytest.mark.slow
def test_a_lease_taken_before_a_kill_is_settled_by_its_token_after_it() -> None:
    with running_broker(process=True, http_port=0) as broker:
        post(broker.http, "/v1/queues", {"name": "q", "partitions": 1})
        post(broker.http, "/v1/queues/q/messages", {"messages": [{"value": "a"}, {"value": "b"}]})
        first, second = post(broker.http, "/v1/queues/q/lease?max=2")["messages"]
        assert post(broker.http, "/v1/queues/q/ack", {"leases": [first["lease"]]}) == {
            "leases": [{"ok": True}]
        }

        broker.kill()
        broker.restart()

        assert post(broker.http, "/v1/queues/q/lease?max=2")["messages"] == []
        nacked = {"leases": [second["lease"]], "delay_ms": 0}
        assert post(broker.http, "/v1/queues/q/nack", nacked) == {"leases": [{"ok": True}]}
        (again,) = post(broker.http, "/v1/queues/q/lease?max=2&wait_ms=5000")["messages"]
        assert (again["value"], again["delivery_count"]) == ("b", 2)
