"""Writes into views of tensors with history: where gradients of the tensor and of what was written go."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import errors
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..shapes import is_dense
from . import record, write
from .levels import is_traced, tracers
from .links import links_of
from .node import (
    Edge,
    GradContext,
    Gradient,
    GradNode,
    NewTensor,
    Spec,
    Specs,
    TensorBase,
    node_class,
)
from .registry import registry
from .saved import FREED, NUMBERS
from .state import state
from .trace import TraceEntry, remembered


class WrittenRegion(GradContext):
    """The part of a tensor's memory that was written through a view; what its backward recorded."""

    __slots__ = ("base", "offset", "region", "traces")

    def __init__(self, base: Spec, region: Spec, offset: int) -> None:
        self.base, self.region = base, region  # specs of the tensor and of the view
        self.offset = offset  # from where the tensor begins
        # By the gradient's spec, and None behind it where that is not all of its memory.
        self.traces: dict[Specs, TraceEntry] = {}


def written_region(base: Spec, region: Spec, offset: int) -> WrittenRegion:
    """The region that a view shows, the same object each time."""
    key = base, region, offset
    found = _written_regions.get(key)
    if found is None:
        if len(_written_regions) >= record.MAX_RECIPES:
            _written_regions.clear()
        found = _written_regions[key] = WrittenRegion(*key)
    return found


_written_regions: dict[tuple[Spec, Spec, int], WrittenRegion] = {}


class CopySlices:
    """Backward of writing into a view: the base loses the region's gradient to what was written."""

    backward_name = "torch::autograd::CopySlices"
    node_class = node_class(backward_name)

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> list[Gradient | None]:
        """Gradients of the old base and of the elements that were written."""
        if fn.saved is None:
            raise RuntimeError(FREED)
        written = fn.context
        assert isinstance(written, WrittenRegion)
        base, region, offset = written.base, written.region, written.offset
        # A fill may write there, but its gradient has no single place.
        write.refuse_overlapping(region)
        given = record.as_tensors(fn, grads)
        traced = bool(tracers) and is_traced(grads)
        whole = not traced and write.is_all(given[0]) and not given[0]._storage.shared

        def run() -> tuple[NewTensor, NewTensor]:
            state.whole = whole
            # In this order the zeros can be written over the gradient, which nothing reads any more.
            written_part = registry["gather_strided"](*given, base, region, offset, whole)
            return registry["without_region"](*given, base, region, offset, whole), written_part

        if state.grad or traced:
            return [*run()]
        # Machine code looks for the first.
        key = (given[0]._spec,) if whole else (given[0]._spec, None)
        return [*remembered(written.traces, key, given, run)]

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """It saves only geometry."""
        raise AttributeError(f"'CopySlices' object has no attribute '_saved_{name}'")


_copy_slices = CopySlices()


def edge_of_slices(t: TensorBase, made: TensorBase) -> Edge:
    """Where the gradient of the base of a view goes once `made` was written into the view."""
    assert t._view_of is not None
    base = t._view_of.base
    region = written_region(base._spec, t._spec, t._offset - base._offset)
    return _edge_of(base, made, region, (base._spec, made._spec), (base._spec,))


def _edge_of(
    base: TensorBase, source: TensorBase, region: WrittenRegion, inputs: Specs, outputs: Specs
) -> Edge:
    edge = record.edge_of(base) if base._needs_grad else None
    node = record.new_grad_node(_copy_slices, (edge, record.edge_of(source)), inputs)
    node.context, node.outputs, node.saved = region, outputs, NUMBERS
    return node, 0


# ----- what is written as it lies -----


class GradedAssignment(NamedTuple):
    """How the elements of one tensor become a part of another one, of which gradients are wanted."""

    writing: Recipe | None  # None where its value becomes that of all the memory, as it is
    region: WrittenRegion
    inputs: Specs  # of the backward node
    outputs: Specs


class SlicesOp(NamedTuple):
    """What backward nodes of such writes have in common, for machine code."""

    op: CopySlices
    node_class: type[GradNode]


native.register_layout(
    WRITTEN_REGION=WrittenRegion, GRADED_ASSIGNMENT=GradedAssignment, SLICES_OP=SlicesOp
)
slices_op = SlicesOp(_copy_slices, CopySlices.node_class)

# By the specs of what is read, of the part and of all of the memory, and by where the part begins; machine code
# finds them here.
graded_assignments: dict[tuple[Spec, Spec, Spec, int], GradedAssignment] = {}


def can_assign(t: TensorBase, source: TensorBase) -> bool:
    """Whether a view of a plain tensor can take over what another tensor shows, as it lies there, and somebody
    may ask for gradients."""
    spec, given = t._spec, source._spec
    is_alike = given.dtype is spec.dtype and given.device is spec.device
    is_alike &= given.shape == spec.shape or not given.shape
    other = source._storage
    if not is_alike or not _is_part_of_plain(t, record.needs_grad(source)):
        return False
    if other is t._storage or other.shared:
        return False
    if _is_taken_over(given, spec, t._storage.spec):
        return write.is_all(source)
    return given.contiguous and (
        write.assignment_of(given, spec, t._storage.spec).direct is not None
    )


def _is_taken_over(given: Spec, part: Spec, whole: Spec) -> bool:
    """Whether a value that lies as a view does can be that of its memory, all of which the view shows."""
    lies_alike = given.shape == part.shape and given.strides == part.strides
    return lies_alike and part.numel == whole.numel and is_dense(part.shape, part.strides)


def can_assign_number(t: TensorBase) -> bool:
    """Whether each element of a view of a plain tensor of which somebody may ask for gradients can become a
    number."""
    spec = t._spec
    if not _is_part_of_plain(t, False) or not spec.dtype.is_floating_point:
        return False
    return write.assignment_of(write.number_of(spec).spec, spec, t._storage.spec).direct is not None


def _is_part_of_plain(t: TensorBase, is_graded: bool) -> bool:
    """Whether this is a view of a plain tensor that is in a graph, or comes into one by what `is_graded`."""
    info, spec, storage = t._view_of, t._spec, t._storage
    if info is None or info.kind or not state.grad:
        return False
    base = info.base
    is_plain = base._spec is storage.spec and not base._offset and t._version_counter is storage
    is_plain &= base._autograd_meta is None or not base._autograd_meta.retains_grad
    return (
        (base._needs_grad or is_graded)
        and is_plain
        and bool(spec.numel)
        and not storage.shared
        and not links_of(storage)
        and not write.is_overlapping(spec)  # machine code takes what is known for allowed
    )


def assign_number(t: TensorBase, value: float) -> None:
    """Write a number into a view, and make that a part of the history; `can_assign_number` says which."""
    assign(t, write.number_for(t, value))


def assign(t: TensorBase, source: TensorBase) -> None:
    """Write what a tensor shows into a view, and make both a part of the history; `can_assign` says which."""
    info, storage, call_site = t._view_of, t._storage, errors.user_call_site()
    assert info is not None
    base = info.base
    found = _assignment(source._spec, t._spec, storage.spec, t._offset)
    edge = _edge_of(base, source, found.region, found.inputs, found.outputs)
    value = source._storage.value
    if found.writing is not None:
        value = write.recorded(record.node_on(found.writing, (t, source)))
    (
        storage.value, storage.version, storage.call_site, base._edge, base._needs_grad, t._needs_grad,
        info.version,
    ) = value, storage.version + 1, call_site, edge, True, True, -1  # fmt: skip
    t._current_fn()  # from the new one of the base
    write.settle_written(storage)


def _assignment(given: Spec, part: Spec, whole: Spec, offset: int) -> GradedAssignment:
    key = given, part, whole, offset
    found = graded_assignments.get(key)
    if found is None:
        writing = None
        if not _is_taken_over(given, part, whole):
            writing = write.assignment_of(given, part, whole).direct
            assert writing is not None
        if len(graded_assignments) >= record.MAX_RECIPES:
            graded_assignments.clear()
        region = written_region(whole, part, offset)
        found = GradedAssignment(writing, region, (whole, given), (whole,))
        graded_assignments[key] = found
    return found
