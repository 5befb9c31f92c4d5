"""Forward mode: products of Jacobians with vectors, and Jacobians from as many at once as they have columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..autograd.dual import DualLevel
from ..graph.factories import differentiated_forward
from ..graph.record import is_tensor
from ..tensor import Tensor
from ..tracers.batched import BatchLevel
from ..utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from .reverse import Argnums, chosen, jacrev

JVP = "jvp(f, primals, tangents)"
INDEPENDENT = (
    "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed "
    "with strict=True."
)


class Pushed(NamedTuple):
    """What a function gave for dual tensors: values, and a tangent or None for each."""

    values: list[Any]
    tangents: list[Any]
    spec: TreeSpec
    aux: Any


def pushed(
    func: Callable[..., Any],
    args: Sequence[Any],
    places: Sequence[int],
    tangents: Any,
    has_aux: bool,
) -> Pushed:
    """Call a function with dual tensors in some places, and take apart what it gives."""
    primals = tuple(args[k] for k in places)
    flat, spec = tree_flatten(primals)
    given, given_spec = tree_flatten(tangents)
    if spec != given_spec:
        raise RuntimeError(
            f"{JVP}: Expected primals and tangents to have the same python structure. For example, if primals "
            f"is a tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents "
            f"with structure {given_spec}"
        )
    check_tensors(flat, "primals")
    check_tensors(given, "tangents")
    level = DualLevel()
    duals = [level.made_of(p, t) for p, t in zip(flat, given, strict=True)]
    inputs = list(args)
    for k, dual in zip(places, tree_unflatten(duals, spec), strict=True):
        inputs[k] = dual
    with differentiated_forward(level):
        made, aux = func(*inputs), None
    if has_aux:
        if not (isinstance(made, tuple) and len(made) == 2):
            raise RuntimeError(
                f"{JVP}: output of function f should be a tuple: (output, aux) if has_aux is True"
            )
        made, aux = made[0], tree_map(lambda t: level.value(t) if is_tensor(t) else t, made[1])
    outputs, spec = tree_flatten(made)
    check_outputs(outputs)
    return Pushed([level.value(t) for t in outputs], [level.tangent(t) for t in outputs], spec, aux)


def check_tensors(values: Sequence[Any], name: str) -> None:
    """Raise if there is no tensor among arguments, or something else."""
    if not values:
        raise RuntimeError(f"{JVP}: Expected {name} to contain at least one Tensor.")
    for value in values:
        if not is_tensor(value):
            raise RuntimeError(f"{JVP}: Expected {name} to only contain Tensors, got {type(value)}")


def check_outputs(values: Sequence[Any]) -> None:
    """Raise if a function gave nothing, or something that is no tensor."""
    if not values or (len(values) == 1 and values[0] is None):
        raise RuntimeError(
            f"{JVP}: Expected f to be a function that has non-empty output (got output = {values})"
        )
    for value in values:
        if not is_tensor(value):
            raise RuntimeError(
                f"{JVP}: expected f(*primals) to return only tensors, got unsupported type {type(value)}"
            )


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Multiply the Jacobian of `func` by vectors, in one pass beside the values.

    May be nested with every other transform, and differentiated. A tensor made inside of `func` by `zeros`,
    `ones`, `empty`, `full`, `new_zeros`, `zeros_like` and their like may be written in place; one from outside
    may not.

    Args:
        func: a function of tensors, or containers of them, that gives such.
        primals: a tuple of its arguments.
        tangents: of the same structure and shapes.
        strict: raise if an output does not depend on the inputs, in place of zeros.
        has_aux: whether `func` returns a pair, of which the second is passed on.

    Returns:
        (output, jvp) or (output, jvp, aux).

    Raises:
        RuntimeError: if arguments or results do not fit, with PyTorch's texts.

    Example:
        >>> x = adjit.tensor([1., 2.])
        >>> adjit.func.jvp(lambda x: x * x.sum(), (x,), (adjit.tensor([1., 0.]),))
        (tensor([3., 6.]), tensor([4., 2.]))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    found = pushed(func, primals, range(len(primals)), tangents, has_aux)
    if strict and any(t is None for t in found.tangents):
        raise RuntimeError(INDEPENDENT)
    products = [
        value.new_zeros(value.shape) if t is None else t
        for value, t in zip(found.values, found.tangents, strict=True)
    ]
    results = tree_unflatten(found.values, found.spec), tree_unflatten(products, found.spec)
    return (*results, found.aux) if has_aux else results


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *,
    randomness: str = "error",
) -> Callable[..., Any]:  # fmt: skip
    """A function that gives the Jacobian of `func`: one pass with the tangents of all its columns as a batch.

    For functions with few inputs and many outputs; `jacrev` is for the others.

    Args:
        func: a function of tensors that gives a tensor or containers of tensors.
        argnums: in which argument or arguments.
        has_aux: whether `func` returns a pair, of which the second is passed on.
        randomness: what `vmap` takes; here random numbers are those of the values, the same for all columns.

    Returns:
        A function of the same arguments: for an output of shape O and an input of shape I a tensor of shape
        O + I; for several `argnums` a tuple, for several outputs containers of these. With `has_aux` a pair.

    Raises:
        RuntimeError: if arguments or results do not fit, with PyTorch's texts.

    Example:
        >>> adjit.func.jacfwd(lambda x: x * x)(adjit.tensor([1., 2.]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        places = chosen(args, argnums)
        several = (places,) if isinstance(places, int) else places
        inputs, spec = tree_flatten(tuple(args[k] for k in several))
        check_tensors(inputs, "primals")
        sizes = [t.numel() for t in inputs]
        level = BatchLevel(sum(sizes), randomness)
        tangents = tree_unflatten([level.wrapped(t) for t in basis_of(inputs)], spec)
        with level.active():
            found = pushed(func, args, several, tangents, has_aux)
        columns = []
        for value, t in zip(found.values, found.tangents, strict=True):
            whole = level.full(value.new_zeros(value.shape) if t is None else t)
            parts = whole.movedim(0, -1).split(sizes, -1)
            blocks = [
                p.reshape((*value.shape, *x.shape)) for p, x in zip(parts, inputs, strict=True)
            ]
            blocks = tree_unflatten(blocks, spec)
            columns.append(blocks[0] if isinstance(places, int) else blocks)
        jacobian = tree_unflatten(columns, found.spec)
        return (jacobian, found.aux) if has_aux else jacobian

    return wrapper


def basis_of(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Parts of the unit vectors of all inputs together, along a new first axis."""
    sizes = [t.numel() for t in inputs]
    found = []
    for k, t in enumerate(inputs):
        made = t.new_zeros((sum(sizes), sizes[k]))
        made.narrow(0, sum(sizes[:k]), sizes[k]).fill_diagonal_(1)
        found.append(made.reshape(sum(sizes), *t.shape))
    return found


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that gives the Hessian of `func`, forward over reverse: `jacfwd(jacrev(func))`.

    Args:
        func: a function of tensors that gives a tensor or containers of tensors.
        argnums: in which argument or arguments.

    Returns:
        A function of the same arguments: for an output of shape O and an input of shape I a tensor of shape
        O + I + I.

    Raises:
        RuntimeError: if arguments or results do not fit, with PyTorch's texts.

    Example:
        >>> adjit.func.hessian(lambda x: (x**3).sum())(adjit.tensor([1., 2.]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
