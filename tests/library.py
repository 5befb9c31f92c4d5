"""The library under test: adjit, or PyTorch itself.

`ADJIT_TESTS_AGAINST=torch pytest tests/test_seeds.py tests/test_autograd.py tests/test_inplace.py`
runs the same tests against PyTorch: this is how the expectations themselves are checked.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

AGAINST_TORCH = os.environ.get("ADJIT_TESTS_AGAINST", "adjit") == "torch"

if AGAINST_TORCH:
    import torch as T
else:
    import adjit as T

adjit_only = pytest.mark.skipif(AGAINST_TORCH, reason="adjit goes beyond PyTorch here")

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you "
    "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
    "through the graph a second time or if you need to access saved tensors after calling backward."
)
LEAF_WRITE = "a leaf Variable that requires grad is being used in an in-place operation."
LEAF_VIEW_WRITE = (
    "a view of a leaf Variable that requires grad is being used in an in-place operation."
)
NO_GRAD_FN = "element 0 of tensors does not require grad and does not have a grad_fn"
NON_LEAF_FLAG = (
    "you can only change requires_grad flags of leaf variables. If you want to use a computed "
    "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
)
NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead. See "
    "github.com/pytorch/pytorch/pull/30531 for more information."
)
ANOMALY_HINT = (
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
    "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
BACKTRACE_HINT = (
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. "
    "The variable in question was changed in there or anywhere later. Good luck!"
)


def plain(text: object) -> str:
    """A text without what may differ between the libraries: the package's name and C++ origins."""
    text = re.sub(r" \(Triggered internally at .*\)$", "", str(text))
    return re.sub(r"\b(?:torch|adjit)(?=\.|::)", "T", text)


@contextmanager
def raises(error: type[BaseException], text: str) -> Iterator[pytest.ExceptionInfo]:
    """Expect `error` with exactly `text`."""
    with pytest.raises(error) as caught:
        yield caught
    assert plain(caught.value) == plain(text)


@contextmanager
def warns(category: type[Warning], text: str) -> Iterator[None]:
    """Expect a warning with exactly `text`."""
    with pytest.warns(category) as caught:
        yield
    assert plain(text) in [plain(one.message) for one in caught]


@contextmanager
def raises_modified(
    kind: str,
    shape: list[int],
    version: int,
    expected: int,
    producer: str | None = None,
    hint: str = ANOMALY_HINT,
) -> Iterator[pytest.ExceptionInfo]:
    """Expect the error for a saved value that was overwritten; adjit adds the write's line."""
    text = (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [torch.{kind} {shape}]"
        + (f", which is output 0 of {producer}," if producer else "")
        + f" is at version {version}; expected version {expected} instead. {hint}"
    )
    with pytest.raises(RuntimeError) as caught:
        yield caught
    said = plain(caught.value)
    if AGAINST_TORCH:
        assert said == plain(text)
    else:
        assert said.startswith(plain(text))
        assert re.search(r"test_\w+\.py\D+\d+", said.removeprefix(plain(text)))


@contextmanager
def quiet() -> Iterator[None]:
    """For calls whose warnings are not the subject."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def forget_recipes() -> None:
    """Have elementwise ops planned anew: under other settings their recipes are others.

    Another default dtype clears what ops remember. A list of all objects would do it, too, but whoever has one
    holds tuples that other threads are filling, which fails then.
    """
    from adjit.schedule import settle

    settle.settle(everything=True)
    kind = T.get_default_dtype()
    T.set_default_dtype(T.float64 if kind is T.float32 else T.float32)
    T.set_default_dtype(kind)


@contextmanager
def putting_off() -> Iterator[None]:
    """Values that only graphs hold wait for somebody to read them, whatever their size.

    They do so on the cold road too, where those that others read would be there.
    """
    from adjit.graph import elementwise_record
    from adjit.schedule import deferred

    def large(*call: Any) -> Any:
        op_record = plan(*call)
        op_record.recipe.large = True
        return op_record

    def cut_down(*args: Any) -> Any:
        part = deferred_part(*args)
        recorded[:] = [] if part is None else [(n, n.recipe, n.inputs) for n in part.kept]
        return part

    def put_off(part: Any, left: list[Any]) -> Any:
        for node, recipe, inputs in recorded:
            if node.recipe is None:
                node.recipe, node.inputs = recipe, inputs
        recorded.clear()
        return put_off_part(part, left)

    plan, deferred_part, put_off_part = elementwise_record.plan, deferred.cut_down, deferred.put_off
    recorded: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        forget_recipes()
        patch.setattr(elementwise_record, "plan", large)
        patch.setattr(deferred, "LEAST", 0)
        patch.setattr(deferred, "cut_down", cut_down)
        patch.setattr(deferred, "put_off", put_off)
        yield
        forget_recipes()


def leaf(values: Any, **options: Any) -> Any:
    """A tensor that requires gradients."""
    return T.tensor(values, requires_grad=True, **options)


def array(tensor: Any) -> np.ndarray:
    """The values as a NumPy array, whatever the tensor's flags."""
    return tensor.detach().numpy()


def same(tensor: Any, values: Any, *, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """Assert equal shape and values, within float32 rounding."""
    values = array(values) if isinstance(values, T.Tensor) else np.asarray(values)
    assert isinstance(tensor, T.Tensor)
    assert tuple(tensor.shape) == values.shape
    np.testing.assert_allclose(array(tensor), values, rtol=rtol, atol=atol)


def grads(function: Callable[..., Any], *values: Any) -> list[np.ndarray | None]:
    """Gradients of `function(*leaves).sum()` as arrays, one per leaf."""
    leaves = [leaf(value, dtype=T.float64) for value in values]
    function(*leaves).sum().backward()
    return [None if one.grad is None else array(one.grad) for one in leaves]


# ----- layouts: tensors of a shape whose elements lie, or repeat, in other ways -----


def _turned(a: np.ndarray, order: Sequence[int]) -> Any:
    """Axis `order[k]` of what lies in memory is axis k."""
    back = [order.index(d) for d in range(a.ndim)]
    return T.tensor(np.ascontiguousarray(a.transpose(back))).permute(*order)


def permuted(a: np.ndarray) -> Any:
    return _turned(a, [*range(1, a.ndim), 0][: a.ndim])


def transposed(a: np.ndarray) -> Any:
    return _turned(a, [*range(a.ndim)][::-1])


def stepped(a: np.ndarray) -> Any:
    wide = np.repeat(a, 2, axis=-1)
    wide[..., 1::2] = 0
    return T.tensor(wide)[..., ::2]


def sliced(a: np.ndarray) -> Any:
    """A part of something larger, that begins in the middle."""
    return T.tensor(np.pad(a, [(2, 1)] * a.ndim))[(slice(2, -1),) * a.ndim]


def flipped(a: np.ndarray) -> Any:
    """From an array with negative strides, which tensors have none of."""
    return T.tensor(np.flip(np.flip(a).copy()))


def imported(a: np.ndarray) -> Any:
    """The memory of an array in Fortran's order."""
    return T.from_numpy(np.asfortranarray(a.copy()))


def seen(array: np.ndarray) -> Any:
    """A tensor on an array that somebody holds, and may write: the argument has a name here."""
    return T.from_numpy(array)


def repeated(*axes: int) -> Callable[[np.ndarray], Any]:
    """The first of each of these axes for all of them, as gradients of sums and means have it."""

    def layout(a: np.ndarray) -> Any:
        index = tuple(
            slice(0, 1) if d in axes or d - a.ndim in axes else slice(None) for d in range(a.ndim)
        )
        return T.tensor(a[index].copy()).expand(a.shape)

    return layout


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "contiguous": lambda a: T.tensor(a.copy()),
    "permuted": permuted,
    "transposed": transposed,
    "stepped": stepped,
    "sliced": sliced,
    "flipped": flipped,
    "imported": imported,
    "of a row": repeated(0, -3, -4, -5),
    "of a column": repeated(-1),
    "of a picture": repeated(
        -1, -2
    ),  # as means of pictures, and adaptive pools of one place, leave it
    "of the inner axes": repeated(-2, -3),
    "of one": repeated(*range(-5, 0)),
}
SHAPES = {1: (7,), 2: (5, 6), 3: (4, 3, 5), 4: (3, 2, 4, 3), 5: (2, 3, 2, 2, 3)}  # by rank


def plainly(tensor: Any) -> Any:
    """The same values in C order."""
    return T.tensor(array(tensor).copy())
