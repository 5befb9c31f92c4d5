"""Runs functions of a test in several processes, for either library: `dist` is of adjit or of PyTorch."""

import multiprocessing
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path

SECONDS = 120  # the machine may be busy


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def library_called(name):
    """A library and its `distributed`."""
    if name == "torch":
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        return torch, dist
    import adjit
    import adjit.distributed as dist

    return adjit, dist


def _work(function, name, rank, size, port, pipe, args):
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    try:
        T, dist = library_called(name)
        dist.init_process_group("gloo")
        pipe.send((function(T, dist, rank, size, *args), None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def results(function, size, *args, library="adjit"):
    """What `function(T, dist, rank, size, *args)`, of a module, gives in each of `size` processes."""
    context = multiprocessing.get_context("spawn")
    port, found = free_port(), []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(function, library, rank, size, port, theirs, args), daemon=True
        )
        process.start()
        theirs.close()
        found.append((process, ours))
    answers = []
    try:
        for process, pipe in found:
            if not pipe.poll(SECONDS):
                raise TimeoutError(f"a process has not answered in {SECONDS} s")
            try:
                answers.append(pipe.recv())
            except EOFError:  # it was ended
                answers.append((None, None))
            process.join(SECONDS)
    finally:
        for process, _ in found:
            process.kill()
            process.join()
    wrong = [told for _, told in answers if told]
    assert not wrong, "\n".join(wrong)
    return [answer for answer, _ in answers]


def launched(tmp_path, program, *options, arguments=(), launcher=("-m", "adjit.distributed.run")):
    """The end of a program that a launcher starts."""
    path = Path(tmp_path) / "program.py"
    path.write_text(program)
    command = [sys.executable, *launcher, *options, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
