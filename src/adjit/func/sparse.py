"""Jacobians and Hessians most of whose entries are zero, in as many columns or rows as there are colours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy  # its `sparse` takes 130 ms, and is imported when it is first used

from ..autograd.modes import enable_grad, no_grad
from ..autograd.pulling import pull_back
from ..graph.record import is_tensor
from ..ops.creation import tensor
from ..tensor import Tensor
from ..tracers.batched import BatchLevel
from .coloring import Colors, color_columns, color_star, number_of
from .forward import pushed
from .sparsity import PatternLevel

Matrix: TypeAlias = Any  # of SciPy, in compressed rows
Function: TypeAlias = Callable[..., Any]
Mode: TypeAlias = Literal["columns", "rows", "star"]


class Sparsity:
    """Entries of a Jacobian or a Hessian that may differ from zero, and which of them are found together.

    Args:
        pattern: a matrix of SciPy; what it stores counts, also zeros.
        symmetric: whether it is of a Hessian.
        mode: "columns" for products with vectors, "rows" for products of vectors with the matrix, None for
            whichever takes fewer.

    Example:
        >>> adjit.func.jacobian_sparsity(lambda x: x[1:] - x[:-1], adjit.ones(5))
        Sparsity(shape=(4, 5), entries=8, passes=2)
    """

    pattern: Matrix
    colors: Colors  # of columns, or of rows
    mode: Mode

    def __init__(
        self,
        pattern: Any,
        *,
        symmetric: bool = False,
        mode: Literal["columns", "rows"] | None = None,
    ) -> None:
        found = scipy.sparse.csr_array(pattern)
        found.sum_duplicates()
        self.pattern = scipy.sparse.csr_array(
            (np.ones(found.nnz, bool), found.indices, found.indptr), shape=found.shape
        )
        if symmetric:
            whole = (self.pattern + self.pattern.T).tocsr()
            whole.sort_indices()
            self.pattern, self.mode, self.colors = whole, "star", color_star(whole)
            return
        self.mode, self.colors = "columns", np.zeros(0, np.int64)
        if mode != "rows":
            self.colors = color_columns(self.pattern)
        if mode != "columns":
            by_rows = color_columns(self.pattern.T.tocsr())
            if mode == "rows" or number_of(by_rows) < number_of(self.colors):
                self.mode, self.colors = "rows", by_rows

    @property
    def passes(self) -> int:
        """The number of columns or rows that are computed, all at once.

        Example:
            >>> adjit.func.jacobian_sparsity(adjit.exp, adjit.ones(100)).passes
            1
        """
        return number_of(self.colors)

    def __repr__(self) -> str:
        return f"Sparsity(shape={self.pattern.shape}, entries={self.pattern.nnz}, passes={self.passes})"


def jacobian_sparsity(func: Function, *args: Any, argnums: int = 0) -> Sparsity:
    """Find which results of a function depend on which elements of an argument.

    The function runs once. The pattern never has too few entries for this run: where a rule for an op is not
    known it takes all. It holds for other points as long as the function takes the same branches, indexes by
    the same numbers and sorts in the same order there.

    Args:
        func: a function that gives a tensor.
        args: its arguments.
        argnums: the argument, a tensor of a floating dtype.

    Raises:
        TypeError: if the argument or the result is no tensor of a floating dtype.

    Example:
        >>> found = adjit.func.jacobian_sparsity(lambda x: x[1:] * x[:-1], adjit.ones(4))
        >>> found.pattern.toarray().astype(int)
        array([[1, 1, 0, 0],
               [0, 1, 1, 0],
               [0, 0, 1, 1]])
        >>> found.passes
        2
    """
    return Sparsity(_traced(func, args, argnums, pairs=False)[0])


def hessian_sparsity(func: Function, *args: Any, argnums: int = 0) -> Sparsity:
    """Find which elements of an argument meet in a term that is not linear in each of them.

    Takes what `jacobian_sparsity` takes; the pattern is symmetric, and holds as long as that does.

    Raises:
        TypeError: if the argument or the result is no tensor of a floating dtype.

    Example:
        >>> found = adjit.func.hessian_sparsity(lambda x: (x[1:] * x[:-1]).sum(), adjit.ones(4))
        >>> found.pattern.toarray().astype(int)
        array([[0, 1, 0, 0],
               [1, 0, 1, 0],
               [0, 1, 0, 1],
               [0, 0, 1, 0]])
    """
    return Sparsity(_traced(func, args, argnums, pairs=True)[1], symmetric=True)


def sparse_jacobian(
    func: Function, argnums: int = 0, *, pattern: Sparsity | Any = None
) -> Callable[..., Matrix]:
    """A function that gives the Jacobian of `func` as a sparse matrix of SciPy.

    The pattern is found from a run of the function, its columns or rows are coloured so that those of one
    colour share no row or column, and one batched pass with a vector for each colour gives all entries: three
    for a tridiagonal matrix of any size.

    Args:
        func: a function of tensors that gives a tensor, in operations that `vmap` takes.
        argnums: the argument, a tensor of a floating dtype.
        pattern: what `jacobian_sparsity` gave, or a matrix of SciPy, to be used instead of what this run shows.

    Returns:
        A function of the same arguments: a `scipy.sparse.csr_array` with a row for each element of the result
        and a column for each of the argument. What is zero at this point alone is stored too. Not
        differentiable.

    Raises:
        TypeError: if the argument or the result is no tensor of a floating dtype.
        ValueError: if the pattern has another shape.

    Example:
        >>> def heat(u):
        ...     return u[2:] - 2 * u[1:-1] + u[:-2]
        >>> u = adjit.linspace(0., 1., 6)
        >>> adjit.func.sparse_jacobian(heat)(u).toarray()
        array([[ 1., -2.,  1.,  0.,  0.,  0.],
               [ 0.,  1., -2.,  1.,  0.,  0.],
               [ 0.,  0.,  1., -2.,  1.,  0.],
               [ 0.,  0.,  0.,  1., -2.,  1.]], dtype=float32)
        >>> sparsity = adjit.func.jacobian_sparsity(heat, u)
        >>> sparsity
        Sparsity(shape=(4, 6), entries=12, passes=3)
        >>> jacobian = adjit.func.sparse_jacobian(heat, pattern=sparsity)  # for other points
        >>> jacobian(2 * u).nnz
        12
    """

    @functools.wraps(func)
    def wrapper(*args: Any) -> Matrix:
        sparsity = _sparsity(pattern, symmetric=False) or jacobian_sparsity(
            func, *args, argnums=argnums
        )
        x = _argument(args, argnums)
        if sparsity.pattern.shape[1] != x.numel():
            raise ValueError(
                f"sparse_jacobian: expected a pattern with {x.numel()} columns, one for each element of the "
                f"argument, but got {sparsity.pattern.shape}"
            )
        if sparsity.mode == "rows":
            compressed, size = _rows(func, args, argnums, sparsity)
        else:
            compressed, size = _columns(func, args, argnums, sparsity)
        if size != sparsity.pattern.shape[0]:
            raise ValueError(
                f"sparse_jacobian: expected a pattern with {size} rows, one for each element of the result, "
                f"but got {sparsity.pattern.shape}"
            )
        rows, columns = sparsity.pattern.nonzero()
        if sparsity.mode == "rows":
            values = compressed[sparsity.colors[rows], columns]
        else:
            values = compressed[sparsity.colors[columns], rows]
        return _filled(sparsity.pattern, values)

    return wrapper


def sparse_hessian(
    func: Function, argnums: int = 0, *, pattern: Sparsity | Any = None
) -> Callable[..., Matrix]:
    """A function that gives the Hessian of `func` as a sparse matrix of SciPy.

    The pattern is found from a run of the function, and coloured so that each entry or its mirror is alone
    (star colouring); one batched pass backward through the gradient gives all entries.

    Args:
        func: a function of tensors that gives a tensor of one element, in operations that `vmap` takes.
        argnums: the argument, a tensor of a floating dtype.
        pattern: what `hessian_sparsity` gave, or a symmetric matrix of SciPy.

    Returns:
        A function of the same arguments: a `scipy.sparse.csr_array` with a row and a column for each element of
        the argument, symmetric. Not differentiable.

    Raises:
        TypeError: if the argument or the result is no tensor of a floating dtype.
        ValueError: if the pattern has another shape, or the result more than one element.

    Example:
        >>> def rosenbrock(x):
        ...     return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        >>> adjit.func.hessian_sparsity(rosenbrock, adjit.ones(1000))
        Sparsity(shape=(1000, 1000), entries=2998, passes=3)
        >>> adjit.func.sparse_hessian(lambda x: (x**3).sum())(adjit.tensor([1., 2.])).toarray()
        array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """

    @functools.wraps(func)
    def wrapper(*args: Any) -> Matrix:
        sparsity = _sparsity(pattern, symmetric=True) or hessian_sparsity(
            func, *args, argnums=argnums
        )
        x = _argument(args, argnums)
        if sparsity.pattern.shape != (x.numel(), x.numel()):
            raise ValueError(
                f"sparse_hessian: expected a pattern with {x.numel()} rows and columns, one for each element "
                f"of the argument, but got {sparsity.pattern.shape}"
            )

        def gradient(*given: Any) -> Any:
            out = _result(func(*given))
            if out.numel() != 1:
                raise ValueError(
                    f"sparse_hessian: expected a result of one element, but got {tuple(out.shape)}"
                )
            at = given[argnums]
            (g,) = pull_back([out], [out.new_ones(out.shape)], [at], keep=True, create=True)
            return at.new_zeros(at.shape) if g is None else g

        compressed, _ = _rows(gradient, args, argnums, sparsity)
        return _filled(sparsity.pattern, entries_by_star(sparsity, compressed))

    return wrapper


# ----- patterns -----


def _sparsity(pattern: Any, *, symmetric: bool) -> Sparsity | None:
    """What was given as a pattern, with its colours."""
    if pattern is None or isinstance(pattern, Sparsity):
        return pattern
    return Sparsity(pattern, symmetric=symmetric)


def _traced(func: Function, args: Any, argnums: int, *, pairs: bool) -> tuple[Matrix, Matrix]:
    """The pattern of a Jacobian, and of the pairs that meet."""
    x = _argument(args, argnums)
    level = PatternLevel(x.numel(), pairs)
    inputs = level.depending(
        x.detach().contiguous(), scipy.sparse.eye_array(x.numel(), dtype=bool, format="csr")
    )
    out = _result(func(*_with(args, argnums, inputs)))
    rows = level.rows(out)
    if rows is None:
        rows = scipy.sparse.csr_array((out.numel(), x.numel()), dtype=bool)
    return rows, level.pairs


def _argument(args: Any, argnums: int) -> Tensor:
    x = args[argnums]
    if not (is_tensor(x) and x.dtype.is_floating_point):
        raise TypeError(
            f"sparse_jacobian: expected argument {argnums} to be a tensor of a floating dtype, but got "
            f"{x.dtype if is_tensor(x) else type(x).__name__}"
        )
    found: Tensor = x
    return found


def _result(out: Any) -> Tensor:
    if not (is_tensor(out) and out.dtype.is_floating_point):
        raise TypeError(
            "sparse_jacobian: expected the function to give a tensor of a floating dtype, but got "
            f"{out.dtype if is_tensor(out) else type(out).__name__}"
        )
    found: Tensor = out
    return found


def _with(args: Any, k: int, value: Any) -> list[Any]:
    given = list(args)
    given[k] = value
    return given


# ----- passes -----


def _seeds(sparsity: Sparsity, like: Tensor, shape: Any) -> Tensor:
    """A vector for each colour, with 1 for each column or row of that colour."""
    seeds = np.zeros((sparsity.passes, len(sparsity.colors)), like.dtype.numpy)
    seeds[sparsity.colors, np.arange(len(sparsity.colors))] = 1
    return tensor(seeds, device=like.device).reshape(sparsity.passes, *shape)


def _columns(func: Function, args: Any, argnums: int, sparsity: Sparsity) -> tuple[Any, int]:
    """The sums of the columns of each colour, and how long they are."""
    x = args[argnums]
    if not sparsity.passes:
        return np.zeros((0, sparsity.pattern.shape[0]), x.dtype.numpy), sparsity.pattern.shape[0]
    level = BatchLevel(sparsity.passes)
    with no_grad(), level.active():
        tangents = level.wrapped(_seeds(sparsity, x, x.shape))
        found = pushed(func, args, (argnums,), (tangents,), has_aux=False)
        (value,), (t,) = found.values, found.tangents
        t = value.new_zeros(value.shape) if t is None else t
        return _array(level.full(t)).reshape(sparsity.passes, -1), value.numel()


def _rows(func: Function, args: Any, argnums: int, sparsity: Sparsity) -> tuple[Any, int]:
    """The sums of the rows of each colour, and how many rows there are."""
    with enable_grad():
        x = args[argnums].detach().requires_grad_()
        out = _result(func(*_with(args, argnums, x)))
    size = out.numel()
    if not (sparsity.passes and out.requires_grad) or size != len(sparsity.colors):
        return np.zeros((sparsity.passes, x.numel()), x.dtype.numpy), size
    level = BatchLevel(sparsity.passes)
    cotangents = level.wrapped(_seeds(sparsity, out, out.shape))
    (g,) = pull_back([out], [cotangents], [x], keep=False, create=False)
    g = x.new_zeros(x.shape) if g is None else g
    return _array(level.full(g)).reshape(sparsity.passes, -1), size


def _array(t: Tensor) -> Any:
    return t.detach().cpu().numpy()


def entries_by_star(sparsity: Sparsity, compressed: Any) -> Any:
    """The entries of a symmetric matrix, each from the sum in which it or its mirror is alone."""
    pattern, colors = sparsity.pattern, sparsity.colors
    rows, columns = pattern.nonzero()
    # How often each colour occurs in each row.
    counts = pattern.astype(np.int64) @ scipy.sparse.csr_array(
        (np.ones(len(colors), np.int64), (np.arange(len(colors)), colors)),
        shape=(len(colors), sparsity.passes),
    )
    alone = counts.toarray()[rows, colors[columns]] == 1
    return np.where(alone, compressed[colors[columns], rows], compressed[colors[rows], columns])


def _filled(pattern: Matrix, values: Any) -> Matrix:
    """The matrix with a pattern and values in the order of its rows."""
    return scipy.sparse.csr_array(
        (values, pattern.indices.copy(), pattern.indptr.copy()), shape=pattern.shape
    )
