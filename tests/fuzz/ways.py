"""The ways to run a program, each a process of its own; the first is what the others are compared with."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import worker
from .programs import Program

PATIENCE = 900.0  # seconds for one program: with a cold kernel cache, on a busy machine


class Way(NamedTuple):
    """Settings, and what is done with a program under them."""

    settings: dict[str, str]
    often: int  # one program in so many
    request: dict[str, Any] = {}  # noqa: RUF012
    library: str = "adjit"
    takes_random: bool = True  # programs that draw random numbers, too


ONE = {"ADJIT_NUM_THREADS": "1"}
OFF = {"ADJIT_JIT": "off", **ONE}
HOT = {"ADJIT_JIT": "sync", "ADJIT_HOT": "1", **ONE}
WAYS = {
    "unfused": Way(OFF, 1),
    "eager": Way({"ADJIT_EAGER": "1", **OFF}, 2),
    "python recorder": Way({"ADJIT_RECORDER": "python", **OFF}, 3),
    "2 threads": Way({**OFF, "ADJIT_NUM_THREADS": "2"}, 4),
    "again": Way(OFF, 4, {"times": 3}),
    "planned": Way(HOT, 4, {"times": 3}),
    "planned, python recorder": Way({**HOT, "ADJIT_RECORDER": "python"}, 12, {"times": 2}),
    "fused": Way({**HOT, "ADJIT_MIN_FUSED": "1"}, 96, {"times": 2}),
    "fused, 2 threads": Way(
        {**HOT, "ADJIT_MIN_FUSED": "1", "ADJIT_NUM_THREADS": "2"}, 192, {"times": 3}
    ),
    "threads": Way(HOT, 12, {"way": "threads"}, takes_random=False),
    "compiled": Way(HOT, 12, {"way": "compiled", "times": 3}),
    "torch": Way({}, 2, {"way": "spread"}, library="torch", takes_random=False),
}


class Worker:
    """A process that runs programs in one way."""

    def __init__(self, way: Way, settings: dict[str, str]) -> None:
        self.way = way
        self.environment = {**os.environ, **way.settings, **settings}
        self.process: Any = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, worker.__file__, self.way.library],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment,
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> None:
        if self.process is None:
            self.start()
        with contextlib.suppress(BrokenPipeError):
            worker.send(self.process.stdin, request)

    def answer(self) -> Any:
        """The outcomes, or a text that says what went wrong."""
        end = time.monotonic() + PATIENCE
        while not select.select([self.process.stdout], [], [], 5)[0]:
            if time.monotonic() > end:
                self.stop()
                return f"no answer in {PATIENCE:.0f} s"
        try:
            return worker.receive(self.process.stdout)
        except EOFError:
            code = self.process.wait()
            self.process = None
            return f"the process ended: {signal.Signals(-code).name if code < 0 else code}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


class Workers:
    """All ways, started when they are first needed."""

    def __init__(
        self, settings: dict[str, str] | None = None, names: Sequence[str] = tuple(WAYS)
    ) -> None:
        has_torch = importlib.util.find_spec("torch") is not None
        self.names = [n for n in names if n != "torch" or has_torch]
        # Programs are small: where they are pasted into each other, workers are not to fight for the cores.
        settings = {"OMP_NUM_THREADS": "1", **(settings or {})}
        self.workers = {name: Worker(WAYS[name], settings) for name in self.names}
        self.runs = dict.fromkeys(self.names, 0)

    def chosen(self, number: int) -> list[str]:
        """The ways for the program of this number."""
        return [name for name in self.names if number % WAYS[name].often == 0]

    def run(self, program: Program, names: Sequence[str]) -> dict[str, Any]:
        """What a program does in each of these ways."""
        requests = {name: self.request(name, program) for name in names}
        for name, request in requests.items():
            self.workers[name].ask(request)
            self.runs[name] += 1
        return {name: self.workers[name].answer() for name in requests}

    def request(self, name: str, program: Program) -> dict[str, Any]:
        return {"lines": program.lines, "inputs": program.inputs, **WAYS[name].request}

    def close(self) -> None:
        for one in self.workers.values():
            one.stop()


@contextlib.contextmanager
def workers(
    settings: dict[str, str] | None = None, names: Sequence[str] = tuple(WAYS)
) -> Iterator[Workers]:
    """The processes, ended afterwards."""
    made = Workers(settings, names)
    try:
        yield made
    finally:
        made.close()
