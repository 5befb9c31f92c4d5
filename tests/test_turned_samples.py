"""PyTorch's own samples of its ops with tensors that are turned: results report the strides of PyTorch's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from opinfo import (
    DTYPES,
    OPS,
    Arguments,
    Lacking,
    attempt,
    differing,
    exists,
    settled,
    torch,
    translated,
)

import adjit

MOST = 20  # samples of an op, evenly spaced

# Where strides differ, and why.
DIFFERENT = {
    "advanced indices give their results in C order, and so do writes at them":
        "__getitem__ index_put put",
    "parts that others must not write into are copies here, views in PyTorch":
        "unsafe_chunk unsafe_split",
    "factors and solutions lie in C order, those of LAPACK column by column":
        "linalg_cholesky linalg_solve_triangular",
    "the two powers that PyTorch computes first have an order of their own": "ldexp",
    "kernels of one channel are in both orders, of which PyTorch takes one by the backend":
        """nn_functional_conv1d nn_functional_conv2d nn_functional_conv_transpose2d
        nn_functional_conv_transpose3d""",
    "what attention gives lies as its queries do": "nn_functional_multi_head_attention_forward",
    "places are found, or moved only, in C order":
        """nn_functional_channel_shuffle nn_functional_pixel_shuffle stack
        unravel_index""",
}  # fmt: skip
EXPECTED = {op for ops in DIFFERENT.values() for op in ops.split()}


def turned_order(ndim: int, turn: str) -> list[int]:
    """The axes of a tensor from the outermost to the innermost."""
    axes = list(range(ndim))
    if turn == "last two":
        return [*axes[:-2], axes[-1], axes[-2]]
    if turn == "all":
        return axes[::-1]
    return [0, *axes[2:], 1] if turn == "channels last" else [axes[-1], *axes[:-1]]


class Turned(Arguments):
    """The arguments of a sample, the first tensor or all of them with their axes in another order in memory."""

    def __init__(self, library: Any, turn: str, only_first: bool) -> None:
        super().__init__(library, grad=False)
        self.turn, self.only_first, self.count = turn, only_first, 0

    def _tensor(self, given: Any) -> Any:
        self.count += 1
        is_usual = given.is_contiguous() and not given._is_view() and given.dtype in DTYPES
        if given.ndim < 2 or not is_usual or (self.only_first and self.count > 1):
            return super()._tensor(given)
        order = turned_order(given.ndim, self.turn)
        dense = given.detach().permute(order).contiguous()
        back = [order.index(d) for d in range(given.ndim)]
        return self.library.tensor(dense.numpy()).permute(back)


def strides_that_differ(name: str) -> list[str]:
    """What results report in another way than PyTorch's."""
    info, found = OPS[name], []
    kinds = [k for k in (torch.float32, torch.int64, torch.bool) if k in info.dtypes]
    if not kinds:
        return []
    samples = list(info.sample_inputs("cpu", kinds[0], requires_grad=False))
    chosen = {round(k) for k in np.linspace(0, len(samples) - 1, MOST)} if samples else set()
    for n in sorted(chosen):
        sample = samples[n]
        for turn in ("last two", "all", "channels last", "last first"):
            for only_first in (True, False):
                for form in (info.op, info.inplace_variant):
                    if form is None:
                        continue
                    results = []
                    for library in (torch, adjit):
                        try:
                            call = form if library is torch else translated(form)
                            args = Turned(library, turn, only_first)
                            first, more, named = args.of((sample.input, sample.args, sample.kwargs))
                        except Lacking:
                            break
                        results.append(attempt(lambda: settled(call(first, *more, **named))))  # noqa: B023
                    if len(results) == 2:
                        found += [
                            f"#{n} {turn}, {'first' if only_first else 'all'}: {text}"
                            for aspect, text in differing(results[1], results[0], loose=True)
                            if aspect == "stride"
                        ]
    return found


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("name", [n for n, info in OPS.items() if exists(info)])
def test_results_of_turned_tensors_report_the_strides_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    found = strides_that_differ(name)
    if name in EXPECTED:
        assert found, "no longer differs"
    else:
        assert not found, "\n".join(found)
