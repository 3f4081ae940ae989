"""SIGTERM and SIGINT while workers run: the first asks them to finish, each further one to release
their jobs.

`signal.signal` is used instead of the loop's own way: it works on every platform and loop, also if
the loop runs in another thread, and the previous handler can be restored. The handler does next to
nothing, because it runs between any two steps of the main thread.

There may be several listeners (two clients in one program): the handlers are set by the first and
restored after the last. They are also set if the process was started with a signal ignored (as
shells without job control do for commands with `&`), as the broker does: a signal sent to a worker
means that it should stop.

A handler that the program, or a server within it (uvicorn, gunicorn), has set is called as well:
workers beside a server must not keep it from stopping. Python's own handlers, which raise
KeyboardInterrupt or cancel the main task, are not called.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Listener = Callable[[str], object]

_NAMES: Final = ("SIGTERM", "SIGINT", "SIGBREAK")
"""The last one exists on Windows only."""


class _Listening:
    """The listeners of this process. Main thread only."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._before: dict[signal.Signals, Any] = {}

    def begin(self, listener: Listener) -> None:
        self.listeners.append(listener)
        if len(self.listeners) > 1:
            return
        for name in _NAMES:
            number = getattr(signal, name, None)
            # None: it was not set by Python, and could not be restored.
            if number is not None and signal.getsignal(number) is not None:
                self._before[number] = signal.signal(number, self._arrived)

    def end(self, listener: Listener) -> None:
        self.listeners.remove(listener)
        if not self.listeners:
            before, self._before = self._before, {}
            for number, handler in before.items():
                signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        for listener in list(self.listeners):
            listener(signal.Signals(number).name)
        before = self._before.get(signal.Signals(number))
        if callable(before) and not _is_pythons_own(before):
            before(number, frame)


def _is_pythons_own(handler: object) -> bool:
    """Return True for the Ctrl-C handlers of Python and `asyncio.run`."""
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler is signal.default_int_handler or isinstance(runner, asyncio.Runner)


_LISTENING = _Listening()


def may_listen() -> bool:
    """Return True in the main thread: Python delivers signals to no other one."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` with the name of each SIGTERM and SIGINT; it must not block. Main thread
    only: elsewhere this does nothing.
    """
    if not may_listen():
        yield
        return
    _LISTENING.begin(listener)
    try:
        yield
    finally:
        _LISTENING.end(listener)
