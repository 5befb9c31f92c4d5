"""Modules whose forward is run again in backward, instead of keeping what it computes: PyTorch's wrappers.

PyTorch has them in `distributed.algorithms._checkpoint.checkpoint_wrapper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from ..autograd.graph import save_on_cpu
from ..nn.module import Module
from ..nn.parameter import Parameter
from .checkpoint import checkpoint

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper",
    "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip

_PREFIX = "_checkpoint_wrapped_module."


class CheckpointImpl(Enum):
    """Which of the two ways of `utils.checkpoint.checkpoint` is taken.

    Example:
        >>> CheckpointImpl.NO_REENTRANT.name
        'NO_REENTRANT'
    """

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another one, whose parameters and checkpoints have the names of that one.

    Example:
        >>> ActivationWrapper(nn.Linear(2, 1)).state_dict().keys()
        odict_keys(['weight', 'bias'])
    """

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_checkpoint_wrapped_module"), name)

    def __getitem__(self, key: Any) -> Any:
        inside: Any = self._checkpoint_wrapped_module
        return inside[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Give the parameters with the names that they have in the module inside.

        Example:
            >>> [name for name, _ in ActivationWrapper(nn.Linear(2, 1)).named_parameters()]
            ['weight', 'bias']
        """
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


def _without_prefix(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    _rename(state, prefix + _PREFIX, prefix)


def _with_prefix(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    _rename(state, prefix, prefix + _PREFIX)


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for key in [key for key in state if key.startswith(old)]:
        state[new + key[len(old) :]] = state.pop(key)


class OffloadWrapper(ActivationWrapper):
    """Keeps what the forward of a module saves for backward in the CPU's memory.

    Example:
        >>> OffloadWrapper(nn.ReLU())(adjit.ones(2))
        tensor([1., 1.])
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Runs the forward of a module again in backward; made by `checkpoint_wrapper`.

    Example:
        >>> CheckpointWrapper(nn.ReLU())(adjit.ones(2))
        tensor([1., 1.])
    """

    def __init__(
        self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(
                checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT
            )
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inside = self._checkpoint_wrapped_module
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(inside, *args, **kwargs)
        names, count = list(kwargs), len(args)

        def by_position(*given: Any) -> Any:
            return inside(*given[:count], **dict(zip(names, given[count:], strict=True)))

        return self.checkpoint_fn(by_position, *args, *kwargs.values())


def offload_wrapper(module: Module) -> Module:
    """Have a module keep what it saves for backward in the CPU's memory.

    Example:
        >>> offload_wrapper(nn.ReLU())(adjit.ones(2))
        tensor([1., 1.])
    """
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
) -> Module:  # fmt: skip
    """Have the forward of a module run again in backward.

    Args:
        checkpoint_impl: which way of `utils.checkpoint.checkpoint`.
        checkpoint_fn: what is called with the module and its arguments instead of that.
        checkpoint_fn_kwargs: further arguments of it.

    Example:
        >>> layer = checkpoint_wrapper(nn.Linear(2, 1))
        >>> layer(adjit.ones(3, 2)).sum().backward()
        >>> layer.weight.grad
        tensor([[3., 3.]])
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module, checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:  # fmt: skip
    """Put wrappers around modules inside of a model, in place.

    Args:
        checkpoint_wrapper_fn: makes the wrapper of a module.
        check_fn: chooses the modules; the model itself is none of them.
        auto_wrap_policy: chooses them instead: called with `module=`, `recurse=` (True: whether to look inside;
            False: whether to wrap it) and `nonwrapped_numel=`, its elements that are in no wrapper yet.

    Raises:
        ValueError: if the policy cannot be called.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.Linear))
        >>> type(net[0]).__name__, type(net[1]).__name__
        ('CheckpointWrapper', 'ReLU')
    """

    def chooses(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        return recurse or check_fn(module)

    policy = chooses if auto_wrap_policy is None else auto_wrap_policy
    if not callable(policy):
        raise ValueError(f"Expected {policy} to be callable or be a pre-defined wrap policy")

    def wrapped_inside(module: Module) -> int:
        """Wrap what lies in a module; how many elements of parameters that are."""
        left = sum(p.numel() for p in module.parameters())
        if not policy(module=module, recurse=True, nonwrapped_numel=left):
            return 0
        wrapped = 0
        for name, part in module.named_children():
            count = sum(p.numel() for p in part.parameters())
            inside = wrapped_inside(part)
            if policy(module=part, recurse=False, nonwrapped_numel=count - inside):
                setattr(module, name, checkpoint_wrapper_fn(part))
                inside = count
            wrapped += inside
        return wrapped

    wrapped_inside(model)
