"""Functions with a backward written by the user."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..graph import inplace, record
from ..graph.levels import is_traced, level_of, tracers
from ..graph.node import IN_FUNCTION, MULTIPLE, GradContext, GradNode, View, node_class
from ..graph.saved import FREED, Packed, modified_error, packed
from ..graph.state import below, record_gradients, resume_gradients, state
from ..ops.creation import zeros
from .batched_function import NO_SETUP, apply_to_examples
from .dual import DualLevel


class FunctionOp:
    """The op behind the backward node of a user's function."""

    def __init__(self, cls: type[Function]) -> None:
        self.cls = cls
        self.backward_name = f"{cls.__name__}Backward"
        has_backward = cls.backward is not Function.backward
        self.backward = cls.backward if has_backward else getattr(cls, "vjp", cls.backward)
        if has_backward and hasattr(cls, "vjp"):
            self.backward = _refuse_both
        self.node_class = type(self.backward_name, (FunctionNode,), {"__slots__": ()})

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """That of `forward`."""
        return inspect.signature(self.cls.forward)

    @functools.cached_property
    def by_position(self) -> int:
        """How many arguments `forward` takes by position."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(p.kind in kinds for p in self.signature.parameters.values())

    def with_defaults(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as `setup_context` gets them: by position, with those left out."""
        if len(args) >= self.by_position and not kwargs:
            return args, kwargs
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def apply_vjp(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """Call the user's backward and check what it returns."""
        ctx = fn.context
        assert isinstance(ctx, FunctionCtx)
        grads = record.as_tensors(fn, grads)
        if ctx.materialize_grads:
            grads = [
                zeros(spec.shape, dtype=spec.dtype, device=spec.device)
                if g is None and spec is not None
                else g
                for g, spec in zip(grads, fn.outputs, strict=True)
            ]
        found = self.backward(ctx, *grads)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        expected = len(fn.edges)
        if len(results) > expected and all(r is None for r in results[expected:]):
            results = results[:expected]
        if len(results) != expected:
            raise RuntimeError(
                f"function {self.backward_name} returned an incorrect number of gradients "
                f"(expected {expected}, got {len(results)})"
            )
        for k, (g, spec) in enumerate(zip(results, fn.inputs, strict=True)):
            if g is None:
                continue
            if not record.is_tensor(g):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
            if fn.edges[k] is None:
                if spec is None:
                    raise RuntimeError(
                        f"function {self.backward_name} returned a gradient different from None at "
                        f"position {k + 1}, but the corresponding forward input was not a Variable"
                    )
                continue
            assert spec is not None
            if g.shape != spec.shape and not _expandable(spec.shape, g.shape):
                raise RuntimeError(
                    f"Function {self.backward_name} returned an invalid gradient at index {k} - "
                    f"got {list(g.shape)} but expected shape compatible with {list(spec.shape)}"
                )
        return results

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """What the context saved."""
        if name == "tensors":
            assert isinstance(fn.context, FunctionCtx)
            return fn.context.saved_tensors
        raise AttributeError(f"'{self.backward_name}' object has no attribute '_saved_{name}'")


def _refuse_both(*args: Any) -> NoReturn:
    """The backward of a function that has two."""
    raise RuntimeError(
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
        "implement one of them."
    )


def _expandable(small: Any, large: Any) -> bool:
    if len(small) > len(large):
        return False
    return all(s in (1, n) for s, n in zip(reversed(small), reversed(large), strict=False))


class FunctionNode(GradNode):
    """The backward node of a user's function; the context's attributes are reachable through it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.context, name)


class FunctionCtx(GradContext):
    """What `forward` leaves for `backward`. Any attribute can be set on it."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    saved_for_forward: tuple[Any, ...] = ()
    _is_pushing = False  # whether `jvp` runs
    _saved: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()
    _node: Any = None
    _differentiable: Sequence[bool] = ()  # which outputs are

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (or None) for backward; they come back as `saved_tensors`, version-checked.

        Raises:
            TypeError: on anything else.
        """
        for t in tensors:
            if t is not None and not record.is_tensor(t):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {tensors.index(t)} "
                    f"is of type {type(t).__name__}"
                )
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors (or None) for `jvp`, where they are `saved_tensors`.

        Raises:
            AssertionError: on anything else.
        """
        if not all(t is None or record.is_tensor(t) for t in tensors):
            raise AssertionError(
                "save_for_forward expects all arguments to be tensors; you should save non-tensors as "
                "attributes on ctx."
            )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Say that `forward` wrote into these inputs and returns them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these outputs carry no gradients."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether undefined gradients reach `backward` as zeros (the default) or as None."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved.

        Raises:
            RuntimeError: if it was freed by an earlier backward, or overwritten since.
        """
        if self._is_pushing:
            return self.saved_for_forward
        node = self._node() if self._node is not None else None
        if node is None:
            return self._saved
        if node.saved is None:
            raise RuntimeError(FREED)
        found: list[Any] = []
        for kept in node.saved:
            if kept is None:
                found.append(None)
                continue
            t, version, nr = kept
            if t.__class__ is Packed:
                t = t.unpack()
                if nr is not None:
                    record.give_history(t, node, nr)
                found.append(t)
                continue
            if t._version_counter.version != version:
                kept = t if nr is None else t._storage  # an output is named after this function
                raise modified_error(node, kept, t._version_counter, version, t._spec)
            if nr is not None:
                t = t.detach()
                record.give_history(t, node, nr)
            found.append(t)
        return tuple(found)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`, which warns."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors


class _Static(type):
    """Refuses instances: everything is a static method."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )


class Function(metaclass=_Static):
    """A differentiable function with a backward of your own.

    Subclass it with static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, or
    with `forward(*args)` and `setup_context(ctx, inputs, output)`; call it with `apply`.

    Example:
        >>> class Square(adjit.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = adjit.tensor(3., requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs from the inputs: static, written by the subclass.

        Example:
            >>> class Double(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         return 2 * x
            >>> Double.apply(adjit.tensor([1., 2.]))
            tensor([2., 4.])
        """
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save for `backward`, where `forward` takes no context: static, written by the subclass.

        Example:
            >>> class Square(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(x):
            ...         return x * x
            ...     @staticmethod
            ...     def setup_context(ctx, inputs, output):
            ...         ctx.save_for_backward(inputs[0])
            >>> Square.apply(adjit.tensor([1., 2.]))
            tensor([1., 4.])
        """
        raise NotImplementedError("setup_context is not implemented.")

    _op: FunctionOp
    generate_vmap_rule = False  # whether `vmap` runs forward and backward on examples

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Compute the outputs of many examples: static, written by the subclass.

        Gets `info.batch_size` and `info.randomness`, for each argument the axis of the examples or None, and
        the arguments; returns the outputs and their axes. With `generate_vmap_rule = True` there need not be
        one.

        Example:
            >>> class Double(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(x):
            ...         return 2 * x
            ...     @staticmethod
            ...     def setup_context(ctx, inputs, output):
            ...         pass
            ...     @staticmethod
            ...     def vmap(info, in_dims, x):
            ...         return Double.apply(x), in_dims[0]
            >>> adjit.func.vmap(Double.apply)(adjit.tensor([1., 2.]))
            tensor([2., 4.])
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Turn gradients of the outputs into gradients of the inputs: static, written by the subclass.

        Example:
            >>> class Double(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         return 2 * x
            ...     @staticmethod
            ...     def backward(ctx, grad):
            ...         return 2 * grad
            >>> x = adjit.tensor(3., requires_grad=True)
            >>> Double.apply(x).backward()
            >>> x.grad
            tensor(2.)
        """
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Turn tangents of the inputs into tangents of the outputs: static, written by the subclass.

        It gets one argument for each input, None for what is no tensor, zeros for a tensor without a tangent
        (None after `ctx.set_materialize_grads(False)`); `ctx.saved_tensors` is what `save_for_forward` saved.

        Example:
            >>> class Square(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         ctx.save_for_forward(x)
            ...         return x * x
            ...     @staticmethod
            ...     def jvp(ctx, t):
            ...         (x,) = ctx.saved_tensors
            ...         return 2 * x * t
            >>> adjit.func.jvp(Square.apply, (adjit.tensor(3.),), (adjit.tensor(1.),))
            (tensor(9.), tensor(6.))
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function and record it, so that `backward` is called on the way back.

        Example:
            >>> class Double(adjit.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         return 2 * x
            >>> Double.apply(adjit.tensor([1., 2.]))
            tensor([2., 4.])
        """
        if cls.setup_context is not Function.setup_context:
            args, kwargs = _op_of(cls).with_defaults(args, kwargs)
        level: Any = level_of(args) if tracers else None
        if isinstance(
            level, DualLevel
        ):  # what is in lists is no input, here as everywhere but in vmap
            if is_traced(args):
                return _pushed(cls, level, args, kwargs)
        elif level is not None:
            return apply_to_examples(Function, cls, level, args, kwargs)
        if state.inside and cls.setup_context is Function.setup_context:
            raise RuntimeError(NO_SETUP)
        return cls._applied(FunctionCtx(), *args, **kwargs)

    @classmethod
    def _applied(cls, ctx: FunctionCtx, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and record it with its context."""
        tensors = [a for a in args if record.is_tensor(a)]
        ctx.needs_input_grad = tuple(record.is_tensor(a) and record.needs_grad(a) for a in args)
        wanted = state.grad and any(ctx.needs_input_grad)
        separate = cls.setup_context is not Function.setup_context
        edges = [
            record.edge_of(a) if record.is_tensor(a) and record.needs_grad(a) else None
            for a in args
        ]
        versions = {id(t): t._version_counter.version for t in tensors}
        before, forward = record_gradients(False), state.forward
        try:
            if not is_traced(args):
                state.forward = ()  # nothing that has a tangent can be written
            if separate:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        finally:
            state.forward = forward
            if before and not state.grad:
                resume_gradients()
            else:
                record_gradients(before)
        outs = output if isinstance(output, tuple) else (output,)
        made = _finish(cls, ctx, outs, tensors, edges, args, wanted, versions)
        return made if isinstance(output, tuple) else made[0]


NOT_IN_PLACE = (
    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
    "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
)

NO_VIEW = (
    "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a "
    "view."
)
OTHER_VIEW = (
    "A custom Function is returning a view but the jvp is not returning a view of the given grad "
    "input."
)


def _pushed(cls: type[Function], level: DualLevel, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function on values, its `jvp` on tangents."""
    ctx = FunctionCtx()
    values = level.value(args)
    with below(level):
        made = cls._applied(ctx, *values, **kwargs)
    outs = made if isinstance(made, tuple) else (made,)
    tangents = [level.tangent(a) if record.is_tensor(a) else None for a in args]
    if ctx.materialize_grads:
        tangents = [
            v.new_zeros(v.shape)
            if t is None and record.is_tensor(v) and v.dtype.is_floating_point
            else t
            for t, v in zip(tangents, values, strict=True)
        ]
    tangents = [  # what is written there is not to be seen in what an op has passed on
        t.clone() if t is not None and any(v is d for d in ctx._dirty) else t
        for t, v in zip(tangents, values, strict=True)
    ]
    versions = [None if t is None else t._version_counter.version for t in tangents]
    ctx._is_pushing = True
    try:
        with below(level):
            found = cls.jvp(ctx, *tangents)
    finally:
        ctx._is_pushing = False
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(results) != len(outs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(outs)} but got "
            f"{len(results)})"
        )
    duals: list[Any] = []
    for k, (o, t) in enumerate(zip(outs, results, strict=True)):
        if t is not None and not record.is_tensor(t):
            raise RuntimeError(
                f"expected Variable or None (got {type(t).__name__}) for grad output {k}."
            )
        if t is not None and not ctx._differentiable[k]:
            raise RuntimeError(
                f"Function's jvp returned a gradient at position {k}, but  the corresponding forward output "
                "is not a differentiable Tensor.You should return None at that position instead."
            )
        written = next((j for j, v in enumerate(values) if v is o), None)
        if written is None and t is not None and o._view_of is not None:
            _check_is_view(o, t, values, tangents)
        if written is not None and any(o is d for d in ctx._dirty) and level.has(args[written]):
            is_changed = t is not None and t._version_counter.version != versions[written]
            if t is not tangents[written] or not is_changed:
                raise RuntimeError(NOT_IN_PLACE)
            level.write_tangent(args[written], t)
            duals.append(args[written])
        elif record.is_tensor(o) and t is not None:
            duals.append(level.made_of(o, t))
        else:
            duals.append(o)
    return tuple(duals) if isinstance(made, tuple) else duals[0]


def _check_is_view(out: Any, tangent: Any, values: list[Any], tangents: list[Any]) -> None:
    """Refuse a tangent that is not to the tangent of an input what `out`, a view, is to that input."""
    if is_traced((out, tangent)):
        return  # of what is behind them nothing is known here
    if tangent._view_of is None:
        raise RuntimeError(NO_VIEW)
    for v, t in zip(values, tangents, strict=True):
        if t is None or is_traced((v, t)) or v._storage is not out._storage:
            continue
        if t._storage is not tangent._storage:
            raise RuntimeError(OTHER_VIEW)


def _finish(
    cls: type[Function], ctx: FunctionCtx, outs: tuple[Any, ...], tensors: list[Any],
    edges: list[Any], args: tuple[Any, ...], wanted: bool, versions: dict[int, int],
) -> tuple[Any, ...]:  # fmt: skip
    """Give the outputs of a user's function their history."""
    import weakref

    dirty = {id(t) for t in ctx._dirty}
    if not dirty <= {id(o) for o in outs}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. "
            "The inputs that are modified inplace must all be outputs of the Function."
        )
    constant = {id(t) for t in ctx._constant}
    given = {id(t) for t in tensors}
    specs = [a._spec if record.is_tensor(a) else None for a in args]
    node = record.new_grad_node(_op_of(cls), edges, tuple(specs))
    node.context = ctx
    node.outputs = tuple(o._spec if record.is_tensor(o) else None for o in outs)
    ctx._differentiable = differentiable = [
        record.is_tensor(o) and o._spec.dtype.is_floating_point and id(o) not in constant
        for o in outs
    ]
    results = []
    numbers: dict[int, int] = {}
    for k, o in enumerate(outs):
        if not record.is_tensor(o):
            results.append(o)
            continue
        if id(o) in dirty:
            if wanted:
                if o._fn is None and o._needs_grad:
                    raise RuntimeError(
                        "a leaf Variable that requires grad has been used in an in-place operation."
                    )
                written = o.detach()
                record.give_history(written, node, k)
                inplace.rewrite_history(o, written)
            results.append(o)
            numbers[id(o)] = k
            continue
        is_recorded = wanted and differentiable[k]
        out = o.detach() if id(o) in given else o
        if out._view_of is not None or (out is not o and (is_recorded or not record.needs_grad(o))):
            base = o if o._view_of is None else o._view_of.base
            kind = MULTIPLE if wanted and sum(differentiable) > 1 else IN_FUNCTION
            out._view_of = View(base, o._version_counter.version, kind)
        if is_recorded:
            record.give_history(out, node, k)
            numbers[id(o)] = k
        elif out._needs_grad and out._view_of is None:
            out = out.detach()  # what `forward` recorded is its own affair
        results.append(out)
    if wanted:
        kept: list[Any] = []
        for t in ctx._saved:
            if t is None:
                kept.append(None)
            elif id(t) in numbers and id(t) not in given:
                kept.append((t.detach(), t._version_counter.version, numbers[id(t)]))
            elif id(t) in dirty:
                kept.append((t.detach(), t._version_counter.version, numbers.get(id(t))))
            else:
                kept.append((t, t._version_counter.version, None))
        if state.saving:
            kept = [packed(one) for one in kept]
        node.saved = kept
        ctx._node = weakref.ref(node)
        ctx._saved = ()
    return tuple(results)


def _op_of(cls: type[Function]) -> FunctionOp:
    """What the class of a function keeps, so that it goes when the class goes."""
    op: FunctionOp | None = cls.__dict__.get("_op")
    if op is None:
        op = FunctionOp(cls)
        cls._op = op
    return op


class InplaceFunction(Function):
    """`Function`, by a name that old programs derive from.

    Example:
        >>> class Sign(adjit.autograd.function.InplaceFunction):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x.sign()
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return grad
        >>> Sign.apply(adjit.tensor([-2., 3.]))
        tensor([-1.,  1.])
    """


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that is not differentiable itself: a second derivative is an error."""

    @functools.wraps(function)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        with_history = state.grad and any(
            record.is_tensor(g) and record.needs_grad(g) for g in grads
        )
        before = record_gradients(False)
        try:
            found = function(ctx, *grads)
        finally:
            if before and not state.grad:
                resume_gradients()
            else:
                record_gradients(before)
        if not with_history:
            return found
        results = found if isinstance(found, tuple) else (found,)
        node = None if ctx._node is None else ctx._node()
        edges = [record.edge_of(g) for g in grads if record.is_tensor(g)]
        behind = [e for e in (*edges, *(() if node is None else node.edges)) if e is not None]
        refusing = tuple(blocked(r, ONCE, behind) if record.is_tensor(r) else r for r in results)
        return refusing if isinstance(found, tuple) else refusing[0]

    return wrapped


ONCE = "trying to differentiate twice a function that was marked with @once_differentiable"


class Refusal(GradContext):
    """Why gradients cannot be differentiated."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


class _Refuse:
    """The op behind gradients that cannot be differentiated."""

    backward_name = "adjit::autograd::Error"
    node_class = node_class(backward_name)

    def apply_vjp(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        assert isinstance(fn.context, Refusal)
        raise RuntimeError(fn.context.why)

    def saved_value(self, fn: GradNode, name: str) -> Any:
        """Nothing is saved."""
        raise AttributeError(f"'Error' object has no attribute '_saved_{name}'")


_refuse = _Refuse()


def blocked(t: Any, why: str, edges: Sequence[Any] = ()) -> Any:
    """`t` with a history that cannot be sent back through: that is an error with the text `why`.

    `edges` lead to what it depends on, or who asks for the gradients of that would hear it is unused.
    """
    out = t.detach()
    node = record.new_grad_node(_refuse, edges, (None,) * len(edges))
    node.outputs = (out._spec,)
    node.context = Refusal(why)
    record.give_history(out, node)
    return out
