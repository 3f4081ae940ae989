"""Topics that match the regular expressions to which members of groups subscribed (KIP-848).

The expressions have RE2's syntax, as in Kafka (RE2J), and are matched by RE2: in time linear in the
name and in bounded memory, whatever a client sends. An expression must match a whole name.
`NameMatches` finds the names in slices and caches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from sparrow.base.errors import InvalidRegularExpression
from sparrow.broker.topics.name_matches import NameMatches

_MAX_MEMORY_BYTES: Final = 1 << 20


class TopicRegexes(NameMatches):
    """The regular expressions in use. `learn` and `matching` raise InvalidRegularExpression."""

    def __init__(self, topics: Iterable[Any]) -> None:
        """Follow `topics`, a live collection whose items have a `name`."""
        super().__init__(topics, compile_regex)


def compile_regex(regex: str) -> Any:
    """Return an object whose `fullmatch` matches whole names.

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
