"""Quantiles, histograms, counts, covariances, and integrals of sampled functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..graph.composed import composed
from ..graph.export import export
from ..graph.operation import operation
from ..graph.record import check_tensor, is_differentiated, is_tensor
from ..graph.view import as_own
from ..shapes import an_int, called_too, check_bool, numpy_names, wrap_dim
from ..tensor import Tensor
from .creation import linspace, tensor, zeros
from .joining import cat
from .reduce import return_type
from .sort import searchsorted, sort, undifferentiated

Histogram = return_type("histogram", "hist bin_edges")
HistogramOfRows = return_type("histogramdd", "hist bin_edges")


@export(method=True)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count how often each whole number occurs, or add up the weights at its places.

    The shape depends on the values, so what was recorded is computed. Not differentiable.

    Args:
        input: (n,), of numbers from 0 on.
        weights: (n,); float32 ones give float32, all others float64.
        minlength: the result has at least so many elements.

    Returns:
        One element for each number up to the largest; int64 without weights.

    Raises:
        RuntimeError: for another shape, negative numbers, weights of another length, or a negative minlength.

    Example:
        >>> adjit.bincount(adjit.tensor([1, 2, 1]))
        tensor([0, 2, 1])
    """
    check_tensor("bincount", "input", 1, input)
    if input.dtype.is_floating_point or input.dtype is dtypes.bool:
        kind = input.dtype.legacy
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{kind}'")
    if weights is not None:
        check_tensor("bincount", "weights", 2, weights)
    minlength = an_int("bincount", "minlength", 3, minlength)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    places = input.detach()
    if not input.ndim or (input.ndim == 1 and not input.numel()):
        if not input.ndim:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        return zeros(minlength, dtype=dtypes.int64, device=input.device)
    smallest, largest = places.min(), places.max()
    if input.ndim != 1 or int(smallest) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and (weights.ndim != 1 or len(weights) != len(input)):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    given = None if weights is None else weights.detach()
    found = _occurrences(places, given, max(int(largest) + 1, minlength))
    if weights is not None and is_differentiated(weights):
        return undifferentiated(weights, found, "bincount")
    return found


@composed
def _occurrences(places: Tensor, weights: Tensor | None, count: int) -> Tensor:
    """How often each of so many numbers occurs, or the sums of the weights at their places."""
    places = places.to(dtypes.int64)
    if weights is None:
        added = places.new_ones(places.shape)
    else:
        single = weights.dtype is dtypes.float32
        added = weights.to(dtypes.float32 if single else dtypes.float64)
    return added.new_zeros(count).scatter_add(0, places, added)


def _in_bins(values: Tensor, places: Tensor, inside: Tensor, count: int, weight: Any) -> Tensor:
    """The sums of the weights, or the counts, of the values in each of so many bins."""
    added = values.new_ones(values.shape) if weight is None else weight
    added = added.masked_fill(~inside, 0)
    places = places.masked_fill(~inside, 0)
    return values.new_zeros(count).scatter_add(0, places, added)


def _ends(told: str, values: Tensor, low: float, high: float, around: float) -> tuple[float, float]:
    """The ends of the bins: those of the values where none are given, and so far `around` one value."""
    if low == high and values.numel():
        low, high = values.min().item(), values.max().item()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{told} [{low:g}, {high:g}] is not finite")
    return (low - around, high + around) if low == high else (low, high)


@export(method=True, out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count the elements in bins of equal width; those outside of them, and NaN, are left out.

    Not differentiable.

    Args:
        input: any shape, of a floating dtype.
        bins: how many.
        min: the lower end of the first bin; with `max` equal to it, both are those of the elements.
        max: the upper end of the last bin, which is part of it.

    Raises:
        RuntimeError: if there are no bins, the ends are in the wrong order or not finite.

    Example:
        >>> adjit.histc(adjit.tensor([1., 2., 1.]), bins=4, min=0, max=3)
        tensor([0., 2., 1., 0.])
    """
    if not input.dtype.is_floating_point:
        kind = input.dtype.legacy
        raise NotImplementedError(f"\"histogram_cpu\" not implemented for '{kind}'")
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    values = input.detach().reshape(-1)
    low, high = _ends("torch.histc: range of", values, float(min), float(max), 1)
    return _counted_between(values, bins, low, high)


@composed
def _counted_between(values: Tensor, bins: int, low: float, high: float) -> Tensor:
    """How many of the values are in each of so many bins from `low` to `high`."""
    inside = (values >= low) & (values <= high)
    places = ((values - low) * bins / (high - low)).masked_fill(~inside, 0).to(dtypes.int64)
    return _in_bins(values, places.clamp(max=bins - 1), inside, bins, None)


@export(method=True, out=True)
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """Count the elements in bins, or add up their weights, as `(hist, bin_edges)`.

    Not differentiable.

    Args:
        input: any shape, of a floating dtype.
        bins: how many of equal width, or their edges, ascending.
        range: the lower end of the first and the upper end of the last bin; those of the elements unless given.
        weight: of the shape and dtype of `input`.
        density: divide by the total and by the widths, so that the integral is 1.

    Raises:
        RuntimeError: if the arguments do not fit.

    Example:
        >>> adjit.histogram(adjit.tensor([1., 2., 1.]), bins=3, range=(0., 3.))
        adjit.return_types.histogram(
        hist=tensor([0., 2., 1.]),
        bin_edges=tensor([0., 1., 2., 3.]))
    """
    check_bool("histogram", "density", density)
    if not input.dtype.is_floating_point:
        kind = input.dtype.legacy
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{kind}'")
    if weight is not None and weight.shape != input.shape:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input "
            f"tensor excluding its innermost dimension, but got input with shape {[input.numel(), 1]} and "
            f"weight with shape {list(weight.shape)}"
        )
    if is_tensor(bins):
        edges: Tensor = bins
        if edges.dtype is not input.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input "
                f"with dtype {input.dtype.legacy.lower()} and bins for dimension 0 with dtype "
                f"{edges.dtype.legacy.lower()}"
            )
    else:
        if bins <= 0:
            raise RuntimeError(
                f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
            )
        low, high = (0.0, 0.0) if range is None else range
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for "
                "dimension 0"
            )
        told = "torch.histogramdd: dimension 0's range"
        if range is None and not input.numel():
            high = 1.0
        low, high = _ends(told, input.detach() if range is None else input[:0], low, high, 0.5)
        edges = linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)
    return Histogram(*_counted(input, edges, weight, density))


@operation("NotImplemented")
def _counted(
    input: Tensor, edges: Tensor, weight: Tensor | None, density: bool
) -> tuple[Tensor, Tensor]:
    """What lies between edges, and these; both have a history, as in PyTorch, which ends in an error."""
    values = input.reshape(-1)
    inside = (values >= edges[0]) & (values <= edges[-1])
    count = len(edges) - 1
    places = (searchsorted(edges, values, right=True) - 1).clamp(0, count - 1)
    given = None if weight is None else weight.reshape(-1)
    counts = _in_bins(values, places, inside, count, given)
    if density:
        counts = counts / counts.sum() / edges.diff()
    return counts, edges.clone()


@_counted.vjp
def _(gs: Any) -> Any:
    raise RuntimeError("derivative for aten::histogram is not implemented")


_counted.batched_as_body()


@export
def histogramdd(
    input: Tensor,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """Count rows in bins of several axes, or add up their weights, as `(hist, bin_edges)`.

    Not differentiable: sending a gradient back is an error.

    Args:
        input: (..., D), of a floating dtype: rows of D coordinates.
        bins: how many of equal width, for all axes or for each; or the edges of each, ascending.
        range: the lower end of the first and the upper end of the last bin of each axis, 2 * D numbers; those
            of the elements unless given.
        weight: of the shape of `input` without its last axis.
        density: divide by the total and by the volumes, so that the integral is 1.

    Returns:
        `hist`, with an axis for each of the D, and a tuple of their edges.

    Raises:
        RuntimeError: if the arguments do not fit.

    Example:
        >>> adjit.histogramdd(adjit.tensor([[0., 0.], [1., 2.], [1., 1.]]), [2, 1])
        adjit.return_types.histogramdd(
        hist=tensor([[1.],
                [2.]]),
        bin_edges=(tensor([0.0000, 0.5000, 1.0000]), tensor([0., 2.])))
    """
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{input.dtype.legacy}'")
    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    axes = input.shape[-1]
    wanted: list[Any] = [bins] * axes if isinstance(bins, int) else list(bins)
    if len(wanted) != axes:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    if weight is not None and weight.shape != input.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input "
            f"tensor excluding its innermost dimension, but got input with shape {list(input.shape)} and "
            f"weight with shape {list(weight.shape)}"
        )
    rows = input.detach().reshape(-1, axes)
    edges = tuple(
        _checked_edges(rows, bins, axis)
        if is_tensor(bins)
        else _even_edges(rows, bins, axis, range)
        for axis, bins in enumerate(wanted)
    )
    sizes = [len(edge) - 1 for edge in edges]
    inside: Any = True
    places: Any = 0
    for axis, edge in enumerate(edges):
        values = rows[:, axis].contiguous()
        inside = (values >= edge[0]) & (values <= edge[-1]) & inside
        found = (searchsorted(edge, values, right=True) - 1).clamp(0, sizes[axis] - 1)
        places = places * sizes[axis] + found
    added = None if weight is None else weight.reshape(-1)
    counts = _in_bins(rows[:, 0], places, inside, math.prod(sizes), added).reshape(sizes)
    if density:
        counts = counts / counts.sum()
        for axis, edge in enumerate(edges):
            counts = counts / edge.diff().reshape([-1] + [1] * (axes - 1 - axis))
    if any(t is not None and is_differentiated(t) for t in (input, weight)):
        way = "bin_tensors" if any(map(is_tensor, wanted)) else "bin_cts"
        counts, *ends = _with_history(input, weight, [counts, *edges], way)
        edges = tuple(ends)
    return HistogramOfRows(counts, edges)


@operation("NotImplemented")
def _with_history(
    input: Tensor, weight: Tensor | None, found: Sequence[Tensor], way: str
) -> tuple[Tensor, ...]:
    """What was counted, with a history that ends in an error."""
    return tuple([t.clone() for t in found])


@_with_history.vjp
def _(gs: Any, way: str) -> Any:
    raise RuntimeError(f"derivative for aten::_histogramdd_from_{way} is not implemented")


_with_history.batched_as_body()


def _checked_edges(rows: Tensor, edges: Tensor, axis: int) -> Tensor:
    if edges.dtype is not rows.dtype:
        raise RuntimeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input "
            f"with dtype {rows.dtype.legacy.lower()} and bins for dimension {axis} with dtype "
            f"{edges.dtype.legacy.lower()}"
        )
    if edges.dim() != 1:
        raise RuntimeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {edges.dim()} dimensions in "
            f"the bins tensor for dimension {axis}"
        )
    return edges


def _even_edges(rows: Tensor, bins: int, axis: int, range: Sequence[float] | None) -> Tensor:
    if bins <= 0:
        raise RuntimeError(
            f"torch.histogram(): bins must be > 0, but got {bins} for dimension {axis}"
        )
    axes = rows.shape[1]
    if range is not None and len(range) != 2 * axes:
        raise RuntimeError(
            f"torch.histogramdd: for a {axes}-dimensional histogram range should have {2 * axes} elements, "
            f"but got {len(range)}"
        )
    values = rows[:, axis]
    low, high = (0.0, 0.0) if range is None else range[2 * axis : 2 * axis + 2]
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for "
            f"dimension {axis}"
        )
    if range is None and not values.numel():
        high = 1.0
    told = f"torch.histogramdd: dimension {axis}'s range"
    low, high = _ends(told, values if range is None else values[:0], low, high, 0.5)
    return linspace(low, high, bins + 1, dtype=rows.dtype, device=rows.device)


@export(out=True)
@composed
@called_too(element="elements", test_element="test_elements")
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Tell for each element whether it is one of others, as bools.

    Args:
        elements: a tensor of any shape, or a number.
        test_elements: a tensor of any shape, or a number; one of the two is a tensor.
        assume_unique: accepted; the others are sorted in any case.
        invert: tell whether it is none of them.

    Raises:
        TypeError: if neither is a tensor.
        RuntimeError: for bools.

    Example:
        >>> adjit.isin(adjit.tensor([1, 2, 3]), adjit.tensor([3, 1]))
        tensor([ True, False,  True])
    """
    if not (is_tensor(elements) or is_tensor(test_elements)):
        raise TypeError(
            "isin() received an invalid combination of arguments - got "
            f"({type(elements).__name__}, {type(test_elements).__name__}), but expected one of:\n"
            " * (Tensor elements, Tensor test_elements)\n * (Number element, Tensor test_elements)\n"
            " * (Tensor elements, Number test_element)\n"
        )
    for given in (elements, test_elements):
        if given.__class__ is bool or (is_tensor(given) and given.dtype is dtypes.bool):
            raise RuntimeError("Unsupported input type encountered for isin(): Bool")
    kind = dtypes.result_type(elements, test_elements)
    values, others = (
        (t.detach() if is_tensor(t) else tensor(t)).to(kind) for t in (elements, test_elements)
    )
    if not others.numel():
        found = values.new_zeros(values.shape, dtype=dtypes.bool)
    else:
        # NaN is no element, and has no place in an order: it stands as -inf, which is looked for by itself.
        known = others.reshape(-1)
        row = sort(
            known.where(known == known, -math.inf) if kind.is_floating_point else known
        ).values
        places = searchsorted(row, values.reshape(-1)).clamp(max=len(row) - 1)
        found = (row[places] == values.reshape(-1)).reshape(values.shape)
        if kind.is_floating_point:
            found = found & ((values != -math.inf) | (known == -math.inf).any())
    return ~found if invert else found


# ----- quantiles -----

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@export(method=True, out=True)
@composed
@numpy_names
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The numbers below which given parts of the elements lie, along a dimension or of all; NaN if one is.

    Differentiable in `input` and in `q`.

    Args:
        input: any shape, floating.
        q: a number in [0, 1], or a vector of such in the dtype of `input`, which is the first dimension then.
        dim: the dimension; all elements unless given.
        keepdim: leave the reduced dimension in the shape, with size 1.
        interpolation: what lies between two elements: "linear", "lower", "higher", "midpoint", "nearest".

    Raises:
        RuntimeError: for other dtypes, no elements, numbers out of [0, 1], or another interpolation.

    Example:
        >>> adjit.quantile(adjit.tensor([0., 1., 2., 3.]), 0.5)
        tensor(1.5000)
    """
    return as_own(_quantile("quantile", input, q, dim, keepdim, interpolation, False))


@export(method=True, out=True)
@composed
@numpy_names
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The `quantile` of what is no NaN; NaN where there is nothing else.

    Example:
        >>> adjit.nanquantile(adjit.tensor([0., float("nan"), 2.]), 0.5)
        tensor(1.)
    """
    return as_own(_quantile("nanquantile", input, q, dim, keepdim, interpolation, True))


def _quantile(
    name: str,
    input: Tensor,
    q: Any,
    dim: int | None,
    keepdim: bool,
    interpolation: str,
    ignore_nan: bool,
) -> Tensor:
    kind, is_number = input.dtype, not is_tensor(q)
    if kind not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if is_number:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        q = input.new_full((), q)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not kind:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if not is_number and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
            f"{interpolation}"
        )
    axis = 0 if dim is None else wrap_dim(dim, input.ndim)
    rows = input.reshape(-1) if dim is None or not input.ndim else input.movedim(axis, -1)
    values = sort(rows, -1).values
    places = q.reshape(-1) * (rows.shape[-1] - 1)
    is_nan = rows.isnan()
    if ignore_nan:  # they are sorted to the end
        last = (~is_nan).sum(-1, keepdim=True).to(kind) - 1
        places = (q.reshape(-1) * last).clamp(min=0)
    else:
        places = places.masked_fill(is_nan.any(-1, keepdim=True), rows.shape[-1] - 1)
    if interpolation in ("lower", "higher", "nearest"):
        rounding = {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation]
        places = getattr(places, rounding)()
    below = places.to(dtypes.int64)
    found = values.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weight = places - below if interpolation == "linear" else places.new_full(places.shape, 0.5)
        above = places.ceil().to(dtypes.int64)
        found = found.lerp(values.gather(-1, above), weight)
    found = found.movedim(-1, 0) if q.ndim else found.squeeze(-1)
    if not keepdim:
        return found
    if dim is None:
        return found.reshape((*q.shape, *[1] * input.ndim))
    return found.unsqueeze(axis + q.ndim) if input.ndim else found


# ----- covariances -----


@export(method=True)
@composed
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of variables that are rows of a matrix, observations its columns.

    Differentiable in `input` and `aweights`.

    Args:
        input: (variables, observations), or (observations,) of one.
        correction: what is taken off the number of observations; 1 for an unbiased estimate.
        fweights: (observations,), how often each is there; whole numbers.
        aweights: (observations,), how much each counts.

    Returns:
        (variables, variables), or a number for one.

    Raises:
        RuntimeError: if the shapes or dtypes do not fit, or weights are negative.

    Example:
        >>> adjit.cov(adjit.tensor([[0., 1., 2.], [2., 1., 0.]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    if input.dtype is dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    count = rows.shape[1]
    weights: Tensor | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                f"{given.ndim} dimensions"
            )
        is_whole = not given.dtype.is_floating_point and given.dtype is not dtypes.bool
        if is_whole is not (name == "fweights"):
            wanted = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(
                f"cov(): expected {name} to have {wanted} dtype but got {name} with {given.dtype.legacy} dtype"
            )
        if given.numel() != count:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the input but "
                f"got {given.numel()} != {count}"
            )
        if given.numel() and given.min() < 0:
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = given if weights is None else weights * given
    if weights is None:
        total: Any = count
        mean = rows.sum(1) / count
    else:
        total = weights.sum()
        if total == 0:
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        mean = (rows * weights).sum(1) / total
    if weights is None or aweights is None or not correction:
        degrees = total - correction
    else:
        degrees = total - correction * (weights * aweights).sum() / total
    degrees = degrees.clamp(min=0) if is_tensor(degrees) else max(degrees, 0)
    centred = rows - mean.unsqueeze(1)
    other = centred if weights is None else centred * weights
    return (centred @ other.to(centred.dtype).t()).div(degrees).squeeze()


@export(method=True)
@composed
def corrcoef(input: Tensor) -> Tensor:
    """The correlations of variables that are rows of a matrix, observations its columns, in [-1, 1].

    Differentiable in `input`.

    Args:
        input: (variables, observations), or (observations,) of one.

    Example:
        >>> adjit.corrcoef(adjit.tensor([[0., 1., 2.], [2., 1., 0.]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    found = cov(input)
    if not found.ndim:
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation.unsqueeze(1) / deviation).clamp(-1, 1)


# ----- integrals of sampled functions -----


def _no_bools(name: str, y: Tensor, x: Tensor | None) -> None:
    """Samples and their places have to be numbers."""
    if y.dtype is dtypes.bool or (x is not None and x.dtype is dtypes.bool):
        which = "`y`" if x is None else "`x` or `y`"
        raise RuntimeError(f"{name}: received a bool input for {which}, but bool is not supported")


def _trapezoids(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, int]:
    """The area between each two neighbouring samples, and the axis."""
    _no_bools(name, y, x)
    axis = wrap_dim(dim, y.ndim)
    if x is not None and dx is not None:
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got both x and dx"
        )
    if not y.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    size = y.shape[axis]
    before, after = (
        y.narrow(axis, 0, max(size - 1, 0)),
        y.narrow(axis, min(size, 1), max(size - 1, 0)),
    )
    if x is None:
        return (before + after) * ((1 if dx is None else dx) / 2), axis
    if x.ndim == 1:
        if x.shape[0] != y.shape[axis]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        steps = x.diff().reshape(-1, *[1] * (y.ndim - axis - 1))
    else:
        steps = x.diff(dim=axis - y.ndim)
    return (before + after) * steps / 2, axis


@export(name=("trapezoid", "trapz"))
@composed
@numpy_names
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of a sampled function along a dimension, by straight lines between the samples.

    Differentiable in `y` and `x`.

    Args:
        y: the samples.
        x: where they are: (n,), or a shape that broadcasts with that of `y`.
        dx: how far they are from each other, 1 unless given.
        dim: the dimension.

    Example:
        >>> adjit.trapezoid(adjit.tensor([1., 2., 3.]))
        tensor(4.)
    """
    if x is not None:
        check_tensor("trapezoid", "x", 2, x)
    if y.ndim and not y.shape[dim]:
        shape = y.shape[:dim] + y.shape[dim:][1:]
        return zeros(shape, dtype=y.dtype, device=y.device)
    _no_bools("trapezoid", y, x)
    if x is None and y.ndim:
        ends = y.select(dim, 0) + y.select(dim, -1)
        return (y.sum(dim) - ends * 0.5) * (1 if dx is None else dx)
    areas, axis = _trapezoids("trapezoid", y, x, dx, dim)
    return areas.sum(axis)


@export
@composed
@numpy_names
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1
) -> Tensor:
    """The integrals up to each sample but the first; arguments as for `trapezoid`.

    Example:
        >>> adjit.cumulative_trapezoid(adjit.tensor([1., 2., 3.]))
        tensor([1.5000, 4.0000])
    """
    areas, axis = _trapezoids("cumulative_trapezoid", y, x, dx, dim)
    return areas.cumsum(axis)


# ----- places in a shape -----


@export
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates of flat indices in a shape, a tensor for each axis.

    Args:
        indices: whole numbers of any shape, from 0 on.
        shape: a number or a sequence of numbers.

    Raises:
        TypeError: if the indices or the sizes are no whole numbers.
        ValueError: if a size is negative.

    Example:
        >>> adjit.unravel_index(adjit.tensor([4, 5]), (2, 3))
        (tensor([1, 1]), tensor([1, 2]))
    """
    check_tensor("unravel_index", "indices", 1, indices)
    if indices.dtype.is_floating_point or indices.dtype is dtypes.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, Sequence)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in sizes:
        if not isinstance(size, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    found, step, places = [], 1, indices.to(dtypes.int64)
    for size in reversed(sizes):
        found.append(places.div(step, rounding_mode="floor") % size)
        step *= size
    return tuple(reversed(found))


@export
@numpy_names
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Estimate derivatives of a sampled function: second-order differences inside, one-sided ones at the ends.

    Differentiable in `input` and in distances and coordinates that are tensors.

    Args:
        input: the samples.
        spacing: the distance of samples, for all axes or for each; or their coordinates, one tensor an axis.
        dim: the axes to differentiate along; all of them if it is left out.
        edge_order: of the estimates at the ends, 1 or 2.

    Returns:
        A tensor of the shape of `input` for each axis.

    Raises:
        RuntimeError: if the arguments do not fit, or an axis has fewer than `edge_order + 1` samples.

    Example:
        >>> adjit.gradient(adjit.tensor([1., 4., 9., 16.]))
        (tensor([3., 4., 6., 7.]),)
        >>> adjit.gradient(adjit.tensor([1., 4., 9.]), spacing=[adjit.tensor([1., 2., 4.])])
        (tensor([3.0000, 2.8333, 2.5000]),)
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    chosen = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [wrap_dim(axis, input.dim()) for axis in chosen]
    for k, axis in enumerate(axes):
        if axis in axes[:k]:
            raise RuntimeError(f"dim {axis} appears multiple times in the list of dims")
    is_list = isinstance(spacing, (list, tuple))
    if is_list and len(spacing) != len(axes):
        if dim is None:
            raise RuntimeError(
                "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to "
                f"'self.dim() = {input.dim()}', since dim argument was not given, but got a list of length "
                f"{len(spacing)}"
            )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments "
            f"to have the same length, but got a spacing argument of length {len(spacing)} and a dim "
            f"argument of length {len(axes)}."
        )
    steps = list(spacing) if is_list else [1 if spacing is None else spacing] * len(axes)
    if any(input.shape[axis] < edge_order + 1 for axis in axes):
        raise RuntimeError(
            "torch.gradient expected each dimension size to be at least edge_order+1"
        )
    return tuple(
        _slope(input, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True)
    )


def _slope(input: Tensor, axis: int, step: Any, edge_order: int) -> Tensor:
    """The estimated derivative along one axis."""
    count = input.shape[axis]
    if is_tensor(step) and step.dim():
        widths = step.diff().reshape([-1] + [1] * (input.dim() - 1 - axis))
    else:
        widths = None
    first = step if widths is None else widths.narrow(0, 0, 1)
    last = step if widths is None else widths.narrow(0, count - 2, 1)

    def at(start: int, length: int = 1) -> Tensor:
        return input.narrow(axis, start, length)

    if edge_order == 1:
        left, right = (at(1) - at(0)) / first, (at(count - 1) - at(count - 2)) / last
    elif widths is None:
        left = (-1.5 * at(0) + 2.0 * at(1) - 0.5 * at(2)) / step
        right = (1.5 * at(count - 1) - 2.0 * at(count - 2) + 0.5 * at(count - 3)) / step
    else:
        second, before = (
            widths.narrow(0, 1, 1), widths.narrow(0, count - 3, 1),
        )  # fmt: skip
        left = _three(at(0), at(1), at(2), first, second)
        right = -_three(at(count - 1), at(count - 2), at(count - 3), last, before)
    if count == 2:
        return cat([left, right], axis)
    lower, middle, upper = at(0, count - 2), at(1, count - 2), at(2, count - 2)
    if widths is None:
        inner = (upper - lower) / (2.0 * step)
    else:
        one = widths.narrow(0, 0, count - 2)
        two = widths.narrow(0, 1, count - 2)
        both = one + two
        inner = (
            upper * (one / (two * both)) + middle * ((two - one) / (one * two))
            - lower * (two / (one * both))
        )  # fmt: skip
    return cat([left, inner, right], axis)


def _three(end: Tensor, near: Tensor, far: Tensor, one: Any, two: Any) -> Tensor:
    """The slope at the first of three samples, whose distances are `one` and `two`."""
    both = one + two
    return (
        near * (both / (one * two))
        - end * ((one + both) / (one * both))
        - far * (one / (two * both))
    )
