"""Process management for MPI: processes that were started somehow become one MPI world.

MPI's start asks a process manager who else is there, by a protocol of text lines over a socket (PMI 1, which
MPICH and what descends from it speak). Here a thread in the same process answers, from a store.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from .store import HashStore, PrefixStore, Store

LIMITS = "kvsname_max=256 keylen_max=256 vallen_max=4096"


class ProcessManager:
    """Answers the questions of one process while it starts, and as long as it lives."""

    def __init__(self, store: Store, rank: int, size: int, world: str) -> None:
        self.store = PrefixStore("pmi", store)
        self.rank, self.size, self.world = rank, size, world
        self.barriers = 0
        self.failure: Exception | None = None

    @contextlib.contextmanager
    def in_charge(self) -> Iterator[None]:
        """Have MPI ask this manager if it starts meanwhile."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(ours,), name="PMI", daemon=True).start()
        told = {
            "PMI_FD": str(theirs.fileno()),
            "PMI_RANK": str(self.rank),
            "PMI_SIZE": str(self.size),
        }
        os.environ |= told
        try:
            yield
        finally:
            for name in told:  # or the children of this process would believe it
                del os.environ[name]
            theirs.detach()  # MPI has it for good

    def retire(self) -> None:
        """Let go of the store: MPI has started, and asks for nothing of it any more."""
        self.store = PrefixStore("pmi", HashStore())

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                words = dict(word.split("=", 1) for word in line.decode().split() if "=" in word)
                try:
                    answer = self._answer(words)
                except Exception as error:
                    self.failure = error
                    answer = "cmd=barrier_out rc=-1"
                connection.sendall(f"{answer}\n".encode())

    def _answer(self, words: dict[str, str]) -> str:
        match words["cmd"]:
            case "init":
                return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
            case "get_maxes":
                return f"cmd=maxes rc=0 {LIMITS}"
            case "get_universe_size":
                return f"cmd=universe_size rc=0 size={self.size}"
            case "get_appnum":
                return "cmd=appnum rc=0 appnum=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname rc=0 kvsname={self.world}"
            case "put":
                self.store.set(words["key"], words["value"])
                return "cmd=put_result rc=0 msg=success"
            case "get":
                if not self.store.check([words["key"]]):
                    return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                value = self.store.get(words["key"]).decode()
                return f"cmd=get_result rc=0 msg=success value={value}"
            case "barrier_in":
                self.barrier()
                return "cmd=barrier_out rc=0"
            case command:  # "finalize" among them
                return f"cmd={command}_ack rc=0"

    def barrier(self) -> None:
        """Wait until every process has asked for this barrier."""
        name = f"barrier/{self.barriers}"
        self.barriers += 1
        if self.store.add(name, 1) == self.size:
            self.store.set(f"{name}/open", "1")
        self.store.wait([f"{name}/open"])
