"""Notices processes that end: each process has a connection to each other one, which ends with it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable

Share = Callable[[object], list[object]]  # what a process has to say to all, and what all have said


class Watch:
    """Which of the other processes have ended, and when that was noticed."""

    def __init__(self, rank: int, size: int, share: Share) -> None:
        self.ended: dict[int, float] = {}
        self.rank = rank
        self._open = selectors.DefaultSelector()
        listener = socket.create_server(("", 0), backlog=max(size, 16))
        host = socket.gethostname()
        addresses = share((host, listener.getsockname()[1]))
        found = [self._greet(host, address) for address in addresses[:rank]]  # type: ignore[arg-type]
        for other, connection in enumerate(found):
            self._open.register(connection, selectors.EVENT_READ, other)
        for _ in range(rank + 1, size):
            connection, _ = listener.accept()
            (other,) = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
            self._open.register(connection, selectors.EVENT_READ, other)
        listener.close()
        if size > 1:
            threading.Thread(target=self._look, name="Watch", daemon=True).start()

    def _greet(self, host: str, address: tuple[str, int]) -> socket.socket:
        there, port = address
        connection = socket.create_connection(("127.0.0.1" if there == host else there, port))
        connection.sendall(struct.pack("<I", self.rank))
        return connection

    def _look(self) -> None:
        while self._open.get_map():
            for key, _ in self._open.select():
                connection: socket.socket = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(OSError):
                    if connection.recv(1):
                        continue
                self._open.unregister(connection)
                connection.close()
                self.ended[key.data] = time.monotonic()

    def close(self) -> None:
        """Leave: to the others this process has ended."""
        for key in list(self._open.get_map().values()):
            with contextlib.suppress(OSError):
                key.fileobj.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def first_ended(self, among: Iterable[int]) -> int | None:
        """The process, of some, that has ended first; None if none has."""
        ended = [rank for rank in among if rank in self.ended]
        return min(ended, key=self.ended.__getitem__, default=None)
