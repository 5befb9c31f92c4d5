"""Less memory for more time: parts of a model are computed again in backward."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ..autograd.api import backward
from ..autograd.function import Function
from ..autograd.graph import saved_tensors_hooks
from ..autograd.modes import enable_grad, no_grad
from ..graph.state import running_walk
from ..ops.creation import empty
from ..random import fork_rng, get_rng_state, set_rng_state
from ..tensor import Tensor
from ._pytree import tree_leaves

__all__ = [
    "CheckpointError", "CheckpointFunction", "checkpoint", "checkpoint_sequential", "get_device_states",
    "noop_context_fn", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

Contexts: TypeAlias = Callable[[], tuple[Any, Any]]
_stops_early: bool | None = None  # what `set_checkpoint_early_stop` says


class CheckpointError(RuntimeError):
    """Says that what is computed again is not what was computed before.

    Example:
        >>> issubclass(adjit.utils.checkpoint.CheckpointError, RuntimeError)
        True
    """


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Give the states of the generators of the GPUs where tensors lie, however nested the arguments are.

    They are the state of the default generator, which draws for all devices.

    Returns:
        The numbers of the GPUs, one for each tensor there, and the states.

    Example:
        >>> adjit.utils.checkpoint.get_device_states([adjit.ones(2)], 3)
        ([], [])
    """
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_cuda]
    places = [t.get_device() for t in tensors]
    return places, [get_rng_state() for _ in places]


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Set the generators of GPUs to states that `get_device_states` gave.

    Args:
        devices: the numbers of the GPUs.
        states: a state for each.
        device_type: `"cuda"`, as without it; nothing is done for `"meta"`.

    Example:
        >>> adjit.utils.checkpoint.set_device_states([], [])
    """
    if device_type == "meta":
        return
    for _, rng_state in zip(devices, states, strict=False):
        set_rng_state(rng_state)


class _EnoughError(Exception):
    """All that is needed has been computed again."""


def noop_context_fn() -> tuple[Any, Any]:
    """Give two contexts that do nothing, which is the default `context_fn`.

    Example:
        >>> forward, again = adjit.utils.checkpoint.noop_context_fn()
        >>> with forward:
        ...     pass
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Say, for a `with` block, whether computing again stops at the last tensor that is needed.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> with adjit.utils.checkpoint.set_checkpoint_early_stop(False):
        ...     y = adjit.utils.checkpoint.checkpoint(adjit.sin, x, use_reentrant=False)
    """
    global _stops_early
    before, _stops_early = _stops_early, enable
    try:
        yield
    finally:
        _stops_early = before


@contextlib.contextmanager
def _drawing_as(rng_state: Tensor | None) -> Iterator[None]:
    """Draw the random numbers that were drawn from a state on; afterwards go on as before."""
    with fork_rng(enabled=rng_state is not None):
        if rng_state is not None:
            set_rng_state(rng_state)
        yield


class CheckpointFunction(Function):
    """The function behind `checkpoint(..., use_reentrant=True)`: its backward computes again.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> adjit.utils.checkpoint.CheckpointFunction.apply(adjit.sin, True, x).sum().backward()
        >>> x.grad
        tensor([0.5403, 0.5403])
    """

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Compute without recording."""
        if not any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            warnings.warn(
                "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3
            )
        ctx.run_function = run_function
        ctx.rng_state = get_rng_state() if preserve_rng_state else None
        ctx.others = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.places = [k for k, arg in enumerate(args) if isinstance(arg, Tensor)]
        ctx.save_for_backward(*[args[k] for k in ctx.places])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute again, now recording, and send the gradients back through that."""
        if not running_walk().is_whole:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can either "
                "set use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        inputs = [*ctx.others]
        for k, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[k] = t.detach().requires_grad_(t.requires_grad)
        with _drawing_as(ctx.rng_state), enable_grad():
            outputs = ctx.run_function(*inputs)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [
            (out, grad)
            for out, grad in zip(outputs, grad_outputs, strict=True)
            if isinstance(out, Tensor) and out.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        backward([out for out, _ in pairs], [grad for _, grad in pairs])
        grads = [t.grad if isinstance(t, Tensor) else None for t in inputs]
        return None, None, *grads


class _Saver(Function):
    """Saves tensors where hooks around a checkpoint, those of an outer one, get to see them."""

    @staticmethod
    def forward(ctx: Any, needs_grad: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return empty(0)


class _Checkpoint:
    """One call of a function whose saved tensors are thrown away, and computed again."""

    def __init__(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        rng_state: Tensor | None, context: Any, is_checked: bool, stops_early: bool,
    ) -> None:  # fmt: skip
        self.function, self.kwargs, self.rng_state, self.context = (
            function, kwargs, rng_state, context,
        )  # fmt: skip
        self.is_checked, self.stops_early = is_checked, stops_early
        self.has_returned = (
            False  # before, a backward inside of the function asks for what it has saved so far
        )
        self.saved: list[dict[str, Any]] = []  # what each saved tensor looked like
        self.again: dict[int, Tensor] = {}  # those that were computed again, by number
        self.others = [None if isinstance(arg, Tensor) else arg for arg in args]
        self.places = [k for k, arg in enumerate(args) if isinstance(arg, Tensor)]
        with enable_grad():
            saver = _Saver.apply(empty(0, requires_grad=True), *[args[k] for k in self.places])
        self.saver = saver.grad_fn

    def pack(self, t: Tensor) -> int:
        """Keep the number of a tensor in its place."""
        self.saved.append(_look_of(t))
        return len(self.saved) - 1

    def unpack(self, number: int) -> Tensor:
        """The tensor; each is kept until it is asked for once."""
        if number not in self.again:
            self._compute()
        return self.again.pop(number)

    def _compute(self) -> None:
        args = [*self.others]
        for k, t in zip(self.places, self.saver.saved_tensors, strict=True):
            args[k] = t
        self.again.clear()
        count = 0

        def keep(t: Tensor) -> Tensor:
            nonlocal count
            if count >= len(self.saved):
                if not self.has_returned:
                    return t
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than "
                    "during the original forward pass."
                )
            self.again[count] = t
            count += 1
            if self.stops_early and count == len(self.saved):
                raise _EnoughError
            return t

        hooks = saved_tensors_hooks(keep, lambda t: t)
        drawing = _drawing_as(self.rng_state)
        with contextlib.suppress(_EnoughError), drawing, self.context, hooks, enable_grad():
            self.function(*args, **self.kwargs)
        if count != len(self.saved):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                f"original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self.saved)}\nNumber of tensors saved during recomputation: {count}."
            )
        looks = [(k, before, _look_of(self.again[k])) for k, before in enumerate(self.saved)]
        changed = [look for look in looks if look[1] != look[2]]
        if changed and self.is_checked:
            listed = "\n".join(
                f"tensor at position {k}:\nsaved metadata: {before}\nrecomputed metadata: {now}"
                for k, before, now in changed
            )
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different "
                f"metadata than during the forward pass.\n{listed}."
            )


def _look_of(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function whose intermediate results are not kept, but computed again in backward.

    Chen et al., *Training Deep Nets with Sublinear Memory Cost*, arXiv:1604.06174.

    Args:
        function: computes the same each time that it is called.
        args: its arguments, which are kept.
        use_reentrant: False is recommended; True runs a backward inside of backward: inputs must
            need gradients themselves, and `autograd.grad` gives none. None warns and means True.
        context_fn: gives two contexts, of the call and of computing again; for `use_reentrant=False`.
        determinism_check: `"default"` compares shapes, dtypes and devices, `"none"` does not.
        debug: accepted; errors have their full text in any case.
        early_stop: stop computing again where nothing more is needed.
        preserve_rng_state: draw the same random numbers again.
        kwargs: named arguments of the function, for `use_reentrant=False`.

    Returns:
        What the function returned.

    Raises:
        ValueError: options that `use_reentrant=True` has not, another check.
        CheckpointError: in backward, where computing again saved something else.

    Example:
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> y = adjit.utils.checkpoint.checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False)
        >>> y.sum().backward()
        >>> x.grad
        tensor([-2.4783,  3.3129])
    """
    if use_reentrant is None:
        _warn_about_default("torch.utils.checkpoint", "calling checkpoint without use_reentrant "
                            "will raise an exception. ")  # fmt: skip
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    forward_context, context = context_fn()
    region = _Checkpoint(
        function, args, kwargs, get_rng_state() if preserve_rng_state else None, context,
        determinism_check == "default", early_stop if _stops_early is None else _stops_early,
    )  # fmt: skip
    with saved_tensors_hooks(region.pack, region.unpack), forward_context:
        made = function(*args, **kwargs)
    region.has_returned = True
    return made


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call functions one after the other, in segments of which all but the last are checkpoints.

    Args:
        functions: an `nn.Sequential`, or functions of one argument.
        segments: into how many parts they are divided.
        input: what the first function is given.
        use_reentrant: as for `checkpoint`.
        preserve_rng_state: draw the same random numbers again.

    Returns:
        What the last function returned.

    Raises:
        ValueError: other named arguments.

    Example:
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> functions = [adjit.exp, adjit.sin, adjit.exp]
        >>> y = adjit.utils.checkpoint.checkpoint_sequential(functions, 2, x, use_reentrant=False)
        >>> y.sum().backward()
        >>> x.grad
        tensor([-3.7373,  8.0986])
    """
    if use_reentrant is None:
        _warn_about_default("torch.utils.checkpoint.checkpoint_sequential", "")
        use_reentrant = True
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(steps) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(
            _chain(steps[start : start + size]),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve_rng_state,
        )
    return _chain(steps[size * (segments - 1) :])(input)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The functions one after the other, as one."""

    def run(input: Any) -> Any:
        for step in steps:
            input = step(input)
        return input

    return run


def _warn_about_default(name: str, then: str) -> None:
    warnings.warn(
        f"{name}: the use_reentrant parameter should be passed explicitly. "
        f"{then}use_reentrant=False is recommended, but if you need to preserve the current default "
        "behavior, you can pass use_reentrant=True. Refer to docs for more details on the "
        "differences between the two variants.",
        stacklevel=3,
    )


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors without their history that need gradients as before, and what is no tensor."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: ",
            type(inputs).__name__,
        )
    return tuple(
        [x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs]
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no input needs a gradient, as then nothing that is checkpointed has one."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )
