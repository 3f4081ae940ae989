"""Which topics match a regular expression that a member of a group subscribed to (KIP-848).

The expressions are of RE2's syntax, as in Kafka (RE2J), and are matched by RE2: in time linear in the name, in bounded memory,
whatever a client sends. An expression must match a whole name. What an expression matches is kept and follows the topics, so that
a new topic costs one match for each expression.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sparrow.base.errors import InvalidRegularExpression

MAX_EXPRESSIONS: Final = 1_000
_MAX_MEMORY_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Expression:
    compiled: Any
    names: set[str]


class TopicRegexes:
    """The expressions in use, the last used ones; the others are compiled again when they are asked for."""

    def __init__(self, topics: Iterable[Any]) -> None:
        """`topics` is live: each has a `name`."""
        self._topics = topics
        self._expressions: OrderedDict[str, _Expression] = OrderedDict()

    def matching(self, regex: str) -> frozenset[str]:
        """Names of all topics that match.

        Raises:
            InvalidRegularExpression
        """
        known = self._expressions.get(regex)
        if known is None:
            compiled = compile_regex(regex)
            names = {topic.name for topic in self._topics if compiled.fullmatch(topic.name)}
            known = self._expressions[regex] = _Expression(compiled, names)
            if len(self._expressions) > MAX_EXPRESSIONS:
                self._expressions.popitem(last=False)
        self._expressions.move_to_end(regex)
        return frozenset(known.names)

    def topic_came(self, name: str) -> None:
        """There is a new topic."""
        for expression in self._expressions.values():
            if expression.compiled.fullmatch(name):
                expression.names.add(name)

    def topic_went(self, name: str) -> None:
        """A topic was deleted."""
        for expression in self._expressions.values():
            expression.names.discard(name)


def compile_regex(regex: str) -> Any:
    """An object whose `fullmatch` tells whether a name matches.

    Raises:
        InvalidRegularExpression
    """
    module, options = _engine()
    try:
        return module.compile(regex, options)
    except module.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpression(
            f"{regex[:200]!r} is no regular expression of RE2's syntax: {text[:200]}."
        ) from error


@cache
def _engine() -> tuple[Any, Any]:
    try:
        import re2
    except ImportError as error:
        raise InvalidRegularExpression(
            "This broker cannot subscribe to regular expressions: google-re2 is not installed (pip install"
            " 'sparrow-broker[server]')."
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    return re2, options
