"""The blocking forms of the async client's methods, made of them when they are imported.

    class Admin(BlockingPart[AsyncAdmin]):
        create_topic = blocking(AsyncAdmin.create_topic)

So a method is declared once, in `sparrow.client`: signature, defaults, docstring and types. Type
checkers see the arguments of the async method and the type that it returns, by the annotations of
the functions below; `help`, `inspect.signature` and editors see the async method's own. A test
compares the names of both clients. Rejected: a generated file, which is as long as what it
replaces and must be made again after each change; classes that are filled by a loop, of which type
checkers would see nothing without a stub of that length.

Parts that differ for threads are written by hand in the class: iterating, contexts, signals,
deliveries.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.sync.background import Background

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")
Part = TypeVar("Part")
_MADE = "__made__"


class BlockingPart(Generic[Inner]):
    """A part of the async client, for threads."""

    def __init__(self, background: Background, inner: Inner) -> None:
        """Wrap a part that belongs to the loop of the background thread."""
        self._background = background
        self._inner = inner

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, made in vars(cls).items():
            if getattr(made, _MADE, False):
                made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"

    def __repr__(self) -> str:
        return f"<blocking {repr(self._inner)[1:]}"


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking form of a coroutine method: it runs on the background thread, and raises
    what the method raises.
    """
    name = method.__name__

    def call(self: BlockingPart[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._background.run(getattr(self._inner, name)(*args, **kwargs))
        return result

    return _as_method(call, method)


def direct(method: Callable[Concatenate[Any, P], T], note: str = "") -> Callable[Concatenate[Any, P], T]:
    """Return the form of a plain method that any thread may call. `note` is added to its text."""
    name = method.__name__

    def call(self: BlockingPart[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = getattr(self._inner, name)(*args, **kwargs)
        return result

    return _as_method(call, method, note)


def wrapped(
    method: Callable[Concatenate[Any, P], Inner], part: Callable[[Background, Inner], Part], note: str = ""
) -> Callable[Concatenate[Any, P], Part]:
    """Return the form of a plain method that makes a part of the client: it returns that part for
    threads. `note` is added to its text.
    """
    name = method.__name__

    def call(self: BlockingPart[Any], /, *args: P.args, **kwargs: P.kwargs) -> Part:
        return part(self._background, getattr(self._inner, name)(*args, **kwargs))

    return _as_method(call, method, note)


def _as_method(
    call: Callable[..., T], method: Callable[Concatenate[Any, P], Any], note: str = ""
) -> Callable[Concatenate[Any, P], T]:
    functools.update_wrapper(call, method)
    text = (method.__doc__ or "").replace("`async with`", "`with`")
    if note:
        summary, _, rest = text.partition("\n\n")
        text = f"{summary.rstrip()} {note}" + (f"\n\n{rest}" if rest else "")
    call.__doc__ = text
    setattr(call, _MADE, True)
    return call
