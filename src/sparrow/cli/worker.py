"""`sparrow worker MODULE:APP`: run the tasks of an app in supervised processes."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from sparrow.base.errors import InvalidArgument
from sparrow.base.units import parse_duration_ms, parse_size_bytes
from sparrow.cli.exits import BAD_CONFIG, OK, say
from sparrow.cli.target import CommandTarget, at_broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.tasks.supervisor.supervisor import Supervisor

    Service = Callable[[Supervisor], Awaitable[None]]


@at_broker
def worker(
    broker: CommandTarget,
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app: package.module:name.")],
    *,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="Jobs that each process runs at a time.")
    ] = 8,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Worker processes.")] = 1,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="Only these queues. [all of the app]")
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            "--prefetch", min=1, help="Jobs of a queue that are taken ahead. [4 for each that runs]"
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Replace the processes when a Python file changes.")
    ] = False,
    max_jobs: Annotated[
        int | None, typer.Option("--max-jobs", min=1, help="Replace a process after so many jobs.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option("--max-memory", metavar="SIZE", help="Replace a process that grows larger.")
    ] = None,
    shutdown_timeout: Annotated[
        str,
        typer.Option(
            "--shutdown-timeout", metavar="DURATION", help="Time that running jobs have after SIGTERM."
        ),
    ] = "30s",
    stuck_timeout: Annotated[
        str,
        typer.Option(
            "--stuck-timeout", metavar="DURATION", help="Kill a process that is silent for so long."
        ),
    ] = "60s",
    health: Annotated[
        str | None,
        typer.Option("--health", metavar="[HOST:]PORT", help="Serve /health, /ready and /metrics there."),
    ] = None,
    log_format: Annotated[str, typer.Option("--log-format", help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> int:
    """Run the tasks of an app until SIGTERM or Ctrl-C.

    The first signal lets running jobs finish, the second releases them at once.
    """
    from sparrow.tasks.supervisor.early import taken
    from sparrow.tasks.supervisor.loader import split
    from sparrow.tasks.supervisor.options import SupervisorOptions, WorkerProcessOptions
    from sparrow.tasks.supervisor.reload import check_installed
    from sparrow.tasks.supervisor.supervisor import CannotWork, Supervisor
    from sparrow.tasks.supervisor.worker_process import configure_logs

    split(app)
    _one_of("--log-format", log_format, ("text", "json"))
    _one_of("--log-level", log_level.lower(), ("debug", "info", "warning", "error"))
    process_options = WorkerProcessOptions(
        app=app,
        concurrency=concurrency,
        queues=[name.strip() for name in queues.split(",") if name.strip()] if queues is not None else None,
        prefetch=prefetch,
        shutdown_timeout_s=_duration_s("--shutdown-timeout", shutdown_timeout),
        log_format=cast("Literal['text', 'json']", log_format),
        log_level=log_level.upper(),
        environment=_environment(broker),
    )
    options = SupervisorOptions(
        worker=process_options,
        processes=processes,
        max_jobs=max_jobs,
        max_memory_bytes=None if max_memory is None else _size_bytes(max_memory),
        stuck_timeout_s=_duration_s("--stuck-timeout", stuck_timeout),
        health=None if health is None else _address(health),
        reload=reload,
        reload_paths=[os.getcwd()],
    )
    if reload:
        check_installed()
    configure_logs(process_options)
    logging.getLogger("asyncio").setLevel(logging.WARNING)

    async def run() -> None:
        await Supervisor(options, taken()).run(
            *_services(options.health, options.reload_paths if reload else [])
        )

    try:
        asyncio.run(run())
    except CannotWork as error:
        say(error.text)
        return BAD_CONFIG
    return OK


def _services(health: tuple[str, int] | None, reload_paths: list[str]) -> list[Service]:
    from sparrow.tasks.supervisor.health import serve
    from sparrow.tasks.supervisor.reload import watch

    services: list[Service] = []
    if health is not None:
        services.append(functools.partial(serve, host=health[0], port=health[1]))
    if reload_paths:
        services.append(functools.partial(watch, paths=reload_paths))
    return services


def _environment(broker: CommandTarget) -> dict[str, str]:
    """Return broker and login as variables for the worker processes."""
    values = {
        "SPARROW_URL": broker.url,
        "SPARROW_TOKEN": broker.token,
        "SPARROW_USER": broker.user,
        "SPARROW_PASSWORD": broker.password,
        "SPARROW_CA_FILE": broker.ca_file,
        "SPARROW_CERTIFICATE_FILE": broker.certificate_file,
        "SPARROW_KEY_FILE": broker.key_file,
    }
    return {name: str(value) for name, value in values.items() if value}


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{flag} is {value!r}; it must be one of {', '.join(allowed)}")


def _duration_s(flag: str, text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidArgument(f"{flag} is {text!r}; it must be {error}") from None


def _size_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise InvalidArgument(f"--max-memory is {text!r}; it must be {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidArgument(f"--health is {text!r}; it must be a port, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
