"""Topics that match an expression: found in slices, kept, and updated as topics are created and
deleted.

Clients subscribe to patterns of the native protocol and to regular expressions (KIP-848). Matching
one against a large number of topics at once would delay all other tasks. So a new expression is
matched a slice at a time (`learn`). Its matches are kept, so that a new topic costs one match for
each expression.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct, field

MAX_EXPRESSIONS: Final = 1_000
MAX_NAMES: Final = 2_000_000
"""The limit of names that are kept for all expressions together, each about 40 bytes; above it the
least recently used expression is dropped.
"""
SLICE: Final = 1_000
"""Names that are matched between two pauses: about a millisecond."""


class _Expression(Struct):
    compiled: Any
    names: set[str]
    gone: set[str] = field(default_factory=set)
    """Topics that were deleted while the expression was being learnt."""


class NameMatches:
    """The last used expressions with their matches; others are matched again when they are asked
    for. Loop thread only.

    Args:
        topics: live; each has a `name`.
        compiled: compiles an expression to an object whose `fullmatch` matches names; its errors
            are those of `learn` and `matching`.
    """

    def __init__(self, topics: Iterable[Any], compiled: Callable[[str], Any]) -> None:
        self._topics = topics
        self._compiled = compiled
        self._expressions: OrderedDict[str, _Expression] = OrderedDict()
        self._learning: list[_Expression] = []

    def __contains__(self, text: str) -> bool:
        """Return True if an expression is known, so that it takes no time."""
        return text in self._expressions

    async def learn(self, text: str, pause: Callable[[], Awaitable[None]]) -> AbstractSet[str]:
        """Match an expression that is not known, in slices, and keep its matches.

        Args:
            pause: lets other tasks run; awaited between slices. Topics may come and go meanwhile.

        Returns:
            Names of all topics that match, updated while the expression is known. Do not change it.
        """
        known = self._expressions.get(text)
        if known is not None:
            self._expressions.move_to_end(text)
            return known.names
        expression = await self._match(text, pause)
        self._keep(text, expression)
        return expression.names

    async def find(self, text: str, pause: Callable[[], Awaitable[None]]) -> AbstractSet[str]:
        """Match an expression that is needed once, as `learn` does, and keep nothing."""
        known = self._expressions.get(text) or await self._match(text, pause)
        return known.names

    async def _match(self, text: str, pause: Callable[[], Awaitable[None]]) -> _Expression:
        expression = _Expression(self._compiled(text), set())
        self._learning.append(expression)  # from here on it is updated with the topics
        try:
            names = [topic.name for topic in self._topics]
            for start in range(0, len(names), SLICE):
                if start:
                    await pause()
                some = names[start : start + SLICE]
                found = {name for name in some if expression.compiled.fullmatch(name)}
                expression.names |= found - expression.gone
        finally:
            self._learning.remove(expression)
        expression.gone.clear()
        return expression

    def _keep(self, text: str, expression: _Expression) -> None:
        kept = self._expressions
        kept[text] = expression
        if len(kept) > MAX_EXPRESSIONS:
            kept.popitem(last=False)
        count = sum(len(each.names) for each in kept.values())
        while count > MAX_NAMES and len(kept) > 1:
            count -= len(kept.popitem(last=False)[1].names)

    def matching(self, text: str) -> frozenset[str]:
        """Return the names of all topics that match; at once, so `learn` it before."""
        known = self._expressions.get(text)
        if known is None:
            compiled = self._compiled(text)
            names = {topic.name for topic in self._topics if compiled.fullmatch(topic.name)}
            known = _Expression(compiled, names)
            self._keep(text, known)
        self._expressions.move_to_end(text)
        return frozenset(known.names)

    def topic_created(self, name: str) -> None:
        """Add a new topic to the matches."""
        for expression in (*self._expressions.values(), *self._learning):
            expression.gone.discard(name)
            if expression.compiled.fullmatch(name):
                expression.names.add(name)

    def topic_deleted(self, name: str) -> None:
        """Remove a deleted topic from the matches."""
        for expression in self._expressions.values():
            expression.names.discard(name)
        for expression in self._learning:
            expression.names.discard(name)
            expression.gone.add(name)
