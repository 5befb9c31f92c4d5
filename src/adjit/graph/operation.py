"""Ops that are functions which launch kernels, with vjps that are functions of tensors; and what finds their
arguments."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import MethodType
from typing import Any, NamedTuple, TypeVar

from ..dtypes import on_default_change
from ..schedule.codegen.body import constant_subscripts, returned_reads, returning
from ..schedule.jit import native
from ..schedule.settle import settle
from ..storage import Storage
from ..unknown import inquiries
from . import batching, calls, old_orders, pushing, record, wrong_types
from .batching import Rule
from .generators import by_generator
from .levels import is_traced, level_of, tracers
from .node import (
    GradContext,
    Gradient,
    GradNode,
    NewTensor,
    Spec,
    Specs,
    TensorBase,
    is_bare,
    node_class,
    specs_of,
)
from .other_sizes import Form, OtherSizes, form_of, spec_like, stand_in, with_numbers
from .record import is_tensor, needs_grad, tensor_classes
from .registry import registry
from .saved import FREED, Kept, inference_save_error, pack, unpack
from .signature import (
    Argument,
    Arguments,
    NamedArguments,
    Signature,
    all_exchanged,
    describe,
    signature_of,
)
from .state import record_gradients, resume_gradients, state
from .straight import mark_straight_along
from .templates import Unresizable
from .trace import (
    MAX_TRACES,
    SEEN_ONCE,
    UNCACHEABLE,
    Output,
    Results,
    Trace,
    TraceEntry,
    apart,
    rehearsed,
    trace,
    usable,
)

_F = TypeVar("_F")
_T = TypeVar("_T")


Body = Callable[..., Results]  # of tensors and attributes


class NumberArgument(int):
    """Which operand of a call stands in a place. (The first call may have one tensor in two places, and
    the next one two tensors.)
    """


class OperationCall:
    """What the calls of an op share that have one signature: operands' specs and attributes."""

    __slots__ = ("__weakref__", "attributes", "differentiable", "kin", "layout", "node_class", "op", "places",
                 "save_plans", "trace")  # fmt: skip
    of_sizes = ("trace", "attributes")
    of_its_own = ("save_plans",)

    def __init__(self, op: Operation | None) -> None:
        self.op, self.node_class = op, op and op.node_class
        self.differentiable = op is not None and op.back is not None
        self.trace: TraceEntry | None = None  # of the body
        # By the operands that need gradients.
        self.save_plans: dict[tuple[bool, ...], SavePlan] = {}
        self.places: list[int | None] | None = None  # the operand behind each edge
        # The tensor parameters, each with -1 for one tensor, else with the length of the list.
        self.layout: list[tuple[str, int]] = []
        self.attributes: NamedArguments = {}
        self.kin: Kin | None = None  # what it shares with others that a template has made

    def remember(
        self, operands: list[TensorBase], body: Callable[[Sequence[TensorBase]], Results]
    ) -> Results:
        """What the body gives for the operands; what it recorded is the trace of such calls, if new tensors
        are all that it made.
        """
        given = apart(operands)
        if given is operands:
            out, entry = trace(operands, lambda: body(operands))
        else:
            entry = rehearsed(given, lambda: body(given))
            out = body(operands)
        is_unaliased = isinstance(entry, Trace) and entry.unaliased
        self.trace = entry if is_unaliased or entry is SEEN_ONCE else UNCACHEABLE
        keep_draws(self)
        return out

    def lay_out(self, arguments: NamedArguments) -> list[int | None]:
        """Find the operands among the arguments, which have numbers in their places."""
        places: list[int | None] = []
        layout: list[tuple[str, int]] = []
        for name, value in arguments.items():
            if value.__class__ is NumberArgument:
                layout.append((name, -1))
                places.append(int(value))
            elif isinstance(value, (list, tuple)) and any(
                v.__class__ is NumberArgument for v in value
            ):
                layout.append((name, len(value)))
                places += [int(v) if v.__class__ is NumberArgument else None for v in value]
            else:  # a list is the caller's, who may change it
                self.attributes[name] = value[:] if isinstance(value, list) else value
        self.layout, self.places = layout, places
        return places


def keep_draws(call: OperationCall) -> None:
    """Note a call that draws random numbers when machine code repeats it: inside of `vmap` that asks
    the level."""
    if isinstance(call.trace, Trace) and call.trace.draws:
        if active_levels:
            call.trace = SEEN_ONCE
        else:
            drawing_calls.add(call)


def forget_draws() -> None:
    """Have Python draw all random numbers, from here on to where no level is active."""
    while drawing_calls:
        drawing_calls.pop().trace = SEEN_ONCE


# Calls that draw; of sizes that come once many go again.
drawing_calls: weakref.WeakSet[OperationCall] = weakref.WeakSet()
active_levels: list[None] = []  # as many as are active, of all threads


class Kin:
    """What calls share that one template has made."""

    __slots__ = ("layout", "places", "save_plans", "vjps")
    has_no_sizes = True

    def __init__(self, call: OperationCall) -> None:
        self.layout, self.places = call.layout, call.places or []
        # Of the first call that asked for one.
        self.save_plans: dict[tuple[bool, ...], SavePlan] = {}
        self.vjps = OtherSizes()


KnownCalls = dict[Signature, OperationCall]
Numbers = int | list[int | None] | None  # of an operand, of those in a list; None: no tensor


class SavePlan(GradContext):
    """How the results of a call get their history, for one set of operands that need gradients."""

    __slots__ = ("attributes", "back", "inputs", "kept", "kin", "layout", "output_slots", "outputs",
                 "slots", "targets", "traces", "wanted", "wants")  # fmt: skip

    def __init__(
        self, op: Operation, call: OperationCall, wanted: tuple[bool, ...], operands: list[TensorBase],
        outs: Sequence[Argument],
    ) -> None:  # fmt: skip
        assert call.places is not None
        self.wanted, self.layout = wanted, call.layout
        self.inputs = tuple([None if k is None else operands[k]._spec for k in call.places])
        self.outputs = tuple([o._spec if is_tensor(o) else None for o in outs])
        chosen = op.differentiable_outputs
        self.targets = [
            k
            for k, spec in enumerate(self.outputs)
            if spec is not None and spec.dtype.is_floating_point and (chosen is None or k in chosen)
        ]
        self.wants, self.back = op.choose(call.layout, wanted)
        self.attributes = {n: v for n, v in call.attributes.items() if n in self.wants}
        self.kept: list[int] = []  # operands to save, and ~k for result k
        self.slots: dict[str, Numbers] = {}  # where they lie among the saved, by name
        self.output_slots: dict[str, list[tuple[int, int]]] = {}  # those of results, and which
        self.traces: dict[Specs, TraceEntry] = {}  # of the vjp, by the gradients' specs
        self.kin = call.kin
        if self.targets:
            self._choose_kept(op, call.places)

    @property
    def first(self) -> int:
        """The first result that has gradients."""
        return self.targets[0] if self.targets else 0

    def resized(
        self,
        inputs: tuple[Spec | None, ...],
        outputs: tuple[Spec | None, ...],
        attributes: NamedArguments,
    ) -> SavePlan:
        """The same for operands of other sizes."""
        made = SavePlan.__new__(SavePlan)
        made.wanted, made.layout = self.wanted, self.layout
        made.inputs, made.outputs = inputs, outputs
        made.targets, made.wants, made.back = self.targets, self.wants, self.back
        made.attributes = attributes
        made.kept, made.slots, made.output_slots = self.kept, self.slots, self.output_slots
        made.traces, made.kin = {}, self.kin
        return made

    def for_call(
        self, call: OperationCall, inputs: tuple[Spec | None, ...], outputs: tuple[Spec | None, ...]
    ) -> SavePlan:
        """The same for another call of its template."""
        attributes = {n: v for n, v in call.attributes.items() if n in self.wants}
        return self.resized(inputs, outputs, attributes)

    def said_of(self, grads: Specs) -> tuple[Hashable, tuple[int, ...]] | None:
        """What its trace for such gradients is known as among those of other sizes, and the numbers."""
        key: list[object] = []
        describe(self.attributes.values(), key, [])
        found = form_of((*self.inputs, *self.outputs, *grads, *key))
        return None if found is None else ((self.wanted, found[0]), found[1])

    def _choose_kept(self, op: Operation, places: list[int | None]) -> None:
        tensors: dict[str, Numbers] = {}
        rest = iter(places)
        for name, count in self.layout:
            tensors[name] = next(rest) if count < 0 else [next(rest) for _ in range(count)]
        for name in self.wants:
            if name in ("out", "outs"):
                wanted = {self.first} if name == "out" else op.saved_outputs
                for k in range(len(self.outputs)):
                    if wanted is None or k in wanted:
                        self.output_slots.setdefault(name, []).append((self._keep(~k), k))
            elif name in tensors:
                self.slots[name] = self._kept_places(tensors[name])

    def _kept_places(self, operands: Numbers) -> Numbers:
        """Save operands; where they lie."""
        if isinstance(operands, list):
            return [None if k is None else self._keep(k) for k in operands]
        return None if operands is None else self._keep(operands)

    def _keep(self, k: int) -> int:
        self.kept.append(k)
        return len(self.kept) - 1


native.register_layout(CALL=OperationCall, SAVE_PLAN=SavePlan)


class TransformRules:
    """What an op does with the tensors of transforms."""

    __slots__ = ("batching", "draws", "push")

    def __init__(self) -> None:
        self.push: pushing.Rule | None = None  # of tangents
        self.batching: Rule | None = None  # of examples
        # Of what, if it draws random numbers: the "shape" or the "values" of its first operand.
        self.draws = ""


@native.called
class Operation(native.Native):
    """An op whose forward launches kernels and whose vjp is a function of tensors."""

    has_no_sizes = True

    def __init__(
        self, function: Body, backward_name: str, differentiable: Sequence[int] | None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.backward_name = function, backward_name
        self.node_class = node_class(backward_name)
        self.name = function.__name__.strip("_")
        code = function.__code__  # inspect.signature is slow, and there are hundreds of ops
        named = code.co_argcount + code.co_kwonlyargcount
        self.params = list(code.co_varnames[: named + self.variadic])
        late = code.co_varnames[: code.co_argcount][-len(function.__defaults__ or ()) :]
        self.defaults = dict(zip(late, function.__defaults__ or (), strict=False))
        self.defaults.update(function.__kwdefaults__ or {})
        self.differentiable_outputs = differentiable
        self.back: Body | None = None
        self.rules = TransformRules()
        self.wants: list[str] = []  # parameter names of the vjp
        # What PyTorch calls the gradient if it has an edge to the first operand, in which the op is linear.
        self.straight = ""
        self.calls: KnownCalls = {}
        self.sizes = OtherSizes()
        on_default_change(self.calls.clear)
        on_default_change(self.sizes.clear)
        calls.compile_calls(self, self.all_calls, MethodType(type(self).__call__, self))
        registry.setdefault(self.name, self)

    @property
    def all_calls(self) -> calls.Calls:
        """The calls that are known, and those that templates make."""
        return calls_of(self.calls, self.sizes)

    def vjp(self, function: Body) -> Operation:
        """Attach the pullback: its parameter names say what is saved.

        `g` is the gradient of the first differentiable output, `gs` those of all (None where
        undefined), `out` and `outs` the outputs, `needs` which inputs want a gradient, `layouts` the
        specs of the inputs; any other name is a parameter of the op.

        Raises:
            TypeError: if a parameter is none of these.
        """
        names = list(function.__code__.co_varnames[: function.__code__.co_argcount])
        known = {"g", "gs", "out", "outs", "needs", "layouts", *self.params}
        if not set(names) <= known:
            raise TypeError(
                f"{self.name}.vjp: expected parameters among {sorted(known)}, got {names}"
            )
        self.back = function
        self.wants = names
        return self

    def jvp(self, function: Body) -> Body:
        """Attach the rule of tangents: see `pushing.py`.

        Raises:
            TypeError: if a parameter is neither one of the op's, the tangent `t_x` of one, `out` nor `outs`.
        """
        self.rules.push = pushing.of_names(function, self)
        return function

    def linear(self, *names: str) -> None:
        """Say in which operands the results are linear, taken together."""
        self.rules.push = pushing.linear_in(self, names)

    def multilinear(self, *names: str, plus: str | None = None) -> None:
        """Say in which operands the results are linear, each for itself; the operand `plus` is added."""
        self.rules.push = pushing.multilinear_in(self, names, plus)

    def selects(self, axis: str, keepdim: str | None = None) -> None:
        """Say that the results are elements of `x` along an axis, and where: the second result."""
        self.rules.push = pushing.selecting(axis, keepdim)

    def reduces(self, axes: str | None = None, keepdim: str | None = None) -> None:
        """Say that each result comes of its own elements of `x`: those along axes, or all."""
        self.rules.push = pushing.reducing(self, axes, keepdim)

    def batched(self, function: Body) -> Body:
        """Attach what `vmap` does: see `batching.py`. One function may serve several ops."""
        self.rules.batching = batching.with_all(function)
        return function

    def batched_over(self, *dims: str, shapes: Sequence[str] = ()) -> None:
        """Say which parameters name axes, and which shapes: that is all that `vmap` has to know."""
        self.rules.batching = batching.over(self, dims, shapes)

    def draws_for(self, what: str) -> None:
        """Say that it draws random numbers for the "shape" or the "values" of its operands."""
        self.rules.draws = what

    def batched_as_body(self) -> None:
        """Say that the body is made of differentiable ops, which have rules themselves."""
        self.rules.batching = batching.as_body(self.function)

    def batched_by_folding(self) -> None:
        """Say that it does the same with every part of the first axis of all its tensors."""
        self.rules.batching = batching.by_folding(self)

    @property
    def variadic(self) -> bool:
        """Whether it takes any number of arguments."""
        flags = self.function.__code__.co_flags
        return bool(flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))

    @functools.cached_property
    def saved_outputs(self) -> set[int] | None:
        """The outputs that the vjp reads as `outs[k]`, None where that cannot be told: all."""
        return None if self.back is None else constant_subscripts(self.back, "outs")

    @functools.cached_property
    def reads(self) -> list[set[str]] | None:
        """The names that each gradient depends on, where the vjp is plain enough to tell."""
        return None if self.back is None else returned_reads(self.back)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, /, *args: Argument, **kwargs: Argument) -> Results:
        try:
            return self._called(args, kwargs)
        except Exception:
            if found := old_orders.in_new_order(self.name, args):
                return self(*found[0], **found[1])
            if said := wrong_types.tell(self.function, self.name, args, kwargs):
                return said[0]
            raise

    def _called(self, args: Arguments, kwargs: NamedArguments) -> Results:
        if drawn := by_generator(self, args, kwargs):
            return drawn[0]
        if tracers and (level := level_of((*args, *kwargs.values()))) is not None:
            return level.operation(self, args, kwargs)
        if state.careful and any(counter.knows(self) for counter in state.counters):
            return self._counted(args, kwargs)
        operands: list[TensorBase] = []
        signature = signature_of(args, kwargs, operands)
        if self.rules.draws and state.levels:
            return state.levels[-1].operation(self, args, kwargs)
        requires_grad = shared = shifted = 0
        for t in operands:
            requires_grad |= t._needs_grad or t._view_of is not None
            shared |= t._storage.shared
            shifted |= t._offset
        requires_grad = (
            requires_grad
            and state.grad
            and self.back is not None
            and any(map(needs_grad, operands))
        )
        call = self._call(signature)
        if call.trace is None:
            made = self._resized(signature, args, kwargs)
            if made is not None:
                call = made
                # Machine code can go on where a template has made all that it needs.
                if not requires_grad or self.knows_saves(call, operands):
                    return self(*args, **kwargs)
        entry = call.trace
        if isinstance(entry, Trace) and usable():
            starts = tuple([t._offset for t in operands]) if shifted else None
            out = entry.record(operands, tuple([t._storage.value for t in operands]), starts)
        else:
            traced = entry is SEEN_ONCE and usable()
            out = self._run(call, args, kwargs, operands, bool(requires_grad), traced)
        if requires_grad:
            self._attach(call, args, kwargs, operands, out if out.__class__ is tuple else (out,))
        if shared:  # others may write there next
            settle()
        return out

    def _resized(
        self, signature: Signature, args: Arguments, kwargs: NamedArguments
    ) -> OperationCall | None:
        """A call that comes for the first time, made as others that differ in numbers alone, and kept."""

        def body(
            args: Arguments, kwargs: NamedArguments, operands: Sequence[TensorBase]
        ) -> Results:
            return as_new(self.function(*args, **kwargs), args)

        said = form_of(signature)
        found = resized(self.sizes, said, args, kwargs, body, self.with_kin)
        if found is not None:
            keep_call(self.calls, self.sizes, signature, said, found, self.name)
        return found

    def with_kin(
        self, trace: Trace, args: Arguments, kwargs: NamedArguments, operands: int
    ) -> OperationCall:
        """A call on so many tensors, given its trace, and what it shares with others of a template."""
        if not trace.unaliased:
            raise Unresizable(self.name)
        call = OperationCall(self)
        if self.back is not None:
            places = map(NumberArgument, range(operands))
            call.lay_out(self.bind(*all_exchanged(args, kwargs, places)))
        call.trace, call.kin = trace, Kin(call)
        return call

    def knows_saves(self, call: OperationCall, operands: Sequence[TensorBase]) -> bool:
        """Whether machine code can give results their history, as others of its template got theirs."""
        if call.kin is None or call.places is None or not isinstance(call.trace, Trace):
            return False
        wanted = tuple([k is not None and needs_grad(operands[k]) for k in call.places])
        like = call.kin.save_plans.get(wanted)
        if like is None or like.targets[:1] != [0]:
            return False
        inputs = tuple([None if k is None else operands[k]._spec for k in call.places])
        outputs = tuple([o.spec if isinstance(o, Output) else None for o in call.trace.outputs])
        call.save_plans.setdefault(wanted, like.for_call(call, inputs, outputs))
        return True

    def _counted(self, args: Arguments, kwargs: NamedArguments) -> Results:
        """Make a call that is counted; the ops that this one consists of are a part of it."""
        counters, state.counters = state.counters, ()
        try:
            out = self(*args, **kwargs)
        finally:
            state.counters = counters
        for counter in counters:
            if counter.knows(self):
                counter.ran(self, args, kwargs, out)
        return out

    def on(self, *args: Argument, **kwargs: Argument) -> Results:
        """What a function returns that `normalizes` the arguments of this op."""
        return NormalizedCall(self, args, kwargs)

    def _call(self, signature: Signature) -> OperationCall:
        """What calls of this signature share."""
        if inquiries:
            return OperationCall(self)
        try:
            found = self.calls.get(signature)
        except TypeError:  # an attribute that cannot be in a key
            return OperationCall(self)
        if found is None:
            if len(self.calls) >= MAX_TRACES:
                self.calls.clear()
            found = self.calls[signature] = OperationCall(self)
        return found

    def _run(
        self,
        call: OperationCall,
        args: Arguments,
        kwargs: NamedArguments,
        operands: list[TensorBase],
        requires_grad: bool,
        traced: bool,
    ) -> Results:
        """Call the body; where it is `traced`, the call remembers what it recorded."""

        def body(given: Sequence[TensorBase]) -> Results:
            if given is operands:
                return as_new(self.function(*args, **kwargs), args)
            values, named = all_exchanged(args, kwargs, given)
            return as_new(self.function(*values, **named), values)

        before = record_gradients(state.grad and not requires_grad)
        try:
            if not traced:
                call.trace = call.trace or SEEN_ONCE
                return body(operands)
            return call.remember(operands, body)
        finally:
            if before and requires_grad:
                resume_gradients()

    def _attach(
        self,
        call: OperationCall,
        args: Arguments,
        kwargs: NamedArguments,
        operands: list[TensorBase],
        outs: Sequence[NewTensor],
    ) -> None:
        """Give the results of a call their backward node."""
        places = call.places
        if places is None:
            given, named = all_exchanged(args, kwargs, map(NumberArgument, range(len(operands))))
            places = call.lay_out(self.bind(given, named))
        edges = [None if k is None else record.edge_of(operands[k]) for k in places]
        wanted = tuple([edge is not None for edge in edges])
        save_plan = call.save_plans.get(wanted)
        if save_plan is None:
            save_plan = call.save_plans[wanted] = self._save_plan(call, wanted, operands, outs)
        if not save_plan.targets:
            return
        fn = record.new_grad_node(self, edges, save_plan.inputs)
        fn.outputs = save_plan.outputs
        fn.context = save_plan
        saved: list[Kept | int] = []
        for k in save_plan.kept:
            t = operands[k] if k >= 0 else outs[~k]
            if k >= 0 and t._version_counter is record.INFERENCE:
                raise inference_save_error()
            saved += (t if k >= 0 else t._storage, t._version_counter.version)
        fn.saved = tuple(saved)
        for k in save_plan.targets:
            if outs[k]._storage.value is not None and outs[k]._fn is None:
                record.give_history(outs[k], fn, k)
        if state.saving and saved:
            pack(fn)

    def _save_plan(
        self, call: OperationCall, wanted: tuple[bool, ...], operands: list[TensorBase],
        outs: Sequence[NewTensor],
    ) -> SavePlan:  # fmt: skip
        """How the results of calls like this get their history."""
        kin = call.kin
        like = None if kin is None else kin.save_plans.get(wanted)
        if like is None:
            made = SavePlan(self, call, wanted, operands, outs)
            if kin is not None:
                kin.save_plans[wanted] = made
            return made
        assert call.places is not None
        inputs = tuple([None if k is None else operands[k]._spec for k in call.places])
        outputs = tuple([o._spec if is_tensor(o) else None for o in outs])
        return like.for_call(call, inputs, outputs)

    def bind(self, args: Arguments, kwargs: NamedArguments) -> NamedArguments:
        """The arguments of a call by the names of the parameters, defaults included."""
        if self.variadic:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments
        arguments = dict(zip(self.params, args, strict=False))
        for name in self.params[len(args) :]:
            arguments[name] = kwargs[name] if name in kwargs else self.defaults[name]
        return arguments

    def with_bound(self, given: NamedArguments) -> Results:
        """Call it with arguments by the names of all parameters."""
        code = self.function.__code__
        count = code.co_argcount
        names = list(given)
        values = [given[n] for n in names[:count]]
        if code.co_flags & inspect.CO_VARARGS:
            values += given[names.pop(count)]
        return self(*values, **{n: given[n] for n in names[count:]})

    def differentiable_among(self, outs: Sequence[Argument]) -> list[int]:
        """The numbers of the results that have gradients and tangents."""
        chosen = self.differentiable_outputs
        return [
            k
            for k, out in enumerate(outs)
            if is_tensor(out) and out.dtype.is_floating_point and (chosen is None or k in chosen)
        ]

    def pull(
        self, given: NamedArguments, outs: Sequence[Argument], gs: Sequence[Argument]
    ) -> NamedArguments:
        """The gradients of operands, by their names, of those of the results; `given` names all arguments."""
        assert self.back is not None
        operands = {name: value for name, value in given.items() if _tensors_in(value)}
        flat = [t for v in operands.values() for t in (v if isinstance(v, (tuple, list)) else (v,))]
        first = self.differentiable_among(outs)[0]
        needs = tuple([t is not None and t.dtype.is_floating_point for t in flat])
        known = {
            "g": gs[first],
            "gs": tuple(gs),
            "out": outs[first],
            "outs": tuple(outs),
            "needs": needs,
            "layouts": tuple([None if t is None else t._spec for t in flat]),
        }
        found = self.back(**{n: known[n] if n in known else given[n] for n in self.wants})
        if not isinstance(found, tuple):
            found = (found,)
        return dict(zip(operands, found, strict=True))

    def choose(
        self, layout: list[tuple[str, int]], wanted: tuple[bool, ...]
    ) -> tuple[list[str], Body]:
        """The names that the vjp reads for the gradients that are wanted, and it without the rest."""
        assert self.back is not None
        reads = self.reads
        plain = reads is not None and len(reads) == len(layout) > 1
        if reads is None or not plain or any(count >= 0 for _, count in layout) or all(wanted):
            return self.wants, self.back
        needed = set().union(*[names for names, w in zip(reads, wanted, strict=True) if w])
        back = self._variants.get(wanted)
        if back is None:
            back = self._variants[wanted] = returning(self.back, wanted)
        return [n for n in self.wants if n in needed], back

    @functools.cached_property
    def _variants(self) -> dict[tuple[bool, ...], Body]:
        """The vjp for each set of gradients that was needed so far."""
        return {}

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> Sequence[Gradient | None]:
        """Gradients of the tensor inputs, in the order of the signature."""
        saved, save_plan = fn.saved, _save_plan_of(fn)
        if saved is None:
            raise RuntimeError(FREED)
        if state.grad or not usable() or (tracers and is_traced(grads)):
            return self._call_vjp(fn, record.as_tensors(fn, grads))
        key: list[Spec | None] = []
        values = []
        starts = []
        shared = 0
        for g, spec in zip(grads, fn.outputs, strict=True):
            if is_bare(g):
                key.append(spec)
                values.append(g)
                starts.append(0)
            elif g is None:
                key.append(None)
            else:
                key.append(g._spec)
                values.append(g._storage.value)
                starts.append(g._offset)
                shared |= g._storage.shared
        for k in range(0, len(saved), 2):
            counter = storage = saved[k]
            start = 0
            if storage.__class__ is not Storage:
                counter, start, storage = (
                    storage._version_counter,
                    storage._offset,
                    storage._storage,
                )
            if counter.version != saved[k + 1]:
                unpack(fn, k // 2)
            values.append(storage.value)
            starts.append(start)
            shared |= storage.shared
        signature = tuple(key)
        entry = save_plan.traces.get(signature)
        if entry is None and save_plan.kin is not None:
            entry = self._resize_vjp(fn, save_plan, signature)
        if isinstance(entry, Trace):
            shifts = tuple(starts) if any(starts) else None
            if entry.unaliased:
                made = entry.record((), tuple(values), shifts, fn.inputs)
            else:
                operands = [g for g in record.as_tensors(fn, grads) if g is not None]
                made = entry.record([*operands, *saved[::2]], tuple(values), shifts)
            if shared:  # others may write there next
                settle()
            return made
        given_grads = record.as_tensors(fn, grads)
        operands = [g for g in given_grads if g is not None]
        if entry is not SEEN_ONCE:
            save_plan.traces.setdefault(signature, SEEN_ONCE)
            return self._call_vjp(fn, given_grads)
        count = len(operands)
        for k, place in enumerate(save_plan.kept):
            operands.append(unpack(fn, k, None if place >= 0 else fn.outputs[~place]))
        given = apart(operands)
        if given is operands:
            results, entry = trace(operands, lambda: tuple(self._call_vjp(fn, given_grads)))
        else:
            rest = iter(given[:count])
            apart_grads = [None if g is None else next(rest) for g in given_grads]
            copied = record.copy_of(fn, given[count:])
            entry = rehearsed(given, lambda: tuple(self._call_vjp(copied, apart_grads)))
            results = tuple(self._call_vjp(fn, given_grads))
        is_trace = isinstance(entry, Trace)
        is_unaliased = isinstance(entry, Trace) and entry.unaliased
        lost = is_trace and not is_unaliased and Storage in map(type, saved)
        save_plan.traces[signature] = UNCACHEABLE if lost else entry  # results may be made here
        return results

    def learns_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> bool:
        """Whether a template has made the trace of a vjp that was not known."""
        save_plan = _save_plan_of(fn)
        if save_plan.kin is None or not usable() or (tracers and is_traced(grads)):
            return False
        key = specs_of(fn, grads)
        said = None if key in save_plan.traces else save_plan.said_of(key)
        if said is None:
            return False
        made = save_plan.kin.vjps.made_by_template(*said)
        if isinstance(made, Trace):
            save_plan.traces[key] = made
        return made is not None

    def _resize_vjp(
        self, fn: GradNode, save_plan: SavePlan, grads: tuple[Spec | None, ...]
    ) -> TraceEntry | None:
        """The trace of a vjp that comes for the first time, as others that differ in numbers alone."""
        kin, attributes = save_plan.kin, save_plan.attributes
        said = save_plan.said_of(grads)
        if said is None or kin is None:
            return None

        def make(given: Iterator[int]) -> Trace:
            def like(specs: tuple[Spec | None, ...]) -> tuple[Spec | None, ...]:
                return tuple([s and spec_like(s, given) for s in specs])

            inputs, outputs, g_specs = like(save_plan.inputs), like(save_plan.outputs), like(grads)
            named = dict(
                zip(attributes, with_numbers([*attributes.values()], given, []), strict=True)
            )
            plan = save_plan.resized(inputs, outputs, named)
            specs = [outputs[~k] if k < 0 else inputs[kin.places.index(k)] for k in save_plan.kept]
            saved = [stand_in(spec) for spec in specs if spec is not None]
            copied = record.copy_of(fn, saved)
            copied.inputs, copied.outputs, copied.context = inputs, outputs, plan
            gs = [None if spec is None else stand_in(spec) for spec in g_specs]
            _, entry = trace(
                [*[g for g in gs if g is not None], *saved],
                lambda: tuple(self._call_vjp(copied, gs)),
            )
            is_whole = isinstance(entry, Trace) and (
                entry.unaliased or all(k >= 0 for k in save_plan.kept)
            )
            if not isinstance(entry, Trace) or entry.draws or not is_whole:
                raise Unresizable(self.name)
            return entry

        made = kin.vjps.made(*said, make)
        if made is not None:
            save_plan.traces[grads] = made
        return made

    def _call_vjp(self, fn: GradNode, grads: list[TensorBase | None]) -> list[TensorBase | None]:
        """The gradients as the vjp gives them."""
        save_plan = _save_plan_of(fn)
        given: NamedArguments = {}
        for name in self.wants:
            if name == "g":
                given[name] = grads[save_plan.first]
            elif name == "gs":
                given[name] = tuple(grads)
            elif name == "needs":
                given[name] = save_plan.wanted
            elif name == "layouts":
                given[name] = fn.inputs
            elif name in ("out", "outs"):
                slots = save_plan.output_slots.get(name, ())
                found = {k: self._output(fn, place, k) for place, k in slots}
                if name == "out":
                    given[name] = next(iter(found.values()), None)
                else:
                    given[name] = tuple([found.get(k) for k in range(len(fn.outputs))])
            elif name in save_plan.attributes:
                given[name] = save_plan.attributes[name]
            else:
                slot = save_plan.slots.get(name)
                if isinstance(slot, list):
                    given[name] = [None if k is None else unpack(fn, k) for k in slot]
                else:
                    given[name] = None if slot is None else unpack(fn, slot)
        results = save_plan.back(**given)
        layout = save_plan.layout
        if len(layout) == 1 and layout[0][1] < 0:
            results = (results[0] if isinstance(results, tuple) else results,)
        if len(results) != len(layout):
            raise RuntimeError(
                f"{self.name}.vjp: expected {len(layout)} gradients, one for each tensor input, "
                f"got {len(results)}"
            )
        flat: list[TensorBase | None] = []
        for (_, count), found in zip(layout, results, strict=True):
            if count < 0:
                flat.append(found)
            else:
                flat.extend([None] * count if found is None else found)
        if not state.grad:
            return as_new(flat, tuple(given.values()))
        if self.straight and (gradient := flat[0]) is not None and fn.inputs[0] is not None:
            mark_straight_along(gradient, fn.edges[0], fn.inputs[0], self.straight)
        return flat

    def _output(self, fn: GradNode, position: int, k: int) -> NewTensor:
        out = unpack(fn, position, fn.outputs[k], k)
        chosen = self.differentiable_outputs
        if not out._spec.dtype.is_floating_point or (chosen is not None and k not in chosen):
            return out.detach()
        return out

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """What `grad_fn._saved_<name>` shows."""
        save_plan = _save_plan_of(fn)
        name = {"self": self.params[0], "result": "out"}.get(name, name)
        if name in save_plan.attributes:
            return save_plan.attributes[name]
        if name == "out" and name in save_plan.output_slots:
            return self._output(fn, *save_plan.output_slots[name][0])
        slot = save_plan.slots.get(name)
        if slot is None:
            raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")
        if isinstance(slot, list):
            return tuple([None if k is None else unpack(fn, k) for k in slot])
        return unpack(fn, slot)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _save_plan_of(fn: GradNode) -> SavePlan:
    """How the results behind a backward node got their history."""
    save_plan = fn.context
    assert isinstance(save_plan, SavePlan)
    return save_plan


def resized(
    sizes: OtherSizes,
    said: tuple[Form, tuple[int, ...]] | None,
    args: Arguments,
    kwargs: NamedArguments,
    body: Callable[[Arguments, NamedArguments, Sequence[TensorBase]], Results],
    finish: Callable[[Trace, Arguments, NamedArguments, int], _T],
) -> _T | None:
    """What `finish` makes of the trace of a call that comes for the first time, made as for others that differ
    in numbers alone; None if that is not done. `said` has the form of its signature, and the numbers.

    `body` gets arguments, and the tensors among them; `finish` these arguments, and how many tensors there are.
    """
    if said is None or inquiries:
        return None
    form, numbers = said
    tensors: list[TensorBase] = []
    describe((*args, *kwargs.values()), [], tensors)
    # What makes others holds no memory, and means the same when these tensors have changed.
    args, kwargs = all_exchanged(args, kwargs, [stand_in(t._spec) for t in tensors])

    def make(given: Iterator[int]) -> _T:
        operands: list[TensorBase] = []
        values = with_numbers((*args, *kwargs.values()), given, operands)
        others = tuple(values[: len(args)])
        named = dict(zip(kwargs, values[len(args) :], strict=True))
        _, entry = trace(operands, lambda: body(others, named, operands))
        if not isinstance(entry, Trace):
            raise Unresizable("it depends on more than specs and numbers")
        return finish(entry, others, named, len(operands))

    return sizes.made(form, numbers, make)


def calls_of(known: KnownCalls, sizes: OtherSizes) -> calls.Calls:
    """The calls that are known, and those that templates for other sizes make."""
    return calls.Calls(known, sizes, see_to)


def see_to(call: OperationCall, operands: Sequence[TensorBase]) -> None:
    """Have machine code be able to repeat a call that a template has made: its draws, its history."""
    keep_draws(call)
    if call.op is not None and state.grad and any(map(needs_grad, operands)):
        call.op.knows_saves(call, operands)


def keep_call(
    known: KnownCalls, sizes: OtherSizes, signature: Signature, said: object, made: OperationCall, name: object
) -> None:  # fmt: skip
    """Keep what a template has made of a call of what the name stands for; `said` is the form of its signature,
    and the numbers."""
    keep_draws(made)
    if len(known) >= MAX_TRACES:
        known.clear()
    known[signature] = made
    sizes.keep(known, signature, name, said, is_made=True)


def trace_alone(made: Trace, args: Arguments, kwargs: NamedArguments, tensors: int) -> Trace:
    """The trace of a call, which is all that is wanted."""
    return made


def call_alone(made: Trace, args: Arguments, kwargs: NamedArguments, tensors: int) -> OperationCall:
    """A call that has a trace, and is none of an op."""
    call = OperationCall(None)
    call.trace = made
    return call


def as_new(out: Results, args: Arguments) -> Results:
    """The results of an op's body: memory that it made is new to the caller, neither a view nor written."""
    for o in out if out.__class__ in (tuple, list) else (out,):
        if o.__class__ in tensor_classes and (o._view_of is not None or o._storage.version):
            storage = o._storage if o._view_of is None else o._view_of.base._storage
            if not any(t._storage is storage for a in args for t in _tensors_in(a)):
                o._view_of, storage.version = None, 0
    return out


def _tensors_in(argument: Argument) -> Sequence[TensorBase]:
    several = argument if argument.__class__ in (tuple, list) else (argument,)
    return [t for t in several if is_tensor(t)]


def operation(
    backward_name: str, *, differentiable: Sequence[int] | None = None
) -> Callable[[Body], Operation]:
    """Define an op by a function that launches kernels.

    The body runs without recording gradients. Tensors among the arguments, or in lists among
    them, are its inputs; `differentiable` numbers the outputs that carry gradients (all).

    Example:
        @operation("FlipBackward0")
        def flip(input, dims): ...

        @flip.vjp
        def _(g, dims):
            return flip(g, dims)
    """
    return lambda function: Operation(function, backward_name, differentiable)


class NormalizedCall(NamedTuple):
    """An op and the arguments that a function has found for it."""

    op: Operation
    args: Arguments
    kwargs: NamedArguments
