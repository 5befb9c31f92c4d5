"""Contractions of any axes, all of them reduced to products of matrices."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from .. import errors
from ..graph import record, wrong_types
from ..graph.composed import composed
from ..graph.export import export
from ..graph.view import as_own
from ..shapes import Shape, numel, some_ints, wrap_dim
from ..tensor import Tensor
from ..unknown import cached
from .matmul import bmm, check_dtypes, mm


@export(method=True, out=True)
@composed
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axis of both arguments.

    Args:
        input: (..., n), or 0-d.
        other: (..., n), or 0-d.

    Returns:
        A tensor with the remaining axes of `input`, then those of `other`; the product if one
        argument is 0-d. Differentiable in both arguments.

    Raises:
        RuntimeError: if the last sizes differ.

    Example:
        >>> adjit.inner(adjit.tensor([1., 2.]), adjit.tensor([[1., 1.], [0., 2.]]))
        tensor([3., 4.])
    """
    record.check_tensor("inner", "other", 2, other)
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, dims=([-1], [-1]))


@export(out=True)
@composed
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sum of products over chosen axes of two tensors.

    Args:
        a, b: tensors of one dtype.
        dims: a number n, for the last n axes of `a` and the first n of `b`; or two lists of axes.
            The two of a pair are equally long, or one is 1 and broadcast.

    Returns:
        A tensor with the remaining axes of `a`, then those of `b`. Differentiable in both.

    Raises:
        RuntimeError: if the axes do not fit, or the dtypes differ.

    Example:
        >>> adjit.tensordot(adjit.ones(3, 4, 5), adjit.ones(4, 3, 2), dims=([1, 0], [0, 1])).shape
        adjit.Size([5, 2])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (list, tuple)):
        axes_a, axes_b = dims
        axes_a, axes_b = some_ints(axes_a), some_ints(axes_b)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        axes_a, axes_b = list(range(-dims, 0)), list(range(dims))
    if len(axes_a) != len(axes_b):
        raise RuntimeError("both dimension lists should have same length")
    if a.dtype is not b.dtype:
        raise RuntimeError("both inputs should have same dtype")
    for i, j in zip(axes_a, axes_b, strict=True):
        p, q = wrap_dim(i, a.ndim), wrap_dim(j, b.ndim)
        if a.shape[p] == b.shape[q]:
            continue
        if b.shape[q] == 1:
            a = a.sum(p, keepdim=True, dtype=a.dtype)
        elif a.shape[p] == 1:
            b = b.sum(q, keepdim=True, dtype=b.dtype)
        else:
            raise RuntimeError(
                "contracted dimensions need to match, but first has size "
                f"{a.shape[p]} in dim {i} and second has size {b.shape[q]} in dim {j}"
            )
    wrapped_a = [wrap_dim(d, a.ndim) for d in axes_a]
    wrapped_b = [wrap_dim(d, b.ndim) for d in axes_b]
    for wrapped in (wrapped_a, wrapped_b):
        for d in wrapped:
            if wrapped.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    subscripts = list(map(chr, range(a.ndim + b.ndim)))
    left, right = subscripts[: a.ndim], subscripts[a.ndim :]
    for p, q in zip(wrapped_a, wrapped_b, strict=True):
        right[q] = left[p]
    kept = [s for s in left if s not in right] + [s for s in right if s not in left]
    plan = plan_pair(tuple(left), tuple(right), tuple(kept), a._spec.shape, b._spec.shape)
    if plan is not None:
        return plan.product(a, b)
    return mm(a.reshape(-1, 1), b.reshape(1, -1)).view((*a._spec.shape, *b._spec.shape))


@export(method=True, out=True)
@composed
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product.

    Args:
        input, other: tensors; the one with fewer axes gets axes of size 1 in front.

    Returns:
        A tensor whose sizes are the products of the sizes. Differentiable in both.

    Example:
        >>> adjit.kron(adjit.eye(2), adjit.ones(1, 2))
        tensor([[1., 1., 0., 0.],
                [0., 0., 1., 1.]])
    """
    record.check_tensor("kron", "input", 1, input)
    record.check_tensor("kron", "other", 2, other)
    ndim = max(input.ndim, other.ndim)
    shape_a = (1,) * (ndim - input.ndim) + tuple(input.shape)
    shape_b = (1,) * (ndim - other.ndim) + tuple(other.shape)
    left = input.reshape([s for size in shape_a for s in (size, 1)])
    right = other.reshape([s for size in shape_b for s in (1, size)])
    return as_own((left * right).reshape([m * n for m, n in zip(shape_a, shape_b, strict=True)]))


@export(namespace="linalg", out=True)
@composed
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Product of two or more matrices in the cheapest order.

    Args:
        tensors: matrices; the first may be a row vector and the last a column vector.

    Returns:
        The product. Differentiable in all tensors.

    Raises:
        RuntimeError: if there are fewer than two tensors, or neighbours do not fit.

    Example:
        >>> adjit.linalg.multi_dot([adjit.ones(2, 3), adjit.ones(3, 4), adjit.ones(4)])
        tensor([12., 12.])
    """
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    matrices = list(tensors)
    row, column = matrices[0].ndim == 1, matrices[-1].ndim == 1
    for end, is_vector in ((0, row), (-1, column)):
        if matrices[end].ndim not in (1, 2):
            name = "the first tensor" if end == 0 else "the last tensor"
            raise RuntimeError(
                f"multi_dot(): {name} must be 1D or 2D but got {matrices[end].ndim}D"
            )
        if is_vector:
            matrices[end] = matrices[end].unsqueeze(end)
    for i, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {matrix.ndim}D")
    for i, (x, y) in enumerate(itertools.pairwise(matrices)):
        if x.shape[1] != y.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(x.shape)} and "
                f"{list(y.shape)} cannot be multiplied"
            )
    product = multiply_chain(matrices)
    if row:
        product = product.squeeze(0)
    return product.squeeze(-1) if column else product


def multiply_chain(matrices: Sequence[Tensor]) -> Tensor:
    """Product in the order that takes the fewest multiplications."""
    count = len(matrices)
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    cost = {(i, i): 0 for i in range(count)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], best[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return matrices[i]
        return mm(product(i, best[i, j]), product(best[i, j] + 1, j))

    return product(0, count - 1)


@export(out=True)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """Product of matrices in the cheapest order; `linalg.multi_dot` is the newer name.

    Raises:
        RuntimeError: if an argument is no matrix, or neighbours do not fit.

    Example:
        >>> adjit.chain_matmul(adjit.ones(2, 3), adjit.ones(3, 4), adjit.ones(4, 5)).shape
        adjit.Size([2, 5])
    """
    errors.warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
        "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than multiple "
        "parameters."
    )
    chain = list(matrices)
    if len(chain) == 1 and isinstance(chain[0], (list, tuple)):
        chain = list(chain[0])
    for matrix in chain:
        if matrix.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.ndim}, expected 2 instead.")
    if len(chain) == 1:
        return chain[0].clone()
    return multi_dot(chain)


# --------------------------------------------------------------------------- einsum

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ELLIPSIS = "..."


@export
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products of elements, in Einstein's notation.

    Args:
        equation: subscripts a-z and A-Z for each operand, separated by commas, with `...` for
            axes that broadcast; after `->` the subscripts of the result, by default those that
            occur once, in alphabetic order. Or, instead of an equation, each operand is followed
            by a list of numbers below 52 (and Ellipsis), with an optional list for the result.
        operands: tensors, or one list of tensors.

    Returns:
        The sums. Differentiable in all operands.

    Raises:
        RuntimeError: if the equation and the operands do not fit.
        ValueError: if there is no operand.

    Example:
        >>> adjit.einsum("ij,kj->ik", adjit.ones(2, 3), adjit.ones(4, 3)).shape
        adjit.Size([2, 4])
    """
    if isinstance(equation, Tensor):
        equation, operands = from_lists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        raise TypeError(
            f"einsum(): argument 'equation' (position 1) must be str, not {type(equation).__name__}"
        )
    if not operands:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least "
            "one operand and its subscripts list"
        )
    try:
        wrong_types.check_all(1, operands)
        return contract(*parse_equation(equation, tuple([x.ndim for x in operands])), operands)
    except Exception:
        if said := wrong_types.tell(einsum, "einsum", (equation, *operands), {}):
            return said[0]
        raise


def from_lists(args: Sequence[Any]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation that `einsum(x, [0, 1], y, [1, 2], [0, 2])` stands for."""

    def letters(subscripts: Sequence[Any]) -> str:
        text = ""
        for s in subscripts:
            if s is Ellipsis:
                text += ELLIPSIS
            elif 0 <= s < 52:
                text += LETTERS[s]
            else:
                raise ValueError(
                    "einsum(): subscript in subscript list is not within the valid range [0, 52)"
                )
        return text

    pairs = len(args) // 2
    equation = ",".join(letters(args[2 * i + 1]) for i in range(pairs))
    if len(args) % 2:
        equation += "->" + letters(args[-1])
    return equation, tuple(args[0 : 2 * pairs : 2])


Term = Sequence[str]
Terms = Sequence[Term]


@cached(1024)
def parse_equation(equation: str, ndims: Shape) -> tuple[Terms, Term, int]:
    """The subscripts of each operand and of the result, one per axis, and the ellipsis's length.

    The axes of the ellipsis are called `.0`, `.1` and so on, counted from the right.
    """
    left, arrow, right = equation.partition("->")
    terms: list[list[str]] = [[]]
    position = 0
    while position < len(left):
        letter = left[position]
        if letter == ",":
            terms.append([])
            if len(terms) > len(ndims):
                raise RuntimeError(
                    "einsum(): fewer operands were provided than specified in the equation"
                )
        elif letter == ".":
            number = len(terms) - 1
            if ELLIPSIS in terms[-1]:
                raise RuntimeError(
                    f"einsum(): found '.' for operand {number} for which an ellipsis was "
                    "already found"
                )
            if left[position : position + 3] != ELLIPSIS:
                raise RuntimeError(
                    f"einsum(): found '.' for operand {number} that is not part of any ellipsis"
                )
            terms[-1].append(ELLIPSIS)
            position += 2
        elif letter in LETTERS:
            terms[-1].append(letter)
        elif letter != " ":
            raise_bad_subscript(position)
        position += 1
    if len(terms) < len(ndims):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")

    extra = 0
    for number, (term, ndim) in enumerate(zip(terms, ndims, strict=True)):
        named = len(term) - (ELLIPSIS in term)
        if ELLIPSIS in term and named <= ndim:
            extra = max(extra, ndim - named)
        elif ELLIPSIS in term:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) is more than the "
                f"number of dimensions ({ndim}) for operand {number}"
            )
        elif named != ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({ndim}) for operand {number} and no ellipsis was given"
            )
    counts: dict[str, int] = {}
    for term in terms:
        for s in term:
            counts[s] = counts.get(s, 0) + 1
    if arrow:
        result = parse_result(right, len(left) + 2, counts)
    else:
        result = [ELLIPSIS] if extra or ELLIPSIS in counts else []
        result += sorted(s for s, n in counts.items() if n == 1 and s != ELLIPSIS)

    def spelled(term: list[str], covered: int) -> Term:
        dots = [f".{i}" for i in range(covered - 1, -1, -1)]
        return tuple([s for letter in term for s in (dots if letter == ELLIPSIS else [letter])])

    full = [spelled(term, ndim - len(term) + 1) for term, ndim in zip(terms, ndims, strict=True)]
    return tuple(full), spelled(result, extra), extra


def raise_bad_subscript(position: int) -> None:
    """Raise for a character that is no subscript."""
    raise RuntimeError(
        f"einsum(): invalid subscript given at index {position} in the equation string, "
        "subscripts must be in [a-zA-Z]"
    )


def parse_result(text: str, start: int, counts: dict[str, int]) -> list[str]:
    """The subscripts after the arrow."""
    result: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == ".":
            if ELLIPSIS in result:
                raise RuntimeError(
                    "einsum(): found '.' for output but an ellipsis (...) was already found"
                )
            if text[position : position + 3] != ELLIPSIS:
                raise RuntimeError(
                    "einsum(): found '.' for output that is not part of any ellipsis (...)"
                )
            result.append(ELLIPSIS)
            position += 2
        elif letter in LETTERS:
            if letter in result:
                raise RuntimeError(
                    f"einsum(): output subscript {letter} appears more than once in the output"
                )
            if letter not in counts:
                raise RuntimeError(
                    f"einsum(): output subscript {letter} does not appear in the equation for "
                    "any input operand"
                )
            result.append(letter)
        elif letter != " ":
            raise_bad_subscript(start + position)
        position += 1
    return result


def contract(terms: Terms, result: Term, extra: int, operands: Sequence[Tensor]) -> Tensor:
    """Contract the operands from left to right."""
    if len(operands) == 2:
        x, y = operands
        found = plan_single_product(terms, result, x._spec.shape, y._spec.shape)
        if found is not None:
            product = found[0].product(x, y)
            return product if found[1] is None else product.permute(found[1])
    elif len(operands) == 1:
        order = plan_of_one(terms[0], result)
        if order is not None:
            x = operands[0].permute(order)
            return x if len(result) == x.ndim else x.sum(dim=tuple(range(len(result), x.ndim)))
    sizes: dict[str, int] = {}
    for number, (term, x) in enumerate(zip(terms, operands, strict=True)):
        own: dict[str, int] = {}
        for s, size in zip(term, x._spec.shape, strict=True):
            if own.setdefault(s, size) != size:
                raise RuntimeError(
                    f"einsum(): subscript {s} is repeated for operand {number} but the sizes "
                    f"don't match, {size} != {own[s]}"
                )
            seen = sizes.get(s, 1)
            if size not in (1, seen) and seen != 1:
                if s[0] == ".":
                    raise RuntimeError(
                        f"einsum(): dimension {extra - 1 - int(s[1:])} covered by ellipsis in "
                        f"operand {number}has size {size} which does not broadcast with "
                        f"previously seen ellipsis with size {seen} for the respective dimension"
                    )
                raise RuntimeError(
                    f"einsum(): subscript {s} has size {size} for operand {number} which does "
                    f"not broadcast with previously seen size {seen}"
                )
            sizes[s] = size if seen == 1 else seen

    x, term = with_diagonals(operands[0], list(terms[0]))
    for number in range(1, len(operands)):
        y, other = with_diagonals(operands[number], list(terms[number]))
        needed = dict.fromkeys([*result, *(s for later in terms[number + 1 :] for s in later)])
        x, term = contract_pair(x, term, y, other, needed)
    x, term = without(x, term, result)
    x = in_order(x, term, [s for s in result if s in term])
    if x is operands[0]:
        x = x.permute(*range(x.ndim))  # a tensor of its own
    for d, s in enumerate(result):
        if s not in term:  # an axis of the ellipsis that no operand has
            x = x.unsqueeze(d)
    return x


def with_diagonals(x: Tensor, term: list[str]) -> tuple[Tensor, list[str]]:
    """`x` with the axes of a repeated subscript replaced by their diagonal."""
    for s in dict.fromkeys(term):
        while term.count(s) > 1:
            first = term.index(s)
            second = term.index(s, first + 1)
            x = x.diagonal(0, first, second)
            term = [t for d, t in enumerate(term) if d not in (first, second)] + [s]
    return x, term


def contract_pair(
    x: Tensor, left: list[str], y: Tensor, right: list[str], needed: Collection[str]
) -> tuple[Tensor, list[str]]:
    """The product of two operands, summed over the subscripts that nobody needs any more; its axes in the order
    in which the others are needed, as PyTorch has them."""
    x, left = without_single(x, left, y, right, needed)
    y, right = without_single(y, right, x, left, needed)
    axes = len(left) + len(right)
    x, left = without(x, left, [*needed, *(s for s in right if s not in needed)])
    y, right = without(y, right, [*needed, *(s for s in left if s not in needed)])
    are_whole = len(left) + len(right) == axes
    kept = tuple([s for s in needed if s in left or s in right])
    plan = plan_pair(tuple(left), tuple(right), kept, x._spec.shape, y._spec.shape, are_whole)
    if plan is not None:
        return plan.product(x, y), list(plan.order)
    return aligned(x, left, kept) * aligned(y, right, kept), list(kept)


class Pair(NamedTuple):
    """Two operands as matrices, or batches of them, and what their product stands for."""

    left: Form
    right: Form
    is_batched: bool
    shape: Shape | None
    order: Term
    are_dots: bool  # of rows, where a matrix would be a row or a column
    is_swapped: bool = False

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of two operands."""
        if self.is_swapped:
            x, y = y, x
        a, b = self.left.of(x), self.right.of(y)
        if self.are_dots:
            product = dots(a, b)
        elif self.is_batched:
            product = bmm(a, b)
        else:
            product = mm(a, b)
        return product if self.shape is None else product.reshape(self.shape)


def dots(a: Tensor, b: Tensor) -> Tensor:
    """The dot product of each row of a matrix and that of another, in the dtype of both, as of products."""
    check_dtypes(a, b)
    return (a * b).sum(1, dtype=a.dtype)


class Outer(NamedTuple):
    """Two operands as tensors whose axes stand beside each other's, where nothing is summed."""

    left: Form
    right: Form

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of two operands."""
        return self.left.of(x) * self.right.of(y)


class Form(NamedTuple):
    """How axes are ordered, expanded and joined; None for what stays as it is."""

    axes: Shape | None
    full: Shape | None
    shape: Shape | None

    def of(self, x: Tensor) -> Tensor:
        """A tensor in this form."""
        if self.axes is not None:
            x = x.permute(self.axes)
        if self.full is not None:
            x = x.expand(self.full)
        return x if self.shape is None else x.reshape(self.shape)


@cached(1024)
def plan_pair(
    left: Term, right: Term, kept: Term, x_shape: Shape, y_shape: Shape, are_whole: bool = True
) -> Pair | None:
    """How two operands are multiplied and summed over the subscripts that are not kept; None if there is
    none of these.

    Axes are in the order of those that are kept, and the operands exchanged if that has all of the right one
    before those of the left one, and no axis was summed before: PyTorch's results lie so.
    """
    summed = [s for s in left if s in right and s not in kept]
    if not summed:
        return None
    shared = [s for s in kept if s in left and s in right]
    only_left = [s for s in kept if s in left and s not in right]
    only_right = [s for s in kept if s in right and s not in left]
    is_turned = only_left and only_right and kept.index(only_right[-1]) < kept.index(only_left[0])
    if is_turned and are_whole:
        exchanged = plan_pair(right, left, kept, y_shape, x_shape)
        return exchanged and exchanged._replace(is_swapped=True)
    size = dict(zip(left, x_shape, strict=True))
    for s, n in zip(right, y_shape, strict=True):
        size[s] = n if size.get(s, 1) == 1 else size[s]
    groups = [shared] if shared else []

    def form(term: Term, shape: Shape, *groups: list[str]) -> Form:
        axes = [term.index(s) for group in groups for s in group]
        now = tuple([shape[axis] for axis in axes])
        full = tuple([size[s] for group in groups for s in group])
        joined = tuple([numel([size[s] for s in group]) for group in groups])
        return Form(
            None if axes == list(range(len(axes))) else tuple(axes),
            None if full == now else full,
            None if joined == full else joined,
        )

    order = (*shared, *only_left, *only_right)
    shape = tuple([size[s] for s in order])
    if shared and not only_left and not only_right:
        rows = form(left, x_shape, shared, summed), form(right, y_shape, shared, summed)
        return Pair(*rows, True, None if len(shared) == 1 else shape, order, are_dots=True)
    is_whole = len(shared) <= 1 and len(only_left) == len(only_right) == 1
    return Pair(
        form(left, x_shape, *groups, only_left, summed),
        form(right, y_shape, *groups, summed, only_right),
        bool(shared), None if is_whole else shape, order, are_dots=False,
    )  # fmt: skip


@cached(1024)
def plan_single_product(
    terms: Terms, result: Term, x_shape: Shape, y_shape: Shape
) -> tuple[Pair | Outer, Shape | None] | None:
    """The product that an equation stands for, and the order of its axes; None if there is more to do, or
    to complain about.
    """
    left, right = terms
    size = dict(zip(left, x_shape, strict=True))
    fits = all(size.get(s, n) == n for s, n in zip(right, y_shape, strict=True))
    if not fits or len(set(left)) < len(left) or len(set(right)) < len(right):
        return None
    if not {*left, *right} - ({*left} & {*right}) <= {*result}:
        return None  # something is summed before
    if {*left, *right} == {*result}:
        return Outer(spread_form(left, x_shape, result), spread_form(right, y_shape, result)), None
    plan = plan_pair(left, right, result, x_shape, y_shape)
    if plan is None or set(plan.order) != set(result):
        return None
    axes = tuple([plan.order.index(s) for s in result])
    return plan, None if axes == tuple(range(len(axes))) else axes


def spread_form(term: Term, shape: Shape, order: Term) -> Form:
    """A tensor with its axes in order, of size 1 where it has none."""
    axes = tuple([term.index(s) for s in order if s in term])
    spread = tuple([shape[term.index(s)] if s in term else 1 for s in order])
    return Form(
        None if axes == tuple(range(len(axes))) else axes,
        None,
        None if len(axes) == len(order) else spread,
    )


@cached(1024)
def plan_of_one(term: Term, result: Term) -> Shape | None:
    """The axes of one operand in the order of the result, then those that are summed; None if it has a
    diagonal, or the result an axis that it has not."""
    if len(set(term)) < len(term) or not {*result} <= {*term}:
        return None
    return tuple([term.index(s) for s in (*result, *(s for s in term if s not in result))])


def in_order(x: Tensor, term: Sequence[str], order: Sequence[str]) -> Tensor:
    """`x` with its axes in another order."""
    axes = [term.index(s) for s in order]
    return x if axes == list(range(len(axes))) else x.permute(axes)


def without(x: Tensor, term: list[str], order: Sequence[str]) -> tuple[Tensor, list[str]]:
    """`x` summed over the axes whose subscripts are not in an order, the others in that."""
    dropped = [s for s in term if s not in order]
    if not dropped:
        return x, term
    kept = [s for s in order if s in term]
    x = in_order(x, term, [*kept, *dropped])
    return x.sum(dim=tuple(range(len(kept), x.ndim))), kept


def without_single(
    x: Tensor, term: list[str], y: Tensor, other: list[str], needed: Collection[str]
) -> tuple[Tensor, list[str]]:
    """`x` without axes of size 1 that broadcast against a larger axis to be summed."""
    single = [
        d for d, s in enumerate(term)
        if s in other and s not in needed and x.shape[d] == 1 and y.shape[other.index(s)] != 1
    ]  # fmt: skip
    for d in reversed(single):
        x = x.squeeze(d)
    return x, [s for d, s in enumerate(term) if d not in single]


def aligned(x: Tensor, term: list[str], order: Sequence[str]) -> Tensor:
    """`x` with its axes in order, of size 1 where it has none."""
    x = in_order(x, term, [s for s in order if s in term])
    for d, s in enumerate(order):
        if s not in term:
            x = x.unsqueeze(d)
    return x
