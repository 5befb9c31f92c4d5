"""The benchmark's rows compute what they say; nothing here looks at a clock."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import stub_driver

import adjit
from adjit.distributed import is_mpi_available

BENCH = Path(__file__).parent.parent / "bench"
NAMES = (
    "applications",
    "everyday",
    "func",
    "libraries",
    "machine",
    "programs",
    "rates",
    "readme",
    "rows",
    "run",
    "sizes",
    "table",
    "timing",
    "views",
)


@pytest.fixture(autouse=True)
def threads_of_measurements_are_theirs() -> Iterator[None]:
    before = adjit.get_num_threads()
    yield
    adjit.set_num_threads(before)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(BENCH)
    return {name: importlib.import_module(name) for name in NAMES}


def test_rows_are_told_apart_and_all_run_in_adjit(bench: dict[str, ModuleType]) -> None:
    groups = {
        "programs": "PROGRAMS",
        "applications": "APPLICATIONS",
        "views": "VIEWS",
        "func": "TRANSFORMS",
    }
    programs = [row for module, name in groups.items() for row in getattr(bench[module], name)]
    rows = (*bench["rows"].ROWS, *bench["everyday"].CALLS, *bench["sizes"].SIZES, *programs)
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.runs_in(bench["libraries"].Adjit) for row in rows)


def test_a_row_agrees_between_adjit_and_numpy(bench: dict[str, ModuleType]) -> None:
    libraries, rows = bench["libraries"], bench["rows"]
    row = next(row for row in rows.ROWS if "z*y + y" in row.name)
    results = []
    for library in (libraries.NumPy(), libraries.Adjit()):
        results.append(rows.values_of(library, row.prepare(library)()))
    assert rows.disagreement(row, *results) == ""
    assert results[1][0].shape == (16,)


def test_everyday_calls_agree_with_pytorch(bench: dict[str, ModuleType]) -> None:
    pytest.importorskip("torch")
    libraries, rows = bench["libraries"], bench["rows"]
    both = libraries.Torch(), libraries.Adjit()
    for row in (*bench["everyday"].CALLS, *bench["sizes"].SIZES):
        results = [rows.values_of(library, row.prepare(library)()) for library in both]
        assert rows.disagreement(row, *results) == "", row.name


def test_a_wrong_value_or_shape_is_reported(bench: dict[str, ModuleType]) -> None:
    rows = bench["rows"]
    right = [np.ones(3, np.float32)]
    assert rows.disagreement(rows.ROWS[0], right, [right[0] * 1.01]).startswith("differs by up to")
    assert "shape" in rows.disagreement(rows.ROWS[0], right, [np.ones((3, 1), np.float32)])
    assert "results" in rows.disagreement(rows.ROWS[0], right, [])


def test_the_table_shows_ratios_means_and_failures(bench: dict[str, ModuleType]) -> None:
    def row(name: str, **cells: float | str) -> dict[str, object]:
        figures = {
            library: {"error": value} if isinstance(value, str) else {"seconds": value}
            for library, value in cells.items()
        }
        return {"group": "unary", "name": name, "threads": 1, "cells": figures}

    text = bench["table"].markdown(
        {
            "machine": "a machine",
            "versions": {"adjit": "1", "PyTorch": "2"},
            "rows": [
                row("fast", adjit=1e-6, PyTorch=8e-6),
                row("slow", adjit=2e-3, PyTorch=1e-3),
                row("broken", adjit="differs by up to 1", PyTorch=1e-3),
            ],
        }
    )
    assert "| fast | 1 | 1.00 µs | 8.00 µs (8.00×) |" in text
    assert "| unary | 1 | 2.00× of 2 |" in text
    assert "PyTorch is ahead here:\n\n- slow, 1 thread: 0.50×" in text
    assert "| broken | 1 | failed | 1.00 ms |" in text
    assert "- broken, 1 thread, adjit: differs by up to 1" in text


def test_steps_are_compared_with_and_without_capture(bench: dict[str, ModuleType]) -> None:
    seconds = {"adjit": 2.0, "adjit.compile": 1.0, "PyTorch": 4.0, "torch.compile": 5.0, "JAX": 3.0}
    cells = {name: {"seconds": value} for name, value in seconds.items()}
    noted = {**cells, "torch.compile": {"note": "no C++ compiler"}}
    rows = [
        {"group": "programs", "name": f"row {k}", "threads": 1, "cells": found}
        for k, found in enumerate((cells, noted))
    ]
    text = bench["table"].markdown({"machine": "", "versions": {}, "rows": rows})
    assert "| programs | 1 | 2.00× of 2 | 3.00× of 2 |" in text
    assert (
        "| row 1 | 1 | 2.00 s | 1.00 s (0.50×) | 4.00 s (2.00×) | no C++ compiler | 3.00 s (1.50×) |"
        in text
    )
    assert "Failed" not in text


def test_memory_of_less_than_a_mebibyte_makes_no_ratio(bench: dict[str, ModuleType]) -> None:
    table = bench["table"]
    cells = {"adjit": {"bytes": 0}, "PyTorch": {"bytes": 1 << 21}}
    assert table.ratio({"cells": cells}, "PyTorch") is None
    assert [table.text_of(cell) for cell in cells.values()] == ["< 1 MiB", "2.0 MiB"]


def test_a_row_that_takes_too_long_is_stopped(bench: dict[str, ModuleType]) -> None:
    timing = bench["timing"]
    if not hasattr(timing.signal, "setitimer"):
        pytest.skip("this system has no timer that interrupts")
    with pytest.raises(timing.OutOfTime), timing.limit_time(0.01):
        time.sleep(10)
    with timing.limit_time(0.01):
        pass
    time.sleep(0.02)  # a timer that was left running would end the test here


def test_no_graph_comes_twice(bench: dict[str, ModuleType]) -> None:
    programs = bench["programs"]
    graphs = [tuple(dag) for dag in islice(programs.dags("a library"), 25)]
    graphs += [tuple(dag) for dag in islice(programs.dags("a library"), 25)]
    assert graphs[:25] == [tuple(dag) for dag in islice(programs.dags("another"), 25)]
    assert len(set(graphs)) == 50
    for dag in graphs:
        assert all(max(node[1:]) < position for position, node in enumerate(dag, start=4))


def program_cases() -> list[Any]:
    """The programs, named by their rows; the module is loaded here only to find them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCH)
        programs = importlib.import_module("programs").PROGRAMS
        applications = importlib.import_module("applications").APPLICATIONS
        views = importlib.import_module("views").VIEWS
        transforms = importlib.import_module("func").TRANSFORMS
    return [pytest.param(p, id=p.name) for p in (*programs, *applications, *views, *transforms)]


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("program", program_cases())
def test_a_program_computes_in_adjit_what_pytorch_computes(
    bench: dict[str, ModuleType], program: Any
) -> None:
    libraries, rows = bench["libraries"], bench["rows"]
    results = []
    for library in (libraries.Torch, libraries.Adjit, libraries.CapturedAdjit):
        if library.installed() and program.runs_in(library):
            loaded = library()
            result = loaded.warm_up(program.prepare(loaded, tiny=True))
            results.append(rows.values_of(loaded, result))
    assert all(np.isfinite(value).all() for found in results for value in found)
    for found in results:
        assert rows.disagreement(program, results[0], found) == ""


def test_the_network_of_the_bench_is_the_one_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names, and with the same weights the same results in both libraries."""
    monkeypatch.syspath_prepend(BENCH)
    resnet = importlib.import_module("resnet")
    adjit.manual_seed(0)
    model = adjit.models.resnet18()
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    mine = resnet.resnet18(adjit)
    assert {name: value.shape for name, value in mine.state_dict().items()} == {
        name: value.shape for name, value in state.items()
    }
    assert [name for name, _ in mine.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    images = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)
    expected = logits(adjit, model, state, images)
    np.testing.assert_allclose(logits(adjit, mine, state, images), expected, rtol=1e-6)
    torch = pytest.importorskip("torch")
    found = logits(torch, resnet.resnet18(torch), state, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def logits(library: Any, network: Any, state: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """What a network in evaluation mode makes of images with given weights."""
    network.load_state_dict({name: library.tensor(value) for name, value in state.items()})
    return np.asarray(network.eval()(library.tensor(images)).detach().numpy())


# ----- on a GPU -----


@pytest.mark.parametrize(
    "name", ["GELU", "attention", "Adam", "tanh RNN", "SGD step, MLP 64-32-10"]
)
def test_a_program_runs_on_a_gpu(bench: dict[str, ModuleType], name: str) -> None:
    """On the stub driver."""
    program = next(p for p in bench["programs"].PROGRAMS if p.name.startswith(name))
    libraries, rows = bench["libraries"], bench["rows"]
    with stub_driver.installed():
        here, there = libraries.Adjit(), libraries.Adjit("cuda")
        expected = rows.values_of(here, here.warm_up(program.prepare(here, tiny=True)))
        result = there.warm_up(program.prepare(there, tiny=True))
        parts = result if isinstance(result, tuple | list) else (result,)
        assert all(part.is_cuda for part in parts)
        assert rows.disagreement(program, expected, rows.values_of(there, result)) == ""


def test_rates_of_a_gpu(
    bench: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The whole road: rows are timed on the stub driver and become a table."""
    libraries, rates, timing = bench["libraries"], bench["rates"], bench["timing"]
    small = [
        dataclasses.replace(
            row, data=partial(rates.data, row.data.args[0], *[8] * len(row.data.args[1:]))
        )
        for row in rates.RATES
    ]
    monkeypatch.setattr(rates, "RATES", small)
    monkeypatch.setattr(timing, "limit_threads", lambda threads: None)
    monkeypatch.setattr(timing, "REST", 0)
    everyone = {"adjit": libraries.Adjit}
    monkeypatch.setattr(libraries, "installed", lambda device: everyone)
    arguments = ["--threads=1", "--rows=a second", "--seconds=0.01", "--turns=2", "--device=cuda"]
    monkeypatch.setattr("sys.argv", ["timing.py", *arguments])
    with stub_driver.installed():
        assert bench["machine"].gpu_short_name() == "stub-gpu-0"
        assert (
            bench["machine"]
            .gpu_description()
            .startswith("Stub GPU 0, 1 GiB, compute capability 9.0")
        )
        timing.main()
    rows = [row | {"threads": 1} for row in json.loads(capsys.readouterr().out)]
    assert [cell for row in rows for cell in row["cells"].values() if "error" in cell] == []
    text = bench["table"].markdown({"machine": "", "versions": {}, "rows": rows})
    assert "GB/s (100% of the copy)" in text
    assert "TFLOP/s |" in text


def test_without_a_gpu_the_bench_of_one_says_so(
    bench: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if adjit.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr("sys.argv", ["run.py", "--device", "cuda"])
    with pytest.raises(SystemExit) as ended:
        bench["run"].main()
    assert ended.value.code == 2
    assert "no GPU to measure on: no NVIDIA driver was found" in capsys.readouterr().err


def test_the_tables_of_the_readme_are_those_of_stored_results(bench: dict[str, ModuleType]) -> None:
    page = (BENCH.parent / "README.md").read_text(encoding="utf-8")
    (named,) = set(re.findall(r"\[bench/results/([\w-]+)\.md\]", page)) - {"cuda-code"}
    rows = json.loads((BENCH / "results" / f"{named}.json").read_text(encoding="utf-8"))["rows"]
    for table in (bench["readme"].program_table(rows), bench["readme"].mean_table(rows)):
        assert "\n".join(table) in page


@pytest.mark.in_turn(8)
@pytest.mark.parametrize(
    ("script", "row", "more"),
    [
        ("gemm.py", r"^4x4 @ 4x4 nn float32", ["--threads=1"]),
        ("conv.py", r"^MobileNetV2 8x320x7x7 to 1280, 1x1", ["--threads=1", "--turns=1"]),
        ("attention.py", r"^128 positions$", ["--threads=1", "--turns=1"]),
        ("recurrent.py", r"^GRU 64, batch 1, 50 steps", ["--threads=1", "--turns=1"]),
        ("parts.py", r"^cdist, 10 by 10 of 3, order 1", ["--threads=1", "--turns=1"]),
        ("user_kernels.py", r"^triangular solve$", ["--turns=1"]),
        pytest.param(
            "distributed.py",
            r"^all-reduce of 4 KiB",
            ["--threads=1", "--turns=1"],
            marks=pytest.mark.skipif(not is_mpi_available(), reason="needs mpi4py and an MPI"),
        ),
    ],
)
def test_a_script_measures_a_row(script: str, row: str, more: list[str]) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCH / script), f"--rows={row}", *more]
    done = subprocess.run(
        [*command, "--seconds=0.001"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("|") for line in done.stdout.splitlines()) > 2


# ----- the short form -----


def test_the_short_form_stops_when_its_time_is_up(
    bench: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    timing = bench["timing"]
    monkeypatch.setattr(timing, "limit_threads", lambda threads: None)
    arguments = [
        "--threads=1",
        "--rows=programs",
        "--seconds=0.01",
        "--turns=1",
        "--libraries=adjit",
    ]
    monkeypatch.setattr("sys.argv", ["timing.py", *arguments, "--budget=0"])
    timing.main()
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert re.search(r"^time is up: (\d+) of \1 rows were not timed$", told.err, re.MULTILINE), (
        told.err
    )


def test_the_short_form_asks_for_programs_beside_pytorch(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="[]\n")

    monkeypatch.setattr(bench["run"].subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["run.py", "--short"])
    assert bench["run"].main() == 0
    (command,) = asked
    assert {"--rows=^(programs|views)", "--budget=150"} <= {*command}
    assert "--libraries=adjit,adjit.compile,PyTorch" in command
