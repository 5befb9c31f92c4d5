"""Programs as people write them, in both libraries: equal losses step by step, parameters at the end."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


class Draw:
    """The same random numbers for both libraries, in the default dtype."""

    def __init__(self, library: Any, dtype: str) -> None:
        self.library, self.dtype, self.rng = library, dtype, np.random.default_rng(0)

    def __call__(self, *shape: int) -> Any:
        return self.library.from_numpy(self.rng.standard_normal(shape).astype(self.dtype))

    def integers(self, below: int, count: int) -> Any:
        return self.library.from_numpy(self.rng.integers(below, size=count))

    def into(self, model: Any) -> Any:
        """A module with drawn parameters, small enough that the widest layer neither fades nor bursts."""
        with self.library.no_grad():
            for p in model.parameters():
                fan = p[0].numel() if p.ndim > 1 else 1
                p.copy_(self(*p.shape) * (0.5 / fan**0.5))
        return model


def ran(path: Path, library: Any, dtype: str) -> tuple[list[float], list[np.ndarray]]:
    spec = importlib.util.spec_from_file_location(f"programs.{path.stem}", path)
    program = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both libraries have the same, of which other tests tell
        patch.setitem(sys.modules, spec.name, program)
        spec.loader.exec_module(program)
        library.set_default_dtype(getattr(library, dtype))
        try:
            draw = Draw(library, dtype)
            losses, parameters = program.run(library, library.nn, library.nn.functional, draw)
        finally:
            library.set_default_dtype(library.float32)
    return losses, [p.detach().numpy().copy() for p in parameters]


# In float64 what differs is no rounding. Tables of sines are float32 there too, as their program says:
# a step of exp's last place in a frequency is multiplied by positions.
CLOSE = {"float32": (2e-4, 1e-5, 1e-3, 1e-4), "float64": (1e-8, 1e-9, 1e-7, 1e-8)}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("path", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_a_program_does_the_same_in_both_libraries(path, dtype):
    (losses, parameters), (theirs, expected) = ran(path, adjit, dtype), ran(path, torch, dtype)
    rtol, atol, rtol_of_parameters, atol_of_parameters = CLOSE[dtype]
    np.testing.assert_allclose(losses, theirs, rtol=rtol, atol=atol)
    assert len(parameters) == len(expected) > 0
    for mine, other in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=rtol_of_parameters, atol=atol_of_parameters)


def test_there_are_programs():
    assert len(PROGRAMS) >= 12
