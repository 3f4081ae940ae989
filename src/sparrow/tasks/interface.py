"""An app and its tasks as the other parts of the package use them.

`app.py` imports those parts; they import this module, so that imports go one way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from sparrow.tasks.connection import Connection, TaskMessage
    from sparrow.tasks.options import TaskOptions
    from sparrow.tasks.results import Result, ResultReader
    from sparrow.tasks.signature import Signature
    from sparrow.tasks.wire import IdSource

T = TypeVar("T")


class AnyTask(Protocol):
    """A task, whatever its parameters and its result."""

    @property
    def name(self) -> str: ...
    @property
    def app(self) -> App: ...
    @property
    def settings(self) -> TaskOptions: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def function(self) -> Callable[..., Any]: ...


class App(Protocol):
    """An app. `Tasks` says what each member is."""

    url: Any
    send_hooks: list[Callable[[TaskMessage], object]]

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> Mapping[str, AnyTask]: ...
    @property
    def ids(self) -> IdSource: ...
    @property
    def middlewares(self) -> Sequence[Callable[..., Awaitable[Any]]]: ...
    @property
    def start_hooks(self) -> Sequence[Callable[[], object]]: ...
    @property
    def stop_hooks(self) -> Sequence[Callable[[], object]]: ...
    @property
    def flows(self) -> str: ...
    @property
    def queues(self) -> list[str]: ...
    @property
    def given_url(self) -> str | None: ...
    @property
    def is_connected(self) -> bool: ...

    def settings_of(self, queue: str) -> dict[str, Any] | None: ...

    def context_values(self) -> bytes: ...

    def enter_context(self, values: bytes) -> None: ...

    def run_sync(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T: ...

    async def connection(self) -> Connection: ...

    async def reader(self) -> ResultReader: ...

    async def close(self) -> None: ...

    async def send_steps(self, steps: Sequence[Any], exits: Sequence[Any]) -> list[Result[Any]]: ...
