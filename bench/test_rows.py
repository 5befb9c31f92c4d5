"""The rows under pytest-benchmark, grouped by row: `pytest bench --benchmark-only -k softplus`.

All libraries use the cores that the process may use; `taskset -c 0 pytest bench` times one thread.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import libraries
import pytest
from applications import APPLICATIONS
from everyday import CALLS
from func import TRANSFORMS
from programs import PROGRAMS
from rows import ROWS, Row
from views import VIEWS

INSTALLED = libraries.installed()


@cache
def load(name: str) -> libraries.Library:
    return INSTALLED[name]()


CASES = [
    pytest.param(row, name, id=f"{row.name}-{name}")
    for row in (*ROWS, *CALLS, *PROGRAMS, *APPLICATIONS, *VIEWS, *TRANSFORMS)
    for name, library in INSTALLED.items()
    if row.runs_in(library) and not row.note(library)
]


@pytest.mark.parametrize(("row", "name"), CASES)
def test_row(benchmark: Any, row: Row, name: str) -> None:
    benchmark.group = row.name
    benchmark.extra_info["operations"] = row.operations
    benchmark(row.prepare(load(name)))
