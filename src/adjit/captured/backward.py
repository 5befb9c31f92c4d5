"""The backward node behind the results of a captured function: a call of it, replayed.

A call keeps for its backward what the plans read that `backward_tracing.py` recorded. Gradients that are
to be differentiated again take another road: see `double_backward.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..graph import record
from ..graph.levels import is_traced, tracers
from ..graph.node import GradContext, GradNode, node_class
from ..graph.saved import FREED, modified_error
from ..graph.state import record_gradients, resume_gradients, state
from ..ops.creation import zeros
from ..schedule.settle import captured_threads, lock, settle, stop_capturing
from ..storage import Storage
from .backward_plan import BackwardPlan
from .backward_tracing import InnerWalk, TracedBackward
from .double_backward import RebuiltGraph
from .program import Externals, ProgramPart


class Check(NamedTuple):
    """What may not be written between a call and its backward."""

    counter: Any
    version: int
    tensor: Any  # None for a result: it holds the graph
    number: int  # of the result
    roots: int  # the results, as bits, whose graphs saved it


class KeptForBackward(NamedTuple):
    """What a call keeps for its backward."""

    values: Externals
    drawn: list[Any]
    checks: list[Check]
    call: Any  # a WaitingCall, if the forward may not have run yet


class CapturedContext(GradContext):
    """What a call keeps for a backward that may run again: freeing the graph does not free it."""

    __slots__ = ("kept",)

    def __init__(self, kept: KeptForBackward) -> None:
        self.kept = kept


class CapturedBackward:
    """The op behind results of a captured function that share a graph.

    Args:
        traced: what was recorded of their backward.
    """

    backward_name = "CompiledFunctionBackward"
    node_class = node_class(backward_name)
    is_planned = True  # it settles what its gradients are before it runs

    def __init__(self, traced: TracedBackward) -> None:
        self.roots, self.values, self.outside = traced.roots, traced.values, traced.outside
        self.saved = traced.saved
        self.targets, self.inputs, self.outputs = traced.targets, traced.inputs, traced.outputs
        self.reach, self.straight_reach = traced.reach, traced.straight_reach
        self.all, self.drawn = traced.all, traced.drawn
        self.checked, self.frees = traced.checked, traced.frees
        self.plans, self.placeholders = traced.plans, traced.placeholders
        self.joints = traced.joints
        self.joint_placeholders = traced.joint_placeholders
        self.rebuilt, self.storages = traced.rebuilt, traced.storages

    def connect(
        self,
        results: Sequence[Any],
        arguments: Sequence[Any],
        values: Externals,
        storage_of: Callable[[int], Storage],
        drawn: list[Any],
        call: Any,
    ) -> None:
        """Put a backward node behind the results of a call; `values` are what backward reads."""
        edges = [record.edge_of(target.find(arguments)) for target in self.targets]
        fn = record.new_grad_node(self, edges, self.inputs)
        fn.outputs = self.outputs
        checks = []
        for place, roots in self.checked.items():
            t = place.target and place.target.find(arguments)
            counter = storage_of(place.storage) if t is None else t._version_counter
            checks.append(Check(counter, counter.version, t, place.number, roots))
        kept = KeptForBackward(values, drawn, checks, call)
        if self.frees:
            fn.saved = kept
        else:
            fn.context = CapturedContext(kept)
        for k, out in enumerate(results):
            record.give_history(out, fn, k)

    def apply_vjp(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Replay the backward."""
        if fn.saved is None:
            raise RuntimeError(FREED)
        if captured_threads and threading.get_ident() in captured_threads:
            stop_capturing(
                "it sends gradients back through the result of another captured function"
            )
        kept: KeptForBackward = fn.saved
        if isinstance(fn.context, CapturedContext):
            kept = fn.context.kept
        grads = record.as_tensors(fn, grads)
        mask = sum(1 << k for k, g in enumerate(grads) if g is not None)
        for check in kept.checks:
            if check.roots & mask and check.counter.version != check.version:
                raise _written(fn, check)
        if state.grad or (tracers and is_traced(grads)):
            return self._send_back_rebuilt(self.rebuilt, fn, kept, grads)
        before = record_gradients(False)
        given = mask
        try:
            if mask not in self.plans:
                mask = self.all
                grads = [
                    zeros(spec.shape, dtype=spec.dtype, device=spec.device)
                    if g is None and spec is not None
                    else g
                    for g, spec in zip(grads, fn.outputs, strict=True)
                ]
            with lock:
                grads = [g if g is None or g._spec.contiguous else g.contiguous() for g in grads]
                if kept.call is not None and kept.call.may_join(grads):
                    found = self._send_back_jointly(self.joints[mask], kept, grads)
                else:
                    if kept.call is not None:
                        kept.call.run()
                    found = self._send_back(self.plans[mask], kept, grads)
        finally:
            if before:
                resume_gradients()
        if state.walk is not None:
            straight = [k for k, roots in enumerate(self.straight_reach) if given & roots]
            state.walk.straight += [fn.edges[k] for k in straight]
        return [g if given & roots else None for g, roots in zip(found, self.reach, strict=True)]

    def straight_edges(self, number: int) -> list[int]:
        """The edges along which the derivative of a result is 0."""
        return [k for k, roots in enumerate(self.straight_reach) if roots >> number & 1]

    def _send_back(self, plan: BackwardPlan, kept: KeptForBackward, grads: list[Any]) -> list[Any]:
        """Run the plan of a backward: the gradients of the targets."""
        settle(everything=True)
        part = plan.plan(self.placeholders)
        drawn = [kept.drawn[k] for k in self.drawn]
        blocks = _run(part, plan, [*_values(grads), *kept.values], drawn)
        return self._gradients(plan, blocks, grads)

    def _send_back_jointly(
        self, joint: BackwardPlan, kept: KeptForBackward, grads: list[Any]
    ) -> list[Any]:
        """Run forward and backward as one plan: the gradients of the targets."""
        part = joint.plan(self.joint_placeholders)
        try:
            blocks = _run(part, joint, [*_values(grads), *kept.call.outside], kept.drawn)
        except Exception as error:
            kept.call.fail(error)
            raise
        kept.call.finish([blocks[k] for k in joint.result_blocks])
        return self._gradients(joint, blocks, grads)

    def _send_back_rebuilt(
        self, rebuilt: RebuiltGraph, fn: GradNode, kept: KeptForBackward, grads: list[Any]
    ) -> list[Any]:
        """Send back through the graph that the call would have left behind uncaptured, recorded."""
        drawn = [kept.drawn[k] for k in self.drawn]
        before = record_gradients(False)
        try:
            with lock:
                if kept.call is not None:
                    kept.call.run()
                settle(everything=True)
                part = self.storages.plan(self.placeholders)
                given: Externals = [(record.ready_node(0), 0)] * len(fn.outputs) + kept.values
                blocks = _run(part, self.storages, given, drawn)
        finally:
            if before:
                resume_gradients()
        values = [
            given[~block][0] if block < 0 else record.ready_node(blocks[block])
            for block in self.storages.made
        ]
        nodes = rebuilt.make(fn.edges, kept.checks, values, drawn)
        walk = InnerWalk(True, None)
        walk.traced = bool(tracers) and is_traced(grads)
        walk.targets = {edge for edge in fn.edges if edge is not None}
        walk.goals = {edge[0] for edge in walk.targets}
        walk.useful = set(nodes)
        walk.order = sorted(walk.useful | walk.goals, key=attrgetter("seq"))
        for way, g in zip(rebuilt.roots, grads, strict=True):
            if g is not None:
                walk.send(nodes[way[0]], way[1], g)
        walk.run()
        return [None if edge is None else walk.captured.get(edge) for edge in fn.edges]

    def _gradients(self, plan: BackwardPlan, blocks: list[Any], grads: list[Any]) -> list[Any]:
        """The gradients of the targets, out of the blocks of a plan."""
        nodes: dict[int, Any] = {}
        found: list[Any] = []
        for gradient, block, wanted in zip(plan.gradients, plan.made, self.inputs, strict=True):
            if gradient is None:
                found.append(None)
                continue
            _, spec, offset, whole = gradient
            if block < 0:
                g = grads[~block]
                found.append(record.make_tensor(g._storage, spec, g._offset + offset))
                continue
            if block not in nodes:
                nodes[block] = record.ready_node(blocks[block])
            if spec is whole is wanted:
                found.append(nodes[block])
            else:
                storage = record.make_storage(nodes[block], whole)
                found.append(record.make_tensor(storage, spec, offset))
        return found

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved that could be shown."""
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")


class _Freed:
    """The op behind results whose graph the captured function itself has sent back through."""

    backward_name = CapturedBackward.backward_name
    node_class = CapturedBackward.node_class
    saved_value = CapturedBackward.saved_value

    def apply_vjp(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Refuse."""
        raise RuntimeError(FREED)


_freed = _Freed()


def lose_history(out: Any) -> None:
    """Say that the graph behind a result was freed."""
    fn = record.new_grad_node(_freed, (), ())
    fn.outputs = (out._spec,)
    record.give_history(out, fn)


def _written(fn: GradNode, check: Check) -> Exception:
    """The error about something saved that has been written."""
    t, counter = check.tensor, check.counter
    if t is None:
        t = record.make_tensor(counter, counter.spec)
        record.give_history(t, fn, check.number)
    return modified_error(fn, t, counter, check.version, None)


def _values(grads: Sequence[Any]) -> list[Any]:
    """The values of gradients, each with the element that it starts at."""
    return [g if g is None else (g._storage.value, g._offset) for g in grads]


def _run(part: ProgramPart, plan: BackwardPlan, given: list[Any], drawn: list[Any]) -> list[Any]:
    """Run the plan of a plan on values from outside: its blocks."""
    externals = [(given[k][0], given[k][1] + start) for k, start in plan.reads]
    for value, _ in externals:
        if value.recipe is not None:
            raise value.recipe.error
    more = [np.array(draw.again(), np.int64) for draw in plan.draws[len(drawn) :]]
    blocks = part.prepare(externals, [*drawn, *more])
    part.run()
    return blocks
