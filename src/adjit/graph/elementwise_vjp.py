"""Gradients of elementwise ops: which kernels give them, and recording these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import cast

from ..schedule.planning.recipe import Operand
from ..schedule.settle import MAX_PENDING, pending, settle
from ..shapes import broadcast_strides
from ..storage import Storage
from .elementwise_record import elementwise_recipe, number_of, planned, result_spec, specs_like
from .levels import tracers
from .node import Gradient, GradNode, NewTensor, Node, Spec, TensorBase, are_one, is_bare
from .op_record import (
    AS_IS,
    AS_TENSOR,
    FITTED,
    NOTHING,
    PASSED,
    ElementwiseOp,
    Kernel,
    Number,
    OpRecord,
    Pick,
    Vjp,
    VjpOnTensors,
)
from .other_sizes import form_of
from .primitives import filled
from .record import as_tensor, is_tensor, new_node, picks, picks_of
from .saved import FREED, unpack
from .state import state
from .straight import mark_straight
from .templates import Unresizable


def elementwise_vjps(
    op: ElementwiseOp, fn: GradNode, grads: list[Gradient | None]
) -> Sequence[Gradient | None]:
    """Record the vjp of an elementwise op; one gradient per operand, None where not needed."""
    saved, op_record = fn.saved, fn.context
    assert isinstance(op_record, OpRecord)
    if saved is None:
        raise RuntimeError(FREED)
    g = grads[0]
    assert g is not None
    if is_bare(g):
        found = op_record.vjps.get(fn.mask)
        spec = op_record.recipe.spec
        if found is None:
            found = op_record.vjps[fn.mask] = vjp_for(op, op_record, fn.mask, spec)
        values, start, shared = [g], 0, 0
    elif state.grad or g.__class__ in tracers:
        return _vjps_on_tensors(op, fn, op_record, g)
    else:
        spec, storage = g._spec, g._storage
        found = op_record.vjps_by_spec.get((spec, fn.mask))
        if found is None:
            found = vjp_for(op, op_record, fn.mask, spec)
            op_record.vjps_by_spec[spec, fn.mask] = found
        values, start, shared = [storage.value], g._offset, storage.shared
    passed, fits, kernels = found[:3]
    if not fits:
        g = as_tensor(g, spec)
    if not kernels:
        assert passed is not None
        return passed((g, None))
    results: list[Gradient | None] = (
        [None] * len(fn.edges) if passed is None else [*passed((g, None))]
    )
    shifted = start
    for k in range(0, len(saved), 2):
        kept = saved[k]
        if kept.__class__ is Storage:
            if kept.version != saved[k + 1]:
                unpack(fn, k // 2)
        else:
            if kept._version_counter.version != saved[k + 1]:
                unpack(fn, k // 2)
            shifted = shifted or kept._offset
            kept = kept._storage
        values.append(kept.value)
        shared += kept.shared
    for recipe, only, which, positions, pick, _ in kernels:
        node = new_node(Node)
        node.recipe = recipe
        node.inputs = pick(values)
        node.offsets = None
        if shifted:
            starts = [0 if t.__class__ is Storage else t._offset for t in saved[::2]]
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


def learns_vjp(op: ElementwiseOp, fn: GradNode, g: Gradient | None) -> bool:
    """Whether machine code knows a vjp now that it did not."""
    op_record, mask = fn.context, fn.mask
    assert isinstance(op_record, OpRecord)
    if g is None or g.__class__ in tracers:
        return False
    if is_bare(g):
        if mask in op_record.vjps:
            return False
        op_record.vjps[mask] = vjp_for(op, op_record, mask, op_record.recipe.spec)
        return True
    key = g._spec, mask
    if key in op_record.vjps_by_spec:
        return False
    op_record.vjps_by_spec[key] = vjp_for(op, op_record, mask, g._spec)
    return True


def vjp_for(op: ElementwiseOp, op_record: OpRecord, mask: int, g_spec: Spec) -> Vjp:
    """What the vjp takes, made by a template where one has made what is known of the op."""
    if op_record.kin is not None:
        is_own = g_spec is op_record.recipe.spec
        kinds = [s or op_record.compute for s in op_record.operands]
        described = tuple(kinds if is_own else [*kinds, g_spec])
        found = form_of(described)
        if found is not None:
            form, numbers = found

            def make(given: Iterator[int]) -> Vjp:
                specs = specs_like(described, given)
                record = planned(op, specs[: op.arity])
                if record.compute is not op_record.compute:
                    raise Unresizable(op.name)
                return plan_vjp(
                    op, record, mask, record.recipe.spec if is_own else cast(Spec, specs[-1])
                )

            vjp = op_record.kin.made((mask, is_own, form), numbers, make)
            if vjp is not None:
                return vjp
    return plan_vjp(op, op_record, mask, g_spec)


def plan_vjp(op: ElementwiseOp, op_record: OpRecord, mask: int, g_spec: Spec) -> Vjp:
    """What the vjp of an elementwise op takes, for the operands that need a gradient.

    Large operands share one kernel, which reads them once; small ones have one each, which costs
    less to record, unless the gradients are one computation.
    """
    forward, specs, compute = op_record.recipe, op_record.operands, op_record.compute
    back = op.back
    assert back is not None
    shape = forward.spec.shape
    needed = {k: spec for k, spec in enumerate(specs) if spec is not None and mask >> k & 1}
    passed = tuple(k for k in needed if back.passes(k))
    rest = [k for k in needed if k not in passed]
    kept = {-1: forward.spec} | {k: spec for k, spec in enumerate(specs) if spec is not None}
    saved = [k for k in op.saves[mask] if k in kept]
    kernels = []
    apart = forward.spec.numel <= SMALL_VJP and not back.is_one_computation
    for which in [[k] for k in rest] if apart else [rest] if rest else []:
        _, reads = back.needed(which)
        operands = [("g", g_spec)]
        places = [0]
        for position, k in enumerate(saved, 1):
            name = "out" if k < 0 else op.params[k]
            if name in reads:
                operands.append((name, kept[k]))
                places.append(position)
        numbers = tuple(p for p, name in enumerate(op_record.numbers) if name in reads)
        inputs = [
            Operand(name, s.dtype, broadcast_strides(s.shape, s.strides, shape))
            for name, s in operands
        ]
        inputs += [number_of(op, op_record.numbers[p], compute) for p in numbers]
        place = forward.spec.device
        results = [
            (
                f"g_{op.params[k]}",
                result_spec(shape, [g_spec, forward.spec], needed[k].dtype, place),
            )
            for k in which
        ]
        recipe = elementwise_recipe(
            f"{op.name}_vjp",
            back,
            which,
            compute,
            inputs,
            results,
            tuple(s for _, s in operands),
        )
        is_own = len(which) == 1 and are_one(recipe.spec, needed[which[0]])
        only = which[0] if is_own else -1
        pick = tuple if len(places) == len(saved) + 1 else picker(places)
        kernels.append(Kernel(recipe, only, tuple(which), numbers, pick, tuple(places)))
    fits = all(are_one(needed[k], forward.spec) for k in passed)
    pass_places = [0 if k in passed else 1 for k in range(len(specs))]
    passing = picker(pass_places) if passed or not kernels else None
    for kernel in kernels:
        if len(kernel.which) > 1:
            picks_of(kernel.recipe)  # which machine code takes from there
    given = [k for kernel in kernels for k in kernel.which]
    made = tuple([spec for kernel in kernels for spec in kernel.recipe.outputs])
    found = dict.fromkeys(passed, PASSED) | {k: i for i, k in enumerate(given)}
    looks = dict.fromkeys(passed, g_spec) | dict(zip(given, made, strict=True))
    sources = tuple([found.get(k, NOTHING) for k in range(len(specs))])
    fixes = tuple([fix(looks[k], needed[k]) if k in looks else AS_IS for k in range(len(specs))])
    return Vjp(passing, fits, tuple(kernels), made, sources, fixes)


def fix(found: Spec, wanted: Spec) -> int:
    """How a gradient fits: as it is, as a tensor, or after a sum or a conversion."""
    if are_one(found, wanted):
        return AS_IS
    alike = found.dtype is wanted.dtype and found.device is wanted.device
    return AS_TENSOR if alike and found.shape == wanted.shape else FITTED


def picker(places: Sequence[int]) -> Pick:
    """A function that picks these places of a tuple, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    only = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda values: tuple(values[only])


SMALL_VJP = 1 << 12  # elements


def _vjps_on_tensors(
    op: ElementwiseOp, fn: GradNode, op_record: OpRecord, g: TensorBase
) -> list[Gradient | None]:
    """The vjp body read on tensors, so that it is recorded and differentiable itself."""
    how = op_record.vjps_on_tensors.get(fn.mask)
    if how is None:
        how = op_record.vjps_on_tensors[fn.mask] = _plan_on_tensors(op, op_record, fn.mask)
    values: list[TensorBase | Number | None] = [g]
    for position in range(how.saved):
        values.append(unpack(fn, position))
    if op_record.numbers:
        values += op.numbers(op_record, fn.scalars).values()
    values.append(None)
    results = how.function(*[values[place] for place in how.places])
    grads: list[Gradient | None] = [None] * len(fn.inputs)
    for k, gradient in zip(how.which, results, strict=True):
        if not is_tensor(gradient):
            gradient = _constant_like(g, gradient)
        if op.straight and k == 0 and gradient is not g:
            mark_straight(gradient, unpack(fn, 0), op.straight)
        grads[k] = gradient
    return grads


def _plan_on_tensors(op: ElementwiseOp, op_record: OpRecord, mask: int) -> VjpOnTensors:
    """The vjp body as a function of tensors, and which of `g`, what is saved, numbers and None it is given."""
    specs, back = op_record.operands, op.back
    assert back is not None
    which = tuple([k for k in range(len(specs)) if mask >> k & 1])
    tensors = [k for k in op.saves[mask] if k < 0 or specs[k] is not None]
    names = ["g", *["out" if k < 0 else op.params[k] for k in tensors], *op_record.numbers]
    places = [
        names.index(name) if name in names else len(names)
        for name in [*back.params, *back.attributes]
    ]
    function = back.on_tensors(which, op.functions())
    return VjpOnTensors(function, which, len(tensors), tuple(places))


def _constant_like(g: TensorBase, value: float) -> NewTensor:
    """A gradient that the body gives as a number."""
    return filled(g.shape, value, g.dtype, g.device)
