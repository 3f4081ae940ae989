"""Messages about options of `sparrow queue`, before a broker is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.base.queue_policy import WORDS, QueuePolicy, known
from sparrow.base.units import format_duration, parse_duration_ms
from sparrow.cli.queue_policy import OPTIONS, help_of, parse_policy, policy_rows
from sparrow.cli.redrive import parse_where

NOT_OPTIONS = {"subscribers", "isolation"}
"""The first has an option that repeats; the second is of share groups."""


def test_every_setting_has_an_option():
    assert set(OPTIONS) == set(WORDS) - NOT_OPTIONS


def test_help_tells_the_defaults():
    policy = dict(policy_rows(QueuePolicy().settings()))
    policy["dead_letter_topic"] = "QUEUE.dead"
    policy["jitter"] = "0"
    for word, setting in OPTIONS.items():
        assert help_of(setting).endswith(f"[{policy[word]}]"), word


def test_durations_times_and_names_become_settings():
    assert parse_policy(
        lease="1m30s",
        start="2026-05-01T12:00:00Z",
        delivery_limit="3",
        subscriber=["a", "b"],
        setting=["expiry_ms=1d", "prefetch=7", "backoff_delay=2s"],
    ) == {
        "lease_ms": 90_000,
        "start": "timestamp:1777636800000",
        "delivery_limit": "3",
        "subscribers": ["a", "b"],
        "expiry_ms": 86_400_000,
        "backoff_ms": 2000,
        "prefetch": "7",
    }


def test_omitted_options_are_not_set():
    assert parse_policy(lease=None, no_dead_letters=False, subscriber=None, setting=None) == {}


def test_no_dead_letters_is_null_to_the_broker():
    settings = parse_policy(no_dead_letters=True)
    assert QueuePolicy().changed(settings).dead_letters_of("q") is None


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        ({"lease": "soon"}, InvalidConfig, "lease cannot be 'soon'"),
        ({"order": "keys"}, InvalidConfig, "order cannot be 'keys'; it takes one of .*; did you mean 'key'?"),
        ({"setting": ["leese=1s"]}, InvalidConfig, "no setting 'leese'; did you mean 'lease'?"),
        ({"lease": "1s", "setting": ["lease_ms=2s"]}, typer.BadParameter, "twice"),
        ({"start": "yesterday"}, InvalidConfig, "ISO 8601"),
        ({"setting": ["lease_ms"]}, typer.BadParameter, "is not NAME=VALUE"),
        ({"setting": ["=5"]}, typer.BadParameter, "is not NAME=VALUE"),
        ({"lease": "1s", "setting": ["lease=2s"]}, typer.BadParameter, "twice"),
        ({"dead_letter_topic": "t", "no_dead_letters": True}, typer.BadParameter, "twice"),
        ({"subscriber": ["a"], "setting": ["subscribers=b"]}, typer.BadParameter, "twice"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(said, error, text):
    with pytest.raises(error, match=text):
        parse_policy(**said)


settings = st.fixed_dictionaries(
    {},
    optional={
        "lease_ms": st.integers(100, 43_200_000),
        "delivery_limit": st.integers(0, 250),
        "backoff": st.sampled_from(["fixed", "linear", "exponential"]),
        "backoff_ms": st.integers(0, 86_400_000),
        "backoff_jitter": st.floats(0, 1),
        "order": st.sampled_from(["none", "key", "parented"]),
        "start": st.sampled_from(["beginning", "end", "timestamp:1777636800000"]),
        "subscribers": st.lists(st.sampled_from("abc"), unique=True, min_size=1),
    },
)


@given(settings)
def test_a_policy_in_words_is_read_back_as_the_same(given):
    policy = QueuePolicy().changed(given)
    rows = dict(policy_rows(policy.settings()))
    words = [f"{known(name).word}={rows[known(name).word].replace(', ', ',')}" for name in given]
    assert QueuePolicy().changed(parse_policy(setting=words)) == policy


@given(st.integers(0, 10**13))
def test_a_duration_in_words_is_read_back_exactly(duration_ms):
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0s"),
        (30_000, "30s"),
        (600_000, "10m"),
        (5_400_000, "1h30m"),
        (2500, "2s500ms"),
        (86_400_000, "1d"),
    ],
)
def test_durations_are_written_as_people_do(duration_ms, words):
    assert format_duration(duration_ms) == words


def test_conditions_of_a_redrive_are_read():
    assert parse_where(
        [
            "reason=rejected",
            "topic=t",
            "partition=3",
            "key=k=1",
            "error~no such = address",
            "since=2026-05-01",
        ]
    ) == {
        "reason": "REJECTED",
        "topic": "t",
        "partition": 3,
        "key": b"k=1",
        "error_contains": "no such = address",
        "since": datetime(2026, 5, 1, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["colour=red"], "is none of reason="),
        (["reason"], "is none of"),
        (["reason="], "is none of"),
        (["partition=one"], "invalid literal"),
        (["since=yesterday"], "ISO 8601"),
        (["since=9999999999999999999"], "out of range"),
        (["topic=a", "topic=b"], "given already"),
    ],
)
def test_wrong_conditions_are_refused_with_the_reason(texts, message):
    with pytest.raises(typer.BadParameter, match=message):
        parse_where(texts)
