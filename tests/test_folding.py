"""Values of generated code written where they are used, and compilations without versions of names."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import event

from adjit.user_kernels.folding import folded
from adjit.user_kernels.linked_code import LinkedCompiler

FOLDED = {
    "a value of one use": (
        """
        t = x[0]
        t_1 = h * t
        y[0] = t_1 + x[1]
        """,
        """
        y[0] = h * x[0] + x[1]
        """,
    ),
    "parentheses where the order needs them": (
        """
        t = a + b
        t_1 = c - t
        t_2 = t_1 / d
        y[0] = t_2
        """,
        """
        y[0] = (c - (a + b)) / d
        """,
    ),
    "a name that is another name": (
        """
        t_2_b = y_b[0]
        t_1_b = t_2_b
        t_b = t_2_b
        x_b[0] += t_1_b * t
        z_b[0] += t_b
        w_b[0] += t_b
        """,
        """
        t_2_b = y_b[0]
        x_b[0] += t_2_b * t
        z_b[0] += t_2_b
        w_b[0] += t_2_b
        """,
    ),
    "a name of the user's that begins like a keyword": (
        """
        t = x[0]
        raised = t * 2
        elsewhere = raised + 1
        t_1 = x[1]
        returned = t_1 + raised
        """,
        """
        raised = x[0] * 2
        elsewhere = raised + 1
        returned = x[1] + raised
        """,
    ),
    "the test of a branch": (
        """
        t = a < b
        if not t:
            y[0] = 1.0
        """,
        """
        if not a < b:
            y[0] = 1.0
        """,
    ),
    "a value that is made again": (
        """
        t = x[0]
        y[0] = t * 2
        t = x[1]
        y[1] = t * 3
        """,
        """
        y[0] = x[0] * 2
        y[1] = x[1] * 3
        """,
    ),
}
LEFT = {
    "a load before a store": """
        t = x[0]
        x[0] = 2.0
        y[0] = t
        """,
    "two uses, one by a name that begins like a keyword": """
        t = x[0]
        raised = t * 2
        y[0] = raised * t
        """,
    "two uses": """
        t = x[0]
        y[0] = t * t
        """,
    "a use by every round of a loop": """
        t = a * b
        for i in range(n):
            y[i] = t
        """,
    "a test that is asked again": """
        t = x[0]
        while t > a:
            a += 1.0
        """,
    "a use in one of two branches": """
        if c:
            t = a * b
        else:
            y[0] = t
        """,
    "a name whose value changes before": """
        t = a * b
        a += 1.0
        y[0] = t
        """,
    "a temporary name whose value changes before": """
        t_1 = x[0]
        z[0] = t_1 * t_1
        t = t_1 * a
        t_1 = x[1]
        y[0] = t + t_1 * t_1
        """,
    "a sum": """
        t_b = a * b
        t_b += c
        y[0] = t_b
        """,
    "a name for what changes": """
        t_1_b = a
        t_b = t_1_b
        t_1_b += c
        y[0] = t_b
        z[0] = t_b
        """,
    "a name whose value is of the round before": """
        for i in range(n):
            if i > 0:
                y[i] = t
            t = x[i]
        """,
    "new memory": """
        t = np.zeros(3)
        y = t
        """,
    "memory of the tape": """
        t = release(tape, 8)
        y = at_f8(t)
        """,
    "names of the user": """
        slope = x[1] - x[0]
        y[0] = slope
        """,
    "lines that would be too long": f"""
        t = {" + ".join(f"x[{k}]" for k in range(12))}
        y[0] = t + {" + ".join(f"x[{k}]" for k in range(6))}
        """,
}


def function(body: str) -> str:
    return "def f():\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")


@pytest.mark.parametrize("case", FOLDED)
def test_values_are_written_where_they_are_used(case: str) -> None:
    before, after = FOLDED[case]
    assert folded(function(before)) == function(after)


@pytest.mark.parametrize("case", LEFT)
def test_what_may_not_move_stays(case: str) -> None:
    assert folded(function(LEFT[case])) == function(LEFT[case])


class Pipelines(event.Listener):  # type: ignore[misc]
    """How often Numba made versions of a function's names."""

    def __init__(self, name: str) -> None:
        self.step = f"reconstruct_ssa [{name}]"
        self.times = 0

    def on_start(self, of: event.Event) -> None:
        self.times += of.data["name"] == self.step

    def on_end(self, of: event.Event) -> None: ...


def result_and_versions(f: Callable[..., Any], *args: object) -> tuple[object, int]:
    compiled = njit(pipeline_class=LinkedCompiler)(f)

    @njit  # type: ignore[untyped-decorator]
    def call(*args: object) -> object:
        return compiled(*args)

    with event.install_listener("numba:run_pass", seen := Pipelines(f.__qualname__)):
        return call(*args), seen.times


def test_names_of_one_type_have_no_versions() -> None:
    def norm(x):  # type: ignore[no-untyped-def]
        s = 0.0
        k = 0
        while k < len(x):
            s += x[k] * x[k]
            k += 1
        return s

    x = np.arange(4.0)
    assert result_and_versions(norm, x) == (norm(x), 0)


def test_a_name_that_changes_its_type_has_versions() -> None:
    def digit(n):  # type: ignore[no-untyped-def]
        if n > 0:
            k = n * 9007199254740993
            last = k % 10
            k = k * 0.5
            return last + 0 * k
        return 0.0

    def view(x):  # type: ignore[no-untyped-def]
        if len(x) > 1:
            y = x + 1.0
            first = y[1]
            y = y[::2]
            return y[1] - first
        return 0.0

    assert result_and_versions(digit, 1) == (3, 1)  # a float has no such digit
    x = np.arange(5.0)
    assert result_and_versions(view, x) == (1.0, 1)
