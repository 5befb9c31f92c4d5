"""Floats to whole numbers, for numbers that these do not hold: the same in every loop, on every processor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from adjit.kernels.language.target import compile_function

import adjit

POINTS = [
    0.0, -0.0, 0.999, -0.999, 1.5, -1.5, 127.9, 128.0, -128.9, -129.0, 255.0, 256.0, -1.0, 300.7, -300.7,
    32767.5, 32768.0, -32769.0, 65535.0, 65536.0, 70000.0, -70000.0, 2.0**31 - 1, 2.0**31, -(2.0**31),
    -(2.0**31) - 1, 2.0**32 - 1, 2.0**32 + 5000, -(2.0**32) - 300, 3e9, -3e9, 1e10, 2.0**53 + 2, 2.0**62,
    2.0**63, -(2.0**63), 2.0**64, 1e19, -1e19,
    1e30, -1e30, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-45,
]  # fmt: skip
WHOLE = ["int8", "uint8", "int16", "int32", "int64"]


def held(value: float, bits: int) -> int:
    """What an x86 makes of a float."""
    inside = -(2.0 ** (bits - 1)) <= value < 2.0 ** (bits - 1)
    return int(value) if inside else -(2 ** (bits - 1))


def wanted(values: Any, name: str) -> Any:
    """Whole numbers, as PyTorch has them on CPUs."""
    bits = 64 if name in ("int64", "uint8") else 32
    wide = np.array([held(float(v), bits) for v in values.ravel()], np.int64)
    return wide.reshape(values.shape).astype(name)


def planned(x: Any, kind: Any) -> Any:
    for _ in range(4):
        made = (x * 1.0 + 0.0).to(kind)
        made.numpy()
    return made


def written(x: Any, kind: Any) -> Any:
    made = adjit.zeros(x.shape, dtype=kind)
    made.copy_(x)
    return made


def put(x: Any, kind: Any) -> Any:
    made = adjit.zeros(x.shape, dtype=kind)
    made[:] = x
    return made


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "dense": lambda x, kind: x.to(kind),
    "one by one": lambda x, kind: adjit.stack([x.flatten()[k].to(kind) for k in range(47)]).repeat(
        x.numel() // 47
    ).view(x.shape),
    "strided": lambda x, kind: adjit.stack([x, x], -1)[..., 0].to(kind),
    "turned": lambda x, kind: x.t().contiguous().t().to(kind),
    "planned": planned,
    "compiled": lambda x, kind: adjit.compile(lambda t: (t * 1.0).to(kind))(x),
    "written": written,
    "put": put,
    "summed": lambda x, kind: x.unsqueeze(0).sum(0, dtype=kind),
    "accumulated": lambda x, kind: x.unsqueeze(0).cumsum(0, dtype=kind)[0],
}  # fmt: skip


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_not_held(way: str, source: str, name: str) -> None:
    kind = getattr(adjit, name)
    with np.errstate(all="ignore"):
        values = np.tile(np.array(POINTS, source), (64, 1))
    found = WAYS[way](adjit.tensor(values), kind)
    np.testing.assert_array_equal(found.numpy(), wanted(values, name))


@pytest.mark.parametrize("name", [*WHOLE, "bool"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_conversions_are_those_of_pytorch(source: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = np.repeat(np.array(POINTS, source), 16)
        theirs = torch.tensor(values).to(getattr(torch, name)).numpy()
    ours = adjit.tensor(values).to(getattr(adjit, name)).numpy()
    np.testing.assert_array_equal(ours, theirs)


def test_no_conversion_is_left_to_llvm() -> None:
    """Whatever a kernel converts, what LLVM leaves open is never taken."""

    def converting(x: float) -> int:
        return np.int16(x)  # type: ignore[return-value]

    code = compile_function(converting, "int16(float64)").library.get_llvm_str()
    assert "fptosi double" in code
    assert "select i1" in code
    assert "fptosi double %" in code
    assert "to i16" not in code.split("fptosi")[1].splitlines()[0]
