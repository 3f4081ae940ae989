"""A broker with something of everything, and the calls with which tests put more into it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sparrow.sync
from sparrow.testing.running_broker import RunningBroker

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
"""Text that must stay text."""
MESSAGES = 120
JOBS = 40
REJECTED = {"no such customer": 8, f"timeout {SCRIPT}": 4}
"""Dead letters of the queue `jobs`, by error."""


@dataclass
class Api:
    """The HTTP API of a broker, as one principal or none."""

    broker: RunningBroker
    token: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.broker.http.rstrip("/")

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return status, content and headers."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, method=method)
        if content is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        for name, value in {**self.headers, **(headers or {})}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, _content(response.read()), dict(response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _content(error.read()), dict(error.headers)

    def get(self, path: str) -> Any:
        status, content, _ = self.call("GET", path)
        assert status == 200, content
        return content

    def post(self, path: str, body: object) -> Any:
        status, content, _ = self.call("POST", path, body)
        assert status < 300, content
        return content

    def publish(self, topic: str, *messages: Mapping[str, object]) -> Any:
        kind = {"Content-Type": "application/vnd.sparrow.messages+json"}
        return self.call("POST", f"/v1/topics/{topic}/messages", {"messages": messages}, kind)[1]


def _content(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def fill(broker: RunningBroker, token: str = "", *, text: str = SCRIPT) -> None:
    """Put something of everything into a broker; `text` is in all that people write."""
    api = Api(broker, token)
    api.post("/v1/topics", {"name": "orders", "partitions": 3})
    orders = [
        {
            "key": f"customer-{i % 7}",
            "value": json.dumps({"order": i, "note": text if i % 50 == 0 else "fine"}),
            "headers": [["content-type", "application/json"], ["trace", f"t{i}"]],
        }
        for i in range(MESSAGES)
    ]
    api.publish("orders", *orders)
    api.publish(
        "orders",
        {"key": "gone", "value": None},
        {"key_base64": "/wA=", "value_base64": "AAECA//+", "headers": [["raw", {"base64": "/w=="}]]},
        {"key": text, "value": text, "headers": [[text, text]]},
        {"key": "large", "value": "x" * (1 << 19)},
    )
    api.post("/v1/topics", {"name": "events", "partitions": 1})
    for name, policy in (("jobs", {}), ("emails", {}), ("family", {"order": "parented"})):
        api.post("/v1/queues", {"name": name, "partitions": 1, "policy": policy})
    api.publish("jobs", *({"value": f"job {i}"} for i in range(JOBS)))
    api.publish(
        "family",
        {"value": "parent", "message_id": "p1"},
        {"value": "child", "message_id": "c1", "parents": ["p1"]},
        {"value": "grandchild", "message_id": "g1", "parents": ["c1"]},
    )
    with sparrow.sync.connect(broker.url, **({"token": token} if token else {})) as client:
        with client.queue("jobs") as queue:
            for error, count in REJECTED.items():
                for job in queue.lease(count):
                    job.reject(error.replace(SCRIPT, text))
        client.admin.commit("billing", {("orders", 0): 3, ("orders", 1): 5, ("orders", 2): 1})
    hook = {"url": "http://127.0.0.1:9/nobody", "timeout": "1s"}
    assert api.call("PUT", "/v1/queues/emails/subscribers/hook", hook)[0] == 200


def report_pipeline(broker: RunningBroker, token: str = "", *, text: str = SCRIPT) -> None:
    """Report a pipeline with two flows, one of which failed."""
    with sparrow.sync.connect(broker.url, **({"token": token} if token else {})) as client:
        admin = client.admin._inner
        for flow, state, error in (("clean", "running", ""), ("load", "failed", f"no table {text}")):
            report = {
                "name": "shop",
                "flow": flow,
                "run": "r1",
                "state": state,
                "rows": 1200,
                "rows_per_second": 42.5,
                "batch_ms": 80.0,
                "lag": 7,
                "batch": 3,
                "refused": 3 if flow == "clean" else 0,
                "error": error,
                "sources": ["orders"],
                "target": "warehouse.orders",
            }
            client._background.run(admin._change("pipeline.report", report))
