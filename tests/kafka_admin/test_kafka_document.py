"""The tables and examples of docs/kafka.md match the frontend.

`python -m tests.kafka_admin.test_kafka_document` prints the correct table.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import sparrow.testing
from sparrow.broker.configs.node import NODE_CONFIGS
from sparrow.frontends.kafka.apis import APIS

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "kafka.md"
HEAD = "| key | API | versions | tests |\n|---|---|---|---|\n"

_ADMIN = "kafka_admin/test_admin_"
_CLIENTS = ("kafka_frontend/test_kafka_clients.py",)
_TOPICS = (
    f"{_ADMIN}with_confluent_kafka.py",
    f"{_ADMIN}with_kafka_python.py",
    f"{_ADMIN}with_aiokafka.py",
    f"{_ADMIN}topics.py",
)
_CONFIGS = (*_TOPICS[:3], f"{_ADMIN}configs.py")
_CLUSTER = (f"{_ADMIN}with_kafka_python.py", f"{_ADMIN}cluster.py")
_TRANSACTIONS = (
    "kafka_transactions/test_kafka_transaction_clients.py",
    "kafka_transactions/test_kafka_transaction_requests.py",
)
_ACLS = ("acls/test_acl_apis.py",)
_SASL = ("security/test_kafka_security.py", "security/test_sasl_frontend.py")
_GROUPS = ("kafka_groups/test_kafka_group_requests.py", f"{_ADMIN}of_groups.py")
_MEMBERS = (*_GROUPS[:1], "kafka_groups/test_kafka_groups_with_clients.py", *_GROUPS[1:])
_NEW_GROUPS = (
    "consumer_groups/test_consumer_groups_with_librdkafka.py",
    "consumer_groups/test_consumer_group_requests.py",
)

COVERED: dict[int, tuple[str, ...]] = {
    0: (*_CLIENTS, "kafka_frontend/test_kafka_produce.py"),
    1: (*_CLIENTS, "kafka_frontend/test_kafka_fetch.py"),
    2: (*_CLIENTS, "kafka_frontend/test_kafka_fetch.py"),
    3: (*_CLIENTS, "kafka_frontend/test_kafka_metadata.py"),
    **dict.fromkeys((8, 9, 10, 11, 12, 13, 14), (*_MEMBERS, _NEW_GROUPS[0])),
    **dict.fromkeys((15, 16, 42, 47), _GROUPS),
    17: _SASL,
    18: (*_CLIENTS, "kafka_frontend/test_kafka_connection.py"),
    **dict.fromkeys((19, 20, 21, 37), _TOPICS),
    **dict.fromkeys((22, 24, 25, 26, 28), _TRANSACTIONS),
    23: ("kafka_frontend/test_kafka_fetch.py",),
    **dict.fromkeys((29, 30, 31), _ACLS),
    **dict.fromkeys((32, 33, 44, 74), _CONFIGS),
    **dict.fromkeys((34, 35, 43, 45, 46, 55, 57, 60, 75), _CLUSTER),
    36: _SASL,
    **dict.fromkeys((48, 49), ("quotas/test_quota_apis.py",)),
    **dict.fromkeys((50, 51), _SASL),
    **dict.fromkeys((27, 61, 65, 66), _TRANSACTIONS[1:]),
    **dict.fromkeys((68, 69), _NEW_GROUPS),
    **dict.fromkeys((76, 77), ("share_groups/test_share_group_requests.py",)),
    **dict.fromkeys(
        (78, 79),
        (
            "share_fetch/test_share_fetch_requests.py",
            "share_fetch/test_share_consumers_of_librdkafka.py",
        ),
    ),
    **dict.fromkeys((90, 91, 92), ("share_groups/test_share_offsets_requests.py",)),
}
"""Tests of each API with clients, under tests/."""


def table() -> str:
    rows = []
    for key, api in sorted(APIS.items()):
        first = api.first if api.advertised_from is None else api.advertised_from
        versions = f"{first}" if first == api.last else f"{first} to {api.last}"
        if first != api.first:
            versions += f" ({first} to {api.first - 1} are refused)"
        tests = ", ".join(Path(name).stem.removeprefix("test_") for name in COVERED.get(key, ()))
        rows.append(f"| {key} | {api.name} | {versions} | {tests} |")
    return HEAD + "\n".join(rows) + "\n"


def test_table_of_apis_equals_that_of_the_frontend() -> None:
    text = DOCUMENT.read_text()
    documented = text[text.index(HEAD) : text.index("<!-- end -->")]
    assert documented == table(), "run python -m tests.kafka_admin.test_kafka_document"


def test_every_api_is_covered_by_tests_that_exist() -> None:
    assert set(COVERED) == set(APIS)
    missing = {name for names in COVERED.values() for name in names if not (ROOT / "tests" / name).exists()}
    assert not missing


def test_the_configurations_that_are_named_exist() -> None:
    section = DOCUMENT.read_text().split("## Configuration by Kafka's names")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z.]+)`", row)}
    assert named <= set(NODE_CONFIGS)


def test_the_examples_work() -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) == 3
    with sparrow.testing.broker() as broker:
        for example in examples:
            code = example.replace("localhost:9092", broker.kafka)
            done = subprocess.run(
                [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    text = DOCUMENT.read_text()
    start, end = text.index(HEAD), text.index("<!-- end -->")
    DOCUMENT.write_text(text[:start] + table() + text[end:])
