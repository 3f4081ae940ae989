"""A scrape of a working broker."""

from __future__ import annotations

import asyncio
import gc
import math
import re
from pathlib import Path
from time import thread_time

import pytest
from prometheus_client.metrics_core import Metric as Family

from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Operation, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.metrics import collector, table
from sparrow.broker.metrics.collector import Slices
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.publisher import Message
from sparrow.model.pipelines import Report
from sparrow.records.builder import build_batch
from tests.http_frontend.conftest import Http, MakeHttp
from tests.metrics.scrape import OPEN, parsed, scrape


async def publish(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    batch = build_batch([b"x" * 100] * count, timestamps=broker.clock.wall_ms())
    if broker.parts.topic_registry.find(topic) is None:
        await broker.topics.create(topic, 2)
    await broker.records.publish(topic, partition, batch)


# ── form ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_open", [False, True])
async def test_every_metric_of_the_table_has_help_and_type_and_no_other_is_there(
    http: Http, is_open: bool
) -> None:
    await publish(http.broker, "orders", 3)
    await http.broker.queues.create("jobs")
    found = await scrape(http, is_open=is_open)
    ours = {name: family for name, family in found.families.items() if name.startswith("sparrow_")}
    expected = {
        metric.name.removesuffix("_total") if metric.kind == table.COUNTER else metric.name: metric
        for metric in table.ALL
    }
    if is_open:
        expected = {name.removesuffix("_info"): metric for name, metric in expected.items()}
    assert ours.keys() == expected.keys()
    for name, metric in expected.items():
        family: Family = ours[name]
        kind = "gauge" if metric.kind == table.INFO and not is_open else metric.kind
        assert (family.type, family.documentation) == (kind, metric.text)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels)
    heads = re.findall(r"^# TYPE (\S+)", found.text, re.MULTILINE)
    assert len(heads) == len(set(heads))


async def test_the_format_is_that_which_is_accepted(http: Http) -> None:
    plain = await http.get("/metrics", accept="text/html, */*")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    opened = await http.get("/metrics", accept=f"{OPEN};q=0.9, text/plain;q=0.5")
    assert opened.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert opened.body.endswith(b"\n# EOF\n")
    assert opened.body.count(b"# EOF") == 1
    odd = await http.get("/metrics", accept="application/openmetrics-text; version=one; escaping=\xff")
    assert odd.status == 200


async def test_names_that_need_quoting_are_quoted(http: Http) -> None:
    name = 'a "quoted" \\ name\nwith a new line'
    await http.broker.topics.create("orders")
    await http.broker.queues.create("odd \u2603 queue", ["orders"], {"dead_letter_topic": "dead"})
    http.broker.measures.frontend(name, lambda: 1)
    for is_open in (False, True):
        found = await scrape(http, is_open=is_open)
        assert found.value("sparrow_connections", door=name) == 1
        assert found.values("sparrow_queue_paused", queue="odd \u2603 queue") == [0]


async def test_a_family_of_many_values_has_one_head(http: Http) -> None:
    for number in range(450):
        http.broker.measures.frontend("native", lambda: 0).observe(f"verb {number}", 0.01)
    found = await scrape(http, is_open=True)
    assert len(found.values("sparrow_request_seconds_count", door="native")) == 450
    assert found.text.count("# TYPE sparrow_request_seconds ") == 1


# ── values ────────────────────────────────────────────────────────────────────────────────────────


async def test_topics_show_traffic_and_stored_bytes(http: Http) -> None:
    await publish(http.broker, "orders", 30)
    await publish(http.broker, "orders", 12, partition=1)
    await http.broker.topics.create("idle", 3)
    await http.get("/v1/topics/orders/messages?partition=0&from=beginning")
    found = await scrape(http)

    log = [partition.log for partition in http.broker.parts.topic_registry.get("orders").partitions]
    assert found.value("sparrow_topics") == 2
    assert found.value("sparrow_topic_partitions", topic="orders") == 2
    assert found.value("sparrow_topic_messages_in_total", topic="orders") == 42
    assert found.value("sparrow_topic_bytes_in_total", topic="orders") == sum(each.size_bytes for each in log)
    assert found.value("sparrow_topic_size_bytes", topic="orders") == sum(each.size_bytes for each in log)
    assert found.value("sparrow_topic_messages_out_total", topic="orders") == 30
    assert found.value("sparrow_topic_bytes_out_total", topic="orders") == log[0].size_bytes
    assert found.value("sparrow_topic_messages", topic="orders") == 42
    assert found.value("sparrow_topic_messages", topic="idle") == 0
    assert not any(partition.is_open for partition in http.broker.parts.topic_registry.get("idle").partitions)


async def test_times_are_counted(http: Http) -> None:
    for _ in range(5):
        await publish(http.broker, "orders", 1)
    found = await scrape(http)
    assert found.value("sparrow_append_seconds_count") == 5
    assert found.value("sparrow_publish_seconds_count") == 5
    assert found.value("sparrow_publish_seconds_bucket", le="+Inf") == 5
    assert found.value("sparrow_publish_seconds_sum") > found.value("sparrow_append_seconds_sum") > 0
    assert 1 <= found.value("sparrow_sync_seconds_count") <= 5
    assert found.value("sparrow_meta_commit_seconds_count") >= 1
    assert found.value("sparrow_disk_free_bytes") > 0
    assert found.value("sparrow_disk_refuses") == 0
    assert found.value("sparrow_start_time_seconds") == http.broker.started_at_ms / 1000
    assert found.value("process_resident_memory_bytes") > 1 << 20


async def test_requests_are_counted_by_frontend_and_route(http: Http) -> None:
    await http.post("/v1/topics/orders/messages", b"x")
    await http.post("/v1/topics/orders/messages?acks=nonsense", b"x")
    await http.get("/v1/topics/missing-topic/messages/0/0")
    await http.get("/nowhere/at/all")
    await http.ask("BREW", "/v1/topics")
    found = await scrape(http)
    route = "POST /v1/topics/{topic}/messages"
    assert found.value("sparrow_request_seconds_count", door="http", request=route) == 2
    assert found.value("sparrow_request_failures_total", door="http", request=route) == 1
    assert found.value("sparrow_request_failures_total", door="http", request="other") >= 1
    assert all(
        "missing-topic" not in name and "BREW" not in name
        for name in found.labels("sparrow_request_seconds_count", "request")
    )
    assert found.value("sparrow_connections", door="http") >= 1


async def test_groups_show_how_far_behind_they_are(http: Http) -> None:
    await publish(http.broker, "orders", 30)
    await publish(http.broker, "orders", 12, partition=1)
    await http.broker.groups.commit_offsets("shop", {("orders", 0): (10, ""), ("orders", 1): (12, "")})
    found = await scrape(http)
    assert found.value("sparrow_group_lag", group="shop", topic="orders") == 20
    assert found.value("sparrow_group_members", group="shop") == 0
    assert sum(found.values("sparrow_groups", state="empty")) == 1
    assert found.values("sparrow_group_partition_lag") == []

    detailed = await scrape(http, "?detail=partitions")
    assert detailed.value("sparrow_group_partition_lag", topic="orders", partition="0") == 20
    assert detailed.value("sparrow_group_partition_offset", topic="orders", partition="1") == 12
    assert detailed.value("sparrow_partition_end_offset", topic="orders", partition="0") == 30
    assert detailed.value("sparrow_partition_start_offset", topic="orders", partition="1") == 0


async def test_queues_show_their_states_and_events(http: Http) -> None:
    broker = http.broker
    await broker.queues.create("jobs", policy={"subscribers": ["a", "b"]})
    await publish_to(broker, "jobs", 10)
    consumer = await broker.queues.open_consumer("jobs", subscriber="a")
    leased = await consumer.lease(4, wait_ms=1000)
    first = leased[0].ranges[0][0]
    await consumer.settle([Settlement(Verb.ACK, "jobs", 0, first, first)])
    found = await scrape(http)

    assert found.value("sparrow_queue_deliveries_total", queue="jobs") == 4
    assert found.value("sparrow_queue_acknowledged_total", queue="jobs") == 1
    assert found.value("sparrow_queue_consumers", queue="jobs") == 1
    assert found.value("sparrow_queue_unfinished_messages", queue="jobs") == 10
    assert found.value("sparrow_queue_subscriber_messages", queue="jobs", subscriber="a", state="leased") == 3
    assert found.value("sparrow_queue_subscriber_messages", queue="jobs", subscriber="b", state="ready") == 10
    statistics = broker.queues.describe("jobs").statistics
    for state in ("ready", "leased", "delayed", "blocked", "moving"):
        shown = found.value("sparrow_queue_messages", queue="jobs", state=state)
        assert shown == getattr(statistics, state)


async def test_webhooks_show_their_deliveries_and_their_state(http: Http) -> None:
    await http.broker.queues.create("jobs")
    await http.broker.webhooks.put("jobs", "shop", {"url": "https://shop.example/hook"})
    statistics = http.broker.parts.webhook_registry.statistics(("jobs", "shop"))
    statistics.delivered, statistics.failed, statistics.in_flight, statistics.seconds = 7, 2, 1, 0.5
    found = await scrape(http)
    assert found.value("sparrow_webhook_delivered_total", queue="jobs", endpoint="shop") == 7
    assert found.value("sparrow_webhook_failed_total", queue="jobs", endpoint="shop") == 2
    assert found.value("sparrow_webhook_in_flight", queue="jobs", endpoint="shop") == 1
    assert found.value("sparrow_webhook_seconds_total", queue="jobs", endpoint="shop") == 0.5
    assert found.value("sparrow_webhook_state", queue="jobs", endpoint="shop", state="waiting") == 1


async def publish_to(broker: Broker, topic: str, count: int) -> None:
    await broker.records.publish(topic, 0, build_batch([b"x"] * count, timestamps=broker.clock.wall_ms()))


async def test_counters_begin_at_zero_after_a_restart_and_sizes_do_not(
    make_http: MakeHttp, tmp_path: Path
) -> None:
    async with Broker(tmp_path / "data") as broker:
        await publish(broker, "orders", 7)
    async with Broker(tmp_path / "data") as broker:
        http = await make_http(broker=broker)
        found = await scrape(http)
        assert found.value("sparrow_topic_messages_in_total", topic="orders") == 0
        assert found.value("sparrow_topic_messages", topic="orders") == 7
        await publish(broker, "orders", 2)
        later = await scrape(http)
        assert later.value("sparrow_topic_messages_in_total", topic="orders") == 2
        await http.frontend.drain(1)


async def test_counters_only_grow(http: Http) -> None:
    before = await scrape(http)
    for _ in range(3):
        await publish(http.broker, "orders", 5)
        await http.get("/healthz")
        after = await scrape(http)
        for name, family in before.families.items():
            if family.type not in ("counter", "histogram"):
                continue
            now = {(s.name, *sorted(s.labels.items())): s.value for s in after.families[name].samples}
            for sample in family.samples:
                assert now[(sample.name, *sorted(sample.labels.items()))] >= sample.value
        before = after


# ── who sees what ─────────────────────────────────────────────────────────────────────────────────


def allow(kind: ResourceType, name: str, operation: Operation) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:monitor", "*", operation, Permission.ALLOW)


async def test_monitor_sees_only_describable_resources(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"monitor": "secret"})
    broker = http.broker
    await publish(broker, "open", 1)
    await publish(broker, "closed", 1)
    await broker.queues.create("open-jobs", ["open"])
    await broker.queues.create("closed-jobs", ["open"])
    rules = [
        allow(ResourceType.TOPIC, "open", Operation.DESCRIBE),
        allow(ResourceType.GROUP, "open-jobs", Operation.DESCRIBE),
    ]
    others = [
        AclBinding(kind, name, PatternType.LITERAL, "User:else", "*", Operation.ALL, Permission.ALLOW)
        for kind, name in [
            (ResourceType.TOPIC, "closed"),
            (ResourceType.GROUP, "closed-jobs"),
            (ResourceType.CLUSTER, "kafka-cluster"),
        ]
    ]
    await broker.acls.create([*rules, *others], principal=SYSTEM)
    assert (await http.get("/metrics")).status == 401
    refused = await http.get("/metrics", authorization="Bearer secret")
    assert (refused.status, refused.code) == (403, "NOT_AUTHORIZED")

    await broker.acls.create(
        [allow(ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE)], principal=SYSTEM
    )
    found = await scrape(http, authorization="Bearer secret")
    assert found.labels("sparrow_topic_partitions", "topic") == {"open"}
    assert found.labels("sparrow_queue_paused", "queue") == {"open-jobs"}
    assert found.value("sparrow_topics") == 1
    assert "closed" not in found.text


@pytest.mark.parametrize("query", ["?names=-1", "?names=many", "?detail=all", "?name=1", "?names=1&names=2"])
async def test_parameters_that_do_not_exist_are_refused(http: Http, query: str) -> None:
    assert (await http.get(f"/metrics{query}")).status == 400


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────


async def test_topics_behind_the_last_name_are_summed(http: Http) -> None:
    for name in "abcde":
        await publish(http.broker, name, 10)
        await http.broker.groups.commit_offsets(f"group-{name}", {(name, 0): (4, "")})
        await http.broker.queues.create(f"queue-{name}", [name], {"start": "beginning"})
    found = await scrape(http, "?names=2&detail=partitions", is_open=True)
    assert found.labels("sparrow_topic_messages_in_total", "topic") == {"a", "b", ""}
    assert found.value("sparrow_topic_messages_in_total", topic="") == 30
    assert found.value("sparrow_topic_messages_in_total", topic="b") == 10
    assert found.labels("sparrow_partition_end_offset", "topic") == {"a", "b"}
    assert found.value("sparrow_group_lag", group="", topic="") == 18
    assert found.value("sparrow_queue_unfinished_messages", queue="") == 30
    assert found.value("sparrow_queue_unfinished_messages", queue="queue-a") == 10


async def test_values_by_partition_have_a_limit(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_DETAILS", 5)
    await http.broker.topics.create("wide", 9)
    found = await scrape(http, "?detail=partitions")
    assert len(found.values("sparrow_partition_end_offset")) == 5


LONGEST_HOLD_SHARE = 20
"""Slices are of 2 ms, a hundredth or so of the whole on an idle machine; one value more takes less
than the rest.
"""


@pytest.mark.slow
async def test_a_scrape_of_ten_thousand_partitions_never_holds_the_loop_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparrow.frontends.http.exposition import Exposition

    longest = 0.0
    turns = 0

    async def watch() -> None:
        nonlocal longest, turns
        before = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            longest, before = max(longest, now - before), now
            turns += 1

    async with Broker(tmp_path / "data") as broker:
        for number in range(10):
            await broker.topics.create(f"wide-{number}", 1000)
        await broker.queues.create("jobs", [f"wide-{number}" for number in range(3)])
        offsets = {(f"wide-{number}", p): (0, "") for number in range(5) for p in range(1000)}
        await broker.groups.commit_offsets("group", offsets)
        exposition = Exposition()
        least_share = math.inf
        gc.collect()
        gc.disable()
        try:
            for _ in range(8):  # others use this machine, too
                watching = asyncio.create_task(watch())
                await asyncio.sleep(0)
                longest, begun = 0.0, thread_time()
                collected = await broker.metrics.collect(ANONYMOUS, by_partition=True)
                _, text = await exposition.write(collected, is_open=False)
                least_share = min(least_share, longest / (thread_time() - begun))
                watching.cancel()
                if least_share < 1 / LONGEST_HOLD_SHARE:
                    break
        finally:
            gc.enable()
    assert len(parsed(text.decode()).values("sparrow_partition_end_offset")) == 10_000
    assert turns > 50
    assert least_share < 1 / LONGEST_HOLD_SHARE


async def test_slices_let_others_go_first_when_they_are_over() -> None:
    slices = Slices(0.0)
    went = []
    other = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    other.add_done_callback(lambda _: went.append("other"))
    for _ in range(3):
        await slices.pause()
    assert went == ["other"]


async def test_a_topic_that_is_deleted_during_a_scrape_is_left_out(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await publish(http.broker, name, 1)
    names: list[str] = []

    async def delete_one(_: Slices) -> None:
        if not names:
            names.append("b")
            await http.broker.topics.delete("b")

    monkeypatch.setattr(Slices, "pause", delete_one)
    found = await http.broker.metrics.collect(ANONYMOUS)
    assert {labels[0] for labels in found[table.TOPIC_MESSAGES]} == {"a", "c"}


async def test_idempotency_keys_are_counted(http: Http) -> None:
    async with asyncio.timeout(10):
        while http.broker.idempotency.is_walking:
            await asyncio.sleep(0)
    from tests.http_idempotency.keyed import key_of

    await http.frontend.once.publish(key_of("a"), "orders", [Message(b"x")], principal=ANONYMOUS)
    assert (await scrape(http)).value("sparrow_idempotency_keys") == 1


async def test_pipelines_show_what_they_said_last(http: Http) -> None:
    said = Report("shop", "orders", state="running", rows=10, rows_per_second=2.5, batch_ms=80.0, lag=4)
    http.broker.pipelines.report(said)
    http.broker.pipelines.report(Report("shop", "idle"))
    found = await scrape(http)
    flow = {"pipeline": "shop", "flow": "orders"}
    assert found.value("sparrow_pipeline_rows_total", **flow) == 10
    assert found.value("sparrow_pipeline_rows_per_second", **flow) == 2.5
    assert found.value("sparrow_pipeline_batch_seconds", **flow) == 0.08
    assert found.value("sparrow_pipeline_lag", **flow) == 4
    assert found.value("sparrow_pipeline_state", **flow, state="running") == 1
    assert found.values("sparrow_pipeline_lag", pipeline="shop", flow="idle") == []
