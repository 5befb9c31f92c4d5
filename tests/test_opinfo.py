"""PyTorch's own samples of every op that exists here, in both libraries: what differs is said below, and why.

`ADJIT_OPINFO_SAMPLES=100` takes that many samples of each op and of every dtype, 0 takes all of them.
"""

from __future__ import annotations

import os
import random
import re
from typing import NamedTuple

import numpy as np
import pytest
from opinfo import (
    DTYPES,
    OPS,
    Comparison,
    Difference,
    error_differences,
    exists,
    missing_aliases,
    torch,
)

USUAL = 6
SAMPLES = int(os.environ.get("ADJIT_OPINFO_SAMPLES", USUAL))
FEW = {torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool}
TAKEN = (
    FEW if 0 < SAMPLES <= USUAL else set(DTYPES)
)  # each has kernels of its own, which take time to compile
FORMS = 2  # of the samples, as many are called in every form


class Purpose(NamedTuple):
    """What differs on purpose: at these ops, in these aspects, with such a text. ("ours | PyTorch's".)"""

    why: str
    ops: str
    aspect: str
    text: str = ""
    anywhere: bool = False  # at any op: those that are named only show that it is still so
    is_rare: bool = False  # the usual samples and dtypes do not show it

    def covers(self, found: Difference) -> bool:
        """Whether this is the reason for a difference."""
        is_here = self.anywhere or found.op in self.ops.split()
        return bool(
            is_here
            and re.fullmatch(self.aspect, found.aspect)
            and re.search(self.text, found.text, re.DOTALL)
        )


FORM = r"((method |inplace )?by name |method |operator |inplace |out \w+ (written )?)?"

DRAWS = """
    bernoulli cauchy exponential geometric log_normal multinomial uniform normal normal_in_place
    normal_number_mean rand_like randint randint_like randn randn_like nn_functional_alpha_dropout
    nn_functional_dropout nn_functional_dropout2d nn_functional_dropout3d
    nn_functional_feature_alpha_dropout_with_train nn_functional_fractional_max_pool2d
    nn_functional_fractional_max_pool3d nn_functional_multi_head_attention_forward nn_functional_rrelu
    nn_functional_scaled_dot_product_attention
"""
UNDEFINED = "empty empty_like empty_strided new_empty new_empty_strided"
LOOSE = {*DRAWS.split(), *UNDEFINED.split()}  # shapes, dtypes and layouts are compared, no values

EQUALS = "which of equal elements an index names is not defined: here the first, PyTorch's varies"
OUT = "says in other words, or of another part, that `out` has a dtype that cannot hold the result"
OVERLAP = "`out` is written once all is computed: it may lie on an input"
OTHER_TEXT = "two things are wrong, or the same is said in other words"

ON_PURPOSE = [
    # ----- dtypes
    Purpose(
        "there is no half precision and no complex number yet, the error says what to use",
        "half bfloat16",
        "(method )?(refused|error type)",
        "is not supported yet; use",
    ),
    Purpose(
        "there is no half precision and no complex number yet, the error says what to use",
        "masked_fill",
        "error: error text",
        "complex64 is not supported yet; use",
    ),
    Purpose(
        "weights are float32 in samples of float64: their gradients have its digits",
        "cov",
        "second value",
    ),
    Purpose(
        "bytes are rounded from float32: PyTorch's weights are whole numbers, and some results one off",
        "nn_functional_interpolate_bilinear nn_functional_interpolate_bicubic",
        FORM + "value",
        r"np\.uint8",
    ),
    Purpose(
        "patches are of numbers",
        "nn_functional_unfold",
        FORM + "refused",
        "not implemented for 'Bool'",
    ),
    Purpose(
        "truth values are bounded by & and |; PyTorch refuses bounds that are numbers, takes tensors",
        "clamp_min clamp_max",
        FORM + "(refused|error text)",
        "clamp_cpu.*not implemented for 'Bool'",
    ),
    # ----- values
    Purpose(EQUALS, "kthvalue median nanmedian topk mode", FORM + "value", r"^\[1\]"),
    Purpose(EQUALS + "; sorting is always stable", "sort argsort", FORM + "value"),
    Purpose(
        "PyTorch multiplies by 1/6 rounded to float32, at float64 too",
        "nn_functional_hardsigmoid",
        FORM + "(grad|second) value",
    ),
    Purpose(
        "PyTorch leaves a transposed `out` of float32 as it was",
        "nn_functional_gelu",
        "out transposed (written )?value",
        "77.0",
    ),
    Purpose(
        "PyTorch converts to bytes before it looks what is true",
        "",
        "out narrow (written )?value",
        r"uint8\(1\) . np.uint8\(0\)",
        True,
    ),
    Purpose(
        "PyTorch writes into a transposed `out` as if it were dense",
        "narrow_copy",
        "out transposed (written )?value",
    ),
    Purpose(OTHER_TEXT, "narrow_copy", "error: error (text|type)"),
    Purpose(
        "the scores are one tensor, there is no way in chunks",
        "nn_functional_linear_cross_entropy_chunked nn_functional_linear_cross_entropy_chunked_none",
        FORM + "refused",
        "options of chunks are not supported",
    ),
    Purpose(
        "both cancel what is large; at float64 they agree",
        "logcumsumexp",
        FORM + "grad value",
        "float32",
    ),
    Purpose(
        "a pole is infinite: PyTorch divides by the square of sin(pi x), which rounds to next to nothing",
        """polygamma_polygamma_n_0 polygamma_polygamma_n_1 polygamma_polygamma_n_2 polygamma_polygamma_n_3
        polygamma_polygamma_n_4 special_polygamma_special_polygamma_n_0""",
        FORM + "value",
        r"\(inf\) \| np\.float32\(\d\.\d+e\+1\d\)",
        is_rare=True,
    ),
    Purpose(
        "PyTorch gives a tensor the gradients of the elements that were replaced, and zeros for the others",
        "as_strided_scatter",
        FORM + "(grad|second) (value|missing|number)",
    ),
    # ----- layouts
    Purpose(
        "results of other ops lie in C order",
        "linalg_cholesky linalg_solve_triangular unravel_index unsafe_chunk",
        FORM + "stride",
        "",
    ),
    # ----- what is refused here
    Purpose(
        "there are no singular values yet, the error says what to use",
        "linalg_matrix_norm norm_nuc",
        FORM + "refused|out narrow error text",
        "needs singular values",
        True,
    ),
    Purpose(
        "a handle does not take another shape and stride in place",
        "as_strided as_strided_partial_views",
        "inplace missing",
    ),
    Purpose(
        "a result that is larger than the tensor is not written into it, PyTorch's error has a hole here",
        "addbmm",
        "inplace (by name )?refused",
        "doesn't match the broadcast shape",
    ),
    # ----- what is accepted here
    Purpose(
        "backward through the in-place form is that of the function, PyTorch has none",
        "acosh asinh atanh",
        "inplace grad accepted",
        "derivative for 'inplace version of",
    ),
    Purpose(
        "`out` may lie in any order, PyTorch's product of a vector and a batch writes dense ones alone",
        "",
        "out transposed accepted",
        "must match the size of tensor",
        True,
    ),
    Purpose(
        "an empty `out` becomes as large as the result, as everywhere",
        "",
        "out empty accepted",
        r"must match the size of tensor b \(0\)",
        True,
    ),
    Purpose(
        OVERLAP,
        "cat masked_select take",
        "error: accepted",
        "refer to a single memory location",
        True,
    ),
    Purpose(
        "an `out` of another shape gets memory of its own, PyTorch looks for overlaps before",
        "index_select",
        "error: accepted",
        "more than one element of the written-to tensor",
    ),
    Purpose(
        "parts that may be written have memory of their own; PyTorch's share it, and the whole does not know",
        "unsafe_chunk unsafe_split",
        r"(method )?(by name )?memory",
    ),
    Purpose(
        "the reversed operators are methods of tensors in Python, with its errors",
        "__radd__ __rmul__ __rand__ __ror__ __rxor__",
        "error: accepted",
        "descriptor",
    ),
    # ----- errors
    Purpose(
        OTHER_TEXT,
        "eq pow float_power",
        "error: error text",
        r"(must be Tensor, not int|expected a Tensor among them) \| TypeError",
        True,
    ),
    Purpose(
        OTHER_TEXT,
        """nn_functional_avg_pool2d nn_functional_avg_pool3d nn_functional_conv1d nn_functional_conv2d
        nn_functional_conv3d nn_functional_max_pool1d nn_functional_max_pool2d nn_functional_max_pool3d
        nn_functional_max_unpool1d""",
        "error: error text",
    ),
    Purpose(
        OTHER_TEXT,
        "addr baddbmm",
        "inplace (by name )?error text",
        "doesn't match the broadcast shape",
        True,
    ),
    Purpose(
        OTHER_TEXT,
        "ldexp mvlgamma_mvlgamma_p_1 mvlgamma_mvlgamma_p_3 mvlgamma_mvlgamma_p_5",
        "inplace error text",
        "can't be cast to the desired output type",
    ),
    Purpose(
        OTHER_TEXT + ": PyTorch raises ValueError with `out`, RuntimeError without",
        "arange",
        "error: error type",
        "step must be nonzero",
    ),
    Purpose(
        OTHER_TEXT,
        "multinomial",
        "error: error text",
        "number of categories|invalid multinomial",
    ),
    Purpose(OTHER_TEXT, "linspace logspace", "error: error text", "argument 'steps'", True),
    Purpose(
        "the reversed operators are methods of tensors in Python, with its errors",
        "__rmod__ __rpow__ __rsub__",
        "error: refused",
        "a Tensor among them|must be Tensor",
    ),
    Purpose(
        OUT,
        """cat column_stack dstack hstack stack vstack mvlgamma_mvlgamma_p_1 mvlgamma_mvlgamma_p_3
        mvlgamma_mvlgamma_p_5 ldexp linalg_solve_triangular nn_functional_logsigmoid nn_functional_gelu
        nn_functional_hardshrink narrow_copy histc histogram logsumexp nanmean nansum max_reduction_no_dim
        min_reduction_no_dim normal lerp diag matmul mean kthvalue mode frexp""",
        "out narrow (error text|error type)",
    ),
    Purpose(
        "what is made of elementwise operations casts as they do",
        "diff inner",
        "out narrow (accepted|error text)",
    ),
    Purpose(
        "running sums and products are computed in their own dtype, and are cast only where they can be",
        "cumsum cumprod",
        "out narrow (accepted|refused|error text)",
    ),
]


def purposes(op: str) -> list[Purpose]:
    """The entries that an op has to show."""
    return [p for p in ON_PURPOSE if op in p.ops.split()]


PRESENT = [name for name, info in OPS.items() if exists(info)]


@pytest.mark.in_turn(8)
@pytest.mark.parametrize("name", PRESENT)
def test_the_samples_of_an_op_give_what_pytorch_gives(name: str) -> None:
    info, found = OPS[name], []
    torch.manual_seed(0)  # some samples are drawn, and which tests ran before is another each time
    np.random.seed(0)
    random.seed(0)
    for dtype in DTYPES:
        if dtype in info.dtypes & TAKEN:
            comparison = Comparison(info, dtype)
            comparison.run(name in LOOSE, SAMPLES or None, FORMS)
            found += comparison.found
    found += error_differences(info)
    left = [d for d in found if not any(p.covers(d) for p in ON_PURPOSE)]
    assert not left, "\n".join(map(str, left))
    if SAMPLES >= USUAL or not SAMPLES:
        can_take_fast_path = SAMPLES == USUAL
        stale = [
            p
            for p in purposes(name)
            if not (p.is_rare and can_take_fast_path) and not any(p.covers(d) for d in found)
        ]
        assert not stale, f"no longer differs: {stale}"


def test_every_alias_of_an_op_exists() -> None:
    assert not [alias for name in PRESENT for alias in missing_aliases(OPS[name])]


def test_the_list_names_ops_that_exist() -> None:
    named = {op for p in ON_PURPOSE for op in p.ops.split()}
    assert named <= set(PRESENT)
    assert set(PRESENT) >= LOOSE
    assert torch.__version__.startswith("2.13")
