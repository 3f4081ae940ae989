"""A connection that is cut once, when the response to a certain request comes back: the broker has
executed the request, and the client does not know.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import closing, suppress
from typing import Self


class CuttingProxy:
    """A proxy that forwards connections on its own port to a broker. The first response after a
    request with `word` in it is dropped with its connection.
    """

    def __init__(self, host: str, port: int, word: str) -> None:
        self.cuts = 0
        self._to = (host, port)
        self._word = word.encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)

    @property
    def url(self) -> str:
        return f"sparrow://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the accepting thread, which closing alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._to)
            self._sockets += [client, broker]
            thread = threading.Thread(target=self._forward, args=(client, broker))
            self._threads.append(thread)
            thread.start()

    def _forward(self, client: socket.socket, broker: socket.socket) -> None:
        is_asked = False
        with closing(client), closing(broker), suppress(OSError):
            while True:
                for each in select.select([client, broker], [], [])[0]:
                    data = each.recv(1 << 16)
                    if not data:
                        return
                    if each is client:
                        broker.sendall(data)
                        is_asked = is_asked or (not self.cuts and self._word in data)
                    elif is_asked:
                        self.cuts += 1
                        return
                    else:
                        client.sendall(data)
