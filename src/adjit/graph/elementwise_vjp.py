"""Gradients of elementwise ops: which kernels give them, and recording these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ..schedule.planning.recipe import Operand, Recipe
from ..schedule.settle import MAX_PENDING, pending, settle
from ..shapes import broadcast_strides
from ..storage import Storage
from .elementwise_record import elementwise_recipe, result_strides
from .node import GradNode, Node, Spec, spec_of
from .primitives import filled
from .record import as_tensor, is_tensor, new_node, picks
from .saved import FREED, unpack
from .state import state


def pull_elementwise(fn: GradNode, grads: list[Any]) -> Sequence[Any]:
    """Record the vjp of an elementwise op; one gradient per operand, None where not needed."""
    saved = fn.saved
    if saved is None:
        raise RuntimeError(FREED)
    g = grads[0]
    if g.__class__ is Node:
        spec = fn.outputs[0]
        key: Any = fn.mask
        values, start, shared = [g], 0, 0
    elif state.grad:
        return _pull_on_tensors(fn, g)
    else:
        spec, storage = g.spec, g.storage
        key = spec, fn.mask
        values, start, shared = [storage.value], g.offset, storage.shared
    found: Any = fn.recipe.vjps.get(key)
    if found is None:
        found = fn.recipe.vjps[key] = plan_vjp(fn.op, fn, spec)
    passed, fits, kernels, _, _ = found
    if not fits:
        g = as_tensor(g, spec)
    if not kernels:
        return passed((g, None))
    results: list[Any] = [None] * len(fn.edges) if passed is None else [*passed((g, None))]
    shifted = start
    for k in range(0, len(saved), 2):
        kept = saved[k]
        if kept.__class__ is Storage:
            if kept.version != saved[k + 1]:
                unpack(fn, k // 2)
        else:
            if kept.counter.version != saved[k + 1]:
                unpack(fn, k // 2)
            shifted = shifted or kept.offset
            kept = kept.storage
        values.append(kept.value)
        shared += kept.shared
    for recipe, only, which, positions, pick, _ in kernels:
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = pick(values)
        node.offsets = None
        if shifted:
            starts = [0 if t.__class__ is Storage else t.offset for t in saved[::2]]
            node.offsets = pick([start, *starts])
        node.scalars = tuple([fn.scalars[p] for p in positions]) if positions else ()
        if only >= 0:
            pending.append(node)
            results[only] = node
        else:
            for k, value, spec in zip(which, picks(node), recipe.outputs, strict=True):
                results[k] = value if spec is fn.inputs[k] else as_tensor(value, spec)
    if shared or len(pending) >= MAX_PENDING:
        settle()
    return results


class Kernel(NamedTuple):
    """A kernel that gives gradients of some operands."""

    recipe: Recipe
    only: int  # the operand whose gradient is its only result and fits, or -1
    which: tuple[int, ...]  # the operands that it gives gradients for
    numbers: tuple[int, ...]  # the positions of its numbers among the forward's
    pick: Callable[[Any], Any]  # picks its inputs out of `g` and the saved values
    reads: tuple[int, ...]  # the places of its inputs there


class Vjp(NamedTuple):
    """How the gradients of an elementwise op's operands come from that of its result, `g`."""

    passed: Callable[[Any], Any] | None  # of (g, None): those that are `g` itself, if there are any
    fits: bool  # whether `g` has the specs of these operands
    kernels: tuple[Kernel, ...]  # for the others
    sources: tuple[int, ...] | None  # for each operand its kernel, `PASSED` for `g`, or `NOTHING`
    forms: tuple[int, ...]  # for each operand what to make of that, as `form` says


def plan_vjp(op: Any, fn: GradNode, g_spec: Spec) -> Vjp:
    """What the vjp of an elementwise op takes, for the operands that need a gradient.

    Large operands share one kernel, which reads them once; small ones have one each, which costs
    less to record.
    """
    forward: Recipe = fn.recipe
    compute, specs, shape = forward.compute, forward.operands, forward.spec.shape
    needed = [k for k in range(len(specs)) if fn.mask >> k & 1]
    passed = tuple(k for k in needed if op.back.passes(k))
    rest = [k for k in needed if k not in passed]
    saved = [k for k in op.saves[fn.mask] if k < 0 or specs[k] is not None]
    strides = result_strides(shape, [g_spec, forward.spec])
    kernels = []
    for which in [[k] for k in rest] if forward.spec.numel <= SMALL_VJP else [rest] if rest else []:
        _, reads = op.back.needed(which)
        operands = [("g", g_spec)]
        places = [0]
        for position, k in enumerate(saved, 1):
            name = "out" if k < 0 else op.params[k]
            if name in reads:
                operands.append((name, forward.spec if k < 0 else specs[k]))
                places.append(position)
        numbers = tuple(p for p, name in enumerate(forward.numbers) if name in reads)
        inputs = [
            Operand(name, s.dtype, broadcast_strides(s.shape, s.strides, shape))
            for name, s in operands
        ]
        inputs += [Operand(forward.numbers[p], compute, None) for p in numbers]
        place = forward.spec.device
        results = [
            (f"g_{op.params[k]}", spec_of(shape, strides, specs[k].dtype, place)) for k in which
        ]
        recipe = elementwise_recipe(
            f"{op.name}_vjp",
            op.back,
            which,
            compute,
            inputs,
            results,
            tuple(s for _, s in operands),
        )
        only = which[0] if len(which) == 1 and recipe.spec is specs[which[0]] else -1
        pick = tuple if len(places) == len(saved) + 1 else picker(places)
        kernels.append(Kernel(recipe, only, tuple(which), numbers, pick, tuple(places)))
    fits = all(specs[k] is forward.spec for k in passed)
    pass_places = [0 if k in passed else 1 for k in range(len(specs))]
    passing = picker(pass_places) if passed or not kernels else None
    if any(len(kernel.which) > 1 for kernel in kernels):
        return Vjp(passing, fits, tuple(kernels), None, ())
    found = dict.fromkeys(passed, PASSED) | {kernel.which[0]: i for i, kernel in enumerate(kernels)}
    made = dict.fromkeys(passed, g_spec) | {
        kernel.which[0]: kernel.recipe.spec for kernel in kernels
    }
    sources = tuple([found.get(k, NOTHING) for k in range(len(specs))])
    forms = tuple([form(made[k], specs[k]) if k in made else AS_IS for k in range(len(specs))])
    return Vjp(passing, fits, tuple(kernels), sources, forms)


def form(found: Spec, wanted: Spec) -> int:
    """How a gradient fits: as it is, as a tensor, or after a sum or a conversion."""
    if found is wanted:
        return AS_IS
    alike = found.dtype is wanted.dtype and found.device is wanted.device
    return AS_TENSOR if alike and found.shape == wanted.shape else FITTED


PASSED, NOTHING = -1, -2  # among the sources of a vjp
AS_IS, AS_TENSOR, FITTED = range(3)  # its forms


def picker(places: Sequence[int]) -> Callable[[Any], Any]:
    """A function that picks these places of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    only = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda values: tuple(values[only])


SMALL_VJP = 1 << 12  # elements


def _pull_on_tensors(fn: GradNode, g: Any) -> list[Any]:
    """The vjp body read on tensors, so that it is recorded and differentiable itself."""
    op, specs = fn.op, fn.inputs
    which = tuple(k for k in range(len(specs)) if fn.mask >> k & 1)
    given: dict[str, Any] = dict.fromkeys([*op.back.params, *op.back.attributes])
    given["g"] = g
    tensors = [k for k in op.saves[fn.mask] if k < 0 or specs[k] is not None]
    for position, k in enumerate(tensors):
        given["out" if k < 0 else op.params[k]] = unpack(fn, position)
    if fn.recipe.numbers:
        numbers = op.numbers(fn.recipe, fn.scalars)
        given.update((name, value) for name, value in numbers.items() if name in given)
    results = op.back.on_tensors(which, op.functions())(**given)
    grads: list[Any] = [None] * len(specs)
    for k, gradient in zip(which, results, strict=True):
        grads[k] = gradient if is_tensor(gradient) else _constant_like(g, gradient)
    return grads


def _constant_like(g: Any, value: float) -> Any:
    """A gradient that the body gives as a number."""
    return filled(g.shape, value, g.dtype, g.device)
