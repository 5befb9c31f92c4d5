"""Tensors that backward nodes keep: what is kept, and its check when it is read."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

from .. import errors
from ..storage import Storage, Version
from .node import GradNode, NewTensor, Spec, TensorBase
from .record import INFERENCE, give_history, is_tensor, make_tensor
from .signature import Arguments
from .state import state

Kept = TensorBase | Storage  # a tensor; the cell of an own result, as that itself would be a circle
SavedPairs = tuple[Kept | int, ...]  # each followed by its version


def keep(saves: Sequence[int], operands: Arguments, out: TensorBase) -> SavedPairs:
    """What `fn.saved` holds: operands by number, the result's cell for -1, each with its version."""
    saved: list[Kept | int] = []
    for k in saves:
        if k < 0:
            saved += (out.storage, 0)
        elif is_tensor(operands[k]):
            saved += (operands[k], operands[k].counter.version)
    return tuple(saved)


class _Numbers(tuple[Kept | int, ...]):
    """No tensors, but something that backward frees: a second backward is refused all the same."""

    def __bool__(self) -> bool:
        return True


NUMBERS = _Numbers()


def examine(fn: GradNode) -> None:
    """What anomaly mode and inference tensors ask of a new backward node."""
    for kept in fn.saved[::2]:
        if kept.__class__ is not Storage and kept.counter is INFERENCE:
            raise inference_save_error()
    if state.anomaly and fn.extras is None:
        fn.more().traceback = traceback.format_list(traceback.extract_stack(errors.user_frame()))


def inference_save_error() -> RuntimeError:
    """What saving an inference tensor raises."""
    return RuntimeError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
        "inference mode in computation tracked by autograd. To work around this, you can make a "
        "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
        "`torch.inference_mode()`."
    )


FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def unpack(fn: GradNode, k: int, spec: Spec | None = None, nr: int = 0) -> NewTensor:
    """Saved tensor `k` of a backward node, after the version check.

    A saved output is kept as its cell (the tensor would be a cycle) and comes back as a new handle.
    """
    if fn.saved is None:
        raise RuntimeError(FREED)
    kept, version = fn.saved[2 * k : 2 * k + 2]
    counter = kept if kept.__class__ is Storage else kept.counter
    if counter.version != version:
        raise modified_error(fn, kept, counter, version, spec)
    if kept.__class__ is not Storage:
        return kept
    spec = spec or fn.outputs[0]
    assert spec is not None
    out = make_tensor(kept, spec)
    if state.grad:
        give_history(out, fn, nr)
    return out


def modified_error(
    fn: GradNode, kept: Kept, counter: Storage | Version, expected: int, spec: Spec | None
) -> Exception:
    """The error about a value that was needed and has been overwritten."""
    source: GradNode | None = fn
    if isinstance(kept, Storage):
        spec, nr = spec or fn.outputs[0], 0
        assert spec is not None
    else:
        source = kept.fn if kept.view_of is None else kept.current_fn()
        spec, nr = kept.spec, kept.nr
    which = ""
    if source is not None:
        producer = re.sub(r"Backward\d*$", "", source.name())
        which = f", which is output {nr} of {producer},"
    hint = (
        " Hint: enable anomaly detection to find the operation that failed to compute its "
        "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
    if state.anomaly:
        hint = (
            " Hint: the backtrace further above shows the operation that failed to compute its "
            "gradient. The variable in question was changed in there or anywhere later. Good luck!"
        )
    site = getattr(counter, "site", None)
    written = f" The last write was at {errors.describe(site)}." if site is not None else ""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [torch.{spec.dtype.legacy}Tensor {list(spec.shape)}]{which} "
        f"is at version {counter.version}; expected version {expected} "
        f"instead.{hint}{written}"
    )
