"""`vmap`'s tensors: one example of many, which lie along the first axis of another tensor."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from .. import dtypes
from ..graph import inplace
from ..graph.fastpath import elementwise_recorder
from ..graph.levels import Level, is_traced, level_of, tracers
from ..graph.node import Spec, spec_of
from ..graph.operation import active_levels, forget_draws
from ..graph.record import is_tensor
from ..graph.state import state
from ..graph.view import ViewPullback, alias, aliases
from ..ops.reduce import sum_to
from ..shapes import refuse_written
from .tracer import Tracer, tracer

ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a "
    "Tensor, please try to rewrite what you're doing with other operations. If error is occurring somewhere "
    "inside PyTorch internals, please file a bug report."
)
CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
    "support that yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)
RANDOM = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)
SAME = (
    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with "
    "functorch"
)
SMALLER = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in "
    "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but "
    "`self` not being vmapped over in a vmap. Please try to use out-of-place operators instead of inplace "
    "arithmetic. If said operator is being called inside the PyTorch framework, please file a bug report "
    "instead."
)


class Batched(Tracer):
    """One example of those along the first axis of `value`."""

    __slots__ = ()

    def _refuse(self) -> NoReturn:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def _values(self) -> NoReturn:
        self._refuse()

    def _share(self) -> NoReturn:
        self._refuse()

    def _number(self) -> NoReturn:
        raise RuntimeError(ITEM)

    def __bool__(self) -> NoReturn:
        raise RuntimeError(CONTROL_FLOW)

    def __index__(self) -> NoReturn:
        raise RuntimeError(ITEM)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shown = repr(self._value).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={self._level.depth}, bdim=0, value=\n    {shown}\n)"


def is_batchedtensor(t: Any) -> bool:
    """Whether a tensor is one example of many; PyTorch's name, as the next."""
    return isinstance(t, Batched)


is_legacy_batchedtensor = is_batchedtensor  # those of `is_grads_batched`, which are no others here


def get_unwrapped(t: Any) -> Any:
    """What a tensor stands for: all examples.

    Raises:
        RuntimeError: if it is not one example of many.
    """
    if not isinstance(t, Batched):
        raise RuntimeError("No wrappers present!")
    return t._value


@functools.lru_cache(4096)
def spec_of_one(spec: Spec) -> Spec:
    """The spec of one example."""
    return spec_of(spec.shape[1:], spec.strides[1:], spec.dtype, spec.device)


class BatchLevel(Level):
    """Many examples at once."""

    tracer_class = Batched

    def __init__(self, size: int, randomness: str = "error") -> None:
        super().__init__()
        self.size, self.randomness = size, randomness
        self.depth = 1 + len(state.levels)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """A block in which random numbers are those of examples, and gradients are of each one's inputs."""
        before = state.levels
        active_levels.append(None)
        forget_draws()
        state.levels = (*before, self)
        try:
            yield
        finally:
            state.levels = before
            active_levels.pop()

    def draw(self, of: Callable[[tuple[int, ...]], Any]) -> Any:
        """Random numbers, by a function of the axes that are to be in front.

        Raises:
            RuntimeError: if there shall be none.
        """
        if self.randomness == "error":
            raise RuntimeError(RANDOM)
        before = state.levels
        state.levels = before[: before.index(self)]
        try:
            return of(()) if self.randomness == "same" else self.wrapped(of((self.size,)))
        finally:
            state.levels = before

    # ----- from examples to tensors with all of them, and back -----

    def has(self, t: Any) -> bool:
        """Whether examples differ in a tensor."""
        return t.__class__ is Batched and t._level is self

    def wrapped(self, t: Any) -> Any:
        """One example of a tensor with all of them along its first axis."""
        return tracer(Batched, self, t, spec_of_one(t._spec))

    def full(self, t: Any) -> Any:
        """The tensor with all examples in front: one that they share expanded."""
        if t is None:
            return None
        return t._value if self.has(t) else t.expand(self.size, *t.shape)

    def stripped(self, t: Any) -> Any:
        """`full` of a tensor that levels entered later may have wrapped, which keep their examples apart."""
        if t.__class__ in tracers and t._level.number > self.number:
            return t._level.adding_axis(t, self.stripped)
        return self.full(t)

    def dressed(self, t: Any) -> Any:
        """`wrapped` of a tensor that levels entered later may have wrapped: the inverse of `stripped`."""
        if t.__class__ in tracers and t._level.number > self.number:
            return t._level.removing_axis(t, self.dressed)
        return self.wrapped(t)

    def adding_axis(self, t: Any, change: Callable[[Any], Any]) -> Any:
        """A tracer whose tensor a function gave one more axis in front."""
        return self.wrapped(change(t._value).movedim(1, 0))

    def removing_axis(self, t: Any, change: Callable[[Any], Any]) -> Any:
        """A tracer of whose tensor a function takes away the first axis."""
        return self.wrapped(change(t._value.movedim(1, 0)))

    # ----- gradients -----

    def gradients(self, roots: Any, grads: Any, targets: Any, below: Any) -> list[Any]:
        """The gradients of all examples in one pass: no example depends on another."""
        if not all(map(self.has, targets)):
            raise RuntimeError(
                "a gradient inside of vmap is one example's: take it of tensors that examples do not share, "
                "or with adjit.func.grad"
            )
        found = below(
            [self.full(root) for root in roots], [self.stripped(g) for g in grads],
            [t._value for t in targets],
        )  # fmt: skip
        return [None if g is None else self.dressed(g) for g in found]

    # ----- primitives -----

    def elementwise(self, op: Any, operands: Any, attributes: Any) -> Any:
        """Apply an elementwise op to all examples: axes are aligned behind theirs."""
        tensors = [t for t in operands if is_tensor(t)]
        rank = max([t._spec.ndim for t in tensors])
        given = [self._aligned(t, rank) if self.has(t) else t for t in operands]
        kind = tensors[0]._spec.dtype
        if all(t._spec.dtype is kind for t in tensors):
            return self.wrapped(elementwise_recorder()(op, tuple(given), attributes, False))
        wanted = self._compute_dtype(op, operands)
        if wanted is not self._compute_dtype(op, given) and wanted is not None:
            given = [t.to(wanted) if is_tensor(t) else t for t in given]
        return self.wrapped(elementwise_recorder()(op, tuple(given), attributes, False))

    @staticmethod
    def _compute_dtype(op: Any, operands: Sequence[Any]) -> dtypes.dtype | None:
        """What operands are promoted to, which counts axes; None for truth values alone."""
        kinds = [
            (t.dtype, t.ndim) if is_tensor(t) else (dtypes.of_scalar(t), -1)
            for name, t in zip(op.params, operands, strict=True)
            if name not in op.body.logical
        ]
        return dtypes.result_of(kinds) if kinds else None

    def _aligned(self, t: Any, rank: int) -> Any:
        """All examples, each with so many axes, those of size 1 first."""
        value = t._value
        missing = rank - t._spec.ndim
        return value.reshape(self.size, *[1] * missing, *t.shape) if missing else value

    def operation(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Apply an operation by its batching rule."""
        if op.rules.draws and self in state.levels:
            return self._drawn(op, op.bind(args, kwargs))
        if op.rules.batching is None:
            raise RuntimeError(
                f"Batching rule not implemented for aten::{op.name}. We could not generate a fallback."
            )
        return op.rules.batching(self, op.bind(args, kwargs))

    def _drawn(self, op: Any, given: dict[str, Any]) -> Any:
        """What an operation draws."""
        first, *more = [name for name, t in given.items() if is_tensor(t)]
        read = (
            [first, *more] if op.rules.draws == "values" else more
        )  # of the first else the shape alone

        def of(lead: tuple[int, ...]) -> Any:
            if lead:
                return op.with_bound(
                    {k: self.full(t) if is_tensor(t) else t for k, t in given.items()}
                )
            if any(self.has(given[name]) for name in read):
                raise RuntimeError(SAME)
            one = given[first]
            return op.with_bound({**given, first: one._value[0] if self.has(one) else one})

        return self.draw(of)

    def view(
        self, t: Any, shape: Any, strides: Any, offset: int, backward_name: str, vjp: Any
    ) -> Any:
        """View all examples: where one lies is where each does."""
        spec = t._value._spec
        whole = (self.size, *shape)
        every = (spec.strides[0], *strides)
        made = alias(t._value, whole, every, offset, backward_name, self._of_all(vjp, t.shape))
        return self.wrapped(made)

    def views(self, t: Any, parts: Any, backward_name: str, vjp: Any) -> Any:
        """View all examples, several times."""
        spec = t._value._spec
        made = [
            (
                spec_of((self.size, *p.shape), (spec.strides[0], *p.strides), p.dtype, p.device),
                start,
            )
            for p, start in parts
        ]
        views = aliases(t._value, made, backward_name, self._of_all(vjp, t.shape))
        return tuple([self.wrapped(view) for view in views])

    def _of_all(self, vjp: Callable[[Any], Any], shape: Any) -> Callable[[Any], Any]:
        """The pullback of all examples, by that of one, whose view was of a tensor of that shape."""
        size = self.size
        if isinstance(vjp, ViewPullback):
            return vjp.of_all(size)

        def pullback(g: Any) -> Any:
            level = BatchLevel(size)  # entered after all that `g` may be of
            given = (
                [None if part is None else level.wrapped(part) for part in g]
                if isinstance(g, list)
                else level.wrapped(g)
            )
            return level.full(sum_to(vjp(given), shape))

        return pullback

    def write(self, t: Any, made: Any, overlap: bool) -> None:
        """Write into all examples."""
        if not self.has(t):
            raise RuntimeError(SMALLER)
        if made.shape != t.shape:
            refuse_written(t.shape, made.shape)
        # One memory for all examples can take what all of them share.
        inplace.adopt(t._value, self.full(made), overlap=overlap and not self.has(made))

    def factory(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A new tensor with a part for each example, and what levels around have of each."""
        made = function(*args, **kwargs)
        if made.__class__ is tuple:
            return tuple([self._apart(part, args) for part in made])
        return self._apart(made, args)

    def _apart(self, made: Any, args: Any) -> Any:
        """What was made, with memory for each example, also of levels around unless computed of theirs."""
        around = level_of([a._value if self.has(a) else a for a in args])
        if around is not None and not is_traced((made,)):
            made = around.factory(lambda: made, (), {})
        return self.wrapped(self.full(made).contiguous())
