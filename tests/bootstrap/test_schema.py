"""The JSON Schema of the file accepts every valid file, and knows every key. Randomly changed files
are read or refused, and nothing else happens.
"""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import options_of
from sparrow.server.bootstrap.schema import file_schema
from sparrow.server.config import ServerConfig, load
from tests.repetitions import repetitions

SCHEMA = file_schema()
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"
RICH: dict[str, Any] = {
    "data_dir": "data",
    "native": {"host": "localhost", "port": 9094, "login": "auto", "tls": True},
    "kafka": {
        "port": "off",
        "sasl": False,
        "listeners": [
            {"name": "inner", "port": 1},
            {"name": "outer", "port": 2, "host": "::1", "sasl": None, "tls": False},
        ],
    },
    "http": {"port": 0, "cors_origins": ["https://a.example.org"], "max_body": "1 MiB", "body_timeout": 5000},
    "webhooks": {"allow": ["10.0.0.0/8", "private"], "max_connections": 5},
    "seeds": {"all": False, "msbq": {"port": 5671}, "messagebroker": {"ack_timeout": "1s"}},
    "tokens": {"ann": "a", "bob": 5},
    "users": ["carl=pencil-2B"],
    "super_users": ["ann"],
    "acl": {"default": "deny"},
    "default_topic_config": {"retention.ms": "1d", "preallocate": True},
    "topics": {
        "audit": None,
        "orders": {"partitions": "8", "config": {"retention.ms": "7d", "segment.bytes": 5000}},
    },
    "queues": {
        "emails": {
            "topics": "emails",
            "partitions": 4,
            "policy": {
                "lease": "30s",
                "delivery_limit": 3,
                "backoff": "linear",
                "jitter": 0.5,
                "dead_letter_topic": None,
            },
            "subscribers": {
                "billing": "https://example.org/hook",
                "audit": {
                    "url": "http://audit.example.org",
                    "format": "cloudevents",
                    "secret": SECRET,
                    "rate": 1.5,
                    "headers": {"a": "b"},
                },
                "native": None,
            },
        },
        "jobs": {
            "webhooks": [{"name": "x", "url": "http://x", "timeout": "5s", "trusted": True, "accept": None}]
        },
        "empty": None,
    },
    "acls": [{"principal": "ann", "operations": "read,write", "topic": "orders", "deny": True}],
    "pipelines": None,
    "groups": {"migration": "upgrade"},
    "log": {"level": "info"},
    "insecure_public_listen": "",
    "insecure_clear_passwords": "passwords in clear",
}
ODD: list[Any] = [
    None, True, False, 0, -1, 7, 2**70, 0.5, "", "x", "off", "5s", "8", "http://h", "a=b",
    [], [1], ["x"], [["x", "y"]], {}, {"x": 1},
    {"name": "x"}, {"x": None}, {"url": "http://h"}, [None], [{"name": "x"}], {"x": {"y": 1}},
]  # fmt: skip
NAMES = sorted(
    {part for each in options_of(ServerConfig) for part in each.key.split(".")}
    | set(re.findall(r'"(\w+)": \{', json.dumps(SCHEMA)))
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema") / "sparrow.yml"


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for name, inner in parts:
        found += [(*path, name), *places_in(inner, (*path, name))]
    return found


def mutate(document: Any, dice: random.Random) -> None:
    """Change one part: replace, rename, remove or add it."""
    *outer, last = dice.choice(places_in(document) or [("x",)])
    at = document
    for name in outer:
        at = at[name]
    if not isinstance(at, dict | list) or (isinstance(at, dict) and last not in at):
        return
    match dice.randrange(4):
        case 0:
            at[last] = copy.deepcopy(dice.choice(ODD))
        case 1 if isinstance(at, dict):
            at[dice.choice(NAMES)] = at.pop(last)
        case 2:
            del at[last]
        case _ if isinstance(at, dict):
            at[dice.choice(NAMES)] = copy.deepcopy(dice.choice(ODD))


def is_taken(path: Path, text: str) -> bool:
    """Return True if the broker accepts a file; each line of a refusal must have its location."""
    path.write_text(text)
    try:
        load({"config": str(path)}, {})
    except InvalidConfig as error:
        for line in error.text.splitlines():
            assert re.match(rf"{re.escape(str(path))}:\d+: .", line), line
        return False
    return True


def test_every_option_and_the_rich_file_are_in_the_schema(path):
    for each in options_of(ServerConfig):
        at = SCHEMA
        for name in each.key.split("."):
            at = at["properties"][name]
        assert at["description"].startswith(each.help)
        assert set(at) - {"description"}, each.key
    assert is_taken(path, yaml.safe_dump(RICH))
    assert VALIDATOR.is_valid(RICH)
    for wrong in ({"nativ": {}}, {"native": {"port": []}}, {"queues": {"a": {"lease": 5}}}, {"topics": [{}]}):
        assert not VALIDATOR.is_valid(wrong)


@pytest.mark.slow
@settings(max_examples=repetitions(120), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_schema_accepts_valid_files_and_mutated_files_are_refused_with_a_line(path, seed, changes):
    dice = random.Random(seed)
    document = copy.deepcopy(RICH)
    for name in dice.sample(sorted(document), dice.randrange(len(document))):
        del document[name]
    for _ in range(changes):
        mutate(document, dice)
    text = yaml.safe_dump(document, sort_keys=False)
    if is_taken(path, text):
        VALIDATOR.validate(yaml.safe_load(text))


@pytest.mark.slow
@settings(max_examples=repetitions(120), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_file_with_damaged_text_is_read_or_refused_with_a_line(path, seed, changes):
    dice = random.Random(seed)
    lines = yaml.safe_dump(RICH, sort_keys=False).splitlines()
    for _ in range(changes):
        index = dice.randrange(len(lines))
        line = lines[index]
        at = dice.randrange(len(line) + 1)
        match dice.randrange(5):
            case 0:
                lines[index] = line[:at] + dice.choice(":-{}[]'\"#&*!|>%@`,? \t\x85é\u2028") + line[at:]
            case 1:
                lines[index] = line[:at] + line[at + 1 :]
            case 2:
                lines[index] = lines[dice.randrange(len(lines))]
            case 3:
                lines.insert(index, line)
            case _:
                lines[index] = " " * dice.randrange(6) + line.strip()
    is_taken(path, "\n".join(lines))
