"""Valid settings of an endpoint, and its stored form."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparrow.base.errors import DirectoryUnreadable, InvalidConfig, NewerFormat
from sparrow.broker.access.authz import Principal
from sparrow.broker.webhooks import persistence
from sparrow.broker.webhooks.endpoint import (
    DEFAULTS,
    Endpoint,
    Secret,
    check_secrets,
    make_secret,
    new_settings,
)
from sparrow.meta.store import Entry

URL = "https://example.org/hook?a=b"
SECRET = make_secret(bytes(range(32)))


@pytest.mark.parametrize(
    "url",
    ["https://example.org", "http://example.org:8080/a/b?c=d%20e", "https://[2001:db8::1]/x",
    "http://xn--bcher-kva.example/", "http://a_b.example./"],
)  # fmt: skip
def test_a_plain_url_is_taken_as_it_is(url: str) -> None:
    assert new_settings({"url": url}).url == url


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org/", "file:///etc/passwd", "gopher://x/", "http://",
        "http:///path", "//example.org/",
        "http://user@example.org/", "http://user:pass@example.org/", "http://example.org/#part",
        "http://exa mple.org/",
        ("http://example.org/\r\nX: "
        "y"), "http://example.org\\@evil.example/", "http://example.org:0/", "http://example.org:99999/",
        "http://example.org:x/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/",
        "http://127.1/", "http://1.2.3/",
        "http://0x7f000001/", "http://127.0.0.1./", "http://[::1", "http://bücher.example/",
        "http://-a.example/", "http://a..b/",
        "http://" + "a" * 300 + "/", "http://example.org/" + "a" * 3000, 7, None, "http://[v1.a]/",
        "http://①②⑦.⓪.⓪.①/",
    ],
)  # fmt: skip
def test_invalid_url_is_refused(url: Any) -> None:
    with pytest.raises(InvalidConfig, match="url"):
        new_settings({"url": url})


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_clear_error(text: str) -> None:
    for url in (text, f"http://{text}", f"http://example.org{text}"):
        assert outcome_of(url) in (url, "refused")


def outcome_of(url: str) -> str:
    """Return the URL, or "refused" if the error names the setting."""
    try:
        return new_settings({"url": url}).url
    except InvalidConfig as error:
        return "refused" if error.text.startswith("url ") else error.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "red"), ("format", "xml"), ("accept", "maybe"), ("concurrency", 0), ("concurrency",
        1 << 70), ("concurrency", True),
        ("rate", -1), ("rate", float("nan")), ("rate", float("inf")), ("rate", "x"), ("rate", []),
        ("timeout_ms", 1), ("pause_after", 0),
        ("backoff_ms", -1), ("backoff_jitter", 1.1), ("headers", "x"), ("headers", [[["a"], "b"]]),
        ("headers", [[{}, "b"]]), ("headers", {"a b": "c"}), ("headers", {"x": "a\r\nb: c"}),
        ("headers", {"Host": "x"}), ("headers", {"Webhook-Id": "x"}), ("headers", {"Sparrow-Topic": "x"}),
        ("headers", {"x": "é"}),
        ("headers", {"x": 1}), ("headers", {1: "x"}), ("headers", {f"x{n}": "y" for n in range(99)}),
        ("headers", {"x": " y"}),
    ],
)  # fmt: skip
def test_a_setting_out_of_its_limits_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=name):
        new_settings({"url": URL, name: value})


def test_none_takes_a_setting_back_to_its_default() -> None:
    settings = new_settings({"url": URL, "concurrency": 3, "headers": {"X-A": "b"}, "backoff_ms": 5})
    assert settings.headers == (("X-A", "b"),)
    back = settings.changed({"concurrency": None, "headers": None, "backoff_ms": None})
    assert back == new_settings({"url": URL})
    assert settings.changed(settings.values()) == settings


def test_without_a_url_there_is_no_endpoint() -> None:
    with pytest.raises(InvalidConfig, match="needs a url"):
        new_settings({"format": "json"})


def test_the_delay_doubles_up_to_its_limit() -> None:
    settings = new_settings({"url": URL, "backoff_ms": 100, "backoff_max_ms": 500})
    assert [settings.backoff_after(count, 0) for count in (1, 2, 3, 4, 200)] == [100, 200, 400, 500, 500]
    assert settings.backoff_after(1, 1) == 120
    assert new_settings({"url": URL}).backoff_after(1, 0) == 1000


@pytest.mark.parametrize(
    "value", ["whsec_", "whsec_AAAA", SECRET.replace("whsec_", ""), SECRET + "!", 7, [SECRET] * 6, [None],
    "whsec_" + "A" * 400]
)  # fmt: skip
def test_invalid_secret_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(InvalidConfig, match="secret") as raised:
        check_secrets(value)
    assert SECRET.removeprefix("whsec_") not in raised.value.text


def endpoint(**settings: Any) -> Endpoint:
    return Endpoint(
        "a/queue",
        "hook",
        uuid.UUID(int=7),
        new_settings({"url": URL, **settings}),
        (Secret(SECRET, 99), Secret(make_secret(b"x" * 24))),
        Principal("alice", "User", "10.0.0.1"),
        created_ms=5,
    )


CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "format": st.sampled_from(["raw", "json", "cloudevents", "cloudevents-binary", "syncbrok"]),
    "accept": st.sampled_from(["2xx", "body-true"]),
    "headers": st.dictionaries(
        st.sampled_from(["X-A", "X-B", "Authorization"]), st.sampled_from(["", "a b", "~"])
    ),
    "concurrency": st.integers(1, 256),
    "rate": st.floats(0, 1e6),
    "timeout_ms": st.integers(100, 600_000),
    "backoff_ms": st.none() | st.integers(0, 86_400_000),
    "backoff_max_ms": st.integers(0, 86_400_000),
    "backoff_jitter": st.floats(0, 1),
    "pause_after": st.integers(1, 1_000_000),
}


def test_every_setting_is_tried_below() -> None:
    assert set(CHOICES) == set(DEFAULTS)


@given(st.fixed_dictionaries({}, optional=CHOICES))
def test_an_endpoint_is_the_same_after_it_was_stored(settings: dict[str, Any]) -> None:
    made = replace(endpoint(**settings), is_trusted=True, is_paused=True, paused_because="gone")
    put = persistence.entry_of(made)
    assert put.key == "a/queue/hook"
    found = persistence.decode(Entry(put.kind, put.key, put.value, 1))
    assert found == made
    assert found.owner.host == "10.0.0.1"


def test_a_stored_endpoint_of_today_is_read_for_ever() -> None:
    value = bytes.fromhex(
        "9901c4100000000000000000000000000000000783a375726cb268747470733a2f2f612e6578616d706c652fa76865616465"
        "727381a3582d41a162ab636f6e63757272656e6379039192d92677687365635f414141414141414141414141414141414141"
        "41414141414141414141414141416393a455736572a5616c696365a33a3a31c3c3a4676f6e6505"
    )
    found = persistence.decode(Entry("webhook", "q/h", value, 1))
    assert (found.queue, found.name, found.settings.concurrency) == ("q", "h", 3)
    assert (found.settings.url, found.settings.headers) == ("https://a.example/", (("X-A", "b"),))
    assert (found.owner, found.owner.host) == (Principal("alice"), "::1")
    assert found.secrets == (Secret(make_secret(bytes(24)), 99),)
    assert (found.is_trusted, found.is_paused, found.paused_because, found.created_ms) == (
        True,
        True,
        "gone",
        5,
    )


def test_unreadable_records_are_reported() -> None:
    put = persistence.entry_of(endpoint())
    with pytest.raises(DirectoryUnreadable, match="a/queue/hook"):
        persistence.decode(Entry(put.kind, put.key, put.value[:-3], 1))
    with pytest.raises(NewerFormat):
        persistence.decode(Entry(put.kind, put.key, put.value.replace(b"\x99\x01", b"\x99\x02", 1), 1))
