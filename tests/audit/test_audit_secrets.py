"""No secret is in an event or in the log: marked secrets are sent through every route that accepts
some, and searched for.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.base.errors import NotAuthenticated, SparrowError
from sparrow.broker.access.authz import Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import AuditEvent
from tests.acls.test_acl_native import CALLS as NATIVE_CALLS
from tests.audit.recorder import Recorder
from tests.audit.test_audit_http import served as served_http
from tests.audit.test_audit_native import served as served_native
from tests.http_admin.calls import call
from tests.http_admin.test_http_rights import CALLS as HTTP_CALLS
from tests.http_admin.test_http_rights import ONE, QUERIES, TOKENS, path_of
from tests.http_frontend.conftest import MakeHttp
from tests.repetitions import repetitions

MARK = "s3cr3t-m4rk"
KEPT_NAMES = frozenset(
    [
        "entity",
        "flow",
        "group",
        "name",
        "offsets",
        "operation",
        "principal",
        "query",
        "queue",
        "ranges",
        "reader",
        "resource_type",
        "run",
        "sink",
        "topic",
        "topics",
    ]
)
"""Fields that say what a call is about: events have them."""
SECRETS: dict[str, Any] = {
    "url": f"https://user:{MARK}@example.org/?token={MARK}",
    "headers": {"Authorization": f"Bearer {MARK}"},
    "secrets": [f"whsec_{MARK}"],
}


def marked(value: Any, field: str = "") -> Any:
    """Return a body in which all texts are marked except names."""
    if field in KEPT_NAMES:
        return value
    match value:
        case dict():
            return {key: marked(each, key) for key, each in value.items()}
        case list():
            return [marked(each, field) for each in value]
        case str():
            return MARK
        case bytes():
            return MARK.encode()
        case _:
            return value


def assert_nothing_leaks(events: list[AuditEvent], log: str) -> None:
    assert events
    for event in events:
        assert MARK not in json.dumps(event.fields()), event
        assert MARK not in repr(event), event
    assert MARK not in log


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_no_route_of_http_leaks_a_secret(
    user: str, tmp_path: Path, make_http: MakeHttp, caplog: pytest.LogCaptureFixture
) -> None:
    bodies: dict[tuple[str, str], Any] = {
        **{route: marked(body) for route, body in HTTP_CALLS.items() if route[0] != "GET"},
        ("POST", "/v1/users"): {"name": "new", "password": MARK},
        ("PUT", "/v1/users/{user}"): {"password": f"{MARK} {MARK}"},
        ("PUT", ONE): SECRETS,
        ("POST", f"{ONE}/rotate-secret"): {"secret": f"whsec_{MARK}"},
    }
    async with served_http(tmp_path / "data", make_http) as (http, recorder):
        caplog.set_level(logging.DEBUG, "sparrow")
        found: list[AuditEvent] = []
        for (method, template), body in bodies.items():
            path = path_of(template) + QUERIES.get((method, template), "")
            await call(http, method, path, body, TOKENS[user])
            await call(http, method, f"{path}{'&' if '?' in path else '?'}access_token={MARK}", body, MARK)
            found += recorder.take()
        assert_nothing_leaks(found, caplog.text)


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_no_call_of_the_native_listener_leaks_a_secret(
    user: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    salted = ["SCRAM-SHA-256", 4096, MARK.encode(), MARK.encode()]
    calls = {
        **{operation: marked(arguments) for operation, arguments in NATIVE_CALLS.items()},
        "user.create": {"name": "new", "credentials": [salted]},
        "user.password": {"name": "somebody", "credentials": [salted]},
        "webhook.put": {"queue": "secret-queue", "name": "hook", "settings": SECRETS},
        "webhook.rotate_secret": {"queue": "secret-queue", "name": "hook", "secret": f"whsec_{MARK}"},
    }
    for operation in ("topic.watch", "topic.weigh", "topic.reach", "group.introduced"):
        del calls[operation]
    for arguments in calls.values():
        for field in ("queue", "name", "group", "sink"):
            if arguments.get(field) == MARK:
                arguments[field] = "a name"
    async with served_native(tmp_path / "data") as (frontend, recorder):
        caplog.set_level(logging.DEBUG, "sparrow")
        client = await frontend.client(credentials={"name": user})
        for operation, arguments in calls.items():
            try:
                await client.call(operation, **arguments)
            except SparrowError:
                continue
        assert_nothing_leaks(recorder.take(), caplog.text)


@settings(
    max_examples=repetitions(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(password=st.text(min_size=1), name=st.text())
def test_a_refused_login_has_the_name_alone(password: str, name: str) -> None:
    password = MARK + password
    audit = Audit()
    recorder = Recorder(audit)
    error = NotAuthenticated(f"wrong password {password}")
    audit.login_refused("kafka", "10.0.0.7", error, claims=name, mechanism="PLAIN")
    (event,) = recorder.take()
    assert MARK not in repr(event)


def test_errors_and_logins_of_principals_are_not_in_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sparrow")
    audit = Audit()
    recorder = Recorder(audit)
    with (
        pytest.raises(ValueError, match=MARK),
        audit.act(Principal("alice", login=None), "user.create", ResourceType.USER, "bob"),
    ):
        raise ValueError(MARK)
    (event,) = recorder.take()
    assert event.error == "INTERNAL"
    assert MARK not in repr(event)
    assert MARK not in caplog.text
