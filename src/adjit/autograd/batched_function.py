"""Functions of the user's inside of `vmap`: by their own rule, or by one that is made of forward and
backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.record import is_tensor
from ..graph.state import below
from ..tracers.batched import BatchLevel

MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
NO_SETUP = (
    "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
    f"override the setup_context staticmethod. {MORE}"
)


class VmapInfo(NamedTuple):
    """What a rule of the user's is told of the examples."""

    batch_size: int
    randomness: str


def apply_to_examples(
    base: Any, cls: Any, level: BatchLevel, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """`cls.apply` of tensors of which some are examples; `base` is the class that all such functions have.

    Raises:
        RuntimeError: if the function has no rule, with PyTorch's texts.
    """
    if cls.setup_context is base.setup_context:
        raise RuntimeError(NO_SETUP)
    has_rule = cls.vmap is not base.vmap
    if has_rule and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden "
            "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod "
            f"to avoid ambiguity. {MORE}"
        )
    if not (has_rule or cls.generate_vmap_rule):
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and "
            f"implement the vmap staticmethod or set generate_vmap_rule=True. {MORE}"
        )
    in_dims = _parts(lambda a: 0 if level.has(a) else None, tuple(args))
    given = _parts(lambda a: a._value if level.has(a) else a, tuple(args))
    with below(level):
        if not has_rule:
            made = _generated(base, cls, level, in_dims).apply(*given, **kwargs)
            return _each(level.wrapped, made)
        info = VmapInfo(level.size, level.randomness)
        found = cls.vmap(info, in_dims, *given, **kwargs)
    return _by_rule(cls, level, found)


def _parts(change: Callable[[Any], Any], value: Any) -> Any:
    """`change` of all that is in tuples and lists."""
    if value.__class__ is tuple or value.__class__ is list:
        return value.__class__([_parts(change, part) for part in value])
    return change(value)


def _each(change: Callable[[Any], Any], made: Any) -> Any:
    if isinstance(made, tuple):
        return tuple([change(t) if is_tensor(t) else t for t in made])
    return change(made) if is_tensor(made) else made


def _by_rule(cls: Any, level: BatchLevel, found: Any) -> Any:
    """What a rule of the user's gave, as examples."""
    expected = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with "
        "pytree structure compatible with the output. "
    )
    if not isinstance(found, tuple):
        raise RuntimeError(f"{expected}Got a {type(found)} instead")
    if len(found) != 2:
        raise RuntimeError(f"{expected}Got {len(found)} returns instead")
    output, dims = found

    def one(t: Any, dim: int | None) -> Any:
        return t if dim is None else level.wrapped(t.movedim(dim, 0))

    several = output if isinstance(output, tuple) else (output,)
    is_listed = isinstance(dims, tuple) and isinstance(output, tuple)
    each = dims if is_listed else (dims,) * len(several)
    if len(each) != len(several) or any(isinstance(dim, (tuple, list)) for dim in each):
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. "
            f"Expected out_dims={dims} to be compatible with the structure of `output`. {MORE}"
        )
    made = tuple([one(t, dim) for t, dim in zip(several, each, strict=True)])
    return made if isinstance(output, tuple) else made[0]


class _Context:
    """What the user's function sees of the context of all examples: tensors of one example."""

    def __init__(self, ctx: Any, level: BatchLevel) -> None:
        self.__dict__.update(ctx=ctx, level=level)

    def save_for_backward(self, *tensors: Any) -> None:
        """Save them for all examples."""
        ctx, level = self.ctx, self.level
        ctx.are_examples = [level.has(t) for t in tensors]
        ctx.save_for_backward(*[t._value if level.has(t) else t for t in tensors])

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved."""
        pairs = zip(self.ctx.saved_tensors, self.ctx.are_examples, strict=True)
        return tuple([self.level.wrapped(t) if there else t for t, there in pairs])

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say it of all examples."""
        self.ctx.mark_non_differentiable(*[t._value if self.level.has(t) else t for t in tensors])

    def __setattr__(self, name: str, value: Any) -> None:
        held = _OfExamples(value._value) if self.level.has(value) else value
        setattr(self.ctx, name, held)

    def __getattr__(self, name: str) -> Any:
        held = getattr(self.ctx, name)
        return self.level.wrapped(held.value) if isinstance(held, _OfExamples) else held


class _OfExamples(NamedTuple):
    """A tensor with all examples that the user's function has put onto its context."""

    value: Any


def _generated(base: Any, cls: Any, level: BatchLevel, in_dims: tuple[Any, ...]) -> Any:
    """The function of all examples; each of its parts runs the user's at a level of its own."""
    size, randomness = level.size, level.randomness

    def forward(*args: Any) -> Any:
        inner = BatchLevel(size, randomness)
        with inner.active():
            return _each(inner.full, cls.forward(*_given(inner, args)))

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        inner = BatchLevel(size, randomness)
        shown = _each(inner.wrapped, output)
        ctx.are_examples = []
        cls.setup_context(_Context(ctx, inner), tuple(_given(inner, inputs)), shown)

    def backward(ctx: Any, *grads: Any) -> Any:
        inner = BatchLevel(size, randomness)
        with inner.active():
            given = [None if g is None else inner.wrapped(g) for g in grads]
            found = cls.backward(_Context(ctx, inner), *given)
            return _each(inner.full, tuple(found) if isinstance(found, list) else found)

    def _given(inner: BatchLevel, args: Any, dims: Any = in_dims) -> Any:
        if dims.__class__ is tuple or dims.__class__ is list:
            return [_given(inner, a, dim) for a, dim in zip(args, dims, strict=True)]
        return args if dims is None else inner.wrapped(args)

    parts = {"forward": forward, "setup_context": setup_context, "backward": backward}
    return type(f"Vmapped{cls.__name__}", (base,), {k: staticmethod(f) for k, f in parts.items()})
