"""The laws of `vmap` on PyTorch's samples of an op: it gives what a loop over examples gives, and so do "
"gradients.

Examples of a sample are its tensors and the same with their elements rolled, where the op takes these.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from opinfo import Arguments, Lacking, translated

import adjit
from adjit.utils._pytree import tree_flatten, tree_unflatten

SIZE = 3


class Law:
    """One sample of an op: its call as a function of the tensors among the arguments."""

    def __init__(self, op: Any, sample: Any) -> None:
        self.function = translated(op)
        given = Arguments(adjit, True).of((sample.input, sample.args, sample.kwargs))
        leaves, self.spec = tree_flatten(given)
        self.places = [k for k, t in enumerate(leaves) if isinstance(t, adjit.Tensor)]
        self.leaves = leaves
        self.tensors = [leaves[k].detach() for k in self.places]
        self.differentiable = [leaves[k].requires_grad for k in self.places]

    def __call__(self, *tensors: Any) -> Any:
        leaves = list(self.leaves)
        for k, t in zip(self.places, tensors, strict=True):
            leaves[k] = t
        x, args, kwargs = tree_unflatten(leaves, self.spec)
        made = self.function(x, *args, **kwargs)
        return [t for t in tree_flatten(made)[0] if isinstance(t, adjit.Tensor)]

    def examples(self) -> list[list[Any]] | None:
        """The tensors of each example; None where the op has no tensors or takes none of these."""
        if not self.tensors:
            return None
        rolled = [
            [t.reshape(-1).roll(k).reshape(t.shape) if k and t.numel() else t for t in self.tensors]
            for k in range(SIZE)
        ]
        for found in (rolled, [self.tensors] * SIZE):
            if results_of(self, found) is not None:
                return found
        return None


def results_of(law: Callable[..., Any], examples: Sequence[Sequence[Any]]) -> list[Any] | None:
    """What an op gives for each example, if it takes them and gives alike shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = [law(*tensors) for tensors in examples]
            for t in (t for one in made for t in one):
                t.numpy(force=True)
        except Lacking:
            raise
        except Exception:
            return None
    shapes = {tuple(tuple(t.shape) for t in one) for one in made}
    return made if len(shapes) == 1 and made[0] else None


def in_dims_of(tensors: Sequence[Any]) -> Iterator[tuple[str, list[int | None]]]:
    """Which tensors differ between examples, and along which axis."""
    count = len(tensors)
    yield "all", [0] * count
    yield "last axis", [-1] * count
    if count > 1:
        yield "first only", [0] + [None] * (count - 1)
        yield "but the first", [None] + [0] * (count - 1)


def differences(law: Law) -> Iterator[str]:
    """Where `vmap` of the op is not what the loop is, in values and gradients."""
    examples = law.examples()
    if examples is None:
        return
    for name, dims in in_dims_of(law.tensors):
        chosen = [
            [e[k] if dim is not None else examples[0][k] for k, dim in enumerate(dims)]
            for e in examples
        ]
        wanted = results_of(law, chosen)
        if wanted is None:
            continue
        stacked = [
            examples[0][k] if dim is None else adjit.stack([e[k] for e in examples], dim)
            for k, dim in enumerate(dims)
        ]
        yield from (f"{name}: {text}" for text in compared(law, stacked, dims, wanted, chosen))


def compared(
    law: Law, stacked: Sequence[Any], dims: Sequence[Any], wanted: Sequence[Any], chosen: Sequence[Any]
) -> Iterator[str]:  # fmt: skip
    """What differs between a call of `vmap` and the loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [
            t.clone().requires_grad_(wants)
            for t, wants in zip(stacked, law.differentiable, strict=True)
        ]
        try:
            made = adjit.func.vmap(law, in_dims=tuple(dims))(*given)
            for t in made:
                t.numpy(force=True)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"
            return
        for k, got in enumerate(made):
            text = unlike(got, adjit.stack([one[k].detach() for one in wanted]))
            if text:
                yield f"result {k}: {text}"
                return
        yield from different_gradients(law, given, made, chosen, dims)


def different_gradients(
    law: Law, given: Sequence[Any], made: Sequence[Any], chosen: Sequence[Any], dims: Sequence[Any]
) -> Iterator[str]:
    """Which gradients of all examples at once are not those of the loop."""
    random = np.random.default_rng(0)
    outs = [k for k, t in enumerate(made) if t.requires_grad]
    leaves = [k for k, t in enumerate(given) if t.requires_grad]
    if not outs or not leaves:
        return
    cotangents = [adjit.tensor(random.standard_normal(tuple(made[k].shape))) for k in outs]
    got = adjit.autograd.grad(
        [made[k] for k in outs], [given[k] for k in leaves], cotangents, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    totals = [[] for _ in leaves]
    for n, tensors in enumerate(chosen):
        own = [t.detach().clone().requires_grad_(k in leaves) for k, t in enumerate(tensors)]
        results = law(*own)
        found = adjit.autograd.grad(
            [results[k] for k in outs], [own[k] for k in leaves], [g[n] for g in cotangents],
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        for k, g in enumerate(found):
            totals[k].append(g)
    for k, (place, g) in enumerate(zip(leaves, got, strict=True)):
        dim = dims[place]
        wanted = adjit.stack(totals[k], 0 if dim is None else dim)
        text = unlike(g, wanted.sum(0) if dim is None else wanted)
        if text:
            yield f"gradient {place}: {text}"


def rows_differ(law: Law) -> Iterator[str]:
    """Which gradients of several vectors at once are not those of one after the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [
            t.clone().requires_grad_(wants)
            for t, wants in zip(law.tensors, law.differentiable, strict=True)
        ]
        made = [t for t in law(*given) if t.requires_grad]
        leaves = [t for t in given if t.requires_grad]
        if not made or not leaves:
            return
        random = np.random.default_rng(0)
        vectors = [
            adjit.tensor(random.standard_normal((SIZE, *t.shape)), dtype=t.dtype) for t in made
        ]

        def pulled(given: Any, batched: bool) -> Any:
            return adjit.autograd.grad(
                made, leaves, given, retain_graph=True, allow_unused=True, materialize_grads=True,
                is_grads_batched=batched,
            )  # fmt: skip

        wanted = [pulled([v[n] for v in vectors], False) for n in range(SIZE)]
        try:
            got = pulled(vectors, True)
        except Exception as error:
            yield f"rows: {type(error).__name__}: {error}"
            return
        for k, g in enumerate(got):
            text = unlike(g, adjit.stack([one[k] for one in wanted]))
            if text:
                yield f"rows of {k}: {text}"


def unlike(got: Any, wanted: Any) -> str:
    """How two tensors differ, empty if they do not."""
    if got.dtype is not wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {tuple(got.shape)} for {wanted.dtype} {tuple(wanted.shape)}"
    a, b = got.numpy(force=True), wanted.numpy(force=True)
    if a.dtype.kind != "f":
        return "" if (a == b).all() else f"{a} for {b}"
    scale = np.abs(b[np.isfinite(b)]).max(initial=0)
    rtol = 1e-9 if a.dtype.itemsize == 8 else 2e-5
    close = np.isclose(a, b, rtol=rtol, atol=1e-10 + rtol * scale, equal_nan=True)
    return (
        ""
        if close.all()
        else f"{(~close).sum()} of {close.size} differ, {a[~close][0]} for {b[~close][0]}"
    )
