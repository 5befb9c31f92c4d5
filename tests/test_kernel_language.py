"""What kernels may be written in, and refusals of the rest with what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_elementwise
import kernel_language
import numpy as np
import pytest
import scalar_language

import adjit
from adjit.user_kernels import NotDifferentiable
from adjit.user_kernels.scalar_programs import ScalarParameter, read_program


@pytest.mark.in_turn(3)
def test_what_is_right_as_plain_python():
    done = subprocess.run(
        [sys.executable, "kernel_language.py"], capture_output=True, text=True,
        cwd=Path(__file__).parent, env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) == len(kernel_language.RIGHT) >= 100


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "name",
    [
        "or2",
        "fancy_store",
        "mask_store",
        "zip_three",
        "logical",
        "arrays_of_a_round",
        "cross",
        "sizes_of_a_side",
        "sizes_of_rounds",
        "masks_of_rounds",
        "solve_pivots",
        "reshaped",
    ],
)
def test_what_is_right_compiled(name):
    f = getattr(kernel_language, f"of_{name}")
    kernel_language.check(f, kernel_language.arguments(f))


@pytest.mark.parametrize(
    ("f", "what", "instead"),
    kernel_language.REFUSED,
    ids=[f.__name__ for f, *_ in kernel_language.REFUSED],
)
def test_refusals_name_the_line_and_what_to_write(f, what, instead):
    with pytest.raises(NotDifferentiable) as caught:
        adjit.value_and_grad(f)(*kernel_language.arguments(f))
    assert_taught(caught.value, kernel_language.__file__, what, instead)


def assert_taught(error, filename, what, instead):
    """The place, the line, what of it is meant, and what to write instead."""
    text = str(error)
    assert what in text
    assert instead in text
    assert "Numba" not in text
    if "has the type" not in text:  # of an argument: there is no line
        place, code, under, *_ = text.splitlines()
        assert place.startswith(f"{filename}:")
        assert error.lineno == int(place.split(":")[1])
        marked = code[under.index("^") : under.rindex("^") + 1]
        assert marked.strip() == marked != ""


@pytest.mark.parametrize("f", scalar_language.RIGHT)
def test_elementwise_functions_that_are_right(f):
    """As plain Python, beside differences."""
    program = read_program(f, [ScalarParameter("x", "f"), ScalarParameter("y", "f")])
    value = fuzz_elementwise.as_python(program, "float64")
    slopes = fuzz_elementwise.as_python(program.pullback(0, (0, 1)), "float64")
    for x, y in [(0.31, 0.72), (0.72, 0.31), (1.37, 0.93), (0.03, 1.61)]:
        np.testing.assert_allclose(value(x, y)[0], f(x, y), rtol=1e-12)
        found = [(f(x + h * dx, y + h * dy) - f(x - h * dx, y - h * dy)) / (2 * h)
                 for h in (1e-6,) for dx, dy in ((1, 0), (0, 1))]  # fmt: skip
        np.testing.assert_allclose(slopes(1.0, x, y), found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("f", "what", "instead"),
    scalar_language.REFUSED,
    ids=[f.__name__ for f, *_ in scalar_language.REFUSED],
)
def test_elementwise_refusals_name_the_line_and_what_to_write(f, what, instead):
    with pytest.raises(NotDifferentiable) as caught:
        adjit.elementwise(f)(adjit.ones(2))
    assert_taught(caught.value, scalar_language.__file__, what, instead)
