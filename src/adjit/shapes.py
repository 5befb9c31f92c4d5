"""Shape arithmetic: sizes, strides, broadcasting and axes, with PyTorch's error texts."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NoReturn, TypeVar, cast

Shape = tuple[int, ...]

_F = TypeVar("_F", bound=Callable[..., Any])


def _size_at(place: int, value: Any) -> int:
    """One of the sizes that users make a shape of: whole numbers stay what they are, tensors become ints."""
    kind = type(value)
    if not hasattr(value, "requires_grad"):
        if isinstance(value, int) or is_int(value):
            return cast("int", value)
    elif not value.ndim and not (value.is_floating_point() or value.is_complex()):
        return operator.index(value)
    name = f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
    raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{name}')")


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints that prints as `adjit.Size([2, 3])`.

    Example:
        >>> adjit.zeros(2, 3).shape
        adjit.Size([2, 3])
        >>> tuple(adjit.Size([2, 3]))
        (2, 3)
    """

    __slots__ = ()

    def __new__(cls, sizes: Any = (), /) -> Size:
        made = tuple.__new__(cls, sizes)
        if all(size.__class__ is int for size in made):
            return made
        return sized([_size_at(place, size) for place, size in enumerate(made)])

    def numel(self) -> int:
        """Multiply the sizes: the number of elements.

        Example:
            >>> adjit.Size([2, 3]).numel()
            6
        """
        return math.prod(self)

    def __repr__(self) -> str:
        return f"adjit.Size({list(self)})"

    __str__ = __repr__

    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return sized(item) if isinstance(key, slice) else item

    def __add__(self, other: Any) -> Size:
        return sized(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return sized(other) + self

    def __mul__(self, count: Any) -> Size:
        return sized(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


# A shape of ints that are known to be such: 80 ns for 250.
sized: Callable[[Iterable[int]], Size] = functools.partial(tuple.__new__, Size)


def numel(shape: Iterable[int]) -> int:
    """The number of elements of a shape."""
    return math.prod(shape)


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Strides of C order; sizes of 0 count as 1, as in PyTorch."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie in C order without gaps; axes of size 1 do not count, and no elements always do."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their range exactly, in any order of axes."""
    expected = 1
    for stride, size in sorted((st, n) for n, st in zip(shape, strides, strict=True) if n != 1):
        if size == 0:
            return True
        if stride != expected:
            return False
        expected *= size
    return True


def same_strides(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether strides lead to the same places: those of axes with a single place do not count."""
    steps = zip(shape, strides, others, strict=True)
    return 0 in shape or all(n == 1 or a == b for n, a, b in steps)


def has_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements lie, or may lie, in one place."""
    reach = 0  # of the axes so far
    for stride, n in sorted(zip(strides, shape, strict=True)):
        if n > 1 and stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def dense_in_order(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> Shape:
    """Strides without gaps that keep the order of the axes of operands, seen in one shape: of two axes the
    first operand that repeats along neither decides. Otherwise it is C order, as in PyTorch."""
    order = list(reversed(range(len(shape))))
    for k in range(1, len(order)):
        at = k
        for before in range(k - 1, -1, -1):
            wrong = _is_wrong(shape, operands, order[before], order[at])
            if wrong:
                order[before], order[at] = order[at], order[before]
                at = before
            elif wrong is not None:
                break
    made, step = [0] * len(order), 1
    for d in order:
        made[d] = step
        step *= max(shape[d], 1)
    return tuple(made)


def _is_wrong(
    shape: Sequence[int], operands: Sequence[Sequence[int]], inner: int, outer: int
) -> bool | None:
    """Whether of two axes the inner one has the larger steps; None where no operand tells."""
    for strides in operands:
        if strides[inner] and strides[outer]:
            if strides[inner] != strides[outer]:
                return strides[inner] > strides[outer]
            if shape[inner] > shape[outer]:
                return True
    return None


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to one past the last that a view reaches."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * st for n, st in zip(shape, strides, strict=True))


def broadcast_shapes(*shapes: Any) -> Size:
    """Find the common shape of operands; a number is the shape of a vector.

    Raises:
        RuntimeError: where two sizes differ and neither is 1.

    Example:
        >>> adjit.broadcast_shapes((2, 1), (3,))
        adjit.Size([2, 3])
    """
    if int in map(type, shapes):
        shapes = tuple([(s,) if isinstance(s, int) else s for s in shapes])
    if len(shapes) == 2 and tuple(shapes[0]) == tuple(shapes[1]):
        return sized(shapes[0])
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        lead = ndim - len(shape)
        for d in range(ndim - 1, lead - 1, -1):  # from the last axis on, as PyTorch reports
            size = shape[d - lead]
            if size != 1 and size != result[d]:
                if result[d] != 1:
                    raise RuntimeError(
                        f"The size of tensor a ({result[d]}) must match the size of tensor b "
                        f"({size}) at non-singleton dimension {d}"
                    )
                result[d] = size
    return sized(result)


def check_fits(shape: Sequence[int], given: Sequence[int]) -> None:
    """Raise if what broadcasts with an output would be larger than that."""
    whole = broadcast_shapes(shape, given)
    if whole != tuple(shape):
        refuse_written(shape, whole)


def refuse_written(shape: Sequence[int], given: Sequence[int]) -> NoReturn:
    """Raise, for an output of a shape is given values of another one."""
    raise RuntimeError(
        f"output with shape {list(shape)} doesn't match the broadcast shape {list(given)}"
    )


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a shape expands to another."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in pairs)


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Shape:
    """Strides of an operand seen in the broadcast shape `target`: 0 where it is repeated."""
    pad = len(target) - len(shape)
    seen = [st if n == t else 0 for n, st, t in zip(shape, strides, target[pad:], strict=True)]
    return (0,) * pad + tuple(seen)


def coalesce(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[Shape, list[Shape]]:
    """Merge neighbouring axes that every operand walks through in one stride."""
    sizes: list[int] = []
    steps: list[Shape] = []  # along each axis, one for each operand
    for size, along in zip(
        shape, zip(*operands, strict=True) if operands else repeat(()), strict=False
    ):
        if size == 1:
            continue
        if sizes and steps[-1] == tuple([step * size for step in along]):
            sizes[-1] *= size
            steps[-1] = along
        else:
            sizes.append(size)
            steps.append(along)
    return tuple(sizes), [*zip(*steps, strict=True)] if sizes else [()] * len(operands)


NO_DIM = "dim must be an int"  # which a public function's error names in PyTorch's way


def wrap_dim(dim: int, ndim: int) -> int:
    """A non-negative axis.

    Raises:
        IndexError: with PyTorch's text, if there is no such axis (a 0-d tensor has axis 0 and -1).
        TypeError: if `dim` is no integer; a bool is none, as where `keepdim` was meant.
    """
    if dim.__class__ is not int:
        if not is_int(dim):
            raise TypeError(f"{NO_DIM}, not {type(dim).__name__}")
        dim = operator.index(dim)
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def wrap_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Non-negative axes, each at most once; None and () mean all."""
    if dims is None:
        return tuple(range(ndim))
    if is_int(dims) or not hasattr(dims, "__iter__"):
        return (wrap_dim(dims, ndim),)
    wrapped = tuple(wrap_dim(d, ndim) for d in dims)
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return wrapped or tuple(range(ndim))


def shape_of(args: Any) -> Size:
    """The shape in `f(2, 3)`, `f((2, 3))` and `f(size)`.

    Raises:
        TypeError: if a size is no integer.
    """
    if len(args) == 1 and args[0].__class__ is not int and hasattr(args[0], "__iter__"):
        args = args[0] if getattr(args[0], "ndim", 1) else args  # a number may be a tensor
    if args.__class__ is Size:
        return args
    return sized([a if a.__class__ is int else _size(a, args) for a in args])


def _size(value: Any, among: Any) -> int:
    """One of some sizes, which is no int itself."""
    if not is_int(value):
        kinds = ", ".join(type(a).__name__ for a in among)
        raise TypeError(f"expected sizes as ints or one sequence of ints, got ({kinds})")
    return operator.index(value)


def listed(*names: str, after: int | None = None) -> Callable[[_F], _F]:
    """Let a function of numbers, `f(2, 3)` or `f((2, 3))`, take them by name too: `f(size=(2, 3))`.

    They must be given if it is said after how many arguments they come.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            if "input" in kwargs:
                args = (kwargs.pop("input"), *args)
            for name in names:
                if name in kwargs:
                    args = (*args, kwargs.pop(name))
            if after is not None and len(args) <= after:
                raise TypeError(
                    f'{function.__name__}() missing 1 required positional arguments: "{names[0]}"'
                )
            return function(*args, **kwargs)

        return named

    return decorate


# What PyTorch lets a parameter be called too, as NumPy calls it.
NUMPY_NAMES = {
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


def called_too(**others: str) -> Callable[[_F], _F]:
    """Let parameters that a function has be given by other names, each with the one that it has here."""

    def decorate(function: _F) -> _F:
        code = inspect.unwrap(function).__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names = {n: to for n, to in others.items() if to in own and n not in own}
        own_name = function.__name__

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if options:
                renamed = {names.get(name, name): value for name, value in options.items()}
                if len(renamed) < len(options):
                    extra = next(name for name in options if name in names)
                    raise TypeError(f"{own_name}() got an unexpected keyword argument '{extra}'")
                options = renamed
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def numpy_names(function: _F) -> _F:
    """Accept NumPy's names of parameters, as PyTorch does."""
    return called_too(**NUMPY_NAMES)(function)


def one_list(name: str) -> Callable[[_F], _F]:
    """Let a function of a tensor and numbers, which the method takes one by one too, take them in one list."""

    def decorate(function: Any) -> Any:
        own = function.__name__

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(args) > 2:
                raise TypeError(f"{own}() takes 2 positional arguments but {len(args)} were given")
            given = args[1] if len(args) == 2 else kwargs.get(name, ())
            if not isinstance(given, (tuple, list)):
                place = " (position 2)" if len(args) == 2 else ""
                raise TypeError(
                    f"{own}(): argument '{name}'{place} must be tuple of ints, not "
                    f"{type(given).__name__}"
                )
            return function(*args, **kwargs)

        return called

    return decorate


def an_int(function: str, name: str, position: int, value: Any) -> int:
    """An argument as an int; of what is no whole number, something would be cut off.

    Raises:
        TypeError: with PyTorch's text.
    """
    if not is_int(value):
        raise TypeError(
            f"{function}(): argument '{name}' (position {position}) must be int, not "
            f"{type(value).__name__}"
        )
    return as_int(value)


def check_bool(function: str, name: str, value: Any) -> None:
    """Raise PyTorch's error if an argument is no bool: a number may be a dimension that went astray."""
    if value is not True and value is not False:
        raise TypeError(f"{function}(): argument '{name}' must be bool, not {type(value).__name__}")


def as_int(value: Any) -> int:
    """A whole number of any class as an int."""
    return value if value.__class__ is int else operator.index(value)


def is_int(value: Any) -> bool:
    """Whether an argument is one whole number; NumPy's and 0-d tensors are, bools are not."""
    return value.__class__ is int or (
        hasattr(value, "__index__")
        and value.__class__ is not bool
        and not getattr(value, "ndim", 0)
    )


def some_ints(value: Any) -> list[int]:
    """The numbers of an argument that is one or several."""
    if is_int(value):
        return [as_int(value)]
    return [as_int(v) for v in value]


def for_each(value: Any, count: int) -> Shape:
    """A setting as one number for each axis: one for all of `count`, or those that are given."""
    return (operator.index(value),) * count if is_int(value) else tuple(map(operator.index, value))


def checked_shape(args: Any) -> Size:
    """A shape for new memory.

    Raises:
        RuntimeError: if a size is negative.
    """
    shape = shape_of(args)
    for size in shape:
        if size < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {size}: {list(shape)}"
            )
    if math.prod(shape) >= 1 << 60:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return shape


def view_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides that show the same elements as `target`, or None where only a copy can."""
    if math.prod(shape) == 0:
        return contiguous_strides(target)
    sizes, (merged,) = coalesce(shape, [strides])
    result = [0] * len(target)
    d = len(target) - 1
    for size, stride in zip(reversed(sizes), reversed(merged), strict=True):
        filled = 1
        while d >= 0 and (filled < size or target[d] == 1):
            result[d] = stride * filled
            filled *= target[d]
            d -= 1
        if filled != size:
            return None
    while d >= 0:
        result[d] = (result[d + 1] * target[d + 1]) if d + 1 < len(target) else 1
        d -= 1
    return tuple(result)


def infer_view_shape(requested: Any, count: int) -> Size:
    """`requested` with its one -1 replaced.

    Raises:
        RuntimeError: with PyTorch's text, if the sizes cannot hold `count` elements.
    """
    shape = list(shape_of(requested))
    unknown = [d for d, size in enumerate(shape) if size == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if any(size < -1 for size in shape):
        raise RuntimeError(f"invalid shape dimension {min(shape)}")
    known = math.prod(size for size in shape if size != -1)
    if unknown:
        if known == 0 and count == 0:
            raise RuntimeError(
                f"cannot reshape tensor of {count} elements into shape {shape} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        if known and count % known == 0:
            shape[unknown[0]] = count // known
            known = count
    if known != count:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    return sized(shape)
