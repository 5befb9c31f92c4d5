"""Padding, interpolation, sampling and rearranging beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from against_torch import agree, agree_in_error, agree_in_gradients, backward_name, torch

import adjit

RANDOM = np.random.default_rng(11)


def functional(T: Any) -> Any:
    return T.nn.functional


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def channels_last(t: Any) -> Any:
    """The same elements, those of all channels side by side."""
    axes = range(t.ndim)
    return t.permute(0, *axes[2:], 1).contiguous().permute(0, t.ndim - 1, *axes[1:-1])


def agree_in_both_layouts(call: Callable[..., Any], x: Any, *rest: Any, **options: Any) -> None:
    """Values and two orders of gradients, of input in C order and with channels last."""
    agree_in_gradients(call, x, *rest, **options)
    agree_in_gradients(lambda T, t, *r: call(T, channels_last(t), *r), x, *rest, **options)


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode: str) -> None:
    for shape, widths in (
        ((3, 4), (1, 2)),
        ((2, 3, 5), (-1, 3)),
        ((2, 3, 5), (3, -2)),
        ((2, 3, 4, 5), (2, 0, 1, 3)),
        ((3, 4, 5), (-1, 2, 2, -1)),
        ((2, 2, 3, 4, 2), (1, 1, 0, 2, 2, 1)),
        ((2, 1, 3, 300), (0, 0, 2, 1)),
        ((2, 3, 4), (0, 0)),
    ):
        x = normal(*shape)
        agree(lambda T, x, w=widths: functional(T).pad(x, w, mode), x)
        if len(shape) < 5:
            agree_in_both_layouts(lambda T, x, w=widths: functional(T).pad(x, w, mode), x)
    agree(lambda T, x: functional(T).pad(x, (1, 2), mode), RANDOM.integers(0, 9, (2, 3, 4)))


def test_names_of_pads_in_the_graph() -> None:
    for mode, name in (("reflect", "Reflection"), ("replicate", "Replication")):
        for n in (1, 2, 3):
            x = normal(*range(2, 4 + n))
            found = backward_name(lambda T, x, m=mode, n=n: functional(T).pad(x, (1, 1) * n, m), x)
            assert found == f"{name}Pad{n}DBackward0"


@pytest.mark.parametrize("kind", ["Circular", "Constant", "Reflection", "Replication", "Zero"])
def test_padding_modules(kind: str) -> None:
    value = (1.5,) if kind == "Constant" else ()
    for n, widths in ((1, (1, 2)), (2, (1, 0, 2, 1)), (3, (1, 1, 0, 1, 1, 0))):
        x = normal(*range(2, 4 + n))
        for padding in (1, widths):

            def call(T: Any, n: int = n, padding: Any = padding) -> Any:
                return getattr(T.nn, f"{kind}Pad{n}d")(padding, *value)

            assert repr(call(adjit)) == repr(call(torch))
            agree(lambda T, x, f=call: f(T)(x), x)
    if kind == "Circular":
        agree_in_error(lambda T, x: T.nn.CircularPad2d(1)(x), normal(2, 3))


def test_errors_of_pad() -> None:
    for mode, shape, widths in (
        ("reflect", (2, 3, 4, 5), (0, 0, 4, 0)),
        ("reflect", (3, 4, 5), (-3, -3)),
        ("replicate", (3, 4, 5), (-3, -3)),
        ("circular", (3, 4, 5), (-3, -3)),
        ("circular", (3, 4, 5), (6, 0)),
        ("replicate", (2, 3, 4, 5), (1, 1)),
    ):
        agree_in_error(lambda T, x, w=widths, m=mode: functional(T).pad(x, w, m), normal(*shape))
    with pytest.raises(RuntimeError, match=r"a size other than 0 for the padded dimension 2"):
        functional(adjit).pad(adjit.zeros(2, 3, 0), (1, 1), "replicate")
