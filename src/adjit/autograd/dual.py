"""Dual tensors: values with tangents, which ops push forward by their rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from .. import dtypes
from ..graph import inplace, record
from ..graph.fastpath import elementwise_recorder
from ..graph.levels import Gradients, Level, level_of, tracers
from ..graph.node import dense_spec
from ..graph.op_record import ElementwiseOp
from ..graph.operation import Operation
from ..graph.view import alias, aliases
from ..ops.comparison import where
from ..ops.creation import zeros
from ..ops.regions import scatter_strided
from ..shapes import is_dense
from ..tensor import Tensor
from ..tracers.tracer import Tracer, tracer
from .api import grad
from .modes import enable_grad, is_grad_enabled, no_grad

CAPTURED = (
    "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation "
    "(aten::copy_) that would mutate a captured Tensor. This is not supported; please rewrite the function "
    "being transformed to explicitly accept the mutated Tensor(s) as inputs."
)
OUTSIDE = "as_strided() of a dual tensor reaches beyond the memory that has tangents: make the whole of it dual"

Region = Callable[[Tensor], Tensor]  # a view of a tensor's memory


class Dual(Tracer):
    """A value with a tangent of the same layout, or none; that of a view is the view of its origin's."""

    __slots__ = ("_origin", "_own_tangent", "_region", "_seen")
    _origin: Dual | None  # what this is a view of
    _region: Region | None  # how
    _own_tangent: Any
    _seen: Any  # the tangent of the origin that `_own_tangent` is a view of

    @property
    def _tangent(self) -> Any:
        """The tangent, None where there is none."""
        if self._level.is_over:
            return None
        if self._origin is None:
            return self._own_tangent
        whole = self._origin._tangent
        if whole is None:
            return None
        if self._seen is not whole:
            assert self._region is not None
            self._own_tangent, self._seen = self._region(whole), whole
        return self._own_tangent

    @property
    def _memory(self) -> Dual:
        """The dual tensor that this is a view of, and views of that."""
        found = self
        while found._origin is not None:
            found = found._origin
        return found

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Let the value begin a graph."""
        self._value.requires_grad_(requires_grad)
        return self

    def _like(self, value: Tensor) -> Tensor:
        """Another tensor with the same tangent."""
        made: Tensor = self._level.dual(value, self._tangent)
        return made

    def _parts(self) -> tuple[Tensor, ...]:
        """The value and the tangent."""
        return (self._value,) if self._tangent is None else (self._value, self._tangent)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """The same with `change` of value and tangent."""
        made: Tensor = self._level.dual(
            *map(change, self._parts()), *(None,) * (self._tangent is None)
        )
        return made

    def detach(self) -> Tensor:
        """The same without history and without a tangent."""
        made: Tensor = self._level.dual(self._value.detach(), None)
        return made

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        """The same without history and tangent, with a version counter of its own."""
        made: Tensor = self._level.dual(self._value.data, None)
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if self._value.__class__ in tracers or self._tangent is None:
            return repr(self._value)
        return self._shown(repr(self._tangent) if self.ndim else str(self._tangent.item()))

    def _values(self) -> Any:
        return self._value._values()

    def _number(self) -> Any:
        return self._value._number()

    def __bool__(self) -> bool:
        return bool(self._value)

    def __index__(self) -> int:
        return self._value.__index__()


class DualLevel(Level):
    """One direction in which functions are differentiated forward."""

    tracer_class = Dual

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False  # nobody asks for tangents any more

    def made_of(self, value: Any, tangent: Any) -> Any:
        """A view of a tensor, with a tangent.

        Raises:
            RuntimeError: with PyTorch's texts, if shapes differ or one of the two has a tangent.
        """
        if self.tangent(value) is not None:
            raise RuntimeError(
                "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
                "0 is not supported."
            )
        if self.tangent(tangent) is not None:
            raise RuntimeError(
                "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
            )
        if value.shape != tangent.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original "
                f"Tensor, this is not supported. Tensor is of size {list(value.shape)} while the given forward "
                f"gradient is of size {list(tangent.shape)}."
            )
        value = self.value(value)
        return self.dual(value.view_as(value), self.value(tangent))

    def dual(self, value: Any, tangent: Any) -> Any:
        """A value with a tangent, which is laid out as that is."""
        if tangent is not None and tangent._spec.strides != value._spec.strides and overlaps(value):
            value = value.contiguous()  # nobody may write where elements overlap
        made = tracer(Dual, self, value, value._spec)
        made._origin = made._region = made._seen = None
        made._own_tangent = None if tangent is None else laid_out(tangent, value)
        return made

    def has(self, t: Any) -> bool:
        """Whether a tensor is a dual tensor of this level."""
        return t.__class__ is Dual and t._level is self

    def elements(self, t: Any) -> Any:
        """The value."""
        return t._value

    def value(self, t: Any) -> Any:
        """A tensor without this level's tangent, which parts of a list are too."""
        if t.__class__ is tuple or t.__class__ is list:
            return t.__class__(map(self.value, t))
        return t._value if self.has(t) else t

    def tangent(self, t: Any) -> Any:
        """The tangent of a tensor, None where there is none; of a list, a list if any part has one."""
        if t.__class__ is tuple or t.__class__ is list:
            found = [self.tangent(part) for part in t]
            return found if any(part is not None for part in found) else None
        return t._tangent if self.has(t) else None

    # ----- primitives -----

    def elementwise(
        self, op: ElementwiseOp, operands: tuple[Any, ...], attributes: tuple[Any, ...]
    ) -> Any:
        """Apply an elementwise op to values, its derivative to tangents."""
        values = self.value(operands)
        tangents = [self.tangent(t) for t in operands]
        out = elementwise_recorder()(op, values, attributes, False)
        if all(t is None for t in tangents):
            return self.dual(out, None)
        return self.dual(out, elementwise_tangent(op, values, attributes, tangents, out))

    def operation(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Apply an operation to values, its rule to tangents."""
        bound = op.bind(args, kwargs)
        given = {name: self.value(v) for name, v in bound.items()}
        found = {name: self.tangent(v) for name, v in bound.items()}
        tangents = {name: t for name, t in found.items() if t is not None}
        made = op.with_bound(given)
        outs = made if made.__class__ is tuple else (made,)
        targets = op.differentiable_among(outs)
        pushed: Sequence[Any] = [None] * len(outs)
        if tangents and targets:
            pushed = self.pushed(op, given, tangents, outs, targets)
        duals = tuple([self.dual(o, pushed[k]) if k in targets else o for k, o in enumerate(outs)])
        return duals if made.__class__ is tuple else duals[0]

    def pushed(
        self, op: Operation, given: dict[str, Any], tangents: dict[str, Any], outs: Any, targets: list[int]
    ) -> list[Any]:  # fmt: skip
        """The tangents of an operation's results."""
        if op.rules.push is not None:
            made = op.rules.push(given, tangents, outs)
        elif op.back is None:
            raise NotImplementedError(
                f"Trying to use forward AD with {op.name} that does not support it because it has not been "
                "implemented yet."
            )
        else:
            made = transposed(op, given, tangents, outs, targets)
        several = made if made.__class__ is tuple else (made,)
        found: list[Any] = [None] * len(outs)
        for k, t in zip(targets, several, strict=False):
            found[k] = outs[k].new_zeros(outs[k].shape) if t is None else t
        return found

    def view(
        self, t: Any, shape: Any, strides: Any, offset: int, backward_name: str, vjp: Any
    ) -> Any:
        """View the value and the tangent."""
        value, start = t._value, t._value._offset
        made = alias(value, shape, strides, offset, backward_name, vjp)
        memory = t._memory
        at = made._offset - memory._value._offset
        beyond = at < 0 or at + made._spec.extent > memory._spec.extent
        if beyond and made._spec.numel and memory._own_tangent is not None:
            raise RuntimeError(OUTSIDE)

        def region(whole: Any) -> Any:
            return alias(whole, shape, strides, whole._offset + offset - start, backward_name, vjp)

        return self.viewed(t, made, region)

    def views(self, t: Any, parts: Any, backward_name: str, vjp: Any) -> Any:
        """View the value and the tangent, several times."""
        found: list[Any] = [None, ()]  # a tangent, and its views

        def region(k: int) -> Region:
            def one(whole: Tensor) -> Tensor:
                if found[0] is not whole:
                    found[:] = whole, aliases(whole, parts, backward_name, vjp)
                made: Tensor = found[1][k]
                return made

            return one

        views = aliases(t._value, parts, backward_name, vjp)
        return tuple([self.viewed(t, view, region(k)) for k, view in enumerate(views)])

    def viewed(self, t: Any, view: Any, region: Region) -> Any:
        """A view of a dual tensor."""
        made = self.dual(view, None)
        made._origin, made._region = t, region
        return made

    def write(self, t: Any, made: Any, overlap: bool) -> None:
        """Write the value, and the tangent where there is one already or one comes."""
        if not self.has(t):
            raise RuntimeError(CAPTURED)
        inplace.adopt(t._value, self.value(made), overlap=overlap)
        self.write_tangent(t, self.tangent(made), overlap)

    def write_tangent(self, t: Any, tangent: Any, overlap: bool = False) -> None:
        """Replace the tangent of a dual tensor, which others with the same memory see."""
        memory = t._memory
        before = memory._own_tangent
        if (tangent is None and before is None) or not t._spec.numel:
            return
        if tangent is None:
            tangent = t._value.new_zeros(t.shape)
        # A write under no_grad leaves the value its history, and so it does the tangent.
        keeps_history = before is not None and before.requires_grad and not is_grad_enabled()
        if t is memory and not keeps_history:
            memory._own_tangent = laid_out(tangent, t._value)
            return
        if before is None:
            before = memory._value.new_zeros(memory.shape)
        with enable_grad() if keeps_history else nullcontext():
            # A new one, since an op may have passed the old one on.
            memory._own_tangent = laid_out(like_written(before, tangent), memory._value)
            part = t._tangent
        inplace.adopt(part, tangent, overlap=overlap)

    def factory(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A new tensor, which has no tangent."""
        given = self.value(args)
        around = level_of(given)
        made = (
            function(*given, **kwargs)
            if around is None
            else around.factory(function, given, kwargs)
        )
        several = made if made.__class__ is tuple else (made,)
        duals = tuple([self.dual(m, None) for m in several])
        return duals if made.__class__ is tuple else duals[0]

    # ----- gradients -----

    def gradients(
        self, roots: Sequence[Any], grads: Sequence[Any], targets: Sequence[Any], below: Gradients
    ) -> list[Any]:
        """The gradients of values, and how these change in this direction, which roots' tangents tell."""
        values = [self.value(t) for t in targets]
        parts = [(self.value(t), self.value_inside(g)) for t, g in zip(roots, grads, strict=True)]
        pairs = [(self.value(t), self.tangent_inside(g)) for t, g in zip(roots, grads, strict=True)]
        pairs += [(self.tangent(t), g) for t, (_, g) in zip(roots, parts, strict=True)]
        pairs = [(t, g) for t, g in pairs if t is not None and g is not None and t.requires_grad]
        first = below([t for t, _ in parts], [g for _, g in parts], values, again=bool(pairs))
        if not pairs:
            return first
        second = below([t for t, _ in pairs], [g for _, g in pairs], values)
        found: list[Any] = []
        for g, change, value in zip(first, second, values, strict=True):
            if g is None and change is not None:
                g = value.new_zeros(value.shape)
            found.append(g if change is None else self.joined(g, change))
        return found

    def value_inside(self, t: Any) -> Any:
        """`value` of a tensor that levels entered later may have wrapped."""
        level = self.later(t)
        if level is None:
            return self.value(t)
        if not isinstance(level, DualLevel):
            return t._like(self.value_inside(t._value))
        return level.dual(self.value_inside(t._value), self.value_inside(t._tangent))

    def tangent_inside(self, t: Any) -> Any:
        """`tangent` of a tensor that levels entered later may have wrapped."""
        level = self.later(t)
        if level is None:
            return self.tangent(t)
        value = self.tangent_inside(t._value)
        if not isinstance(level, DualLevel):
            return None if value is None else t._like(value)
        tangent = self.tangent_inside(t._tangent)
        if value is None and tangent is not None:
            value = tangent.new_zeros(tangent.shape)
        return None if value is None else level.dual(value, tangent)

    def joined(self, value: Any, tangent: Any) -> Any:
        """`dual` of two that levels entered later may have wrapped."""
        if value is None or tangent is None:
            return value
        level: Any = level_of((value, tangent))
        if level is None or level.number < self.number:
            return self.dual(value, tangent)
        if not isinstance(level, DualLevel):
            return level.wrapped(self.joined(level.full(value), level.full(tangent)))
        changes = level.tangent(value), level.tangent(tangent)
        made = self.joined(level.value(value), level.value(tangent))
        if changes == (None, None):
            return made
        given = [made.new_zeros(made.shape) if t is None else t for t in changes]
        return level.dual(made, self.joined(*given))

    def later(self, t: Any) -> Any:
        """The level of a tensor, if it was entered later than this one."""
        return t._level if t.__class__ in tracers and t._level.number > self.number else None

    def adding_axis(self, t: Any, change: Callable[[Any], Any]) -> Any:
        """A dual tensor after a function of its value and tangent."""
        tangent = t._tangent
        return self.dual(change(t._value), None if tangent is None else change(tangent))

    removing_axis = adding_axis

    def stripped(self, t: Any) -> Any:
        """A tensor as it is: one of this level has the axes of what it stands for."""
        return t

    dressed = stripped


def overlaps(t: Any) -> bool:
    """Whether several elements of a tensor lie in one place."""
    return any(st == 0 and n > 1 for n, st in zip(t.shape, t._spec.strides, strict=True))


def laid_out(t: Any, like: Any) -> Any:
    """A tensor whose elements lie as those of another one, of the same shape, do: itself if it can be."""
    spec = like._spec
    if t.dtype is not spec.dtype:
        t = t.to(spec.dtype)
    if t._spec.strides == spec.strides:
        return t
    if is_dense(spec.shape, spec.strides):
        order = sorted(range(spec.ndim), key=lambda d: -spec.strides[d])
        turned = t.permute(order).contiguous()
        return turned.permute(sorted(range(spec.ndim), key=order.__getitem__))
    flat = scatter_strided(t, dense_spec((spec.extent,), spec.dtype, spec.device), spec, 0)
    return flat.as_strided(spec.shape, spec.strides)


def like_written(t: Any, source: Any) -> Any:
    """A copy of a tensor that can take part of `source`, which may stand for examples where `t` does not."""
    return where(never(t), source[(0,) * source.ndim], t)


def ones_like(t: Any) -> Any:
    """Ones without history that stand for as many examples as a tensor does."""
    with no_grad():
        return where(never(t), t, 1.0)


def never(t: Any) -> Any:
    """The truth value False, where a tensor is."""
    return zeros((), dtype=dtypes.bool, device=t.device)


def transposed(
    op: Operation, given: dict[str, Any], tangents: dict[str, Any], outs: Any, targets: list[int]
) -> tuple[Any, ...]:
    """The tangents of results by the vjp alone, which is linear in `g`: its transpose is the Jacobian."""
    with enable_grad():
        gs: list[Any] = [None] * len(outs)
        for k in targets:
            gs[k] = ones_like(outs[k])
            gs[k]._needs_grad = True
        found = op.pull(given, outs, gs)
        roots, wanted = [], []
        for name, tangent in tangents.items():
            pulled = found[name]
            several = isinstance(tangent, list)
            if pulled is None:
                continue
            for g, t in zip(
                pulled if several else [pulled], tangent if several else [tangent], strict=True
            ):
                if g is not None and t is not None and g.requires_grad:
                    roots.append(g)  # wider than the operand, where that was broadcast
                    wanted.append(t.to(g.dtype).expand(g.shape))
        if not roots:
            return tuple([None for _ in targets])
    leaves = [gs[k] for k in targets]
    return grad(roots, leaves, wanted, create_graph=is_grad_enabled(), allow_unused=True)


def elementwise_tangent(
    op: Any, operands: Sequence[Any], attributes: Sequence[Any],
    tangents: Sequence[Any], out: Any,
) -> Any:  # fmt: skip
    """The tangent of an elementwise op's result: its Jacobian is diagonal, so the vjp's body gives it.

    Read on tensors it is recorded, and so differentiable and batched itself; fusion makes one kernel of it.
    """
    if not (op.differentiable and out.dtype.is_floating_point):
        return None
    given = dict(zip([*op.params, *op.attributes], [*operands, *attributes], strict=True))
    given["out"] = out
    names = [*op.back.params, *op.back.attributes]
    total: Any = None
    for k, tangent in enumerate(tangents):
        if tangent is None or op.params[k] in op.body.logical:
            continue
        given["g"] = tangent if tangent.dtype is out.dtype else tangent.to(out.dtype)
        (term,) = op.back.on_tensors((k,), op.functions())(*[given[n] for n in names])
        if not record.is_tensor(term):
            term = out.new_full((), term)
        total = term if total is None else total + term
    if total is None:
        return None
    if total.dtype is not out.dtype:
        total = total.to(out.dtype)
    return total if total.shape == out.shape else total.expand(out.shape)
