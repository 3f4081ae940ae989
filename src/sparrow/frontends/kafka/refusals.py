"""Why an administrative request, or a part of it, is refused: Kafka's code with a sentence.

Most refusals are errors of the broker. `Refusal` is for rules that only this protocol has: replicas, brokers by number, a topic
named twice in one request.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from sparrow.base.errors import NotAuthorized, SparrowError
from sparrow.frontends.kafka.errors import code_of


class Refusal(Exception):
    """A part of a request is not done."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Outcome(NamedTuple):
    """How a part of a request ended: (none, None) is success."""

    code: ErrorCode
    text: str | None


DONE = Outcome(ErrorCode.none, None)


def outcome_of(error: SparrowError | Refusal) -> Outcome:
    """The code and the sentence of an error."""
    if isinstance(error, Refusal):
        return Outcome(error.code, error.text)
    return Outcome(
        code_of(error), "Authorization failed." if isinstance(error, NotAuthorized) else error.text
    )
