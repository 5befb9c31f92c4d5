"""How processes find each other: from `init_method` to a store, a rank and a number of processes."""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import parse_qs, urlparse

from .store import FileStore, Store, TCPStore


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = timedelta(minutes=5)
) -> tuple[Store, int, int]:
    """The store that an address names, this process's rank and how many there are.

    Args:
        url: `env://`, `tcp://host:port` or `file:///path`, which may end with `?rank=0&world_size=2`.

    Raises:
        ValueError: if something is missing, with PyTorch's text.
        RuntimeError: for another kind of address.
    """
    parts = urlparse(url)
    told = {
        name: int(values[0])
        for name, values in parse_qs(parts.query).items()
        if values[0].isdigit()
    }
    rank = told.get("rank", -1) if rank == -1 else rank
    world_size = told.get("world_size", -1) if world_size == -1 else world_size
    match parts.scheme:
        case "env":
            rank = rank if rank != -1 else int(_variable("RANK"))
            world_size = world_size if world_size != -1 else int(_variable("WORLD_SIZE"))
            host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
            return _at(host, port, rank, world_size, timeout), rank, world_size
        case "tcp":
            if not parts.port:
                raise _missing("tcp", "port number missing")
            _check("tcp", rank, world_size)
            host = parts.hostname or ""
            return _at(host, parts.port, rank, world_size, timeout), rank, world_size
        case "file":
            if not parts.path:
                raise _missing("file", "path missing")
            _check("file", rank, world_size)
            store = FileStore(parts.path, world_size)
            store.set_timeout(timeout)
            return store, rank, world_size
    raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")


def _at(host: str, port: int, rank: int, world_size: int, timeout: timedelta) -> Store:
    # A launcher has the server in itself, so that it outlives the workers.
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(host, port, world_size, is_master, timeout, multi_tenant=True)


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise _missing("env", f"environment variable {name} expected, but not set")
    return found


def _check(scheme: str, rank: int, world_size: int) -> None:
    if rank == -1:
        raise _missing(scheme, "rank parameter missing")
    if world_size == -1:
        raise _missing(scheme, "world size parameter missing")


def _missing(scheme: str, what: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {what}")
