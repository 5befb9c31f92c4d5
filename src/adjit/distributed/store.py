"""Stores: small tables of bytes by name that processes share, to find and wait for each other."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, BinaryIO, TypeAlias

from .errors import DistNetworkError, DistStoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

Text: TypeAlias = str | bytes
DEFAULT_TIMEOUT = timedelta(minutes=5)
POLL = 0.01  # seconds between two looks into a file
Table: TypeAlias = dict[str, bytes]


def _bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


# ----- what a store does with its table -----


def _set(table: Table, key: str, value: bytes) -> bytes:
    table[key] = value
    return b""


def _get(table: Table, key: str) -> bytes:
    return table.get(key, b"")


def _append(table: Table, key: str, value: bytes) -> bytes:
    table[key] = table.get(key, b"") + value
    return b""


def _add(table: Table, key: str, amount: bytes) -> bytes:
    table[key] = b"%d" % (int(table.get(key, b"0")) + int(amount))
    return table[key]


def _compare_set(table: Table, key: str, expected: bytes, desired: bytes) -> bytes:
    """A key that is not there equals an empty one."""
    if table.get(key, b"") == expected:
        table[key] = desired
    return table.get(key, expected)


def _delete(table: Table, key: str) -> bytes:
    return b"%d" % (table.pop(key, None) is not None)


def _count(table: Table) -> bytes:
    return b"%d" % len(table)


def _check(table: Table, *keys: str) -> bytes:
    return b"%d" % all(key in table for key in keys)


COMMANDS: dict[str, Callable[..., bytes]] = {
    "set": _set, "get": _get, "append": _append, "add": _add, "compare_set": _compare_set,
    "delete": _delete, "count": _count, "check": _check,
}  # fmt: skip
KEYS_ONLY = ("check",)  # whose arguments are all keys


def _run(table: Table, command: str, arguments: Sequence[bytes]) -> bytes:
    """Do one command on a table."""
    first = len(arguments) if command in KEYS_ONLY else 1
    keys = [key.decode() for key in arguments[:first]]
    return COMMANDS[command](table, *keys, *arguments[first:])


class Store:
    """A table of bytes by name that several processes share.

    A value is `str` or `bytes` when it is set, and `bytes` when it is read. There are `TCPStore`,
    `FileStore`, `HashStore` and `PrefixStore`.

    Example:
        >>> isinstance(adjit.distributed.HashStore(), adjit.distributed.Store)
        True
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    def _ask(self, command: str, *arguments: bytes) -> bytes:
        """Do a command on the table, wherever that is."""
        raise NotImplementedError

    def _await(self, keys: list[str], seconds: float) -> bool:
        """Wait until all keys are there; False if they have not come in time."""
        end = time.monotonic() + seconds
        while not self.check(keys):
            if time.monotonic() > end:
                return False
            time.sleep(POLL)
        return True

    @property
    def timeout(self) -> timedelta:
        """Time that `get` and `wait` wait.

        Example:
            >>> adjit.distributed.HashStore().timeout
            datetime.timedelta(seconds=300)
        """
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long `get` and `wait` wait.

        Example:
            >>> from datetime import timedelta
            >>> store = adjit.distributed.HashStore()
            >>> store.set_timeout(timedelta(seconds=10))
            >>> store.timeout
            datetime.timedelta(seconds=10)
        """
        self._timeout = timeout

    def set(self, key: str, value: Text) -> None:
        """Put a value under a key, over what was there.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.set("seed", "7")
            >>> store.get("seed")
            b'7'
        """
        self._ask("set", key.encode(), _bytes(value))

    def get(self, key: str) -> bytes:
        """Give the value of a key, and wait for it if it is not there yet.

        Raises:
            DistStoreError: if it has not come within the timeout.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.set("seed", "7")
            >>> store.get("seed")
            b'7'
        """
        self.wait([key])
        return self._ask("get", key.encode())

    def append(self, key: str, value: Text) -> None:
        """Put a value behind what is under a key.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.append("log", "a")
            >>> store.append("log", "b")
            >>> store.get("log")
            b'ab'
        """
        self._ask("append", key.encode(), _bytes(value))

    def add(self, key: str, amount: int) -> int:
        """Add to the number under a key, 0 at first, and give the sum.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.add("ready", 1), store.add("ready", 2)
            (1, 3)
        """
        return int(self._ask("add", key.encode(), b"%d" % amount))

    def compare_set(self, key: str, expected_value: Text, desired_value: Text) -> bytes:
        """Put a value under a key that has the expected one, and give what is there afterwards.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.set("leader", "0")
            >>> store.compare_set("leader", "1", "2"), store.compare_set("leader", "0", "2")
            (b'0', b'2')
        """
        return self._ask("compare_set", key.encode(), _bytes(expected_value), _bytes(desired_value))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            DistStoreError: if they have not come within the timeout.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.set("seed", "7")
            >>> store.wait(["seed"])
        """
        limit = self._timeout if timeout is None else timeout
        if not self._await(list(keys), limit.total_seconds()):
            raise DistStoreError(
                f"wait timeout after {int(limit.total_seconds() * 1000)}ms, keys: {', '.join(keys)}"
            )

    def check(self, keys: list[str]) -> bool:
        """True if all keys are there.

        Example:
            >>> adjit.distributed.HashStore().check(["seed"])
            False
        """
        return self._ask("check", *[key.encode() for key in keys]) == b"1"

    def delete_key(self, key: str) -> bool:
        """Take a key out, and say whether it was there.

        Example:
            >>> adjit.distributed.HashStore().delete_key("seed")
            False
        """
        return self._ask("delete", key.encode()) == b"1"

    def num_keys(self) -> int:
        """Count the keys.

        Example:
            >>> adjit.distributed.HashStore().num_keys()
            0
        """
        return int(self._ask("count"))

    def multi_set(self, keys: list[str], values: list[Text]) -> None:
        """Put a value under each key.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.multi_set(["a", "b"], ["1", "2"])
            >>> store.num_keys()
            2
        """
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Give the value of each key, and wait for those that are not there yet.

        Example:
            >>> store = adjit.distributed.HashStore()
            >>> store.multi_set(["a", "b"], ["1", "2"])
            >>> store.multi_get(["a", "b"])
            [b'1', b'2']
        """
        return [self.get(key) for key in keys]

    def has_extended_api(self) -> bool:
        """Tell that `append`, `multi_get` and `multi_set` are there: always.

        Example:
            >>> adjit.distributed.HashStore().has_extended_api()
            True
        """
        return True


class HashStore(Store):
    """A store in the memory of one process, for its threads.

    Example:
        >>> store = adjit.distributed.HashStore()
        >>> store.set("seed", "7")
        >>> store.get("seed")
        b'7'
    """

    def __init__(self) -> None:
        super().__init__()
        self._table: Table = {}
        self._changed = threading.Condition()

    def _ask(self, command: str, *arguments: bytes) -> bytes:
        with self._changed:
            answer = _run(self._table, command, arguments)
            self._changed.notify_all()
        return answer

    def _await(self, keys: list[str], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: all(k in self._table for k in keys), seconds)


class PrefixStore(Store):
    """A part of another store: keys get a prefix.

    Args:
        prefix: that stands before the keys, with a slash.
        store: the other store.

    Example:
        >>> store = adjit.distributed.HashStore()
        >>> adjit.distributed.PrefixStore("first", store).set("seed", "7")
        >>> store.get("first/seed")
        b'7'
    """

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        self._timeout = store.timeout

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def _ask(self, command: str, *arguments: bytes) -> bytes:
        first = len(arguments) if command in KEYS_ONLY else 1
        keys = [self._key(key.decode()).encode() for key in arguments[:first]]
        return self.underlying_store._ask(command, *keys, *arguments[first:])

    def _await(self, keys: list[str], seconds: float) -> bool:
        return self.underlying_store._await([self._key(key) for key in keys], seconds)


# ----- a file -----


class FileStore(Store):
    """A store in a file that all processes see. The last of `world_size` processes removes it.

    Args:
        file_name: of the file, made if it is not there.
        world_size: how many processes use it; -1 if nobody is to remove it.

    Raises:
        RuntimeError: on Windows, which has no locks of this kind.

    Example:
        >>> store = adjit.distributed.FileStore("rendezvous", 1)
        >>> store.set("seed", "7")
        >>> adjit.distributed.FileStore("rendezvous").get("seed")
        b'7'
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        if fcntl is None:
            raise RuntimeError(
                "FileStore needs locks of files, which Windows does not have: use TCPStore"
            )
        self.path, self._world_size = file_name, world_size
        self._owner = os.getpid()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # goes with the file's end, of the process too
            yield file

    def _ask(self, command: str, *arguments: bytes) -> bytes:
        with self._locked() as file:
            fields = list(_fields(file.read()))
            table = {
                key.decode(): value for key, value in zip(fields[::2], fields[1::2], strict=True)
            }
            before = dict(table)
            answer = _run(table, command, arguments)
            if table != before:
                file.seek(0)
                file.truncate()
                for key, value in table.items():
                    file.write(_packed(key.encode(), value))
        return answer

    def __del__(self) -> None:
        world_size = getattr(self, "_world_size", -1)
        if world_size > 0 and self._owner == os.getpid():
            with contextlib.suppress(OSError, ValueError):
                if os.path.exists(self.path) and self.add("closed", 1) >= world_size:
                    os.remove(self.path)


# ----- a server -----


def _packed(*fields: bytes) -> bytes:
    """Fields, each behind its length."""
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)


def _fields(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _receive(file: BinaryIO) -> list[bytes] | None:
    """The fields of a message; None at the end of the connection."""
    head = file.read(4)
    if len(head) < 4:
        return None
    data = file.read(struct.unpack("<I", head)[0])
    return list(_fields(data))


def _message(*fields: bytes) -> bytes:
    return _packed(_packed(*fields))


class _Server:
    """Answers what clients ask of a table; a thread for each connection."""

    def __init__(self, host: str, port: int) -> None:
        self.store = HashStore()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, port), family=family, backlog=1024)
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, name="TCPStore", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # it is closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):
            while (fields := _receive(file)) is not None:
                command, arguments = fields[0].decode(), fields[1:]
                if command == "await":
                    keys = [key.decode() for key in arguments[1:]]
                    answer = b"%d" % self.store._await(keys, float(arguments[0]))
                else:
                    answer = self.store._ask(command, *arguments)
                connection.sendall(_message(answer))


class TCPStore(Store):
    """A store in the memory of one process, which the others reach over a socket.

    Args:
        host_name: where the server is or listens.
        port: of the server; 0 lets the master take a free one, which `port` tells.
        world_size: how many processes there are, if the master is to wait for them.
        is_master: whether the server is in this process.
        timeout: for connecting, for `get` and for `wait`.
        wait_for_workers: whether the constructor waits until `world_size` processes are there.
        multi_tenant: whether processes with the same address may each ask to be the master: the first is.
        master_listen_fd, use_libuv: accepted for PyTorch's programs; the latter has no effect.

    Raises:
        DistNetworkError: if the server cannot be reached in time, or the port is taken.

    Example:
        >>> store = adjit.distributed.TCPStore("localhost", 0, 1, is_master=True)
        >>> other = adjit.distributed.TCPStore("localhost", store.port)
        >>> other.set("seed", "7")
        >>> store.get("seed")
        b'7'
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if master_listen_fd is not None:
            raise NotImplementedError("TCPStore: master_listen_fd is not supported; give the port")
        self._timeout = timeout
        self._server: _Server | None = None
        if is_master:
            self._server = self._serve(host_name, port, multi_tenant)
            port = self._server.port if self._server else port
        self.host, self.port = host_name, port
        self._lock = threading.Lock()
        self._connection = self._connect()
        self._file = self._connection.makefile("rb")
        if world_size is not None and world_size > 0 and wait_for_workers:
            self._wait_for(world_size)

    def _serve(self, host: str, port: int, may_be_there: bool) -> _Server | None:
        # Only as far as it must be seen: what is on this machine stays there.
        local = host in ("localhost", "127.0.0.1", "::1")
        try:
            return _Server("127.0.0.1" if local and host != "::1" else "::1" if local else "", port)
        except OSError as error:
            if may_be_there:
                return None
            raise DistNetworkError(
                "The server socket has failed to listen on any local network address. "
                f"port: {port}, error: {error}"
            ) from None

    def _connect(self) -> socket.socket:
        end = time.monotonic() + self._timeout.total_seconds()
        host = "127.0.0.1" if self.host == "localhost" else self.host
        while True:
            try:
                connection = socket.create_connection((host, self.port), timeout=5)
            except OSError as error:
                if time.monotonic() > end:
                    raise DistNetworkError(
                        f"The client socket has timed out after {self._timeout.total_seconds() * 1000:.0f}ms "
                        f"while trying to connect to ({self.host}, {self.port}): {error}"
                    ) from None
                time.sleep(0.05)
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection

    def _wait_for(self, world_size: int) -> None:
        if self.add("init/", 1) >= world_size:
            self.set("init/all", b"1")
        if self._server is not None:
            self.wait(["init/all"])

    def _send(self, *fields: bytes) -> bytes:
        with self._lock:
            try:
                self._connection.sendall(_message(*fields))
                answer = _receive(self._file)
            except OSError as error:
                raise DistNetworkError(f"failed to reach the store: {error}") from None
        if answer is None:
            raise DistNetworkError(
                f"the store at ({self.host}, {self.port}) has closed the connection: the process that "
                "has it is gone"
            )
        return answer[0]

    def _ask(self, command: str, *arguments: bytes) -> bytes:
        return self._send(command.encode(), *arguments)

    def _await(self, keys: list[str], seconds: float) -> bool:
        return self._send(b"await", b"%f" % seconds, *[key.encode() for key in keys]) == b"1"

    def __del__(self) -> None:
        for part in (getattr(self, "_file", None), getattr(self, "_connection", None)):
            if part is not None:
                part.close()
        server = getattr(self, "_server", None)
        if server is not None:
            server.listener.close()

    def __reduce__(self) -> Any:
        raise TypeError("TCPStore cannot be pickled; make one with the same host and port")
