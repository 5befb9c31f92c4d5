"""The rows under pytest-benchmark, grouped by row: `pytest bench --benchmark-only -k softplus`.

All libraries use the cores that the process may use; `taskset -c 0 pytest bench` times one thread. A test is
named `test_row[ROW-LIBRARY]`; what pytest-benchmark knows (`--benchmark-json`, `--benchmark-autosave`,
`--benchmark-compare`, `--benchmark-group-by`) works as elsewhere, and `-k "ROW and adjit"` chooses.
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
from sizes import SIZES
from views import VIEWS

INSTALLED = libraries.installed()


@cache
def load(name: str) -> libraries.Library:
    return INSTALLED[name]()


CASES = [
    pytest.param(row, name, id=f"{row.name}-{name}")
    for row in (*ROWS, *CALLS, *SIZES, *PROGRAMS, *APPLICATIONS, *VIEWS, *TRANSFORMS)
    for name, library in INSTALLED.items()
    if row.runs_in(library) and not row.note(library)
]


@pytest.mark.parametrize(("row", "name"), CASES)
def test_row(benchmark: Any, row: Row, name: str) -> None:
    benchmark.group = row.name
    benchmark.extra_info |= {"operations": row.operations, "library": name, "part": row.group}
    library = load(name)
    call = row.prepare(library)
    library.warm_up(call)  # until nothing is compiled any more
    benchmark(call)
    library.forget()
