"""The benchmark's rows compute what they say; nothing here looks at a clock."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(BENCH)
    return {name: importlib.import_module(name) for name in ("libraries", "rows", "table")}


def test_rows_are_told_apart_and_all_run_in_adjit(bench: dict[str, ModuleType]) -> None:
    rows = bench["rows"].ROWS
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
