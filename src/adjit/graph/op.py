"""What an op is: an elementwise op is two scalar bodies, any other a function and its vjp.

Registering an op gives the library its function, the tensor method, and its row in the tests.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast, overload

from .. import dtypes
from ..dtypes import dtype, on_default_change
from ..schedule import native
from ..schedule.body import Body, constant_subscripts, returned_reads, returning
from ..schedule.settle import float_word
from ..shapes import Size
from ..storage import Storage
from . import calls, record
from .node import GradNode, Node, Spec, node_class
from .record import is_tensor, needs_grad, tensor_classes
from .recorder import (
    choosing,
    compile_calls,
    compile_choices,
    compiled,
    computing,
    elementwise_recorder,
    writing,
)
from .state import record_gradients, state
from .template import MAX_TEMPLATES, SEEN, UNSTEADY, Template, apart, trace, usable

registry: dict[str, Elementwise | Operation] = {}  # every op, for tests and reports
namespace: dict[str, dict[str, Any]] = {"": {}, "nn.functional": {}, "linalg": {}, "special": {}}
methods: dict[str, Any] = {}


class _Reference:
    """`scipy.special` for the tests' references, imported when one is called: it takes 90 ms."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            import scipy.special

            return getattr(scipy.special, name)(*args, **kwargs)

        return call


reference: Any = _Reference()


# ----- elementwise ops -----


def same(kinds: list[tuple[dtype, int]]) -> tuple[dtype, dtype]:
    """Compute and give the promoted dtype."""
    kind = dtypes.result_of(kinds)
    return kind, kind


def floating(kinds: list[tuple[dtype, int]]) -> tuple[dtype, dtype]:
    """Integers count as the default floating dtype."""
    kind = dtypes.result_of(kinds)
    if not kind.is_floating_point:
        kind = dtypes.get_default_dtype()
    return kind, kind


def test(kinds: list[tuple[dtype, int]]) -> tuple[dtype, dtype]:
    """Compute in the promoted dtype, give bool."""
    return dtypes.result_of(kinds), dtypes.bool


def logical(kinds: list[tuple[dtype, int]]) -> tuple[dtype, dtype]:
    """Booleans in, booleans out."""
    return dtypes.bool, dtypes.bool


class Pullback(Body):
    """A vjp body: its results are numbered like the operands of the forward body."""

    def __init__(self, function: Callable[..., Any], forward: Body) -> None:
        super().__init__(function)
        self.forward = forward
        self.name = f"{forward.name}_vjp"
        self.logical = forward.logical

    @functools.cached_property
    def parsed(self) -> Any:
        """The statements, and a result for each operand; truth values have none of their own."""
        assigns, results = super().parsed
        operands = self.forward.params
        grads = [p for p in operands if p not in self.logical]
        if len(results) != len(grads):
            raise TypeError(
                f"{self.name}: expected {len(grads)} results, one for each of {grads}, got "
                f"{len(results)}"
            )
        given = iter(results)
        return assigns, [results[0] if p in self.logical else next(given) for p in operands]


@native.called
class Elementwise(native.Native):
    """A differentiable scalar function, the single source of every kernel made from it.

    `ref` and `domain` are for the tests: a reference on NumPy arrays, and where to sample it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        ref: Callable[..., Any] | None,
        domain: Any,
        dtypes: Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]],
        name: str | None,
        backward_name: str | None,
    ) -> None:
        self.body = Body(function)
        self.name = name or self.body.name.rstrip("_")
        self.__doc__, self.__name__, self.__module__ = (
            function.__doc__,
            self.name,
            function.__module__,
        )
        self.__wrapped__ = function
        self.params, self.attributes = self.body.params, self.body.attributes
        self.defaults: dict[str, Any] = dict(function.__kwdefaults__ or {})
        self.ref, self.domain, self.dtypes = ref, domain, dtypes
        self.backward_name = backward_name or f"{self.name.title().replace('_', '')}Backward0"
        self.node_class = node_class(self.backward_name)
        self.recipes: dict[Any, Any] = {}
        on_default_change(self.recipes.clear)
        self.arity = len(self.params)
        self.saves: dict[int, tuple[int, ...]] = _Saves(self)
        self.record = self._recorder()
        self.direct = 0 if self.record is None or self.attributes else self.arity
        if self.direct:
            compile_calls(self)
        self.back: Body | None = None
        self.differentiable = False
        self.hidden = {k for k, p in enumerate(self.params) if p in self.body.logical}
        registry[self.name] = self
        scalar_functions[self.name] = functools.partial(_of_tensors_or_numbers, self)

    def vjp(self, function: Callable[..., Any]) -> Elementwise:
        """Attach the pullback: after `g`, its parameters name the values that it reads.

        Raises:
            TypeError: if a parameter is neither an input, an attribute nor `out`.
        """
        back = Pullback(function, self.body)
        names = back.params + back.attributes
        known = {"g", "out", *self.params, *self.attributes}
        if names[:1] != ["g"] or not set(names) <= known:
            raise TypeError(
                f"{self.name}.vjp: expected the parameters g and any of {sorted(known - {'g'})}, "
                f"got {names}"
            )
        self.back = back
        self.differentiable = True
        return self

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        if not attributes and len(operands) == self.direct:
            return self.record(*operands)
        return self.apply(operands, attributes)

    def apply(
        self, operands: tuple[Any, ...], attributes: dict[str, Any], over: bool = False
    ) -> Any:
        """Record a call with arguments by name; `over` lets it write over its first operand."""
        out = attributes.pop("out", None) if attributes else None
        if len(operands) < self.arity and attributes:
            operands = (*operands, *self._operands_by_name(len(operands), attributes))
        given, operands = operands[self.arity :], operands[: self.arity]
        if len(operands) < self.arity or len(given) > len(self.attributes):
            raise TypeError(
                f"{self.name}() takes {self.arity} positional arguments but "
                f"{len(operands) + len(given)} were given"
            )
        for name in attributes:
            if name not in self.attributes:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{name}'")
        values = given + tuple(
            [attributes.get(a, self.defaults.get(a)) for a in self.attributes[len(given) :]]
        )
        made = elementwise_recorder()(self, operands, values, over)
        return made if out is None else _write_out(self.name, out, made)

    def _operands_by_name(self, count: int, attributes: dict[str, Any]) -> list[Any]:
        """The operands after the first `count`, taken out of the keyword arguments."""
        found = []
        for p in self.params[count:]:
            name = p if p in attributes else record.PYTORCH_NAMES.get(p)
            if name in attributes:
                found.append(attributes.pop(name))
        return found

    def _recorder(self) -> Any:
        """The shortest way to record a call on one or two tensors."""
        makers = {1: record.unary_recorder, 2: record.binary_recorder}
        return compiled(self, makers[self.arity](self)) if self.arity in makers else None

    def variant(self, backward_name: str, *numbers: str) -> Elementwise:
        """The same op under another name in the graph, as PyTorch names its overloads.

        `numbers` are the operands that the overload takes as numbers: they have no edges.
        """
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        twin.hidden = self.hidden | {k for k, p in enumerate(self.params) if p in numbers}
        twin.backward_name, twin.recipes = backward_name, {}
        on_default_change(twin.recipes.clear)
        twin.node_class = node_class(backward_name)
        twin.record = twin._recorder()
        if twin.direct:
            compile_calls(twin)
        return twin

    def words(
        self, recipe: Any, numbers: Sequence[Any], attributes: Sequence[Any]
    ) -> tuple[int, ...]:
        """Python numbers as words, in the compute dtype of a recipe."""
        if not numbers and not attributes:
            return ()
        compute = recipe.compute
        if compute.is_floating_point:
            return tuple([float_word(float(v)) for v in (*numbers, *attributes)])
        return tuple([_int_word(v, compute) for v in (*numbers, *attributes)])

    def numbers(self, recipe: Any, words: Sequence[int]) -> dict[str, Any]:
        """The Python numbers behind words, by the name of the operand or attribute."""
        import struct

        names = recipe.numbers
        if recipe.compute.is_floating_point:
            return {
                n: struct.unpack("d", struct.pack("q", w))[0]
                for n, w in zip(names, words, strict=True)
            }
        return dict(zip(names, words, strict=True))

    def functions(self) -> dict[str, Any]:
        """What names in a vjp body mean on tensors."""
        return scalar_functions

    pull = staticmethod(record.pull_elementwise)

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """What `grad_fn._saved_<name>` shows."""
        names = {"self": self.params[0], "other": self.params[-1], "result": "out"}
        name = names.get(name, name)
        kept = [k for k in self.saves[fn.mask] if k < 0 or fn.inputs[k] is not None]
        for position, k in enumerate(kept):
            if name == ("out" if k < 0 else self.params[k]):
                return record.unpack(fn, position)
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")

    def __repr__(self) -> str:
        return f"<elementwise op {self.name}>"


def _int_word(value: Any, compute: dtype) -> int:
    if compute.kind == "b":
        return int(bool(value))
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("int too big to convert")
    return number


class _Saves(dict[int, tuple[int, ...]]):
    """For each set of operands that need a gradient (as bits): the operands to save, -1 the result."""

    def __init__(self, op: Elementwise) -> None:
        super().__init__()
        self.op = op

    def __missing__(self, mask: int) -> tuple[int, ...]:
        op = self.op
        assert op.back is not None
        wanted = [k for k in range(op.arity) if mask >> k & 1]
        _, reads = op.back.needed(wanted)
        kept = [k for k, name in enumerate(op.params) if name in reads]
        if "out" in reads:
            kept.append(-1)
        self[mask] = tuple(kept)
        return self[mask]


@native.called
class Choice(native.Native):
    """An elementwise function that picks its op by its arguments.

    `choose` gets the arguments of a call and returns the op, its operands and its attributes: always the
    same for arguments that look the same, but where it looks at values.
    """

    def __init__(self, choose: Callable[..., tuple[Elementwise, tuple[Any, ...], tuple[Any, ...]]]):
        functools.update_wrapper(self, choose)
        self.name, self.choose = choose.__name__, choose
        self.usually: Elementwise | None = None  # what it picks for two operands and nothing else
        self.chosen: dict[tuple[Any, ...], Chosen] = {}  # so far, by what the arguments look like
        compile_choices(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(args, kwargs)

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any], over: bool = False) -> Any:
        """Record a call; `over` lets it write over its first operand."""
        out = kwargs.pop("out", None) if kwargs else None
        before, state.steady = state.steady, True
        try:
            op, operands, attributes = self.choose(*args, **kwargs)
            is_new = state.steady and out is None and not over
            if is_new and len(self.chosen) < MOST_CHOSEN:
                self._remember(args, kwargs, Chosen(op, operands, attributes))
        finally:
            state.steady = state.steady and before
        if attributes or over or len(operands) > 2:
            made = elementwise_recorder()(op, operands, attributes, over)
        elif len(operands) == 2:
            made = record.binary(op, *operands)
        else:
            made = record.unary(op, *operands)
        return made if out is None else _write_out(self.name, out, made)

    def _remember(self, args: tuple[Any, ...], kwargs: dict[str, Any], chosen: Chosen) -> None:
        """Have machine code record what was chosen when such arguments come again."""
        tensors: list[Any] = []
        key = signature_of(args, kwargs, tensors)
        place = {id(t): k for k, t in enumerate(tensors)}
        parts: list[Any] = []
        for operand in chosen.operands:
            if is_tensor(operand):
                parts.append(place.get(id(operand)))
            else:
                parts.append((operand,))
        if len(place) < len(tensors) or None in parts:
            return  # which tensor is which could not be told, or one was made
        with contextlib.suppress(TypeError):  # an argument that cannot be in a key
            self.chosen[key] = chosen._replace(operands=tuple(parts))

    def __repr__(self) -> str:
        return f"<elementwise function {self.name}>"


# A program whose numbers change with every call does not look so many up in vain.
MOST_CHOSEN = 256


class Chosen(NamedTuple):
    """An op with its operands and attributes; once remembered, of the operands the numbers of those
    that are tensors among the arguments, and those that are Python numbers each in a tuple."""

    op: Elementwise
    operands: tuple[Any, ...]
    attributes: tuple[Any, ...]


def _write_out(name: str, out: Any, made: Any) -> Any:
    from .inplace import write_out

    return write_out(name, out, made)


def _of_tensors_or_numbers(op: Elementwise, *operands: Any) -> Any:
    """Call an op as a body does that is read on tensors: all its operands may be numbers."""
    if any(is_tensor(operand) for operand in operands):
        return op(*operands)
    from ..ops.creation import scalar_tensor

    return op(*[scalar_tensor(v, dtype=dtypes.float64) for v in operands])


scalar_functions: dict[str, Any] = {}  # names in bodies -> ops on tensors


def elementwise(
    *,
    ref: Callable[..., Any] | None,
    domain: Any = (-2.0, 2.0),
    dtypes: Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]] = same,
    name: str | None = None,
    backward_name: str | None = None,
) -> Callable[[Callable[..., Any]], Elementwise]:
    """Define an op by its scalar body.

    Positional parameters are operands (annotate one `bool` if it is read as a truth value),
    keyword-only ones are attributes: numbers that become arguments of the kernel. The body is
    straight-line code with one return; `a if c else b` stands for `if`.

    Args:
        ref: the same function on NumPy arrays, for the tests.
        domain: (low, high) to sample operands from in the tests, or one such pair an operand.
        dtypes: the rule that gives (compute dtype, result dtype): `same`, `floating`, `test`, …

    Example:
        >>> @elementwise(ref=np.square)
        ... def squared(x):
        ...     return x * x
        >>> @squared.vjp
        ... def _(g, x):
        ...     return 2 * g * x
    """

    def define(function: Callable[..., Any]) -> Elementwise:
        return Elementwise(
            function, ref=ref, domain=domain, dtypes=dtypes, name=name, backward_name=backward_name
        )

    return define


# ----- ops that are functions -----


class Number(int):
    """Which operand of a call stands in a place. (The first call may have one tensor in two places, and
    the next one two tensors.)"""


class Call:
    """What the calls of an op share that have one signature: operands' specs and attributes."""

    __slots__ = ("attributes", "differentiable", "layout", "node_class", "op", "places", "savings",
                 "template")  # fmt: skip

    def __init__(self, op: Operation | None) -> None:
        self.op, self.node_class = op, op and op.node_class
        self.differentiable = op is not None and op.back is not None
        self.template: Any = None  # of the body: nothing, SEEN, UNSTEADY or one
        self.savings: dict[tuple[bool, ...], Saving] = {}  # by the operands that need gradients
        self.places: list[int | None] | None = None  # the operand behind each edge
        # The tensor parameters, each with -1 for one tensor, else with the length of the list.
        self.layout: list[tuple[str, int]] = []
        self.attributes: dict[str, Any] = {}

    def lay_out(self, arguments: dict[str, Any]) -> list[int | None]:
        """Find the operands among the arguments, which have numbers in their places."""
        places: list[int | None] = []
        layout: list[tuple[str, int]] = []
        for name, value in arguments.items():
            if value.__class__ is Number:
                layout.append((name, -1))
                places.append(int(value))
            elif isinstance(value, (list, tuple)) and any(v.__class__ is Number for v in value):
                layout.append((name, len(value)))
                places += [int(v) if v.__class__ is Number else None for v in value]
            else:  # a list is the caller's, who may change it
                self.attributes[name] = value[:] if isinstance(value, list) else value
        self.layout, self.places = layout, places
        return places


class Saving:
    """How the results of a call get their history, for one set of operands that need gradients."""

    __slots__ = ("attributes", "back", "first", "inputs", "kept", "layout", "outputs", "slots",
                 "targets", "templates", "wanted", "wants")  # fmt: skip

    def __init__(
        self, op: Operation, call: Call, wanted: tuple[bool, ...], operands: list[Any],
        outs: Sequence[Any],
    ) -> None:  # fmt: skip
        assert call.places is not None
        self.wanted, self.layout = wanted, call.layout
        self.inputs = tuple([None if k is None else operands[k].spec for k in call.places])
        self.outputs = tuple([o.spec if is_tensor(o) else None for o in outs])
        chosen = op.differentiable_outputs
        self.targets = [
            k
            for k, spec in enumerate(self.outputs)
            if spec is not None and spec.dtype.is_floating_point and (chosen is None or k in chosen)
        ]
        self.first = self.targets[0] if self.targets else 0
        self.wants, self.back = op.choose(call.layout, wanted)
        self.attributes = {n: v for n, v in call.attributes.items() if n in self.wants}
        self.kept: list[int] = []  # operands to save, and ~k for result k
        self.slots: dict[str, Any] = {}  # where they lie among the saved, by name
        self.templates: dict[tuple[Any, ...], Any] = {}  # of the vjp, by the gradients' specs
        if self.targets:
            self._choose_kept(op, call.places)

    def _choose_kept(self, op: Operation, places: list[int | None]) -> None:
        tensors: dict[str, Any] = {}
        rest = iter(places)
        for name, count in self.layout:
            tensors[name] = next(rest) if count < 0 else [next(rest) for _ in range(count)]
        for name in self.wants:
            if name in ("out", "outs"):
                wanted = {self.first} if name == "out" else op.saved_outputs
                for k in range(len(self.outputs)):
                    if wanted is None or k in wanted:
                        self.slots.setdefault(name, []).append((self._keep(~k), k))
            elif isinstance(tensors.get(name), list):
                self.slots[name] = [None if k is None else self._keep(k) for k in tensors[name]]
            elif name in tensors:
                self.slots[name] = self._keep(tensors[name])

    def _keep(self, k: int) -> int:
        self.kept.append(k)
        return len(self.kept) - 1


native.know(CALL=Call, SAVING=Saving)


def describe(values: Iterable[Any], key: list[Any], operands: list[Any]) -> None:
    """Add arguments to the signature of a call: specs of tensors, attributes with their types."""
    for value in values:
        kind = value.__class__
        if kind in tensor_classes:
            key.append(value.spec)
            operands.append(value)
        elif kind is int or kind is str or kind is bool or value is None:
            key += (kind, value)
        elif kind is float:
            key += (kind, value if value else str(value))  # the two zeros are equal
        elif isinstance(value, (tuple, list)) and kind is not Size:
            key += (kind, len(value))
            describe(value, key, operands)
        elif kind is slice:
            key.append(kind)
            describe((value.start, value.stop, value.step), key, operands)
        elif is_tensor(value):
            key.append(value.spec)
            operands.append(value)
        else:
            key += (kind, value)


def signature_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], operands: list[Any]
) -> tuple[Any, ...]:
    """What is the same in calls that record the same; the tensors among the arguments go to `operands`."""
    key: list[Any] = []
    describe(args, key, operands)
    if kwargs:
        key += kwargs
        describe(kwargs.values(), key, operands)
    return tuple(key)


def exchanged(values: tuple[Any, ...], operands: Iterator[Any]) -> tuple[Any, ...]:
    """Arguments with other tensors in their places, in the order in which `describe` finds them."""
    made: list[Any] = []
    for value in values:
        if is_tensor(value):
            value = next(operands)
        elif isinstance(value, (tuple, list)) and value.__class__ is not Size:
            parts = exchanged(tuple(value), operands)
            if any(map(operator.is_not, parts, value)):  # or it would lose its class
                value = list(parts) if isinstance(value, list) else parts
        made.append(value)
    return tuple(made)


@native.called
class Operation(native.Native):
    """An op whose forward launches kernels and whose vjp is a function of tensors."""

    def __init__(
        self, function: Callable[..., Any], backward_name: str, differentiable: Sequence[int] | None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.backward_name = function, backward_name
        self.node_class = node_class(backward_name)
        self.name = function.__name__.strip("_")
        code = function.__code__  # inspect.signature is slow, and there are hundreds of ops
        named = code.co_argcount + code.co_kwonlyargcount
        self.variadic = bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
        self.params = list(code.co_varnames[: named + self.variadic])
        late = code.co_varnames[: code.co_argcount][-len(function.__defaults__ or ()) :]
        self.defaults = dict(zip(late, function.__defaults__ or (), strict=False))
        self.defaults.update(function.__kwdefaults__ or {})
        self.differentiable_outputs = differentiable
        self.back: Callable[..., Any] | None = None
        self.wants: list[str] = []  # parameter names of the vjp
        self.calls: dict[tuple[Any, ...], Call] = {}
        on_default_change(self.calls.clear)
        calls.compile_calls(self)
        registry.setdefault(self.name, self)

    def vjp(self, function: Callable[..., Any]) -> Operation:
        """Attach the pullback: its parameter names say what is saved.

        `g` is the gradient of the first differentiable output, `gs` those of all (None where
        undefined), `out` and `outs` the outputs; any other name is a parameter of the op.

        Raises:
            TypeError: if a parameter is none of these.
        """
        names = list(function.__code__.co_varnames[: function.__code__.co_argcount])
        known = {"g", "gs", "out", "outs", "needs", *self.params}
        if not set(names) <= known:
            raise TypeError(
                f"{self.name}.vjp: expected parameters among {sorted(known)}, got {names}"
            )
        self.back = function
        self.wants = names
        return self

    @functools.cached_property
    def saved_outputs(self) -> set[int] | None:
        """The outputs that the vjp reads as `outs[k]`, None where that cannot be told: all."""
        return None if self.back is None else constant_subscripts(self.back, "outs")

    @functools.cached_property
    def reads(self) -> list[set[str]] | None:
        """The names that each gradient depends on, where the vjp is plain enough to tell."""
        return None if self.back is None else returned_reads(self.back)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operands: list[Any] = []
        signature = signature_of(args, kwargs, operands)
        watched = shared = shifted = 0
        for t in operands:
            watched |= t.needs_grad or t.view_of is not None
            shared |= t.storage.shared
            shifted |= t.offset
        watched = (
            watched and state.grad and self.back is not None and any(map(needs_grad, operands))
        )
        call = self._call(signature)
        template: Any = call.template
        if template.__class__ is Template and not shared and usable():
            starts = tuple([t.offset for t in operands]) if shifted else None
            out = template.record(operands, tuple([t.storage.value for t in operands]), starts)
        else:
            traced = template is SEEN and not shared and usable()
            out = self._run(call, args, kwargs, operands, bool(watched), traced)
        if watched:
            self._attach(call, args, kwargs, operands, out if out.__class__ is tuple else (out,))
        return out

    def comes_from(
        self, given: tuple[Any, ...], named: dict[str, Any], args: tuple[Any, ...]
    ) -> None:
        """Note that a function which is called with `given` and `named` calls this op with `args`: the same
        tensors in the same order, and all the rest follows from their specs and plain values."""
        self.calls[signature_of(given, named, [])] = self._call(signature_of(args, {}, []))

    def on(self, *args: Any, **kwargs: Any) -> Any:
        """What a function returns that `finds` the arguments of this op."""
        return Pending(self, args, kwargs)

    def _call(self, signature: tuple[Any, ...]) -> Call:
        """What calls of this signature share."""
        try:
            found = self.calls.get(signature)
        except TypeError:  # an attribute that cannot be in a key
            return Call(self)
        if found is None:
            if len(self.calls) >= MAX_TEMPLATES:
                self.calls.clear()
            found = self.calls[signature] = Call(self)
        return found

    def _run(
        self, call: Call, args: Any, kwargs: Any, operands: list[Any], watched: bool, traced: bool
    ) -> Any:
        """Call the body; where it is `traced`, the call remembers what it recorded."""

        def body(given: Sequence[Any]) -> Any:
            if given is operands:
                return _owned(self.function(*args, **kwargs), args)
            rest = iter(given)
            values = exchanged(args, rest)
            named = dict(zip(kwargs, exchanged(tuple(kwargs.values()), rest), strict=True))
            return _owned(self.function(*values, **named), values)

        before = record_gradients(state.grad and not watched)
        try:
            if not traced:
                call.template = call.template or SEEN
                return body(operands)
            given = apart(operands)
            out, template = trace(given, lambda: body(given))
            is_fresh = template.__class__ is Template and template.fresh
            if given is not operands:
                out = body(operands)
        finally:
            record_gradients(before)
        call.template = template if is_fresh or template is SEEN else UNSTEADY
        return out

    def _attach(
        self, call: Call, args: Any, kwargs: Any, operands: list[Any], outs: Sequence[Any]
    ) -> None:
        """Give the results of a call their backward node."""
        places = call.places
        if places is None:
            numbers = iter(map(Number, range(len(operands))))
            given = exchanged(args, numbers)
            named = dict(zip(kwargs, exchanged(tuple(kwargs.values()), numbers), strict=True))
            places = call.lay_out(self._bind(given, named))
        edges = [None if k is None else record.edge_of(operands[k]) for k in places]
        wanted = tuple([edge is not None for edge in edges])
        saving = call.savings.get(wanted)
        if saving is None:
            saving = call.savings[wanted] = Saving(self, call, wanted, operands, outs)
        if not saving.targets:
            return
        fn = record.new_grad_node(self, edges, saving.inputs)
        fn.outputs = saving.outputs
        fn.recipe = saving
        saved: list[Any] = []
        for k in saving.kept:
            t = operands[k] if k >= 0 else outs[~k]
            if k >= 0 and t.counter is record.INFERENCE:
                raise record.inference_save_error()
            saved += (t if k >= 0 else t.storage, t.counter.version)
        fn.saved = tuple(saved)
        for k in saving.targets:
            if outs[k].storage.value is not None and outs[k].fn is None:
                record.give_history(outs[k], fn, k)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of the parameters, defaults included."""
        if self.variadic:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments
        arguments = dict(zip(self.params, args, strict=False))
        for name in self.params[len(args) :]:
            arguments[name] = kwargs[name] if name in kwargs else self.defaults[name]
        return arguments

    def choose(
        self, layout: list[tuple[str, int]], wanted: tuple[bool, ...]
    ) -> tuple[list[str], Callable[..., Any]]:
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
    def _variants(self) -> dict[tuple[bool, ...], Callable[..., Any]]:
        """The vjp for each set of gradients that was needed so far."""
        return {}

    def pull(self, fn: GradNode, grads: list[Any]) -> Sequence[Any]:
        """Gradients of the tensor inputs, in the order of the signature."""
        saved, saving = fn.saved, fn.recipe
        if saved is None:
            raise RuntimeError(record.FREED)
        if state.grad or not usable():
            return self._pull(fn, record.as_tensors(fn, grads))
        key: list[Any] = []
        values = []
        starts = []
        shared = 0
        for g, spec in zip(grads, fn.outputs, strict=True):
            if g.__class__ is Node:
                key.append(spec)
                values.append(g)
                starts.append(0)
            elif g is None:
                key.append(None)
            else:
                key.append(g.spec)
                values.append(g.storage.value)
                starts.append(g.offset)
                shared |= g.storage.shared
        for k in range(0, len(saved), 2):
            counter = storage = saved[k]
            start = 0
            if storage.__class__ is not Storage:
                counter, start, storage = storage.counter, storage.offset, storage.storage
            if counter.version != saved[k + 1]:
                record.unpack(fn, k // 2)
            values.append(storage.value)
            starts.append(start)
            shared |= storage.shared
        signature = tuple(key)
        template = saving.templates.get(signature)
        usual = template.__class__ is Template and not shared
        if usual and template.fresh:
            shifts = tuple(starts) if any(starts) else None
            return template.record((), tuple(values), shifts, fn.inputs)
        grads = record.as_tensors(fn, grads)
        operands = [g for g in grads if g is not None]
        if usual:
            operands += saved[::2]
            return template.record(operands, tuple(values), tuple(starts) if any(starts) else None)
        if shared or template is not SEEN:
            saving.templates.setdefault(signature, SEEN)
            return self._pull(fn, grads)
        count = len(operands)
        for k, place in enumerate(saving.kept):
            operands.append(record.unpack(fn, k, None if place >= 0 else fn.outputs[~place]))
        given = apart(operands)
        if given is operands:
            results, template = trace(operands, lambda: tuple(self._pull(fn, grads)))
        else:
            rest = iter(given[:count])
            apart_grads = [None if g is None else next(rest) for g in grads]
            twin = record.copy_of(fn, given[count:])
            results, template = trace(given, lambda: tuple(self._pull(twin, apart_grads)))
        is_template = template.__class__ is Template
        is_fresh = is_template and template.fresh
        if given is not operands:
            results = tuple(self._pull(fn, grads))
        lost = (
            is_template and not is_fresh and (given is not operands or Storage in map(type, saved))
        )
        saving.templates[signature] = UNSTEADY if lost else template  # results may be made here
        return results

    def _pull(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """The gradients as the vjp gives them."""
        saving = fn.recipe
        given: dict[str, Any] = {}
        for name in self.wants:
            if name == "g":
                given[name] = grads[saving.first]
            elif name == "gs":
                given[name] = tuple(grads)
            elif name == "needs":
                given[name] = saving.wanted
            elif name in ("out", "outs"):
                found = {k: self._output(fn, place, k) for place, k in saving.slots.get(name, ())}
                if name == "out":
                    given[name] = next(iter(found.values()), None)
                else:
                    given[name] = tuple([found.get(k) for k in range(len(fn.outputs))])
            elif name in saving.attributes:
                given[name] = saving.attributes[name]
            else:
                slot = saving.slots.get(name)
                if isinstance(slot, list):
                    given[name] = [None if k is None else record.unpack(fn, k) for k in slot]
                else:
                    given[name] = None if slot is None else record.unpack(fn, slot)
        results = saving.back(**given)
        layout = saving.layout
        if len(layout) == 1 and layout[0][1] < 0:
            results = (results[0] if isinstance(results, tuple) else results,)
        if len(results) != len(layout):
            raise RuntimeError(
                f"{self.name}.vjp: expected {len(layout)} gradients, one for each tensor input, "
                f"got {len(results)}"
            )
        flat: list[Any] = []
        for (_, count), found in zip(layout, results, strict=True):
            if count < 0:
                flat.append(found)
            else:
                flat.extend([None] * count if found is None else found)
        return flat

    def _output(self, fn: GradNode, position: int, k: int) -> Any:
        out = record.unpack(fn, position, fn.outputs[k], k)
        chosen = self.differentiable_outputs
        if not out.spec.dtype.is_floating_point or (chosen is not None and k not in chosen):
            return out.detach()
        return out

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """What `grad_fn._saved_<name>` shows."""
        saving = fn.recipe
        name = {"self": self.params[0], "result": "out"}.get(name, name)
        if name in saving.attributes:
            return saving.attributes[name]
        slot = saving.slots.get(name)
        if slot is None:
            raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")
        if name == "out":
            return self._output(fn, *slot[0])
        return record.unpack(fn, slot)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _owned(out: Any, args: tuple[Any, ...]) -> Any:
    """The results of an op's body: a view of memory that the body made is no view to the caller."""
    for o in out if out.__class__ in (tuple, list) else (out,):
        if o.__class__ in tensor_classes and o.view_of is not None:
            base = o.view_of.base
            if all(not is_tensor(a) or a.storage is not base.storage for a in args):
                o.view_of = None
    return out


def operation(
    backward_name: str, *, differentiable: Sequence[int] | None = None
) -> Callable[[Callable[..., Any]], Operation]:
    """Define an op by a function that launches kernels.

    The body runs without recording gradients. Tensors among the arguments, or in lists among
    them, are its inputs; `differentiable` numbers the outputs that carry gradients (all).

    Example:
        >>> @operation("FlipBackward0")
        ... def flip(input, dims): ...
        >>> @flip.vjp
        ... def _(g, dims):
        ...     return flip(g, dims)
    """
    return lambda function: Operation(function, backward_name, differentiable)


# ----- functions in front of ops -----


class Pending(NamedTuple):
    """An op and the arguments that a function has found for it."""

    op: Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def finds(function: _F, *, first: bool = False) -> _F:
    """Mark a function of tensors and plain values that finds the arguments of an op, and returns `op.on` them:
    its own tensors in their order (by name, if the op's is another), and what follows from their specs and
    the plain values. (It may return any result instead.) A call like one that came before is recorded
    without the function.

    Checks and conversions of arguments took longer than recording: `gather` 2.6 us for 0.8.
    """
    known: dict[tuple[Any, ...], Call] = {}
    run: Any = function

    @functools.wraps(run)
    def twin(*args: Any, **kwargs: Any) -> Any:
        found = run(*args, **kwargs)
        if found.__class__ is not Pending:
            return found
        _note(known, args, kwargs, found)
        out = found.op(*found.args, **found.kwargs)
        return out[0] if first else out

    made = calls.short(known, twin, first=first)
    findings[made] = known, run
    on_default_change(known.clear)
    return cast(_F, made)


finds_first = functools.partial(finds, first=True)  # of the results of the op


# What functions that find arguments have found, and what finds it.
findings: dict[Any, tuple[dict[tuple[Any, ...], Call], Callable[..., Any]]] = {}


def forget_calls() -> None:
    """Forget what calls recorded: something has changed that is none of their arguments."""
    for op in registry.values():
        if isinstance(op, Operation):
            op.calls.clear()
    for known, _ in findings.values():
        known.clear()


def found_by(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What one that finds the arguments of an op passes on for another one."""
    return findings[function][1](*args, **kwargs)


def _note(
    known: dict[tuple[Any, ...], Call], args: Any, kwargs: dict[str, Any], found: Pending
) -> None:
    """Have such a call recorded as one of the op, if its tensors are the same."""
    tensors: list[Any] = []
    operands: list[Any] = []
    key = signature_of(args, kwargs, tensors)
    own = signature_of(found.args, found.kwargs, operands)
    if len(tensors) != len(operands) or any(map(operator.is_not, tensors, operands)):
        return
    if len(set(map(id, tensors))) < len(tensors):
        return  # which one is which could not be told
    if len(known) >= MAX_TEMPLATES:
        known.clear()
    with contextlib.suppress(TypeError):  # an argument that cannot be in a key
        known[key] = found.op._call(own)


# ----- names -----

_attach_method: Callable[[str, Any], None] | None = None


def attach_methods(attach: Callable[[str, Any], None]) -> None:
    """Let `attach(name, function)` put methods onto the tensor class, those to come too."""
    global _attach_method
    _attach_method = attach
    for name, function in methods.items():
        attach(name, function)


def add_method(name: str, function: Any) -> None:
    """Make a function a tensor method."""
    methods[name] = _publish(function, "adjit", f"Tensor.{name}")
    if _attach_method is not None:
        _attach_method(name, function)


_F = TypeVar("_F")


def _publish(function: _F, module: str, name: str) -> _F:
    """Have pickles find a function where users find it, by the first name that it is given."""
    if isinstance(function, native.Native):
        if not hasattr(function, "public"):
            function.public = module, name
    elif inspect.isfunction(function) and function not in _published:
        function.__module__, function.__qualname__ = module, name
        function.__name__ = name.rpartition(".")[2]
        _published.add(function)
    return function


_published: set[Callable[..., Any]] = set()


@overload
def export(function: _F, /) -> _F: ...


@overload
def export(
    function: None = None,
    /,
    *,
    method: bool | str | Sequence[str] = False,
    name: str | Sequence[str] | None = None,
    public: bool = True,
    inplace: bool | str = False,
    out: bool = False,
    namespace: str = "",
    usually: Operation | None = None,
) -> Callable[[_F], _F]: ...


def export(
    function: Any = None,
    /,
    *,
    method: bool | str | Sequence[str] = False,
    name: str | Sequence[str] | None = None,
    public: bool = True,
    inplace: bool | str = False,
    out: bool = False,
    namespace: str = "",
    usually: Operation | None = None,
) -> Any:
    """Give an op its public names.

    Args:
        method: a tensor method of the same name, or of these names.
        name: the name or names in the namespace, if not the function's own.
        public: whether `adjit.<name>` exists.
        inplace: whether the method `<name>_` exists, which writes the result into the tensor;
            "function" for that and the function `adjit.<name>_`, "only" for the function alone.
        out: whether the function takes `out=`.
        namespace: "" for `adjit`, "nn.functional", "linalg" or "special".
        usually: an op that a function calls with its own arguments, or those that `comes_from` told of: a
            call that the op knows is recorded without the function.
    """

    def register(f: Any) -> Any:
        own = getattr(f, "__name__", "").strip("_")
        names = [own] if name is None else [name] if isinstance(name, str) else list(name)
        op = f if isinstance(f, Operation) else usually
        known = op.calls if op else findings[f][0] if f in findings else None

        def short(twin: Any) -> Any:
            if known is None or isinstance(twin, native.Native):
                return twin
            return calls.short(known, twin)

        if public:
            for n in names:
                target[n] = _publish(short(with_out(f, n) if out else f), module, n)
        chosen: list[str] = []
        if method is True:
            chosen = names
        elif method:
            chosen = [method] if isinstance(method, str) else list(method)
        for n in chosen:
            add_method(n, short(as_method(f, n)))
        if inplace:
            for n in chosen or names:
                writing = in_place(f, n)
                if inplace != "only":
                    add_method(f"{n}_", writing)
                if inplace is not True:
                    target[f"{n}_"] = _publish(writing, module, f"{n}_")
        return f

    target, module = globals()["namespace"][namespace], f"adjit.{namespace}".rstrip(".")
    return register if function is None else register(function)


def as_method(f: Any, name: str) -> Any:
    """The op as a method: one Python call between the user and the recording."""
    if inspect.isfunction(f) or isinstance(f, native.Function):
        return f
    if isinstance(f, Elementwise) and not f.attributes:
        recorded = f.record
        if f.arity == 2:

            def method2(self: Any, other: Any) -> Any:
                return recorded(self, other)

            return compiled(f, _named(method2, f, name))
        if f.arity == 1:

            def method1(self: Any) -> Any:
                return recorded(self)

            return compiled(f, _named(method1, f, name))

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return f(self, *args, **kwargs)

    named = _named(method, getattr(f, "__wrapped__", f), name)
    return choosing(f, named) if isinstance(f, Choice) else named


def _named(method: Any, f: Any, name: str) -> Any:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", f.__doc__
    return method


def in_place(f: Any, name: str) -> Any:
    """The op as a method that writes its result into the tensor."""
    from . import inplace as writing

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        writing.check(self)
        writing.check_overlap(self, args)
        if isinstance(f, (Elementwise, Choice)) and self.fn is None:
            made = f.apply((self, *args), kwargs, over=True)
        else:
            made = f(self, *args, **kwargs)
        return writing.adopt(self, made)

    method.__name__ = f"{name}_"
    method.__doc__ = f"In-place form of `{name}`: writes the result into this tensor, returns it."
    written_by[method.__name__] = f
    return written(f, method)


written_by: dict[str, Any] = {}  # the op, or choice of one, behind each method that writes in place


def written(f: Any, method: Callable[..., Any]) -> Any:
    """`method`, which writes what `f` gives into its first operand, in machine code."""
    from .inplace import adopt

    op = f.usually if isinstance(f, Choice) else f
    is_plain = isinstance(op, Elementwise) and not op.attributes and op.arity <= 2
    return writing(op, method) if is_plain else computing(f, method, adopt)


def with_out(f: Any, name: str) -> Any:
    """The op with an `out=` argument."""
    from . import inplace as writing

    if isinstance(f, (Elementwise, Choice)):
        return f

    @functools.wraps(getattr(f, "__wrapped__", f))
    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        made = f(*args, **kwargs)
        return made if out is None else writing.write_out(name, out, made)

    return function


__all__ = ["Choice", "Elementwise", "Operation", "Spec", "elementwise", "export", "operation"]
