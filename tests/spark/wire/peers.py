"""Faulty peers in place of a broker: each serves on a free port of the loopback, in a thread that
ends with the test.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Received, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

Script: TypeAlias = "Callable[[Peer, Connection, m.Head], bool]"
"""Called with each received frame; False ends the connection."""


class Peer:
    """A peer that speaks the broker's side of the protocol by a script. `url` is its address;
    `connections` counts its clients.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"sparrow://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._begin(self._accept)

    def stop(self) -> None:
        for each in (self._listening, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listening.accept()
                self.connections += 1
                self._sockets.append(accepted)
                self._begin(lambda sock=accepted: self._serve(sock))  # type: ignore[misc]

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(Role.BROKER)
        with suppress(OSError):
            while data := sock.recv(1 << 16):
                connection.receive_data(data)
                goes_on = True
                for event in connection.events():
                    if isinstance(event, Received):
                        goes_on = goes_on and self._script(self, connection, event.head)
                for piece in connection.data_to_send():
                    sock.sendall(piece)
                if not goes_on:
                    sock.shutdown(socket.SHUT_RDWR)
                    return


@contextmanager
def peer(script: Script) -> Iterator[Peer]:
    """Yield a peer whose `script` is called with each frame; False ends the connection."""
    serving = Peer(script)
    serving.start()
    try:
        yield serving
    finally:
        serving.stop()


def welcome(connection: Connection) -> bool:
    connection.send(m.Welcome(1, "0.0", "cluster", "n1", 16 << 20, 256, 60_000))
    return True
