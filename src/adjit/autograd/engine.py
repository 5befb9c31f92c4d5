"""The backward walk.

Creation order already is a topological order: the nodes that can be reached, sorted by their
sequence number and taken from the end, come after all that they get gradients from. No recursion,
no counting of dependencies. The state of a walk is local to the call, so several threads may walk
at once.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from .. import devices, gpu
from ..graph import record
from ..graph.copy_slices import WrittenRegion
from ..graph.fastpath import Runtime, basic, runtime
from ..graph.levels import is_traced, tracers
from ..graph.node import (
    Edge,
    Gradient,
    GradNode,
    LeafKind,
    NewTensor,
    Node,
    Spec,
    TensorBase,
    is_bare,
    leaves,
    sequence,
)
from ..graph.operation import SavePlan, resized, trace_alone
from ..graph.other_sizes import OtherSizes, form_of, stand_in
from ..graph.primitives import is_filled_with_zeros
from ..graph.record import as_tensor, as_tensors
from ..graph.signature import Arguments, NamedArguments
from ..graph.state import observers, record_gradients, resume_gradients, state
from ..graph.trace import MAX_TRACES, Trace, TraceEntry, remembered
from ..graph.view import ViewVjp
from ..graph.write import store
from ..locks import Lock
from ..ops.arithmetic import total, total_of, totals
from ..ops.reduce import sum_to
from ..ops.regions import part_recipe, part_recipes
from ..schedule import deferred
from ..schedule.jit import native
from ..schedule.planning.recipe import Recipe
from ..schedule.settle import remember, settle_walk
from ..shapes import is_dense
from ..tensor import Tensor
from .repeated_walks import Start, repeated

MOST = 32  # gradients that are summed at once
SMALL = 1 << 10  # elements of these; larger ones are summed at once, and fused

Waiting = Gradient | list[Node]  # at an output: a gradient, or small ones that are summed at once

_accumulate_lock = Lock()


class Accumulate:
    """The op behind accumulators: the end of the walk, where `.grad` grows."""

    backward_name = "torch::autograd::AccumulateGrad"

    @property
    def node_class(self) -> type[GradNode]:
        """That of accumulators."""
        return AccumulateGrad

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> list[Gradient | None]:
        """Add the gradient to the leaf's."""
        assert isinstance(fn, AccumulateGrad)
        g = grads[0]
        if g is not None:
            accumulate(fn.variable, as_tensor(g, fn.outputs[0]), is_own=is_bare(g))
        return []

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved."""
        raise AttributeError(f"'AccumulateGrad' object has no attribute '_saved_{name}'")


_accumulate = Accumulate()


@native.recycled
class AccumulateGrad(GradNode):
    """Where the gradients of one leaf arrive; `variable` is the leaf."""

    __slots__ = ("variable",)
    variable: Any

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.op = _accumulate
        self.edges = ()
        self.inputs = ()
        self.outputs = (variable._spec,)
        self.saved = ()
        self.extras = None
        self.context = None
        self.seq = sequence()


def accumulator(t: Any) -> AccumulateGrad:
    """The accumulator of a leaf: one as long as any graph holds it."""
    meta = t._more()
    found: AccumulateGrad | None = meta.accumulator and meta.accumulator()
    if found is None:
        found = AccumulateGrad(t)
        if meta.hooks:
            found.more().tensor_hooks[0] = meta.hooks
        meta.accumulator = weakref.ref(found)
    return found


Tensor._accumulator = accumulator  # type: ignore[assignment]
leaves[:] = [LeafKind(AccumulateGrad, _accumulate)]


def accumulate(t: Any, g: Any, is_own: bool = False) -> None:
    """`t.grad` becomes `g`, or grows by it; then the post-accumulate hooks of a leaf run.

    Where `g` `is_own`, nobody else has it. A leaf that no longer wants gradients gets none.
    """
    if g is None or not t._needs_grad:
        return
    if not is_own and g._spec is not t._spec and t._grad_value() is None:
        like = laid_out(g, t._spec)
        g, is_own = like, like is not g
    add_to_grad(t, g, is_own)
    if t._autograd_meta is not None and t._autograd_meta.post_hooks:
        for hook in list(t._autograd_meta.post_hooks.values()):
            returned = hook(t)
            if record.is_tensor(returned):
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
            if returned is not None:
                raise wrong_type(returned)


def wrong_type(returned: Any) -> TypeError:
    """The error about a hook that returns no tensor."""
    return TypeError(f"expected Variable, but hook returned '{type(returned).__name__}'")


def add_to_grad(t: Any, g: Any, is_own: bool = False) -> None:
    """`t.grad` becomes `g`, or grows by it."""
    with _accumulate_lock:
        old = t._grad_value()
        if old is None:
            # Leaves, and whoever has seen it, may have been given the same `g`, or a view.
            t._set_grad(g if is_own else g.clone() if state.grad else own_copy(g))
        elif state.grad:
            t._set_grad(total.record(old, g))
        elif (
            deferred.names_rows(g._storage.value)
            and g._spec is old._spec
            and is_filled_with_zeros(old)
        ):
            store(old, g)  # so that it can wait
        else:
            old.add_(g)


def laid_out(g: NewTensor, spec: Spec) -> NewTensor:
    """`g` in the layout of a leaf, so that who flattens one can flatten both; in C order if that has gaps."""
    if g._spec.strides == spec.strides:
        if state.grad or g._spec.reported == spec.reported or g.__class__ in tracers:
            return g
        return record.make_tensor(g._storage, spec, g._offset)  # which reports what the leaf does
    if spec.contiguous or not is_dense(spec.shape, spec.strides):
        return g.contiguous()
    order = sorted(range(spec.ndim), key=lambda axis: -spec.strides[axis])
    back = sorted(range(spec.ndim), key=order.__getitem__)
    made = g.permute(order).contiguous().permute(back)
    return made if state.grad else own_copy(made)


def own_copy(g: TensorBase) -> NewTensor:
    """A handle of its own on the value of `g`; values are immutable, so the bytes need no copy."""
    spec, storage = g._spec, g._storage
    whole = not storage.shared and g._offset == 0 and spec.numel == storage.spec.numel
    if whole and (spec is storage.spec or is_dense(spec.shape, spec.strides)):
        return record.make_tensor(record.make_storage(storage.value, spec), spec)
    return g.detach().clone()


def unbroadcast_and_cast(g: TensorBase, spec: Spec | None) -> NewTensor:
    """`g` summed and converted to what the input looked like."""
    found = g._spec
    if spec is None or (
        found.dtype is spec.dtype and found.shape == spec.shape and found.device is spec.device
    ):
        return g
    if state.grad:
        return _unbroadcast_and_cast(g, spec)
    key = found, spec
    if key not in _unbroadcast_traces and g.__class__ not in tracers:
        _learn_unbroadcast(key)
    return remembered(_unbroadcast_traces, key, (g,), lambda: _unbroadcast_and_cast(g, spec))


_unbroadcast_traces: dict[tuple[Spec, Spec], TraceEntry] = {}
_unbroadcast_sizes = OtherSizes()


def _learn_unbroadcast(key: tuple[Spec, Spec]) -> None:
    """Remember what is recorded for these specs, made by a template of those that differ in numbers alone."""
    said, args = form_of(key), (stand_in(key[0]), key[1])

    def run(args: Arguments, kwargs: NamedArguments, operands: Sequence[TensorBase]) -> NewTensor:
        return _unbroadcast_and_cast(*args)

    made = resized(_unbroadcast_sizes, said, args, {}, run, trace_alone)
    if made is not None:
        if len(_unbroadcast_traces) >= MAX_TRACES:
            _unbroadcast_traces.clear()
        _unbroadcast_traces[key] = made
        _unbroadcast_sizes.keep(_unbroadcast_traces, key, "unbroadcast", said, is_made=True)


def _unbroadcast_and_cast(g: TensorBase, spec: Spec) -> NewTensor:
    if g._spec.shape != spec.shape:
        g = sum_to(g, spec.shape)
    if g._spec.dtype is not spec.dtype:
        g = g.to(spec.dtype)
    return g if g._spec.device is spec.device else g.to(spec.device)


def bare(g: Gradient, spec: Spec) -> Node | None:
    """The value of a gradient, if that has the layout `spec` and nobody else looks at its bytes."""
    if is_bare(g):
        return g
    if g.__class__ in tracers:
        return None
    if g._spec is not spec or g._offset or g._storage.shared or state.grad:
        return None
    value: Node = g._storage.value
    return value


def _reach(found: list[GradNode], seen: set[GradNode]) -> list[GradNode]:
    """Add what can be reached from the backward nodes in a list, which are in a set too, and sort it.

    Returns those from which nothing can be reached.
    """
    for fn in found:  # it grows meanwhile
        for edge in fn.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                found.append(edge[0])
    found.sort(key=attrgetter("seq"))
    return [fn for fn in found if not fn.edges]


def _advance(
    order: list[GradNode],
    waiting: dict[GradNode, list[Any]],
    sums: set[GradNode],
    accumulate: Any,
    keep: bool,
    captured: dict[tuple[GradNode, int], Any] | None,
    useful: set[GradNode] | None,
    goals: set[GradNode],
    targets: set[tuple[GradNode, int]],
) -> None:
    """Walk over plain nodes at the end of `order`; in Python `Walk.run` takes them all."""


class BackwardContext(NamedTuple):
    """What the walk over plain nodes needs."""

    runtime: Runtime
    unbroadcast: Callable[[Any, Any], Any]
    unbroadcast_traces: dict[tuple[Spec, Spec], TraceEntry]  # traces of `unbroadcast_and_cast`
    total_of: Callable[..., Node]
    totals: dict[tuple[Spec, int], Recipe]
    most: int
    small: int
    save_plan_class: type
    view_vjp_class: type
    written_region_class: type
    trace_class: type
    accumulate_op: Accumulate
    parts: dict[tuple[Spec, Spec, Spec], Recipe]


native.register_layout(
    VIEW_VJP=ViewVjp, LEAF=AccumulateGrad, BACKWARD=BackwardContext, ADVANCE=_advance
)
reach = basic("backward", "reach", _reach)
_walks = native.FastPath("backward", "advance")
advance = _walks.function(
    _advance,
    BackwardContext(
        runtime(),
        unbroadcast_and_cast,
        _unbroadcast_traces,
        total_of,
        totals,
        MOST,
        SMALL,
        SavePlan,
        ViewVjp,
        WrittenRegion,
        Trace,
        _accumulate,
        part_recipes,
    ),
)


class Walk:
    """One backward pass."""

    def __init__(self, keep: bool, targets: Sequence[Edge | None] | None) -> None:
        self.keep = keep
        self.order: list[GradNode] = []  # the nodes to come, the next one last
        self.ends: list[GradNode] = []  # those without edges
        self.waiting: dict[GradNode, list[Any]] = {}
        self.captured: dict[tuple[GradNode, int], Any] = {}
        self.sums: set[GradNode] = set()  # where gradients wait to be summed
        self.is_whole = targets is None and (state.walk is None or state.walk.is_whole)
        self.depth = 0 if state.walk is None else state.walk.depth + 1  # how many are around it
        self.current: GradNode | None = None  # the node whose hooks run
        self.traced = (
            False  # whether tracers are among the gradients, with which machine code does nothing
        )
        self.useful: set[GradNode] | None = None  # None: every node leads to a target
        self.targets: set[tuple[GradNode, int]] = set()
        if targets is not None:
            self.targets = {edge for edge in targets if edge is not None}
        self.goals = {fn for fn, _ in self.targets}
        self.straight: list[Edge | None] = []  # edges along which zeros would run

    def gradients(self, starts: Sequence[Start], targets: Sequence[Edge | None]) -> list[Any]:
        """Walk from where gradients begin: those that arrived at targets."""
        for (fn, nr), g in starts:
            self.send(fn, nr, g)
        self.run()
        return [None if edge is None else self.captured.get(edge) for edge in targets]

    def send(self, fn: GradNode, nr: int, g: Gradient) -> None:
        """Let a gradient arrive at an output of a backward node."""
        found = self.waiting.setdefault(fn, [None] * len(fn.outputs))
        found[nr] = g if found[nr] is None else self.accumulate(fn, nr, found[nr], g)

    def accumulate(self, fn: GradNode, nr: int, first: Waiting, g: Gradient) -> Waiting:
        """The sum of two gradients of one output; small ones wait for more, to be summed at once."""
        spec = fn.outputs[nr]
        assert spec is not None
        value = bare(g, spec)
        if isinstance(first, list):
            if value is None:
                return total.record(as_tensor(total_of(first, spec), spec), g)
            first.append(value)
            return first if len(first) < MOST else total_of(first, spec)
        other = bare(first, spec)
        if value is None or other is None or not spec.contiguous:
            return total.record(as_tensor(first, spec), as_tensor(g, spec))
        if spec.numel > SMALL:
            return total_of((other, value), spec)
        self.sums.add(fn)
        return [other, value]

    def add_part(self, fn: GradNode, g: Gradient | None) -> bool:
        """Add the gradient of a part of a tensor to that of the tensor, if one has arrived that can be
        written over, instead of padding it with zeros; whether that was done."""
        vjp = fn.context
        if g is None or not isinstance(vjp, ViewVjp) or vjp.offset is None or fn.edges[0] is None:
            return False
        parent, nr = fn.edges[0]
        whole, part = fn.inputs[0], fn.outputs[0]
        found = self.waiting.get(parent)
        if found is None or found[nr] is None or parent.outputs[nr] is not whole:
            return False
        assert whole is not None
        assert part is not None
        if is_bare(g):
            value, start, given = g, 0, part
        elif g.__class__ in tracers or g._storage.shared:
            return False
        else:
            value, start, given = g._storage.value, g._offset, g._spec
        recipe, first = part_recipe(whole, part, given), found[nr]
        if recipe is None:
            return False
        into = total_of(first, whole) if isinstance(first, list) else bare(first, whole)
        if into is None:
            return False
        node = record.new_node(Node)
        node.recipe, node.inputs, node.scalars = recipe, (into, value), (vjp.offset,)
        node.offsets = (0, start) if start else None
        found[nr] = node
        remember(node)
        return True

    def learns(self, fn: GradNode) -> bool:
        """Whether machine code can take a node now that it left here, as its sizes have never come."""
        learn, grads = getattr(fn.op, "learns_vjp", None), self.waiting.get(fn)
        if learn is None or grads is None or fn.saved is None or fn.extras or fn in self.sums:
            return False
        return bool(_walks.is_loaded and learn(fn, grads))

    def run(self) -> None:
        """Walk until no gradient waits."""
        order, waiting, useful, goals = self.order, self.waiting, self.useful, self.goals
        sums, targets = self.sums, self.targets
        captured = self.captured if goals else None  # where all the leaves are goals
        keep, checks_for_nan = self.keep, state.anomaly
        plain = not (checks_for_nan or state.grad or state.inference or observers)
        learned = None
        while waiting:
            if plain and not self.traced:
                advance(
                    order, waiting, sums, self.accumulate, keep, captured, useful, goals, targets
                )
                if not waiting:
                    break
                if order[-1] is not learned and self.learns(order[-1]):
                    learned = order[-1]
                    continue
            fn = order.pop()
            grads = waiting.pop(fn, None)
            if grads is None:
                continue
            if sums and fn in sums:
                sums.remove(fn)
                grads = [
                    total_of(g, spec) if spec is not None and g.__class__ is list else g
                    for g, spec in zip(grads, fn.outputs, strict=True)
                ]
            extras = fn.extras
            if extras is not None:
                grads = self.arrived(fn, as_tensors(fn, grads))
            if goals and fn in goals:
                for nr, g in enumerate(as_tensors(fn, grads)):
                    if (fn, nr) in targets:
                        self.captured[fn, nr] = g
                if useful is None:
                    continue  # it is a leaf
            if useful is not None and fn not in useful:
                continue
            if extras is not None and extras.pre_hooks:
                grads = self.before(fn, grads)
            is_watched = extras is not None or checks_for_nan or state.grad
            if not is_watched and len(grads) == 1 and self.add_part(fn, grads[0]):
                continue
            results = checked_for_nan(fn, grads) if checks_for_nan else fn.op.apply_vjp(fn, grads)
            if extras is not None and extras.hooks:
                results = [
                    g
                    if g is None or spec is None
                    else unbroadcast_and_cast(as_tensor(g, spec), spec)
                    for g, spec in zip(results, fn.inputs, strict=True)
                ]
                results = self.after(fn, results, grads)
            if tracers and is_traced(results):
                self.traced = True
            if not keep and fn.saved:
                fn.saved = None
            for edge, g, spec in zip(fn.edges, results, fn.inputs):  # noqa: B905
                if edge is None or g is None:
                    continue
                parent, nr = edge
                if useful is not None and parent not in useful and edge not in targets:
                    continue
                outputs = parent.outputs
                if not is_bare(g):
                    if g._spec is not spec:
                        g = unbroadcast_and_cast(g, spec)
                elif outputs[nr] is not spec:
                    g = as_tensor(g, spec)
                found = waiting.get(parent)
                if found is None:
                    waiting[parent] = found = [g] if len(outputs) == 1 else [None] * len(outputs)
                    found[nr] = g
                elif found[nr] is None:
                    found[nr] = g
                else:
                    found[nr] = self.accumulate(parent, nr, found[nr], g)

    def send_zeros(self) -> None:
        """Give zeros to the leaves that have no gradient yet, behind edges that only zeros would run along."""
        found = list({edge[0] for edge in self.straight if edge is not None})
        for fn in reach(found, set(found)):
            is_wanted = self.useful is None or fn in self.useful
            if is_wanted and isinstance(fn, AccumulateGrad) and fn.variable._grad_value() is None:
                self.order.append(fn)
                self.send(fn, 0, fn.variable.new_zeros(fn.variable.shape))
        self.run()

    def arrived(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Tensor hooks, retained gradients."""
        extras = fn.extras
        assert extras is not None
        self.current = fn
        for nr, hooks in extras.tensor_hooks.items():
            if grads[nr] is None:
                continue
            for hook in list(hooks.values()):
                grads[nr] = replaced(hook(grads[nr]), grads[nr], hook)
        for nr, reference in extras.retained.items():
            t = reference()
            if t is not None and grads[nr] is not None:
                add_to_grad(t, grads[nr])
        return grads

    def before(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Node pre-hooks, only of nodes that run."""
        extras = fn.extras
        assert extras is not None
        for hook in list(extras.pre_hooks.values()):
            found = hook(tuple(grads))
            if found is not None:
                grads = as_many(found, len(grads), hook)
        return grads

    def will_run(self, fn: GradNode) -> bool:
        """Whether the walk is at a node, or will come to it."""
        is_wanted = self.useful is None or fn in self.useful or fn in self.goals
        return is_wanted and (fn is self.current or fn in self.order)

    def after(self, fn: GradNode, results: list[Any], grads: list[Any]) -> list[Any]:
        """Node hooks."""
        extras = fn.extras
        assert extras is not None
        for hook in list(extras.hooks.values()):
            found = hook(tuple(results), tuple(grads))
            if found is not None:
                results = as_many(found, len(results), hook)
        return results

    def reach(self, roots: Sequence[GradNode]) -> None:
        """Put the nodes in order that can be reached."""
        seen: set[GradNode] = set(roots)
        self.order = found = list(seen)
        self.ends = reach(found, seen)

    def narrow(self, accumulates: bool) -> None:
        """Find the nodes that lead to a target. Where a walk `accumulates`, targets run as all others do."""
        goals, order = self.goals, self.order
        if accumulates:
            self.goals, self.targets = set(), set()
        if goals.issuperset(self.ends) and not any(fn.edges for fn in goals):
            return  # the targets are all the leaves: everything leads to one
        leads = set(goals)  # the targets, and all that leads to one
        self.useful = useful = set()
        for fn in order:
            for edge in fn.edges:
                if edge is not None and edge[0] in leads:
                    leads.add(fn)
                    useful.add(fn)
                    break
        if accumulates:
            useful |= goals


def name_of(hook: Any) -> str:
    """What a hook is called in messages."""
    return str(getattr(hook, "__name__", type(hook).__name__))


def as_many(found: Any, expected: int, hook: Any) -> list[Any]:
    """What a node hook returned, as a list of the right length."""
    values = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(values) != expected:
        raise RuntimeError(
            f"hook '{name_of(hook)}' has returned an incorrect number of values (got "
            f"{len(values)}, but expected {expected})"
        )
    return values


def replaced(found: Any, g: Any, hook: Any) -> Any:
    """What a tensor hook made of a gradient, checked."""
    if found is None:
        return g
    if not record.is_tensor(found):
        raise wrong_type(found)
    if found.dtype is not g.dtype:
        raise RuntimeError(
            f"hook '{name_of(hook)}' has changed the type of value (was "
            f"torch.{g.dtype.legacy}Tensor got torch.{found.dtype.legacy}Tensor)"
        )
    if found.shape != g.shape:
        raise RuntimeError(f"hook '{name_of(hook)}' has changed the size of value")
    return found


def checked_for_nan(fn: GradNode, grads: list[Any]) -> list[Any]:
    """Run a node in anomaly mode: errors and NaNs come with the forward traceback."""
    try:
        results = [
            as_tensor(g, spec)
            for g, spec in zip(fn.op.apply_vjp(fn, grads), fn.inputs, strict=False)
        ]
        if state.check_nan:
            for k, g in enumerate(results):
                if g is not None and g.dtype.is_floating_point and bool(g.detach().isnan().any()):
                    raise RuntimeError(
                        f"Function '{fn.name()}' returned nan values in its {k}th output."
                    )
    except Exception:
        lines = fn.extras.traceback if fn.extras is not None else None
        if lines is None:
            warnings.warn(
                f"Error detected in {fn.name()}. No forward pass information available. Enable "
                "detect anomaly during forward pass for more information.",
                UserWarning,
                stacklevel=2,
            )
        else:
            warnings.warn(
                f"Error detected in {fn.name()}. Traceback of forward call that caused the error:\n"
                + "".join(lines),
                UserWarning,
                stacklevel=2,
            )
        raise
    return results


# How many backward passes inside of each other have one thread: as many as in PyTorch. Python allows some 1000
# calls in each other, of which a pass and the function that calls it take several.
MOST_NESTED = 60


def _on_another_stack(run: Callable[[], list[Any] | None]) -> list[Any] | None:
    """What a backward pass gives, in a thread that is in the state of this one, which waits for it."""
    of_thread = (state, devices.current, gpu._streams)
    here = [vars(part) for part in of_thread]
    made: list[list[Any] | None] = []

    def there() -> None:
        for part, found in zip(of_thread, here, strict=True):
            vars(part).update(found)
        state.moved += 1
        try:
            made.append(run())
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    thread = threading.Thread(target=there, name="backward inside of others")
    thread.start()
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:
            failed.append(error)
    if failed:
        raise failed[-1]
    return made[0]


def run_backward(
    roots: Sequence[Any],
    grads: Sequence[Any],
    *,
    keep: bool,
    create: bool,
    targets: list[Any] | None = None,
    accumulates: bool = False,
) -> list[Any] | None:
    """Send `grads` back from `roots`.

    Without `targets`, leaves accumulate. With them only the way to them is walked: where it `accumulates`,
    those that are leaves do, else their gradients are returned, None for those that no gradient reached.
    """
    if state.walk is not None and state.walk.depth + 1 >= MOST_NESTED * (1 + state.moved):
        again = functools.partial(
            run_backward, keep=keep, create=create, targets=targets, accumulates=accumulates
        )
        return _on_another_stack(functools.partial(again, roots, grads))
    edges = [record.edge_of(root) for root in roots]
    starts = [(edge, g) for edge, g in zip(edges, grads, strict=True) if edge is not None]
    wanted = None if targets is None else [record.edge_of(t) for t in targets]
    walk = Walk(bool(keep), wanted)
    walk.reach([edge[0] for edge, _ in starts])
    if targets is not None:
        walk.narrow(accumulates)
    if state.session is not None:
        state.session.ran_backward(walk.order if walk.useful is None else walk.useful)
    before = record_gradients(bool(create))
    outer, state.walk = state.walk, walk
    try:
        walk.traced = bool(tracers) and is_traced(grads)
        if walk.traced and wanted is not None and not accumulates:
            return repeated(walk, starts, wanted)
        found = walk.gradients(starts, wanted or ())
        if walk.straight and (targets is None or accumulates):
            walk.send_zeros()
    finally:
        state.walk = outer
        if before and not state.grad:
            resume_gradients()
        else:
            record_gradients(before)
        if (
            not create
        ):  # gradients to go on computing with stay recorded, and fuse with what follows
            settle_walk()
    return None if wanted is None or accumulates else found
