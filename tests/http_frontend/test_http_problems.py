"""Every error of the tree has a status in HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparrow.base import errors
from sparrow.base.errors import Draining, InvalidArgument, NotAuthenticated, SparrowError, UnknownTopic
from sparrow.frontends.http import problems
from sparrow.frontends.http.problems import InvalidParameters, body_of, problem_of, response_parts, status_of


def classes(root: type[SparrowError] = SparrowError) -> Iterator[type[SparrowError]]:
    yield root
    for child in root.__subclasses__():
        yield from classes(child)


BRANCHES = {
    errors.CorruptStoredBatch: range(500, 501),
    errors.BadInput: range(400, 500),
    errors.NotFound: range(404, 405),
    errors.Conflict: range(409, 423),
    errors.Refused: range(401, 404),
    errors.Unavailable: range(429, 508),
    errors.ProtocolError: range(400, 401),
    errors.DataDirectoryError: range(500, 501),
    errors.InternalError: range(500, 501),
}


@pytest.mark.parametrize(
    "kind",
    [kind for kind in classes() if kind.__module__ in {errors.__name__, problems.__name__}],
    ids=lambda kind: kind.__name__,
)
def test_the_status_says_whose_fault_it_was(kind: type[SparrowError]) -> None:
    branch = next((each for each in BRANCHES if issubclass(kind, each)), None)
    if branch is not None:
        assert status_of(kind("text")) in BRANCHES[branch]
    else:
        assert kind is SparrowError


def test_a_problem_has_the_members_of_rfc_9457_and_the_code() -> None:
    assert problem_of(UnknownTopic("there is no topic"), "/v1/topics/a") == {
        "type": "urn:sparrow:error:unknown-topic",
        "title": "Unknown topic",
        "status": 404,
        "detail": "there is no topic",
        "instance": "/v1/topics/a",
        "code": "UNKNOWN_TOPIC",
        "retriable": False,
    }


def test_faults_of_a_request_name_where_they_are() -> None:
    problem = problem_of(InvalidParameters("two things", [("query.limit", "too large"), ("body", "missing")]))
    assert problem["status"] == 400
    assert problem["errors"] == [
        {"where": "query.limit", "what": "too large"},
        {"where": "body", "what": "missing"},
    ]


@pytest.mark.parametrize(
    "error", [InvalidArgument("\ud800 x"), InvalidParameters("\udcff", [("\ud800", "\udcff")])]
)
def test_text_that_is_not_unicode_is_reported_all_the_same(error: SparrowError) -> None:
    assert json.loads(body_of(error, "/\udcff"))["code"] == "INVALID_ARGUMENT"


def test_headers_say_when_to_come_again_and_how_to_log_in() -> None:
    _, headers, _ = response_parts(Draining("soon"))
    assert (b"retry-after", b"5") in headers
    status, headers, _ = response_parts(NotAuthenticated("who?"))
    assert status == 401
    assert [name for name, _ in headers].count(b"www-authenticate") == 2
