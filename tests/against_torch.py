"""Running one call in adjit and in PyTorch, and comparing what comes out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

Call = Callable[..., Any]  # takes the library and its tensors


def plain(text: object) -> str:
    """A text without the library's name and C++ origins."""
    text = re.sub(r" \(Triggered internally at .*\)$", "", str(text))
    return re.sub(r"\b(?:torch|adjit)(?=\.|::)", "T", text)


def tensors_in(result: Any) -> list[Any]:
    """The tensors of a result, which is one, or a tuple of them."""
    return list(result) if isinstance(result, tuple) else [result]


def same_tensor(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Assert equal shape, dtype and values; NaN equals NaN."""
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert plain(ours.dtype) == plain(theirs.dtype)
    got, wanted = ours.detach().numpy(), theirs.detach().numpy(force=True)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def agree(call: Call, *arrays: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that `call(library, *tensors)` gives the same in both libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = call(adjit, *[adjit.tensor(a) for a in arrays])
        theirs = call(torch, *[torch.tensor(a) for a in arrays])
    assert len(tensors_in(ours)) == len(tensors_in(theirs))
    for a, b in zip(tensors_in(ours), tensors_in(theirs), strict=True):
        same_tensor(a, b, rtol, atol)


def gradients(library: Any, call: Call, arrays: tuple[Any, ...], order: int) -> list[list[Any]]:
    """Gradients of a weighted sum of the outputs, then of a sum over those gradients, …"""
    leaves = [library.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    outputs = [o for o in tensors_in(call(library, *leaves)) if o.requires_grad]
    found: list[list[Any]] = []
    for level in range(order):
        total = 0
        for k, out in enumerate(outputs):
            phase = np.cos(1.0 + k + np.arange(out.numel())).reshape(tuple(out.shape))
            total = total + (out * library.tensor(phase)).sum()
        grads = library.autograd.grad(
            total, wanted, create_graph=level + 1 < order, allow_unused=True
        )
        found.append(list(grads))
        outputs = [g for g in grads if g is not None and g.requires_grad]
        if not outputs:
            break
    return found


def agree_in_gradients(
    call: Call, *arrays: Any, order: int = 2, rtol: float = 1e-7, atol: float = 1e-9
) -> None:
    """Assert equal gradients, up to an order, at float64 arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = gradients(adjit, call, arrays, order)
        theirs = gradients(torch, call, arrays, order)
    for mine, other in zip(ours, theirs, strict=False):
        for a, b in zip(mine, other, strict=True):
            if a is None or b is None:
                # A gradient that is zero everywhere may be missing.
                present = a if a is not None else b
                assert present is None or not present.detach().numpy(force=True).any()
            else:
                same_tensor(a, b, rtol, atol)


# Types of errors that both libraries have.
OUR_ERRORS = {torch.linalg.LinAlgError: adjit.linalg.LinAlgError}


def agree_in_error(call: Call, *arrays: Any) -> None:
    """Assert that both libraries raise the same type with the same text."""
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        call(torch, *[torch.tensor(a) for a in arrays])
    tensors = [adjit.tensor(a) for a in arrays]
    with pytest.raises(OUR_ERRORS.get(theirs.type, theirs.type)) as ours:
        [result.numpy() for result in tensors_in(call(adjit, *tensors))]
    said = plain(ours.value).splitlines()[0]
    assert said == plain(theirs.value).splitlines()[0]


def agree_in_warning(call: Call, *arrays: Any) -> None:
    """Assert that both libraries warn with the same text."""
    texts = []
    for library in (torch, adjit):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(library, *[library.tensor(a) for a in arrays])
        texts.append([(one.category, plain(one.message)) for one in caught])
    assert texts[0]
    assert texts[0] == texts[1]


def backward_name(call: Call, *arrays: Any) -> str:
    """The name of the backward function of adjit's result."""
    leaves = [adjit.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    return str(tensors_in(call(adjit, *leaves))[0].grad_fn.name())
