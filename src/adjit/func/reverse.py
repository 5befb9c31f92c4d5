"""Gradients of functions of tensors.

A gradient needs no tensors of its own kind: its inputs are fresh leaves, or views of what is in a graph
already, and each axis of examples around it is theirs too, so that examples have gradients of their own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..autograd.engine import AccumulateGrad, reach
from ..autograd.functional import unit_rows
from ..autograd.modes import enable_grad
from ..autograd.pulling import pull_back
from ..graph import record
from ..graph.levels import tracers
from ..graph.primitives import NO_AXES, filled
from ..graph.record import is_tensor
from ..graph.state import state
from ..ops.creation import zeros_like
from ..ops.joining import cat
from ..utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten
from .vmap import vmap

Argnums = int | tuple[int, ...]


# ----- arguments -----


def chosen(args: Sequence[Any], argnums: Argnums) -> Argnums:
    """The numbers of arguments, from the front.

    Raises:
        RuntimeError: with PyTorch's texts.
    """

    def one(k: Any) -> int:
        if not isinstance(k, int):
            raise RuntimeError(f"argnum must be int, got: {type(k)}")
        if not -len(args) <= k < len(args):
            raise RuntimeError(f"Got argnum={k}, but only {len(args)} positional inputs")
        return k % len(args)

    if isinstance(argnums, int):
        return one(argnums)
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    found = tuple(map(one, argnums))
    if not found:
        raise RuntimeError("argnums must be non-empty")
    if len(set(found)) < len(found):
        raise RuntimeError(f"argnums elements must be unique, got {found}")
    return found


def fresh(x: Any, run: Differentiated) -> Any:
    """What a function is differentiated in: a tensor of its own for each example of the levels around."""
    if not is_tensor(x):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    for level in state.levels:
        x = level.dressed(level.stripped(x))
    return _marked(x, run)


def _marked(x: Any, run: Differentiated) -> Any:
    if x.__class__ in tracers:
        return x._like(_marked(x._value, run))
    if not x.dtype.is_floating_point:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if record.needs_grad(x):
        return x.view_as(x)
    leaf = (x.clone() if x.is_inference() else x).detach()
    leaf._needs_grad = True
    leaf.__dict__[RUN] = run
    return leaf


RUN = "_run_of_a_transform"  # the attribute that tells leaves made here from the user's


class Differentiated:
    """A function that is being differentiated; its leaves are variables to those around it until it is done."""

    def __init__(self) -> None:
        self.is_active = True

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """A block in which the function is called."""
        before = state.inside
        state.inside = True
        try:
            with enable_grad():
                yield
        finally:
            state.inside = before


# ----- a function that was recorded -----


class Recorded(NamedTuple):
    """What a function gave for fresh inputs."""

    results: Any
    inputs: Any
    aux: Any
    goes_on: bool  # whether its graph leads to more than its inputs

    def pulled(self, cotangents: Sequence[Any], *, keep: bool = True) -> Any:
        """The gradients of the inputs, in their containers."""
        inputs, spec = tree_flatten(self.inputs)
        create = state.grad and (self.goes_on or any(_needs_grad(g) for g in cotangents))
        roots = tree_leaves(self.results)
        found = pull_back(roots, cotangents, inputs, keep=keep or create, create=create)
        return tree_unflatten(
            [zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True)], spec
        )

    def let_go(self, tree: Any) -> Any:
        """Results as they are outside: without the fresh inputs."""
        if self.goes_on:
            return tree
        return tree_map(_cut_off, tree)


def _cut_off(t: Any) -> Any:
    """The same without history; tangents stay, whatever level they are of."""
    if not is_tensor(t):
        return t
    return t._changed(_cut_off) if t.__class__ in tracers else t.detach()


def _needs_grad(t: Any) -> bool:
    return any(map(record.needs_grad, _ends(t)))


def _ends(t: Any) -> list[Any]:
    """The tensors in the graph that a tracer stands for, tangents among them."""
    return [end for part in t._parts() for end in _ends(part)] if t.__class__ in tracers else [t]


def recorded(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], argnums: Argnums | None,
    unpack: Callable[[Any], tuple[Any, Any]],
) -> Recorded:  # fmt: skip
    """Call a function with fresh inputs; `unpack` checks what it gives and takes off what is beside
    its results."""
    outside = state.grad
    run = Differentiated()
    marked = functools.partial(fresh, run=run)
    with run.inside():
        given = list(args)
        if argnums is None:
            inputs = given = tree_map(marked, tuple(given))
        else:
            places = (argnums,) if isinstance(argnums, int) else argnums
            for k in places:
                given[k] = tree_map(marked, given[k])
            inputs = (
                given[argnums] if isinstance(argnums, int) else tuple(given[k] for k in argnums)
            )
        results, aux = unpack(func(*given, **kwargs))
    own = {id(_bottom(t)) for t in tree_leaves(inputs)}
    run.is_active = False
    goes_on = outside and _leads_further(tree_leaves((results, aux)), own)
    return Recorded(results, inputs, aux, goes_on)


def _bottom(t: Any) -> Any:
    """The tensor that a tracer stands for in the end."""
    while t.__class__ in tracers:
        t = t._value
    return t


def _leads_further(roots: Sequence[Any], own: set[int]) -> bool:
    """Whether the graph of tensors has leaves that are not among these, nor inputs of what is done."""
    edges = [record.edge_of(end) for t in roots if is_tensor(t) for end in _ends(t)]
    found = list({edge[0] for edge in edges if edge is not None})
    ends = reach(found, set(found))
    return any(
        isinstance(fn, AccumulateGrad) and id(fn.variable) not in own and _is_variable(fn.variable)
        for fn in ends
    )


def _is_variable(leaf: Any) -> bool:
    run = leaf.__dict__.get(RUN)
    return run is None or run.is_active


# ----- vjp -----


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Call `func`, and give a function of the gradients of its results which gives those of its inputs.

    Args:
        func: a function of tensors, or containers of them, which gives such of a floating dtype.
        primals: its arguments.
        has_aux: whether `func` returns a pair, of which the second is passed on.

    Returns:
        (output, vjp_fn) or (output, vjp_fn, aux). `vjp_fn` gives a tuple with one entry for each of
        `primals`; it may be called again, and with `vmap`.

    Raises:
        RuntimeError: if `func` gives something else, with PyTorch's texts.

    Example:
        >>> output, vjp_fn = adjit.func.vjp(adjit.square, adjit.tensor([1., 2.]))
        >>> vjp_fn(adjit.tensor([1., 10.]))
        (tensor([ 2., 40.]),)
    """
    found, vjp_fn = vjp_of(func, primals, None, has_aux)
    output = found.let_go(found.results)
    return (output, vjp_fn, found.let_go(found.aux)) if has_aux else (output, vjp_fn)


def vjp_of(
    func: Callable[..., Any], args: Sequence[Any], argnums: Argnums | None, has_aux: bool
) -> tuple[Recorded, Callable[..., Any]]:
    """What a function gave, and its `vjp` in some of the arguments."""

    def unpack(made: Any) -> tuple[Any, Any]:
        aux = None
        if has_aux:
            if not (isinstance(made, tuple) and len(made) == 2):
                raise RuntimeError(
                    "vjp(f, *primals): output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            made, aux = made
        check_tensors(tree_leaves(made), "vjp(f, *primals)")
        for t in tree_leaves(made):
            if not t.dtype.is_floating_point:
                raise RuntimeError(
                    "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with "
                    f"dtype torch.{t.dtype.name}"
                )
        return made, aux

    found = recorded(func, args, {}, argnums, unpack)
    spec = tree_flatten(found.results)[1]

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        """The gradients of the inputs of what was differentiated."""
        given, structure = tree_flatten(cotangents)
        if structure != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {structure_text(structure)}, primal output: {structure_text(spec)}"
            )
        for g, t in zip(given, tree_leaves(found.results), strict=True):
            if g.shape != t.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[0] has a shape of torch.Size({list(g.shape)}) and "
                    f"output[0] has a shape of torch.Size({list(t.shape)})."
                )
        return found.pulled(given, keep=retain_graph)

    return found, vjp_fn


def structure_text(spec: TreeSpec) -> str:
    """A structure as PyTorch's messages show it, `*` for a leaf."""
    return repr(tree_unflatten([_STAR] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


_STAR = _Star()


def check_tensors(output: Sequence[Any], api: str) -> None:
    """Raise if a function gave nothing, or something that is no tensor."""
    if not output or (len(output) == 1 and output[0] is None):
        raise RuntimeError(
            f"{api}: Expected f to be a function that has non-empty output (got output = {output})"
        )
    for t in output:
        if not is_tensor(t):
            raise RuntimeError(
                f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(t)}"
            )


# ----- grad -----


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradients of `func`, which gives a scalar, and its value.

    Args:
        func: a function whose result is a tensor without axes.
        argnums: in which argument or arguments.
        has_aux: whether `func` returns a pair, of which the second is passed on.

    Returns:
        A function that gives (gradients, value) or (gradients, (value, aux)): for one argument its gradient, in
        containers like the argument; for several a tuple.

    Raises:
        RuntimeError: if `func` gives something else, with PyTorch's texts.

    Example:
        >>> adjit.func.grad_and_value(adjit.square)(adjit.tensor(3.))
        (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = recorded(
            func, args, kwargs, chosen(args, argnums), lambda made: _scalar(made, has_aux)
        )
        gradients = found.pulled([_one(found.results)], keep=False)
        value = found.let_go(found.results)
        return gradients, ((value, found.let_go(found.aux)) if has_aux else value)

    return wrapper


def _scalar(made: Any, has_aux: bool) -> tuple[Any, Any]:
    """A result that is a tensor without axes, and what is beside it."""
    aux = None
    if has_aux:
        if not (isinstance(made, tuple) and len(made) == 2):
            raise RuntimeError(
                "grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is "
                "True"
            )
        made, aux = made
    if not is_tensor(made):
        raise RuntimeError(
            f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(made)}"
        )
    if made.ndim:
        raise RuntimeError(
            "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
            f"{made.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    return made, aux


def _one(t: Any) -> Any:
    return filled(NO_AXES, 1, t.dtype, t.device)


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradients of `func`, which gives a scalar.

    Args:
        func: a function whose result is a tensor without axes.
        argnums: in which argument or arguments.
        has_aux: whether `func` returns a pair, of which the second is passed on.

    Returns:
        A function that gives the gradients or (gradients, aux): for one argument its gradient, in containers
        like the argument; for several a tuple.

    Raises:
        RuntimeError: if `func` gives something else, with PyTorch's texts.

    Example:
        >>> adjit.func.grad(adjit.func.grad(adjit.sin))(adjit.tensor(0.5))
        tensor(-0.4794)
        >>> per_example = adjit.func.vmap(adjit.func.grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))
        >>> per_example(adjit.ones(2), adjit.tensor([[1., 2.], [3., 4.]]))
        tensor([[1., 2.],
                [3., 4.]])
    """
    with_value = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, value = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


# ----- jacrev -----


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, all rows in one backward pass.

    Args:
        func: a function of tensors that gives one, or containers of them.
        argnums: in which argument or arguments.
        has_aux: whether `func` returns a pair, of which the second is passed on.
        chunk_size: how many rows are computed at once, None for all.

    Returns:
        A function that gives, for each tensor of the results, one for each of the arguments, of shape
        (*output, *input).

    Raises:
        ValueError: if `chunk_size` is not positive.
        RuntimeError: if `func` gives something else, with PyTorch's texts.

    Example:
        >>> adjit.func.jacrev(adjit.square)(adjit.tensor([1., 2.]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        numbers = chosen(args, argnums)
        found, vjp_fn = vjp_of(func, args, numbers, has_aux)
        outputs, output_spec = tree_flatten(found.results)
        places = (numbers,) if isinstance(numbers, int) else numbers
        inputs, input_spec = tree_flatten(tuple(args[k] for k in places))
        rows = _rows(vjp_fn, outputs, output_spec, chunk_size)
        counts = [t.numel() for t in outputs]
        parts = [g.split(counts) for g in rows]
        made = []
        for k, out in enumerate(outputs):
            blocks = [
                part[k].reshape((*out.shape, *t.shape))
                for part, t in zip(parts, inputs, strict=True)
            ]
            of_inputs = tree_unflatten(blocks, input_spec)
            made.append(of_inputs[0] if isinstance(numbers, int) else of_inputs)
        jacobian = tree_unflatten(made, output_spec)
        return (jacobian, found.let_go(found.aux)) if has_aux else jacobian

    return wrapper


def _rows(
    vjp_fn: Callable[..., Any], outputs: Sequence[Any], spec: TreeSpec, chunk_size: int | None
) -> list[Any]:
    """The Jacobian of each input, of shape (all outputs, *input)."""
    counts = [t.numel() for t in outputs]
    total = sum(counts)
    step = total if chunk_size is None else chunk_size
    found = []
    for start in range(0, total, step) if total else (0,):
        stop = min(start + step, total)
        parts = unit_rows(outputs, counts, start, stop)
        if chunk_size == 1:  # without vmap, which not every function can take
            row = vjp_fn(tree_unflatten([part[0] for part in parts], spec))
            found.append([g.unsqueeze(0) for g in tree_leaves(row)])
        else:
            found.append(tree_leaves(vmap(vjp_fn)(tree_unflatten(parts, spec))))
    return found[0] if len(found) == 1 else [cat(list(part)) for part in zip(*found, strict=True)]


# ----- linearize -----


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Call `func`, and give its derivative there: a linear function of tangents of the inputs.

    `func` is called once. The derivative is the transpose of its `vjp`, which is recorded once too.

    Args:
        func: a function of tensors, or containers of them, which gives such of a floating dtype.
        primals: its arguments.

    Returns:
        (output, jvp_fn): `jvp_fn` takes a tangent for each of `primals`, and gives one of the output.

    Raises:
        RuntimeError: if tangents are not like the inputs, with PyTorch's texts.

    Example:
        >>> output, jvp_fn = adjit.func.linearize(adjit.square, adjit.tensor([1., 2.]))
        >>> jvp_fn(adjit.tensor([1., 10.]))
        tensor([ 2., 40.])
    """
    recording, vjp_fn = vjp_of(func, primals, None, False)
    output = recording.let_go(recording.results)
    outputs, output_spec = tree_flatten(output)
    inputs, input_spec = tree_flatten(primals)
    with enable_grad():
        cotangents = [fresh(zeros_like(t).detach(), Differentiated()) for t in outputs]
        gradients = tree_leaves(vjp_fn(tree_unflatten(cotangents, output_spec)))

    def jvp_fn(*tangents: Any) -> Any:
        """The tangent of the output."""
        given, spec = tree_flatten(tangents)
        if spec != input_spec:
            raise RuntimeError(
                f"Expected the tangents {spec} to have the same argspec as the primals {input_spec}"
            )
        for k, (t, x) in enumerate(zip(given, inputs, strict=True)):
            for what in ("shape", "device", "dtype"):
                if getattr(t, what) != getattr(x, what):
                    raise RuntimeError(
                        f"tangent:{k} with {what} {getattr(t, what)} in flattened pytree doesn't match the "
                        f"{what} {getattr(x, what)} of the corresponding primal."
                    )
        own = {id(_bottom(t)) for t in (*cotangents, *tree_leaves(recording.inputs))}
        create = state.grad and _leads_further([*gradients, *given], own)
        found = pull_back(gradients, given, cotangents, keep=True, create=create)
        return tree_unflatten(
            [zeros_like(t) if g is None else g for g, t in zip(found, outputs, strict=True)],
            output_spec,
        )

    return output, jvp_fn
