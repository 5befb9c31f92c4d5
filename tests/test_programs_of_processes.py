"""Programs of several processes, as people write and start them, in both libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from in_processes import SECONDS, free_port

from adjit.distributed import is_mpi_available

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "programs" / "processes"


def ran(library: str, target: Path, *command: str) -> tuple[list[float], list[np.ndarray]]:
    """The losses and parameters that a program of a library writes."""
    tries = 3 if library == "torch" else 1
    for _ in range(tries):
        done = subprocess.run(
            [sys.executable, *command, str(target)], capture_output=True, text=True, timeout=4 * SECONDS,
            check=False, env={**os.environ, "LIBRARY": library, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        # PyTorch's processes sometimes abort while they end (a thread of theirs still runs)
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    with np.load(target) as found:
        losses, *parameters = found.values()
    return losses.tolist(), parameters


def close(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


@pytest.mark.in_turn(2)
@pytest.mark.skipif(not is_mpi_available(), reason="needs mpi4py and an MPI")
def test_a_classifier_under_the_launcher(tmp_path: Path) -> None:
    found = []
    for library in ("adjit", "torch"):
        launcher = (
            "-m", f"{library}.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}",
        )  # fmt: skip
        program = str(FOLDER / "mnist_ddp.py")
        found.append(ran(library, tmp_path / f"{library}.npz", *launcher, program))
    (losses, ours), (expected, theirs) = found
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    close(ours, theirs)


@pytest.mark.in_turn(2)
def test_hogwild_with_one_process_is_training_alone(tmp_path: Path) -> None:
    """In another process and shared memory the same bits; and what PyTorch gets."""
    program = str(FOLDER / "mnist_hogwild.py")
    losses, ours = ran("adjit", tmp_path / "one.npz", program, "1")
    alone, parameters = ran("adjit", tmp_path / "none.npz", program, "0")
    assert losses == alone
    assert all((a == b).all() for a, b in zip(ours, parameters, strict=True))
    expected, theirs = ran("torch", tmp_path / "torch.npz", program, "1")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    close(ours, theirs)


def test_hogwild_with_two_processes_trains(tmp_path: Path) -> None:
    """Writes without a lock end in other bits each time, but the loss falls and both have worked."""
    program = str(FOLDER / "mnist_hogwild.py")
    (before, right, after, right_after, *seen), _ = ran("adjit", tmp_path / "two.npz", program, "2")
    assert after < 0.8 * before
    assert right_after > right
    assert seen == [24, 24]
