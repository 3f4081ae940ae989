"""schemathesis over the whole OpenAPI document: no request meets a bug, and responses match the
document.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_queues.lease_calls import settle
from tests.native_frontend.raw import batch_of

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
SEED = "20261122"
SECONDS = 180
"""Far more than it takes; the number of requests is set by the number of examples."""


async def filled(http: Http) -> None:
    """Create things to find: a topic, a queue with messages and a dead letter, a user, a
    webhook.
    """
    broker = http.broker
    await broker.topics.create("orders", 2)
    await broker.queues.create("emails", partitions=2)
    for topic in ("orders", "emails"):
        await broker.records.publish(topic, 0, batch_of(*[b"%d" % n for n in range(50)], clock=broker.clock))
    await broker.groups.commit_offsets("orders", {("orders", 0): (7, "")})
    await broker.webhooks.put("emails", "orders", {"url": "https://example.org"})
    await http.post("/v1/users", b'{"name": "orders", "password": "x"}', content_type="application/json")
    leased = await http.post("/v1/queues/emails/lease?max=2")
    await settle(http, "reject", leased.json["messages"][0]["lease"], reason="broken")


async def campaign(http: Http, tmp_path: Path, *options: str) -> None:
    """Run schemathesis against a frontend; a failure shows its report."""
    running = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(Path(__file__).with_name("fuzz.toml")),
        "run",
        f"{http.url}/openapi.json",
        "--checks",
        ",".join(CHECKS),
        "--seed",
        SEED,
        "--exclude-path-regex",
        "(stream|events|connections/{number})$",  # streams never end, and this ends the fuzzer's own
        "--no-color",
        "--warnings",
        "off",
        *options,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
    )
    try:
        async with asyncio.timeout(SECONDS):
            report, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
    lines = [line[:300] for line in report.decode(errors="replace").splitlines()]
    assert running.returncode == 0, "\n".join(lines[-400:])


@pytest.mark.slow
async def test_the_api_survives_schemathesis_and_answers_as_its_document_says(
    make_http: MakeHttp, tmp_path: Path
) -> None:
    http = await make_http(max_wait_ms=20, config=BrokerConfig(super_users=frozenset({"User:ANONYMOUS"})))
    await filled(http)

    await campaign(http, tmp_path, "--phases", "coverage,fuzzing", "-n", "1")

    assert (await http.get("/readyz")).status == 200
