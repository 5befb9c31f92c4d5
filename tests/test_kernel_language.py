"""What kernels may be written in, and refusals of the rest with what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import kernel_language
import pytest

import adjit
from adjit.user_kernels import NotDifferentiable


def test_what_is_right_as_plain_python():
    done = subprocess.run(
        [sys.executable, "kernel_language.py"], capture_output=True, text=True,
        cwd=Path(__file__).parent, env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) == len(kernel_language.RIGHT) >= 100


@pytest.mark.parametrize("name", ["or2", "fancy_store", "mask_store", "zip_three", "logical"])
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
    text = str(caught.value)
    assert what in text
    assert instead in text
    assert "Numba" not in text
    if "has the type" not in text:  # of an argument: there is no line
        place, code, under, *_ = text.splitlines()
        assert place.startswith(f"{kernel_language.__file__}:")
        assert caught.value.lineno == int(place.split(":")[1])
        marked = code[under.index("^") : under.rindex("^") + 1]
        assert marked.strip() == marked != ""
