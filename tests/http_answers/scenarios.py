"""The requests whose responses are recorded: every route with what it accepts and refuses.

A scenario has a broker of its own. Most requests are derived: `faults` sends a body with each of
its members replaced by values of other types and sizes, missing, and beside a surplus one;
`strange` does the same with a parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from sparrow.broker.config import BrokerConfig
from tests.http_answers.recording import Ask, Scenario

LONG = "x" * 20_000
NAME = "n" * 300
STRANGE: list[Any] = [None, True, -1, 1.5, 2.0, 1 << 70, "", "3", "x y", LONG, [], [None], {}, {"a": 1}]
"""Values for members of bodies."""
TEXTS = ["", "x", "-1", "0", "1.5", "2.0", "%201", "true", "1e3", "9" * 30, "%FF", "%ED%A0%80", "n" * 300]
"""Values for parameters."""
NOT_JSON = [b"", b"{", b"[", b"nothing", b'{"a": NaN}', b'{"a": 1,}', b'"\xff"', b'"\\ud800"', b'{"a": 1} x']
Q, T, G = "/v1/queues/emails", "/v1/topics/orders", "/v1/groups/readers"
S = f"{Q}/subscribers"


def get(target: str, **headers: str) -> Ask:
    return Ask("GET", target, headers=_pairs(headers))


def post(target: str, body: Any = b"", **headers: str) -> Ask:
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    return Ask("POST", target, body, kind, _pairs(headers))


def _pairs(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in headers.items())


# ── derived requests ──────────────────────────────────────────────────────────────────────────────


def faults(method: str, target: str, sample: dict[str, Any]) -> list[Ask]:
    """Return requests with everything that may be wrong with a body, one at a time, and some with
    several faults.
    """
    return [
        Ask(method, target),
        *(Ask(method, target, content) for content in NOT_JSON),
        *(Ask(method, target, value) for value in (None, True, 3, "x", [], [sample], {})),
        Ask(method, target, sample, kind="text/plain"),
        Ask(method, target, sample, kind=""),
        Ask(method, target, sample, kind="application/problem+json; charset=utf-8"),
        Ask(method, target, b"", kind="text/plain"),
        Ask(method, target, b" " * ((1 << 20) + 1)),
        Ask(method, f"{target}?surplus=1", sample),
        Ask(method, target, {**sample, "surplus": 1, "more": [], NAME: 0}),
        Ask(method, target, {key: [{}] for key in sample}),
        *(Ask(method, target, body) for body in _changed(sample)),
    ]


def _changed(sample: Any) -> Iterator[Any]:
    """Yield copies of a body, each changed at one point."""
    for path in _paths(sample):
        *parents, last = path
        for value in STRANGE:
            body = copy.deepcopy(sample)
            _at(body, parents)[last] = value
            yield body
        body = copy.deepcopy(sample)
        del _at(body, parents)[last]
        yield body
        if isinstance(_at(sample, path), dict):
            body = copy.deepcopy(sample)
            _at(body, path).update(surplus=1)
            yield body


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in pairs:
        yield (*before, name)
        yield from _paths(each, (*before, name))


def _at(value: Any, path: Any) -> Any:
    for name in path:
        value = value[name]
    return value


def strange(method: str, target: str, *names: str, texts: list[str] = TEXTS) -> list[Ask]:
    """Return requests with strange values of parameters, one at a time, one twice, and unknown
    ones.
    """
    joint = "&" if "?" in target else "?"
    return [
        *(Ask(method, f"{target}{joint}{name}={text}") for name in names for text in texts),
        *(Ask(method, f"{target}{joint}{name}=1&{name}=2") for name in names),
        Ask(method, f"{target}{joint}" + "&".join(f"{name}=%20" for name in names)),
        Ask(method, f"{target}{joint}nonsense=1"),
        Ask(method, f"{target}{joint}nonsense=1&nonsense=2"),
        Ask(method, f"{target}{joint}" + "&".join(f"p{n}=1" for n in range(101))),
    ]


# ── what exists in most scenarios ─────────────────────────────────────────────────────────────────

MESSAGES = {
    "messages": [
        {"key": "k", "value": "one", "headers": [["a", "b"], ["n", None]]},
        {"key_base64": "/w==", "value_base64": "AP8=", "headers": {"c": {"base64": "/w=="}}},
        {"value": None, "timestamp_ms": 1_600_000_000_000, "priority": 3},
    ]
}
FILL = [
    post("/v1/topics", {"name": "orders", "partitions": 2, "config": {"retention.ms": 604_800_000}}),
    post(f"{T}/messages?partition=0", MESSAGES),
    Ask(
        "POST",
        f"{T}/messages?partition=1",
        b"alone",
        "text/plain",
        (("Sparrow-Key", "k"), ("Sparrow-Header-A", "b")),
    ),
    post("/v1/queues", {"name": "emails", "partitions": 1}),
    post("/v1/queues", {"name": "both", "policy": {"subscribers": ["a", "b"]}, "partitions": 1}),
    post(f"{Q}/messages", MESSAGES),
    Ask("PUT", f"{G}/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}),
]

TOPICS = [
    get("/v1/topics"),
    *FILL,
    get("/v1/topics"),
    get("/v1/topics?pattern=o*"),
    *strange("GET", "/v1/topics", "pattern"),
    post("/v1/topics", {"name": "orders"}),
    post("/v1/topics", {"name": "checked", "validate_only": True}),
    post("/v1/topics", {"name": "bad name"}),
    post("/v1/topics", {"name": "other", "config": {"nonsense": 1}}),
    *faults(
        "POST",
        "/v1/topics",
        {"name": "made", "partitions": 1, "config": {"retention.ms": 1}, "validate_only": True},
    ),
    get(T),
    get("/v1/topics/missing"),
    get("/v1/topics/bad%20name"),
    get(f"/v1/topics/{NAME}"),
    get("/v1/topics/%FF"),
    get("/v1/topics/a%2Fb"),
    get("/v1/topics/ord%65rs"),
    get(f"{T}?x=1"),
    Ask("PATCH", T, {"set": {"max.message.bytes": 100_000}, "unset": ["retention.ms"]}),
    Ask("PATCH", T, {"set": {"max.message.bytes": "x"}}),
    Ask("PATCH", "/v1/topics/missing", {"set": {}}),
    *faults("PATCH", T, {"set": {"retention.ms": 5, "cleanup.policy": "delete"}, "unset": ["segment.ms"]}),
    *faults("PATCH", f"/v1/topics/{NAME}", {"unset": ["segment.ms"]})[:12],
    post(f"{T}/partitions", {"total": 3}),
    post(f"{T}/partitions", {"total": 1}),
    post("/v1/topics/missing/partitions", {"total": 1}),
    *faults("POST", f"{T}/partitions", {"total": 3}),
    post(f"{T}/truncate", {"before": {"0": 1}}),
    post(f"{T}/truncate", {"before": {"0": -1, "7": 0}}),
    post(f"{T}/truncate", {"before": {"0": 1000}}),
    post("/v1/topics/missing/truncate", {"before": {"0": 1}}),
    *(
        post(f"{T}/truncate", {"before": {name: 0}})
        for name in ("", "x", "-1", "00", "+0", " 0", "1.0", "1_0", "2147483648", "9" * 30, NAME)
    ),
    *faults("POST", f"{T}/truncate", {"before": {"0": 0, "1": 0}}),
    get(f"{T}/offsets"),
    get(f"{T}/offsets?at=timestamp:1600000000000&partition=0"),
    get(f"{T}/offsets?at=17"),
    get("/v1/topics/missing/offsets"),
    get(f"/v1/topics/{NAME}/offsets?at={NAME}&partition=x"),
    *strange("GET", f"{T}/offsets", "at", "partition"),
    Ask("DELETE", "/v1/topics/missing"),
    Ask("DELETE", f"{T}?x=1"),
    Ask("DELETE", T),
    Ask("DELETE", "/v1/topics/emails"),
]

MESSAGE = {
    "key": "k",
    "value": "v",
    "headers": [["a", "b"]],
    "timestamp_ms": 1,
    "priority": 1,
    "delay_ms": 1,
    "ttl_ms": 1,
    "message_id": "m",
    "parents": ["p"],
}
READING = ("from", "partition", "limit", "max_bytes", "wait_ms", "encoding", "isolation", "on_corrupt")
OPTIONS = ("Timestamp-Ms", "Priority", "Delay-Ms", "TTL-Ms", "Null", "Key-Base64", "Headers", "Nonsense")


def publishing(target: str) -> list[Ask]:
    key = "Idempotency-Key"
    return [
        post(target, b"text"),
        post(f"{target}?acks=none", b"text"),
        post(f"{target}?acks=leader&partition=0&raw=true", MESSAGES),
        post(target, MESSAGES),
        Ask("POST", target, b'{"value": "a"}\n\n{"value": "b"}\n', kind="application/x-ndjson"),
        Ask("POST", target, b'{"value": "a"}\n{"valu": "b"}\n', kind="application/x-ndjson"),
        Ask("POST", target, b'{"value": "a"}\n{\n', kind="application/vnd.sparrow.messages+x-ndjson"),
        Ask("POST", target, b"{}", kind="application/vnd.sparrow.messages+json"),
        Ask("POST", target, b'{"a": 1}'),
        Ask("POST", target, b"{"),
        Ask("POST", target, b"\xff"),
        Ask("POST", target, b"<x/>", kind="text/xml"),
        Ask("POST", target, b"x", "text/plain", (("Content-Encoding", "gzip"),)),
        Ask("POST", target, b"x", "text/plain", ((key, "a"), (key, "b"))),
        Ask("POST", target, b"x", "text/plain", ((key, "a b"),)),
        Ask("POST", target, b"x", "text/plain", ((key, '"first"'),)),
        Ask("POST", target, b"x", "text/plain", ((key, '"first"'),)),
        Ask("POST", target, b"y", "text/plain", ((key, "first"),)),
        Ask("POST", target, b"y" * (17 << 20)),
        Ask("POST", target, b"y" * (2 << 20), kind="text/plain"),
        post(target, {"messages": [{"value": "small"}, {"value": "y" * (2 << 20)}]}),
        post(target, {"messages": []}),
        post(f"{target}?partition=9", b"x"),
        *(
            Ask("POST", target, b"x", kind="", headers=((f"Sparrow-{name}", text),))
            for name in OPTIONS
            for text in ("", "x", "-1", "1", "true", '[["a", null]]', "9" * 25)
        ),
        Ask("POST", target, b"", headers=(("Sparrow-Null", "true"), ("Sparrow-Key", "k"))),
        Ask("POST", target, b"x", "text/plain", (("Sparrow-Key", "a"), ("Sparrow-Key", "b"))),
        *(post(target, {"messages": [body]}) for body in _changed(MESSAGE)),
        *strange("POST", target, "acks", "partition", "raw"),
    ]


PUBLISH = [*FILL, *publishing(f"{T}/messages"), post("/v1/topics/missing%20/messages", b"x")]
PUBLISH_QUEUE = [*FILL, *publishing(f"{Q}/messages")[:24], post("/v1/queues/missing/messages", b"x")]
READ = [
    *FILL,
    get(f"{T}/messages"),
    get(f"{T}/messages", Accept="application/x-ndjson"),
    get(f"{T}/messages?partition=0&limit=1&from=1&encoding=base64&isolation=committed&on_corrupt=skip"),
    get(f"{T}/messages?from=0:1,1:0"),
    get(f"{T}/messages?from=0:99"),
    get("/v1/topics/tight/messages?max_bytes=99999999"),
    get(f"{T}/messages?from=timestamp:1"),
    get("/v1/topics/missing/messages"),
    get("/v1/topics/bad%20name/messages"),
    *strange("GET", f"{T}/messages", *READING),
    *(
        get(f"{T}/messages/{place}")
        for place in ("0/0", "0/1", "0/2", "1/0", "0/9", "7/0", "x/0", "0/-1", "0/x")
    ),
    get(f"{T}/messages/0/{'9' * 30}"),
    get(f"{T}/messages/0/0?x=1"),
    get("/v1/topics/missing/messages/0/0"),
    Ask("HEAD", f"{T}/messages/0/0"),
    Ask("HEAD", f"{T}/messages"),
    Ask("HEAD", f"{T}/stream"),
    get(f"{T}/stream?from=nowhere"),
    get("/v1/topics/missing/stream"),
    get(f"{T}/stream?partition=9"),
    get(f"{T}/stream", Last_Event_ID="x"),
    *strange(
        "HEAD", f"{T}/stream", "from", "partition", "encoding", "isolation", "on_corrupt", "last_event_id"
    ),
]

GROUPS = [
    get("/v1/groups"),
    *FILL,
    get("/v1/groups"),
    get("/v1/groups?x=1"),
    get(G),
    get("/v1/groups/missing"),
    get(f"/v1/groups/{NAME}"),
    get(f"{G}/offsets"),
    get(f"{G}/offsets?topic=orders"),
    get("/v1/groups/missing/offsets"),
    *strange("GET", f"{G}/offsets", "topic"),
    Ask("PUT", f"{G}/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}] * 2}),
    Ask("PUT", f"{G}/offsets", {"offsets": [{"topic": "missing", "partition": 0, "offset": 1}]}),
    Ask("PUT", f"{G}/offsets", {"offsets": [{"topic": "a", "partition": 0, "offset": 1}] * 10_001}),
    *faults(
        "PUT",
        f"{G}/offsets",
        {"offsets": [{"topic": "orders", "partition": 0, "offset": 2, "metadata": "m"}, {"topic": "orders"}]},
    ),
    *faults(
        "PUT",
        f"{G}/offsets",
        {"offsets": [{"topic": "orders", "partition": 0, "offset": 2, "metadata": "m"}]},
    )[10:],
    post(f"{G}/reset", {"topic": "orders", "to": "beginning"}),
    post(f"{G}/reset", {"topic": "orders", "to": 1}),
    post("/v1/groups/missing/reset", {"topic": "missing", "to": "end"}),
    *faults("POST", f"{G}/reset", {"topic": "orders", "to": "end", "partitions": [0]}),
    Ask("DELETE", "/v1/groups/missing"),
    Ask("DELETE", G),
    Ask("DELETE", f"/v1/groups/{NAME}"),
]

QUEUES = [
    get("/v1/queues"),
    *FILL,
    get("/v1/queues"),
    get("/v1/queues?pattern=e*"),
    *strange("GET", "/v1/queues", "pattern"),
    post("/v1/queues", {"name": "emails", "policy": {"lease_ms": 5000}}),
    post("/v1/queues", {"name": "emails"}),
    *faults(
        "POST",
        "/v1/queues",
        {"name": "made", "topics": ["orders"], "policy": {"lease": "10s"}, "partitions": 1},
    ),
    Ask("PUT", "/v1/queues/put", {"topics": ["orders"]}),
    Ask("PUT", "/v1/queues/put", {"topics": ["emails"]}),
    *faults("PUT", "/v1/queues/made", {"topics": ["orders"], "policy": {}, "partitions": 1}),
    get(Q),
    get("/v1/queues/both"),
    get("/v1/queues/missing"),
    get(f"/v1/queues/{NAME}"),
    Ask("PATCH", Q, {"set": {"lease_ms": 60_000}, "unset": ["backoff"]}),
    Ask("PATCH", "/v1/queues/missing", {"set": {}}),
    *faults("PATCH", Q, {"set": {"lease_ms": 1000}, "unset": ["lease_ms"]}),
    *(
        post(f"{queue}/{verb}")
        for verb in ("pause", "resume", "purge")
        for queue in (Q, "/v1/queues/missing")
    ),
    *(post(f"{Q}/{verb}?x=1") for verb in ("pause", "resume", "purge")),
    *(post(f"/v1/queues/{NAME}/{verb}", {"ignored": True}) for verb in ("pause", "resume", "purge")),
    Ask("DELETE", "/v1/queues/missing"),
    Ask("DELETE", "/v1/queues/put"),
    Ask("DELETE", f"/v1/queues/{NAME}?x=1"),
]

LEASE_OPTIONS = ("max", "wait_ms", "max_bytes", "consumer", "subscriber", "encoding")
PEEKING = ("limit", "skip", "max_bytes", "state", "subscriber", "encoding")
SETTLING = {
    "ack": {},
    "nack": {"delay_ms": 0, "error": "e"},
    "reject": {"reason": "r"},
    "extend": {"lease_ms": 1000},
    "release": {},
}
OCTETS = "application/octet-stream"


def settling(verb: str, others: dict[str, Any]) -> Iterator[Ask]:
    target = f"{Q}/{verb}"
    yield post(f"{Q}/messages", b"to settle")
    yield post(f"{Q}/lease", b"", Accept=OCTETS)
    yield post(target, {"leases": ["{lease}"], **others})
    yield post(target, {"leases": ["{lease}"], **others})
    yield post(f"{Q}/messages", b"to settle")
    yield post(f"{Q}/lease")
    yield post(target, {"leases": ["{lease}", "nonsense"], **others})
    yield post(f"{target}?lease=nonsense")
    yield post(f"{target}?lease={{lease}}")
    yield post(f"/v1/queues/both/{verb}?lease={{lease}}")
    yield post(f"/v1/queues/missing/{verb}?lease={{lease}}")
    yield post(target, b" " * ((4 << 20) + 1))
    yield from faults("POST", target, {"leases": ["nonsense"], **others})[0 if verb == "nack" else 20 :]
    yield from strange("POST", f"{target}?lease=nonsense", *(others or ["delay_ms"]))


LEASES = [
    *FILL,
    get(f"{Q}/messages"),
    get(f"{Q}/messages?limit=1&skip=1&encoding=base64"),
    get("/v1/queues/missing/messages"),
    *strange("GET", f"{Q}/messages", *PEEKING),
    post(f"{Q}/lease?max=2&encoding=base64"),
    post(f"{Q}/lease", b"", Accept=OCTETS),
    post(f"{Q}/lease", b"", Accept=OCTETS),
    post(f"{Q}/lease?max=2"),
    post("/v1/queues/missing/lease"),
    post("/v1/queues/both/lease"),
    post("/v1/queues/both/lease?subscriber=a"),
    *strange("POST", f"{Q}/lease", *LEASE_OPTIONS),
    *(ask for verb, others in SETTLING.items() for ask in settling(verb, others)),
    post(f"{Q}/messages", b"to settle"),
    post(f"{Q}/lease"),
    post(f"{Q}/ack?lease={{lease}}"),
    post(f"{Q}/extend?lease={{lease}}"),
]

BROWSING = (
    *("reason", "topic", "partition", "key", "key_base64", "error_contains", "subscriber"),
    *("since_ms", "until_ms", "limit", "skip", "encoding"),
)
REDRIVE = {
    "where": {
        "reason": "NONE",
        "topic": "t",
        "partition": 0,
        "key": "k",
        "error_contains": "e",
        "subscriber": "s",
        "since_ms": 0,
        "until_ms": 1,
    },
    "max": 1,
    "per_second": 1.5,
}
DEAD = f"{Q}/dead-letters"
STOPPED = Ask("GET", f"{Q}/redrive", until='"is_running":false')


def stopping(asks: list[Ask]) -> list[Ask]:
    """Return the requests, each followed by the end of the redrive that it may have started."""
    return [each for ask in asks for each in (ask, STOPPED)]


def giving_up(queue: str) -> list[Ask]:
    """Return requests that make one dead letter."""
    return [
        post(f"{queue}/messages", b"broken"),
        post(f"{queue}/lease"),
        post(f"{queue}/reject?lease={{lease}}"),
    ]


DEAD_LETTERS = [
    *FILL,
    get(f"{Q}/redrive"),
    post(f"{Q}/lease?max=2"),
    post(f"{Q}/reject?lease={{lease}}&reason=broken"),
    Ask("GET", DEAD, until='"offset":'),
    get(f"{DEAD}?encoding=base64&limit=1&reason=REJECTED&topic=emails&partition=0"),
    get(f"{DEAD}?reason=NONE&skip=1"),
    get(f"{DEAD}?key=a&key_base64=YQ=="),
    get("/v1/queues/missing/dead-letters"),
    get(f"/v1/queues/{NAME}/dead-letters?limit=0&nonsense=1"),
    *strange("GET", DEAD, *BROWSING),
    get(f"{Q}/dead-letter-groups"),
    *strange("GET", f"{Q}/dead-letter-groups", "skip"),
    get("/v1/queues/missing/dead-letter-groups"),
    post(f"{DEAD}/purge", {}),
    post(f"{DEAD}/purge", {"letters": [{"partition": 0, "offset": 99}]}),
    post(f"{DEAD}/purge", {"where": {"reason": "NONE"}}),
    post("/v1/queues/missing/dead-letters/purge", {"all": True}),
    Ask("POST", f"{DEAD}/purge", {"all": True}, headers=(("If-Match", '"another"'),)),
    *faults("POST", f"{DEAD}/purge", {"where": {"reason": "NONE"}, "letters": [], "all": False}),
    get("/v1/queues/missing/redrive"),
    get(f"{Q}/redrive?x=1"),
    Ask("DELETE", "/v1/queues/missing/redrive"),
    Ask("DELETE", f"{Q}/redrive"),
    Ask("DELETE", f"{Q}/redrive?x=1"),
    post("/v1/queues/missing/redrive", {}),
    post(f"{DEAD}/0/7/redrive"),
    STOPPED,
    post("/v1/queues/missing/dead-letters/0/0/redrive"),
    *stopping([post(f"{DEAD}/{text}/{text}/redrive") for text in TEXTS[1:]]),
    post(f"/v1/queues/{NAME}/dead-letters/x/-1/redrive?x=1"),
    post(f"/v1/queues/{NAME}/dead-letters/x/-1/redrive"),
    *stopping(faults("POST", f"{Q}/redrive", REDRIVE)),
    post("/v1/queues", {"name": "slow", "partitions": 1}),
    *(ask for _ in range(3) for ask in giving_up("/v1/queues/slow")),
    Ask("GET", "/v1/queues/slow/dead-letters", until='"offset":2,"timestamp_ms"'),
    post("/v1/queues/slow/redrive", {"per_second": 0.001}),
    Ask("GET", "/v1/queues/slow/redrive", until='"moved":1'),
    post("/v1/queues/slow/redrive", {}),
    post("/v1/queues/slow/dead-letters/0/1/redrive"),
    Ask("DELETE", "/v1/queues/slow/redrive"),
]

WEBHOOK = {
    "url": "https://example.org/a",
    "format": "message",
    "accept": "2xx",
    "headers": {"X-A": "b"},
    "concurrency": 2,
    "rate": 1.5,
    "timeout": "10s",
    "backoff_delay": 500,
    "jitter": 0.5,
    "pause_after": 3,
    "secrets": [],
    "add_subscriber": False,
}
ONE = f"{S}/hook"
SUBSCRIBERS = [
    *FILL,
    get(S),
    get(f"{S}?x=1"),
    get("/v1/queues/both/subscribers"),
    get("/v1/queues/missing/subscribers"),
    get("/v1/queues/both/subscribers/a"),
    get(ONE),
    get(f"{S}/{NAME}"),
    get(f"/v1/queues/{NAME}/subscribers/{NAME}?x=1"),
    get(f"/v1/queues/{NAME}/subscribers/{NAME}"),
    Ask("PUT", "/v1/queues/both/subscribers/c", {}),
    Ask("PUT", ONE, {}),
    Ask("PUT", ONE, {"url": "nonsense"}),
    Ask("PUT", "/v1/queues/missing/subscribers/hook", WEBHOOK),
    Ask("PUT", ONE, {"url": "https://example.org"}),
    Ask("PUT", ONE, WEBHOOK),
    get(ONE),
    get(S),
    *faults("PUT", ONE, WEBHOOK),
    *faults("PUT", ONE, {"timeout_ms": 1, "backoff_ms": 1, "backoff_max_ms": 1, "backoff_jitter": 1})[14:],
    *faults("PUT", ONE, {"backoff_max": "1m", "timeout": 10})[14:],
    *(post(f"{S}/{name}/{verb}") for verb in ("pause", "resume") for name in ("hook", "missing", NAME)),
    *(post(f"{ONE}/{verb}?x=1") for verb in ("pause", "resume")),
    post(f"{ONE}/rotate-secret"),
    post(f"{S}/missing/rotate-secret"),
    *faults("POST", f"{ONE}/rotate-secret", {"secret": "whsec_" + "A" * 32, "keep_ms": 1}),
    Ask("DELETE", f"{S}/missing"),
    *strange("DELETE", f"{S}/missing", "keep_subscriber", texts=[*TEXTS, "yes", "OFF", "t", "N", "False"]),
    Ask("DELETE", "/v1/queues/both/subscribers/a?keep_subscriber=true"),
    Ask("DELETE", "/v1/queues/both/subscribers/a"),
    Ask("DELETE", f"{ONE}?keep_subscriber=1"),
    Ask("DELETE", "/v1/queues/both/subscribers/b"),
    Ask("DELETE", "/v1/queues/both/subscribers/c"),
]

USER = {"name": "alice", "password": "long enough", "mechanisms": ["SCRAM-SHA-256"], "iterations": 4096}
ALICE = "/v1/users/alice"
NIGHTLY = "/v1/schedules/nightly"
SCHEDULE = {
    "queue": "emails",
    "cron": "30 2 * * MON-FRI",
    "time_zone": "Europe/Berlin",
    "value": {"kind": "nightly"},
    "key": "k",
    "headers": {"a": "b"},
    "priority": 7,
    "ttl": "1h",
    "misfire": "skip",
    "overlap": "run_once",
}
SCHEDULES = [
    *FILL,
    get("/v1/schedules"),
    get("/v1/schedules/nightly"),
    Ask("PUT", "/v1/schedules/nightly", SCHEDULE),
    Ask("PUT", "/v1/schedules/nightly", SCHEDULE),
    Ask("PUT", "/v1/schedules/pulse", {"queue": "emails", "every": 90_000, "value_base64": "AP8="}),
    get("/v1/schedules/nightly"),
    get("/v1/schedules?queue=emails&pattern=p*"),
    get("/v1/schedules?queue=missing"),
    Ask("PUT", "/v1/schedules/lost", {"queue": "missing", "every": "1m"}),
    Ask("PUT", "/v1/schedules/none", {"queue": "emails"}),
    Ask("PUT", "/v1/schedules/never", {"queue": "emails", "cron": "0 0 30 2 *"}),
    Ask("PUT", "/v1/schedules/zone", {"queue": "emails", "cron": "@daily", "time_zone": "Mars/Olympus"}),
    Ask("PUT", "/v1/schedules/soon", {"queue": "emails", "every": "10ms"}),
    Ask("PUT", "/v1/schedules/nightly", {"cron": "@daily"}),
    *faults("PUT", "/v1/schedules/nightly", {"queue": "emails", "every": "1m", "priority": 3})[14:],
    *(post(f"/v1/schedules/{name}/{verb}") for verb in ("pause", "resume") for name in ("pulse", "missing")),
    post("/v1/schedules/nightly/run"),
    post("/v1/schedules/missing/run"),
    get(f"/v1/schedules/{NAME}"),
    Ask("DELETE", f"/v1/schedules/{NAME}"),
    *(post(f"/v1/schedules/nightly/{verb}?x=1") for verb in ("pause", "resume", "run")),
    *strange("GET", "/v1/schedules", "pattern", "queue"),
    Ask("DELETE", "/v1/schedules/missing"),
    Ask("DELETE", "/v1/schedules/pulse"),
    get("/v1/schedules"),
]
USERS = [
    get("/v1/users"),
    post("/v1/users", USER),
    post("/v1/users", USER),
    post("/v1/users", {"name": "bob", "password": "of another", "iterations": 4096}),
    get("/v1/users"),
    get("/v1/users?x=1"),
    post("/v1/users", {**USER, "password": "\ud800"}),
    post("/v1/users", {**USER, "mechanisms": ["SCRAM-SHA-256"] * 3, "iterations": 10**9}),
    *faults("POST", "/v1/users", USER),
    Ask("PUT", ALICE, {"password": "another one", "iterations": 4096}),
    Ask("PUT", "/v1/users/missing", {"password": "another one", "iterations": 4096}),
    Ask("PUT", f"/v1/users/{NAME}", {"iterations": 1}),
    *faults("PUT", ALICE, {"password": "long enough", "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}),
    get(ALICE),
    get("/v1/users/missing"),
    get(f"/v1/users/{NAME}"),
    Ask("DELETE", ALICE, headers=(("If-Match", '"another"'),)),
    Ask("DELETE", "/v1/users/missing"),
    Ask("DELETE", f"/v1/users/{NAME}"),
    Ask("DELETE", ALICE),
]

RULE = {
    "resource_type": "Topic",
    "name": "orders",
    "principal": "User:alice",
    "operation": "Read",
    "permission": "Allow",
    "pattern_type": "Literal",
    "host": "*",
}
SELECTORS = ("resource_type", "name", "principal", "operation", "permission", "pattern_type", "host")
ACLS = [
    get("/v1/acls"),
    post("/v1/acls", {"rules": [RULE, {**RULE, "name": "or", "pattern_type": "Prefixed"}]}),
    post("/v1/acls", {"rules": [{**RULE, "principal": "alice"}]}),
    post("/v1/acls", {"rules": [{**RULE, "resource_type": "Cluster"}]}),
    post("/v1/acls", {"rules": [RULE] * 1001}),
    *faults("POST", "/v1/acls", {"rules": [RULE]}),
    get("/v1/acls?resource_type=Topic&name=orders&pattern_type=Match"),
    *strange("GET", "/v1/acls", *SELECTORS),
    Ask("DELETE", "/v1/acls"),
    Ask("DELETE", "/v1/acls?name=orders"),
    *strange(
        "DELETE", "/v1/acls", *SELECTORS, "all", texts=[text for text in TEXTS if text not in ("true", "1")]
    ),
    Ask("DELETE", "/v1/acls?all=true"),
]

QUOTA = {"entity": {"user": "alice", "client-id": None}, "values": {"producer_byte_rate": 1000.5}}
BROKER = [
    get("/v1/broker"),
    get("/v1/broker?x=1"),
    post("/v1/broker/reload"),
    post("/v1/broker/reload?x=1"),
    get("/v1/quotas"),
    Ask("PATCH", "/v1/quotas", QUOTA),
    get("/v1/quotas"),
    get("/v1/quotas?x=1"),
    Ask("PATCH", "/v1/quotas", {"entity": {}, "values": {}}),
    Ask("PATCH", "/v1/quotas", {"entity": {"nonsense": "a"}, "values": {"x": 1}}),
    Ask("PATCH", "/v1/quotas", {"entity": {str(n): "a" for n in range(4)}, "values": {"": 1, NAME: None}}),
    *faults("PATCH", "/v1/quotas", QUOTA),
    get("/healthz"),
    get("/healthz?x=1"),
    get("/readyz"),
    get("/metrics"),
    get("/metrics", Accept="application/openmetrics-text"),
    *strange("GET", "/metrics", "names", "detail"),
    *(
        get(f"{path}?x=1")
        for path in ("/v1/status", "/v1/me", "/v1/config", "/v1/log", "/v1/tokens", "/v1/events")
    ),
    get("/v1/status"),
    get("/v1/history"),
    get("/v1/history?span=24h&series=messages_in,dead"),
    get("/v1/history?span=1y"),
    get("/v1/history?series=nonsense"),
    get("/v1/history?queue=missing"),
    *strange("GET", "/v1/history", "span", "series", "queue"),
    get("/v1/me"),
    get("/v1/me?topic=orders&group=emails"),
    get("/v1/config"),
    Ask("HEAD", "/v1/log"),
    get("/v1/tokens"),
    Ask("HEAD", "/v1/connections"),
    get("/v1/connections?limit=0"),
    get("/v1/connections?skip=-1"),
    Ask("DELETE", "/v1/connections/999999"),
    Ask("DELETE", "/v1/connections/x"),
    Ask("HEAD", "/v1/events"),
    get("/v1/pipelines"),
    get("/v1/pipelines?x=1"),
    get("/v1/sinks"),
    get("/v1/sinks?x=1"),
    get("/v1/sinks/missing"),
    get("/v1/sinks/missing?x=1"),
    *(get(f"/v1/overview/{kind}") for kind in ("topics", "queues", "groups")),
    *(
        ask
        for kind in ("topics", "queues", "groups")
        for ask in strange("GET", f"/v1/overview/{kind}", "limit", "skip")
    ),
    get("/v1/acls/check?principal=User:a&operation=Read&resource_type=Topic&name=x"),
    get("/v1/acls/check?principal=a&operation=Read&resource_type=Topic&name=x"),
    get("/v1/acls/check?principal=User:a&operation=All&resource_type=Topic&name=x"),
    get("/v1/acls/check"),
    post("/v1/topics", {"name": "orders", "partitions": 2}),
    post(
        f"{T}/messages",
        {"messages": [{"key": "a", "value": "one", "headers": [["h", "1"]]}, {"value": "two"}]},
    ),
    get(f"{T}/readers"),
    get("/v1/topics/missing/readers"),
    get(f"{T}/readers?x=1"),
    get(f"{T}/search"),
    get(f"{T}/search?order=oldest&limit=1"),
    get(f"{T}/search?contains=tw&max_value_bytes=2"),
    get(f"{T}/search?key=a&header=h%3D1&isolation=committed&encoding=base64"),
    get(f"{T}/search?from=0:1"),
    get("/v1/topics/missing/search"),
    *strange("GET", f"{T}/search", "limit", "partition", "from", "order", "max_ms", "max_read_bytes"),
    get(f"{T}/search?surplus=1"),
    get(T, If_Match="x"),
    Ask("DELETE", T, headers=(("If-Match", '"another"'),)),
    post("/v1/queues", {"name": "emails", "partitions": 1}),
    Ask("DELETE", Q, headers=(("If-Match", '"another"'),)),
    Ask("PUT", ONE, {"url": "https://example.org"}),
    Ask("DELETE", ONE, headers=(("If-Match", '"another"'),)),
    Ask("POST", f"{Q}/purge", headers=(("If-Match", '"another"'),)),
    post("/v1/session", {"token": "anything"}),
    *faults("POST", "/v1/session", {"user": "alice", "password": "wrong"})[:25],
    Ask("DELETE", "/v1/session"),
    Ask("DELETE", "/v1/session?x=1"),
    get("/"),
    get("/", Accept="text/html"),
    get("/docs"),
    get("/openapi.json"),
    get("/favicon.ico"),
    get("/docs/nonsense.js"),
    get("/docs/..%2Fx"),
]

PATHS = [
    *("/healthz", "/readyz", "/metrics", "/", "/docs", "/docs/x", "/openapi.json", "/favicon.ico", "/v1/ws"),
    *("/v1/topics", T, f"{T}/partitions", f"{T}/truncate", f"{T}/offsets", f"{T}/messages", f"{T}/stream"),
    *(f"{T}/messages/0/0", "/v1/groups", G, f"{G}/offsets", f"{G}/reset", "/v1/queues", Q),
    *(f"{Q}/{name}" for name in ("messages", "lease", *SETTLING, "pause", "resume", "purge", "redrive")),
    *(DEAD, f"{DEAD}/0/0/redrive", S, ONE, f"{ONE}/pause", f"{ONE}/resume", f"{ONE}/rotate-secret"),
    *("/v1/users", ALICE, "/v1/acls", "/v1/broker", "/v1/broker/reload", "/v1/quotas"),
    *("/nonsense", "/v1", "/v1/", "/v1/topics/", f"{T}/", f"{T}//messages", "/v1/topics//messages"),
    *("//v1/topics", "/V1/topics", "/v1/topics/.", "/v1/topics/a/b/c", "/v1/topics%2Forders", "/v1/t%6Fpics"),
    *("/%", "/%zz", "/v1/topics/%C3%A9", "/docs/", "/metrics/"),
]
SERVED_BY_GET = frozenset({"/v1/topics", T, f"{T}/offsets", "/v1/groups", "/v1/queues", "/v1/acls"})
METHODS = [
    *FILL[:3],
    *(Ask(method, path) for path in PATHS for method in ("OPTIONS", "HEAD", "GET") if path != f"{T}/stream"),
    *(
        Ask(method, path, None if method == "TRACE" else b"")
        for path in PATHS
        for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE")
        if path in SERVED_BY_GET or not path.startswith("/v1/") or path.startswith(("/v1/ws", "/v1/topics/."))
    ),
    Ask("PROPFIND", T),
    Ask("OPTIONS", "*"),
    Ask("PUT", f"{Q}/lease", b"x"),
    Ask("GET", f"{Q}/lease"),
    Ask("DELETE", f"{T}/messages"),
    Ask("PATCH", f"{DEAD}/0/0/redrive", b"{}"),
]

ALL_ROUTES = [
    get("/v1/topics"),
    post("/v1/topics", {"name": "new"}),
    get(T),
    Ask("PATCH", T, {"set": {"retention.ms": "1"}}),
    Ask("DELETE", T),
    post(f"{T}/partitions", {"total": 9}),
    post(f"{T}/truncate", {"before": {"0": 0}}),
    get(f"{T}/offsets"),
    post(f"{T}/messages", b"x"),
    get(f"{T}/messages"),
    get(f"{T}/messages/0/0"),
    Ask("HEAD", f"{T}/stream"),
    get("/v1/groups"),
    get(G),
    Ask("DELETE", G),
    get(f"{G}/offsets"),
    Ask("PUT", f"{G}/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}),
    post(f"{G}/reset", {"topic": "orders", "to": "end"}),
    get("/v1/queues"),
    post("/v1/queues", {"name": "new"}),
    get(Q),
    Ask("PUT", Q, {}),
    Ask("PATCH", Q, {"set": {"lease_ms": 1000}}),
    Ask("DELETE", Q),
    *(post(f"{Q}/{verb}") for verb in ("pause", "resume", "purge", "messages", "lease")),
    get(f"{Q}/messages"),
    *(post(f"{Q}/{verb}?lease={{lease}}") for verb in SETTLING),
    get(DEAD),
    post(f"{DEAD}/0/0/redrive"),
    get(f"{Q}/redrive"),
    post(f"{Q}/redrive", {}),
    Ask("DELETE", f"{Q}/redrive"),
    get(S),
    get(ONE),
    Ask("PUT", ONE, {}),
    Ask("DELETE", ONE),
    *(post(f"{ONE}/{verb}") for verb in ("pause", "resume", "rotate-secret")),
    get("/v1/schedules"),
    Ask("PUT", NIGHTLY, {"queue": "emails", "every": "1h"}),
    get(NIGHTLY),
    *(post(f"{NIGHTLY}/{verb}") for verb in ("pause", "resume", "run")),
    Ask("DELETE", NIGHTLY),
    get("/v1/users"),
    post("/v1/users", {"name": "new", "password": "long enough"}),
    Ask("PUT", ALICE, {"password": "long enough"}),
    Ask("DELETE", ALICE),
    get("/v1/acls"),
    post("/v1/acls", {"rules": [RULE]}),
    Ask("DELETE", "/v1/acls?all=true"),
    get("/v1/broker"),
    post("/v1/broker/reload"),
    get("/v1/quotas"),
    Ask("PATCH", "/v1/quotas", QUOTA),
    get("/v1/status"),
    get("/v1/history"),
    get("/v1/me"),
    get("/v1/config"),
    Ask("HEAD", "/v1/log"),
    Ask("HEAD", "/v1/connections"),
    Ask("DELETE", "/v1/connections/999999"),
    get("/v1/tokens"),
    get(ALICE),
    get("/v1/acls/check?principal=User:a&operation=Read&resource_type=Topic&name=x"),
    get("/v1/overview/topics"),
    get("/v1/overview/queues"),
    get("/v1/overview/groups"),
    get(f"{T}/readers"),
    get(f"{T}/search"),
    get(f"{Q}/dead-letter-groups"),
    post(f"{DEAD}/purge", {"all": True}),
    get("/v1/pipelines"),
    get("/v1/sinks"),
    get("/v1/sinks/missing"),
    Ask("HEAD", "/v1/events"),
    post("/v1/session", {"token": "wrong"}),
    Ask("DELETE", "/v1/session"),
    get("/metrics"),
    get("/v1/ws"),
    get("/docs"),
    get("/openapi.json"),
    get("/"),
    get("/healthz"),
    get("/nonsense"),
]


def asked_by(ask: Ask, token: str) -> Ask:
    headers = (*ask.headers, ("Authorization", f"Bearer {token}")) if token else ask.headers
    return Ask(ask.method, ask.target, ask.body, ask.kind, headers, ask.until)


LOGIN = [
    *(asked_by(each, "r-token") for each in FILL),
    asked_by(post(f"{Q}/lease"), "r-token"),
    asked_by(Ask("PUT", ONE, {"url": "https://example.org"}), "r-token"),
    asked_by(post("/v1/users", USER), "r-token"),
    *(asked_by(each, token) for token in ("", "n-token") for each in ALL_ROUTES),
    asked_by(get("/v1/topics"), "wrong"),
    *(
        Ask("GET", "/v1/topics", headers=(("Authorization", value),))
        for value in (
            "",
            "Bearer",
            "Bearer ",
            "Digest x",
            "Basic !",
            "Basic YQ==",
            "Basic YTpi",
            "bearer r-token",
        )
    ),
    get("/v1/topics?access_token=r-token"),
    Ask("HEAD", f"{T}/stream?access_token=r-token"),
    Ask("HEAD", f"{T}/stream?access_token=wrong"),
]

PAGE, FOREIGN = "https://a.example", "https://b.example"


def from_pages() -> list[Ask]:
    wishes = {"Access_Control_Request_Method": "PUT", "Access_Control_Request_Headers": "X-A, authorization"}
    preflight = [Ask("OPTIONS", target, headers=_pairs(headers)) for target, headers in (
        ("/v1/topics", {"Origin": PAGE, **wishes}),
        ("/v1/topics", {"Origin": FOREIGN, **wishes}),
        ("/nonsense", {"Origin": PAGE, "Access_Control_Request_Method": "GET"}),
        ("/v1/topics", {"Origin": PAGE, "Access_Control_Request_Method": "NONSENSE"}),
        ("/v1/topics", {"Origin": PAGE, "Access_Control_Request_Headers": "a"}),
        ("/v1/topics", {**wishes}),
        ("/v1/topics", {"Origin": PAGE}),
    )]  # fmt: skip
    return [
        *preflight,
        *(
            get(target, Origin=origin)
            for target in ("/v1/topics", "/nonsense")
            for origin in (PAGE, FOREIGN, "")
        ),
        get("/v1/topics", Origin=PAGE, Cookie="a=b"),
        get("/v1/topics"),
        *(
            post("/v1/topics", {"name": f"t{n}"}, Origin=each)
            for n, each in enumerate((PAGE, FOREIGN, "null"))
        ),
        post("/v1/topics", {"name": "t9"}, Origin="http://127.0.0.1"),
        post("/v1/topics", {"name": "t8"}, Sec_Fetch_Site="cross-site"),
        post("/v1/topics", {"name": "t7"}, Sec_Fetch_Site="same-origin"),
        get("/v1/topics", Origin=PAGE, Authorization="Bearer wrong"),
        get("/v1/topics/t0/messages", Origin=PAGE, Authorization="Bearer r-token"),
    ]


SUPER_USERS = frozenset({"User:ANONYMOUS", "User:root"})


def _scenario(asks: list[Ask], *, guarded: bool = False, **options: Any) -> Scenario:
    config = BrokerConfig(default_partitions=1, super_users=SUPER_USERS, allow_unnamed_resources=not guarded)
    return Scenario(asks, {"config": config, **options})


TOKENS = {"nobody": "n-token", "root": "r-token"}
SCENARIOS = {
    "topics": _scenario(TOPICS),
    "publish": _scenario(PUBLISH),
    "publish_queue": _scenario(PUBLISH_QUEUE),
    "read": _scenario(READ),
    "groups": _scenario(GROUPS),
    "queues": _scenario(QUEUES),
    "leases": _scenario(LEASES),
    "dead_letters": _scenario(DEAD_LETTERS),
    "subscribers": _scenario(SUBSCRIBERS),
    "schedules": _scenario(SCHEDULES),
    "users": _scenario(USERS),
    "acls": _scenario(ACLS),
    "broker": _scenario(BROKER),
    "methods": _scenario(METHODS),
    "login": _scenario(LOGIN, guarded=True, tokens=TOKENS),
    "cors": _scenario(from_pages(), cors_origins=(PAGE,)),
    "cors_any": _scenario(from_pages(), cors_origins=("*",)),
}

LISTS_LESS = "a list leaves out what may not be seen: tests/http_admin/test_http_rights.py"
NOT_BY_HTTP = "needs a member, a writer or a state that no HTTP request makes"
UNRECORDED = {
    "408": "the connection times out, below the routes: tests/http_frontend/test_http_protocol.py",
    "431": "the connection counts heads, below the routes: tests/http_frontend/test_http_protocol.py",
    "503": "no memory, or no service while the broker stops: tests/http_frontend/test_http_drain.py",
    "507": "the disk is full: tests/http_frontend/test_http_publish.py",
    "429": "a million idempotency keys: tests/http_idempotency",
    "GET /v1/topics: 403": LISTS_LESS,
    "GET /v1/groups: 403": LISTS_LESS,
    "GET /v1/queues: 403": LISTS_LESS,
    **{f"GET /v1/{name}: 403": LISTS_LESS for name in ("schedules", "pipelines", "sinks", "events", "me")},
    **{f"GET /v1/overview/{name}: 403": LISTS_LESS for name in ("topics", "queues", "groups")},
    "DELETE /v1/connections/{number}: 204": "numbers differ: tests/console/test_console_pages.py",
    "GET /v1/sinks/{sink}: 200": NOT_BY_HTTP,
    "POST /v1/session: 403": "pages of other origins: tests/console/test_console_files.py",
    "DELETE /v1/session: 401": "nothing is asked of who leaves",
    "DELETE /v1/session: 403": "as at its POST",
    "GET /v1/groups/{group}/offsets: 404": "a group without offsets has an empty list",
    "POST /v1/queues: 404": "missing topics are created",
    "PUT /v1/queues/{queue}: 404": "missing topics are created",
    "GET /v1/topics/{topic}/messages: 413": "a huge batch: tests/http_frontend/test_http_read.py",
    "POST /v1/broker/reload: 200": "there is a configuration to load: tests/server",
    "DELETE /v1/groups/{group}: 409": NOT_BY_HTTP,
    "PUT /v1/groups/{group}/offsets: 409": NOT_BY_HTTP,
    "POST /v1/groups/{group}/reset: 409": NOT_BY_HTTP,
    "POST /v1/topics/{topic}/truncate: 409": NOT_BY_HTTP,
    "POST /v1/topics/{topic}/messages: 409": NOT_BY_HTTP,
    "POST /v1/queues/{queue}/messages: 409": NOT_BY_HTTP,
    "POST /v1/queues/{queue}/lease: 409": NOT_BY_HTTP,
    "PATCH /v1/queues/{queue}: 409": NOT_BY_HTTP,
    "PUT /v1/queues/{queue}/subscribers/{subscriber}: 409": NOT_BY_HTTP,
}
"""Statuses that no request of a scenario can get, or routes with statuses, and the reason."""
