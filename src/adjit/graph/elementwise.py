"""Elementwise ops: a scalar body each, and one for every derivative."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import dtype, on_default_change
from ..schedule.codegen.body import Body
from ..schedule.jit import native
from ..schedule.settle import float_word
from ..unknown import through, whole
from . import elementwise_record, elementwise_vjp, old_orders, primitives, wrong_types
from .fastpath import (
    compile_attributed,
    compile_calls,
    compile_choices,
    compiled,
    elementwise_recorder,
)
from .inplace import write_out
from .node import Gradient, GradNode, NewTensor, TensorBase, node_class
from .op_record import Number, OpKey, OpRecord
from .other_sizes import OtherSizes
from .record import is_tensor, plain_number, tensor_classes
from .registry import registry
from .saved import unpack
from .signature import Argument, Arguments, NamedArguments, Signature, signature_of
from .state import state


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


Scalar = Callable[..., Any]  # a function of numbers: its text becomes kernels, nobody calls it
Reference = Callable[..., Any]  # a function of NumPy or SciPy
Interval = tuple[float, float]
Domain = Interval | tuple[Interval, ...]


class Pullback(Body):
    """A vjp body: its results are numbered like the operands of the forward body."""

    def __init__(self, function: Scalar, forward: Body) -> None:
        super().__init__(function)
        self.forward = forward
        self.name = f"{forward.name}_vjp"
        self.logical = forward.logical

    @functools.cached_property
    def parsed(self) -> tuple[list[ast.Assign], list[ast.expr]]:
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
        function: Scalar | Body,
        *,
        dtypes: Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]],
        ref: Reference | None = None,
        domain: Domain = (-2.0, 2.0),
        name: str | None = None,
        backward_name: str | None = None,
    ) -> None:
        self.body = function if isinstance(function, Body) else Body(function)
        function = self.body.function
        self.name = name or self.body.name.rstrip("_")
        self.__doc__, self.__name__, self.__module__ = (
            function.__doc__,
            self.name,
            function.__module__,
        )
        self.__wrapped__ = function
        self.params, self.attributes = self.body.params, self.body.attributes
        taken = {"g", "out", *(f"g_{p}" for p in self.params)}
        if clash := taken.intersection(self.params + self.attributes):
            raise TypeError(
                f"{self.name}: expected parameters of other names than {', '.join(sorted(clash))}: its "
                "derivative calls the result out, the gradient of that g, that of an operand x g_x"
            )
        self.defaults: NamedArguments = dict(function.__kwdefaults__ or {})
        self.ref, self.domain, self.dtypes = ref, domain, dtypes
        self.backward_name = backward_name or f"{self.name.title().replace('_', '')}Backward0"
        self.node_class = node_class(self.backward_name)
        self.op_records: dict[OpKey, OpRecord] = {}  # by specs, and classes of numbers
        self.sizes = OtherSizes()
        on_default_change(self.op_records.clear)
        on_default_change(self.sizes.clear)
        self.arity = len(self.params)
        self.saves: dict[int, tuple[int, ...]] = _Saves(self)
        self.record = self._recorder()
        self.direct = 0 if self.arity > 2 or self.attributes else self.arity
        self._compile()
        self.back: Body | None = None
        self.differentiable = False
        # Where the derivative by the first operand is constant in pieces: what its own is called in the graph.
        self.straight: str = ""
        self.hidden = {k for k, p in enumerate(self.params) if p in self.body.logical}
        # The operands in the order in which the order of their axes counts; () for results in C order.
        self.laid_by: Sequence[int] = range(self.arity)
        # The operands that may not be numbers. The library itself calls its ops with any.
        self.tensors_only: Sequence[int] = ()
        self._for_users: Elementwise | None = None

    def register(self) -> Elementwise:
        """Enter it among the ops of the library, and the functions that bodies may call."""
        registry[self.name] = self
        scalar_functions[self.name] = functools.partial(_of_tensors_or_numbers, self)
        return self

    def vjp(self, function: Scalar) -> Elementwise:
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
        for op in filter(None, (self, self._for_users)):
            op.back, op.differentiable = back, True
        return self

    def __call__(self, *operands: Argument, **attributes: Argument) -> NewTensor:
        try:
            if not attributes:
                if len(operands) == self.direct:
                    return self.record(*operands)
                if len(operands) == self.arity + len(self.attributes):
                    if self.name in old_orders.SCALED:
                        return self.apply(operands, {})
                    given = operands[self.arity :]
                    return elementwise_recorder()(self, operands[: self.arity], given, False)
            return self.apply(operands, attributes)
        except TypeError:
            if said := wrong_types.tell(self.body.function, self.name, operands, attributes):
                return said[0]
            raise

    def record_known(self, operands: Arguments, attributes: Arguments, over: bool) -> NewTensor:
        """Record a call of which the op record is known by now, in the shortest way."""
        return elementwise_recorder()(self, operands, attributes, over)

    def apply(
        self, operands: Arguments, attributes: NamedArguments, over: bool = False
    ) -> NewTensor:
        """Record a call with arguments by name; `over` lets it write over its first operand."""
        out = attributes.pop("out", None) if attributes else None
        if len(operands) < self.arity and attributes:
            operands = (*operands, *self._operands_by_name(len(operands), attributes))
        if len(operands) > self.most:
            found = old_orders.in_new_order(self.name, operands)
            operands, attributes = found or (operands, attributes)
        given, operands = operands[self.arity :], operands[: self.arity]
        if len(operands) < self.arity or len(operands) + len(given) > self.most:
            raise TypeError(
                f"{self.name}() takes {self.arity} positional arguments but "
                f"{len(operands) + len(given)} were given"
            )
        for name in attributes:
            if name not in self.attributes:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{name}'")
            if name in self.attributes[: len(given)]:
                raise TypeError(f"{self.name}() got multiple values for argument '{name}'")
        values = given + tuple(
            [attributes.get(a, self.defaults.get(a)) for a in self.attributes[len(given) :]]
        )
        made = elementwise_recorder()(self, operands, values, over)
        return made if out is None else write_out(self.name, out, made)

    def _operands_by_name(self, count: int, attributes: NamedArguments) -> list[Argument]:
        """The operands after the first `count`, taken out of the keyword arguments."""
        found = []
        for p in self.params[count:]:
            names = elementwise_record.NAMES_OF_OPERANDS.get(p, (p,))
            name = next((n for n in names if n in attributes and n not in self.attributes), None)
            if name is not None:
                found.append(attributes.pop(name))
        return found

    def _recorder(self) -> Callable[..., NewTensor]:
        """The shortest way to record a call on tensors alone."""
        recorder = elementwise_record.recorder(self)
        return compiled(self, recorder) if self.arity in (1, 2) else recorder

    def variant(self, backward_name: str, *numbers: str) -> Elementwise:
        """The same op under another name in the graph, as PyTorch names its overloads.

        `numbers` are the operands that the overload takes as numbers: they have no edges. The pullback is the
        same too, unless the variant is given one of its own.
        """
        variant = type(self).__new__(type(self))
        vars(variant).update(vars(self))
        variant.hidden = self.hidden | {k for k, p in enumerate(self.params) if p in numbers}
        variant.backward_name, variant.op_records = backward_name, {}
        variant.sizes = OtherSizes()
        variant.saves = _Saves(variant)
        on_default_change(variant.op_records.clear)
        on_default_change(variant.sizes.clear)
        variant.node_class = node_class(backward_name)
        variant.record = variant._recorder()
        variant._compile()
        return variant

    def for_users(self, numbers: Sequence[str]) -> Elementwise:
        """The op as users call it: of several operands, only those of these names may be numbers."""
        refused = [k for k, p in enumerate(self.params) if p not in numbers]
        if self.arity < 2 or not refused:
            return self
        made = self._for_users = self.variant(self.backward_name)
        made.tensors_only = refused
        return made

    def _compile(self) -> None:
        """Have the usual calls go to machine code."""
        fallback = MethodType(type(self).__call__, self)
        if self.direct:
            compile_calls(self, self, fallback)
        elif self.attributes:
            compile_attributed(self, self, self.defaults, self.most, fallback)

    @property
    def most(self) -> int:
        """How many arguments may be given without their names."""
        return self.arity + (0 if self.name in old_orders.SCALED else len(self.attributes))

    def words(
        self, op_record: OpRecord, numbers: Sequence[Number], attributes: Sequence[Argument]
    ) -> tuple[int, ...]:
        """Python numbers as words, in the dtype that the body runs in.

        Raises:
            TypeError: one is a tensor that needs a gradient, which would not get any.
        """
        if not numbers and not attributes:
            return ()
        attributes = [
            plain_number(value, self.name, name)
            for name, value in zip(self.attributes, attributes, strict=True)
        ]
        compute = op_record.compute
        if self.body.whole:
            values = zip(op_record.numbers, (*numbers, *attributes), strict=True)
            return tuple([self._word(name, v) for name, v in values])
        for v in attributes:
            dtypes.check_fits(v, compute)
        if compute.is_floating_point:
            return tuple([through(_float_word, v) for v in (*numbers, *attributes)])
        return tuple([_int_word(v, compute) for v in (*numbers, *attributes)])

    def _word(self, name: str, value: Argument) -> int:
        """The word of a number of an op that reads some as whole numbers, and floats."""
        return (
            _int_word(value, dtypes.int64) if name in self.body.whole else float_word(float(value))
        )

    def numbers(self, op_record: OpRecord, words: Sequence[int]) -> dict[str, Number]:
        """The Python numbers behind words, by the name of the operand or attribute."""
        import struct

        found: dict[str, Number] = dict(zip(op_record.numbers, words, strict=True))
        if op_record.compute.is_floating_point:
            for name in found.keys() - self.body.whole:
                found[name] = struct.unpack("d", struct.pack("q", found[name]))[0]
        return found

    def functions(self) -> dict[str, Callable[..., NewTensor]]:
        """What names in a vjp body mean on tensors."""
        return scalar_functions

    def apply_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> Sequence[Gradient | None]:
        """Gradients of the operands."""
        return elementwise_vjp.elementwise_vjps(self, fn, grads)

    def learns_vjp(self, fn: GradNode, grads: list[Gradient | None]) -> bool:
        """Whether machine code knows a vjp now that it did not."""
        return elementwise_vjp.learns_vjp(self, fn, grads[0])

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """What `grad_fn._saved_<name>` shows."""
        names = {"self": self.params[0], "other": self.params[-1], "result": "out"}
        name = names.get(name, name)
        kept = [k for k in self.saves[fn.mask] if k < 0 or fn.inputs[k] is not None]
        for position, k in enumerate(kept):
            if name == ("out" if k < 0 else self.params[k]):
                return unpack(fn, position)
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")

    def __repr__(self) -> str:
        return f"<elementwise op {self.name}>"


def _float_word(value: Argument) -> int:
    return float_word(float(value))


def _int_word(value: Argument, compute: dtype) -> int:
    if compute.kind == "b":
        return int(bool(value))
    number = whole(value)
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

    def __init__(self, choose: Callable[..., tuple[Elementwise, Arguments, Arguments]]) -> None:
        functools.update_wrapper(self, choose)
        self.name, self.choose = choose.__name__, choose
        self._tensors = [
            (p.place, p.name)
            for p in wrong_types.parameters(choose)
            if not (p.takes_none or p.takes_number)
        ]
        self._has_flags = bool(wrong_types.flags(choose))
        # What it picks for two operands and nothing else.
        self.for_two_operands: Elementwise | None = None
        self.chosen: dict[Signature, Chosen] = {}  # so far, by what the arguments look like
        compile_choices(self, self.chosen, MethodType(type(self).__call__, self))

    def __call__(self, /, *args: Argument, **kwargs: Argument) -> NewTensor:
        return self.apply(args, kwargs)

    def apply(self, args: Arguments, kwargs: NamedArguments, over: bool = False) -> NewTensor:
        """Record a call; `over` lets it write over its first operand."""
        out = kwargs.pop("out", None) if kwargs else None
        try:
            made = self._recorded(args, kwargs, over, out is None)
        except Exception:
            if said := wrong_types.tell(self.choose, self.name, args, kwargs):
                return said[0]
            raise
        return made if out is None else write_out(self.name, out, made)

    def _recorded(
        self, args: Arguments, kwargs: NamedArguments, over: bool, may_remember: bool
    ) -> NewTensor:
        for place, name in self._tensors:
            value = args[place] if place < len(args) else kwargs.get(name)
            if value.__class__ not in tensor_classes and (
                said := wrong_types.tell(self.choose, self.name, args, kwargs)
            ):
                return said[0]
        if self._has_flags:
            wrong_types.check_flags(self.choose, self.name, args, kwargs)
        before, state.deterministic = state.deterministic, True
        try:
            op, operands, attributes = self.choose(*args, **kwargs)
            is_new = state.deterministic and may_remember and not over
            if is_new and len(self.chosen) < MOST_CHOSEN:
                self._remember(args, kwargs, Chosen(op, operands, attributes))
        finally:
            state.deterministic = state.deterministic and before
        if attributes or over or len(operands) > 2:
            return elementwise_recorder()(op, operands, attributes, over)
        return op.record(*operands)

    def _remember(self, args: Arguments, kwargs: NamedArguments, chosen: Chosen) -> None:
        """Have machine code record what was chosen when such arguments come again."""
        tensors: list[TensorBase] = []
        key = signature_of(args, kwargs, tensors)
        place = {id(t): k for k, t in enumerate(tensors)}
        parts: list[int | tuple[Number] | None] = []
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
    that are tensors among the arguments, and those that are Python numbers each in a tuple.
    """

    op: Elementwise
    operands: Arguments
    attributes: Arguments


native.register_layout(CHOSEN=Chosen)


def _of_tensors_or_numbers(op: Elementwise, *operands: Argument) -> NewTensor:
    """Call an op as a body does that is read on tensors: all its operands may be numbers."""
    if any(is_tensor(operand) for operand in operands):
        return op(*operands)
    return op(*[primitives.number(v, dtypes.float64) for v in operands])


scalar_functions: dict[str, Callable[..., NewTensor]] = {}  # names in bodies -> ops on tensors


def elementwise(
    *,
    ref: Reference | None,
    domain: Domain = (-2.0, 2.0),
    dtypes: Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]] = same,
    name: str | None = None,
    backward_name: str | None = None,
) -> Callable[[Scalar], Elementwise]:
    """Define an op by its scalar body.

    Positional parameters are operands (annotate one `bool` if it is read as a truth value),
    keyword-only ones are attributes: numbers that become arguments of the kernel. The body is
    straight-line code with one return; `a if c else b` stands for `if`. It reads its parameters and
    what it assigned, whatever it calls them, and nothing else of the program.

    Args:
        ref: the same function on NumPy arrays, for the tests.
        domain: (low, high) to sample operands from in the tests, or one such pair an operand.
        dtypes: the rule that gives (compute dtype, result dtype): `same`, `floating`, `test`, …

    Example:
        @elementwise(ref=np.square)
        def squared(x):
            return x * x

        @squared.vjp
        def _(g, x):
            return 2 * g * x
    """

    def define(function: Scalar) -> Elementwise:
        op = Elementwise(
            function, ref=ref, domain=domain, dtypes=dtypes, name=name, backward_name=backward_name
        )
        return op.register()

    return define
