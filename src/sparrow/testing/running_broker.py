"""Brokers that run for the duration of a test: in a thread with its own event loop, or in a
process.

The ports stay the same over `restart`, so that clients find the broker again. Options are read as
`sparrow serve` reads them; the environment and a `sparrow.yml` of the caller have no effect.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import build, options_of, resolve
from sparrow.server.config import SEED_PORTS, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparrow.server.ready import Ready


PORT_IN_USE_S: Final = 10.0
"""Time that a restart waits for a port that another program has."""
IN_USE: Final = "address already in use"


class Host(Protocol):
    """The thread or process of a broker. `start` and `stop` block; `stop` has no effect on a broker
    that does not run.
    """

    def start(self, config: ServerConfig, given: Mapping[str, object]) -> Ready: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class RunningBroker:
    """A broker under test. Blocking; call it from one thread."""

    def __init__(self, host: Host, options: dict[str, object]) -> None:
        self._host = host
        self._options = options
        self._ready = self._start()

    @property
    def url(self) -> str:
        """Return the URL for clients: sparrow://127.0.0.1:PORT."""
        return self._ready.url

    @property
    def kafka(self) -> str:
        """Return the bootstrap servers for Kafka clients: localhost:PORT; "" when that listener is
        off.
        """
        return self._ready.kafka

    @property
    def http(self) -> str:
        """Return the address of the HTTP listener: http://127.0.0.1:PORT; "" when it is off."""
        return self._ready.http

    @property
    def seeds(self) -> Mapping[str, tuple[str, int]]:
        """Return host and port of each listener for a seed system that is on."""
        split = {name: at.rpartition(":") for name, at in self._ready.seeds.items()}
        return {name: (host.strip("[]"), int(port)) for name, (host, _, port) in split.items()}

    @property
    def host(self) -> str:
        return self._ready.host

    @property
    def port(self) -> int:
        return self._ready.port

    @property
    def data_dir(self) -> str:
        """Return the absolute path of the data directory."""
        return self._ready.data_dir

    @property
    def pid(self) -> int:
        """Return the id of the process that the broker runs in."""
        return self._ready.pid

    def restart(self) -> None:
        """Stop the broker (gracefully, unless it was killed before) and start it again on the same
        port and data.
        """
        self.stop()
        self._options["native_port"] = self.port
        if self.kafka:
            self._options["kafka_port"] = int(self.kafka.rpartition(":")[2])
        if self.http:
            self._options["http_port"] = int(self.http.rpartition(":")[2])
        for name, (_, port) in self.seeds.items():
            self._options[SEED_PORTS[name][0]] = port
        deadline = time.monotonic() + PORT_IN_USE_S
        while True:
            try:
                self._ready = self._start()
            except InvalidConfig as error:
                # Meanwhile the system may have given the port to a connection of another program.
                if IN_USE not in error.text or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """Drain and stop, as SIGTERM does; no effect on a broker that does not run."""
        self._host.stop()

    def kill(self) -> None:
        """Kill the broker with SIGKILL. `restart` starts it again.

        Raises:
            InvalidArgument: the broker runs in a thread; create it with `process=True`.
        """
        self._host.kill()

    def _start(self) -> Ready:
        return self._host.start(_config(self._options), self._options)


def _config(given: Mapping[str, object]) -> ServerConfig:
    options = options_of(ServerConfig)
    unknown = sorted(set(given) - {each.name for each in options})
    if unknown:
        raise InvalidConfig(
            f"there is no option {unknown[0]!r}; sparrow.server.config.ServerConfig has them all"
        )
    resolved = resolve(options, flags=given, environment={}, file={})
    return build(ServerConfig, resolved.values)


@contextmanager
def running(*, process: bool, data_dir: str | None, options: Mapping[str, Any]) -> Iterator[RunningBroker]:
    """Run a broker; see `sparrow.testing.broker`."""
    work_dir = tempfile.mkdtemp(prefix="sparrow-test-")
    chosen = {
        "native_port": 0,
        "kafka_port": 0,
        "http_port": 0,
        "reserve_bytes": 0,
        **options,
        "data_dir": data_dir or f"{work_dir}/data",
    }
    host = _host(process, work_dir)
    try:
        yield RunningBroker(host, chosen)
    finally:
        try:
            host.stop()
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)


def _host(process: bool, work_dir: str) -> Host:
    if process:
        from sparrow.testing.process import ProcessHost

        return ProcessHost(work_dir)
    from sparrow.testing.thread import ThreadHost

    return ThreadHost()
