"""`python -m adjit.distributed.run train.py`: starts the processes of a program, as `torchrun` does.

Each process finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment.
The store that they meet at is in the launcher. If one fails, the others are ended, and all are started again as
often as `--max-restarts` allows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from .store import TCPStore

WAIT = 30.0  # seconds that processes have to end once they are asked to


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m adjit.distributed.run", description=__doc__, allow_abbrev=False
    )

    def option(name: str, *, both: bool = True, **more: Any) -> None:
        """An option with hyphens and with underscores."""
        other = name[:2] + name[2:].replace("-", "_")
        parser.add_argument(*dict.fromkeys([name, other] if both else [name]), **more)

    option(
        "--nproc-per-node",
        default="1",
        help="processes on this machine: a number, auto, cpu or gpu",
    )
    option("--nnodes", default="1", help="machines")
    option("--node-rank", type=int, default=None, help="the number of this machine")
    option("--standalone", action="store_true", help="one machine, any free port")
    option("--master-addr", default=None, help="where the first machine is")
    option("--master-port", type=int, default=None, help="its port for the store")
    option("--rdzv-backend", default="static", choices=("static", "c10d"), help="how machines meet")
    option("--rdzv-endpoint", default="", help="host:port of the first machine")
    option("--rdzv-id", default=None, help="the name of the run")
    option("--rdzv-conf", default="", help="accepted")
    option(
        "--max-restarts", type=int, default=0, help="how often all processes may be started again"
    )
    option("--monitor-interval", type=float, default=0.1, help="seconds between two looks at them")
    option("--start-method", default="spawn", help="accepted")
    option("--role", default="default", help="accepted")
    option("--no-python", action="store_true", help="the program is no Python script")
    option("--run-path", action="store_true", help="accepted")
    parser.add_argument(
        "-m", "--module", action="store_true", help="the program is a module's name"
    )
    parser.add_argument("training_script", help="the program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def processes_on_this_machine(wanted: str) -> int:
    """How many `--nproc-per-node` asks for.

    Raises:
        ValueError: for something else, or GPUs where there are none.
    """
    if wanted.isdigit():
        return int(wanted)
    from .. import cuda

    gpus = cuda.device_count()
    if wanted == "gpu" and not gpus:
        raise ValueError("Cuda is not available.")
    if wanted not in ("auto", "cpu", "gpu"):
        raise ValueError(f"Unsupported nproc_per_node value: {wanted}")
    return gpus if gpus and wanted != "cpu" else os.cpu_count() or 1


def _is_this_machine(host: str) -> bool:
    """Whether a name is one of this machine's."""
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        socket.create_server((host, 0)).close()
    except OSError:
        return False
    return True


class Launcher:
    """The processes of one machine."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.count = processes_on_this_machine(options.nproc_per_node)
        self.machines = int(options.nnodes.split(":")[0])
        self.run_id = options.rdzv_id or ("none" if options.standalone else uuid.uuid4().hex)
        self.attempt = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        if self.machines > 1 and options.max_restarts:
            raise ValueError("--max-restarts is for one machine: the others would not know of it")

    def _meet(self) -> tuple[TCPStore, int]:
        """The store of the run, and the number of this machine."""
        given = self.options
        host, port = given.master_addr or "127.0.0.1", given.master_port or 0
        if given.rdzv_endpoint and not given.standalone:
            host, _, told = given.rdzv_endpoint.partition(":")
            port = int(told or 29400)
        if self.machines == 1:
            port = 0 if self.attempt else port  # the last one's may still be in use
            return TCPStore(host, port, is_master=True), 0
        if not port:
            port = 29500
        is_first = given.node_rank == 0 or (given.node_rank is None and _is_this_machine(host))
        store = TCPStore(host, port, None, is_first, timedelta(minutes=15), multi_tenant=True)
        node = store.add("machines", 1) - 1 if given.node_rank is None else given.node_rank
        return store, node

    def _environment(self, store: TCPStore, node: int, local: int) -> dict[str, str]:
        world = self.count * self.machines
        told = {
            "LOCAL_RANK": local, "RANK": node * self.count + local, "GROUP_RANK": node,
            "ROLE_RANK": node * self.count + local, "ROLE_NAME": self.options.role,
            "LOCAL_WORLD_SIZE": self.count, "WORLD_SIZE": world, "GROUP_WORLD_SIZE": self.machines,
            "ROLE_WORLD_SIZE": world, "MASTER_ADDR": store.host, "MASTER_PORT": store.port,
            "TORCHELASTIC_RESTART_COUNT": self.attempt,
            "TORCHELASTIC_MAX_RESTARTS": self.options.max_restarts,
            "TORCHELASTIC_RUN_ID": self.run_id, "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        made = os.environ | {name: str(value) for name, value in told.items()}
        if self.count > 1:
            made.setdefault("OMP_NUM_THREADS", "1")  # or each would use all cores
        return made

    def _command(self) -> list[str]:
        given = self.options
        program = [given.training_script, *given.training_script_args]
        if given.no_python:
            return program
        return [sys.executable, "-u", *(["-m"] if given.module else []), *program]

    def run(self) -> int:
        """Run the program; the exit code is 0 if every process's is."""
        while True:
            store, node = self._meet()
            command = self._command()
            self.processes = [
                subprocess.Popen(command, env=self._environment(store, node, local))
                for local in range(self.count)
            ]
            failed = self._watch()
            if failed is None:
                return 0
            self.end()
            self._report(failed, node)
            if self.attempt == self.options.max_restarts:
                return 1
            self.attempt += 1

    def _watch(self) -> int | None:
        """The number of the first process that fails; None once all have ended well."""
        while True:
            codes = [process.poll() for process in self.processes]
            for local, code in enumerate(codes):
                if code:
                    return local
            if all(code == 0 for code in codes):
                return None
            time.sleep(self.options.monitor_interval)

    def end(self) -> None:
        """End what still runs: ask first."""
        limit = time.monotonic() + WAIT
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()

    def _report(self, local: int, node: int) -> None:
        process = self.processes[local]
        code = process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        left = self.options.max_restarts - self.attempt
        print(
            f"{self.options.training_script} FAILED: rank {node * self.count + local} (local_rank {local}, "
            f"pid {process.pid}) ended with {how}; the others were ended"
            + (f"; starting again, {left} left" if left else ""),
            file=sys.stderr,
            flush=True,
        )


@contextlib.contextmanager
def _passing_signals_on(launcher: Launcher) -> Iterator[None]:
    """Have the processes end with the launcher."""

    def ask(number: int, frame: Any) -> None:
        launcher.end()
        sys.exit(128 + number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(args: Sequence[str] | None = None) -> int:
    """Start the processes that the command line asks for, and give the exit code."""
    parser = _parser()
    try:
        launcher = Launcher(parser.parse_args(args))
    except ValueError as error:
        parser.error(str(error))
    with _passing_signals_on(launcher):
        return launcher.run()


if __name__ == "__main__":
    sys.exit(main())
