"""Which dtypes the `out=` of ops may have that convert nothing, and PyTorch's words where it has another one.

Other ops take any dtype that their results can be cast to.
"""

from __future__ import annotations

from .. import dtypes
from ..dtypes import dtype

_TEXTS = {
    "Expected out tensor to have dtype {made.row.c}, but got {out.row.c} instead": """
        addmm addmv aminmax argmax argmin as_strided_copy baddbmm bmm cross diag diagonal_copy expand_copy
        gather index_add index_copy index_reduce isin linalg_cholesky linalg_cross linalg_vector_norm
        log_softmax max matmul min mm msort norm permute_copy renorm scatter scatter_add scatter_reduce
        softmax sort
        split_with_sizes_copy_out squeeze_copy t_copy take_along_dim topk transpose_copy tril triu
        unbind_copy_int_out unfold_copy unsqueeze_copy view_copy""",
    "Found dtype {out.legacy} but expected {made.legacy}":
        "abs bitwise_not ceil floor frac lerp neg round sgn sign trunc",
    "expected scalar_type {made.legacy} but found {out.legacy}": "cummax cummin logcumsumexp",
    "Expected the dtype for input and out to match, but got {made.legacy} for input's dtype and {out.legacy} "
    "for out's dtype.": "amax amin",
    "tensordot: Expected the output tensor to have dtype {made.legacy}, but got an output tensor with dtype "
    "{out.legacy}": "tensordot",
    "result dtype {out.legacy} does not match input dtype {made.legacy}": "dot vdot",
    "self and mat2 must have the same dtype, but got {out.legacy} and {made.legacy}": "addbmm",
    "output values must be of same type as input": "kthvalue",
    "{name}(): self and result must have the same scalar type": "index_select masked_select",
    "heaviside is not yet implemented for tensors with different dtypes.": "heaviside",
    "expected scalar type '{made.legacy}' but got '{out.legacy}' for values output": "mode",
    "Expected self.dtype() == output.dtype() to be true, but got false.": "narrow_copy",
    "nan_to_num: dtype of out: {out.legacy} should be same as input: {made.legacy}": "nan_to_num",
    "take(): self and out expected to have the same dtype, but got self.dtype = {made.legacy} and out.dtype = "
    "{out.legacy}": "take",
    "multinomial expects Long tensor out, got: {out.legacy}": "multinomial",
    "Expected out type to be {made.legacy} but got {out.legacy}": "choice",
    "multi_dot(): expected out tensor to have dtype {made.row.c} but got {out.row.c}": "linalg_multi_dot",
    "addmv input tensors must have the same dtype, but got {out.legacy}, {made.legacy}, and "
    "{made.legacy}": "mv",
    "linalg.vecdot: Expected out of dtype{made.legacy} but found {out.legacy}": "linalg_vecdot",
    "linalg.norm expected out tensor dtype {made.legacy} but got: {out.legacy}": "linalg_norm",
    "linalg.matrix_norm expected out tensor dtype {made.legacy} but got: {out.legacy}": "linalg_matrix_norm",
    "quantile() out tensor must be same dtype as the input tensor": "nanquantile quantile",
    "the output given to float_power has dtype {out.legacy} but the operation's result requires dtype "
    "{made.legacy}": "float_power",
    "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) "
    "depending on whether out_int32 flag is True, but we got output tensor's dtype {out.legacy} and "
    "out_int32 flag is {is_int32}": "bucketize searchsorted",
    "{name} does not support non-boolean outputs.": "isneginf isposinf signbit",
}  # fmt: skip
_TEXT_OF = {name: text for text, names in _TEXTS.items() for name in names.split()}
_WITH_INDICES = ("max", "min")  # which without a dimension are ops that convert


def check(name: str, made: dtype, out: dtype, is_one_of_several: bool) -> None:
    """Refuse a tensor whose dtype a result of an op is not to be written as.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if made is out:
        return
    text = _TEXT_OF.get(name)
    if text is not None and (is_one_of_several or name not in _WITH_INDICES):
        raise RuntimeError(
            text.format(name=name, made=made, out=out, is_int32=made is dtypes.int32)
        )
    if not dtypes.can_cast(made, out):
        raise RuntimeError(
            f"result type {made.legacy} can't be cast to the desired output type {out.legacy}"
        )
