"""The recorded graph: its nodes and edges, and hooks on what it saves."""

from __future__ import annotations

import abc
import contextlib
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..devices import CPU
from ..dtypes import dtype
from ..graph.node import GradNode, RemovableHandle, Spec
from ..graph.record import edge_of
from ..graph.state import be_careful, running_walk, state
from ..ops.creation import empty
from ..shapes import Size
from ..tensor import Tensor

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip


class Node(abc.ABC):  # noqa: B024 backward functions have its methods, but are not made from it
    """The class of all backward functions, for `isinstance`: `tensor.grad_fn` is one.

    It has `name()`, `next_functions`, `metadata`, `register_hook` and `register_prehook`.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> isinstance((x * 2).grad_fn, adjit.autograd.graph.Node)
        True
    """


Node.register(GradNode)


class _NodeOutput(NamedTuple):
    node: Any
    output_nr: int
    ownership_token: Any = None


class GradientEdge(_NodeOutput):
    """A place where the gradient of a tensor arrives: a backward function, and the number of its output.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> adjit.autograd.graph.get_gradient_edge(x * 2).output_nr
        0
    """

    # What a backward asks of a tensor that it is to find the gradient of, or that it begins at.
    requires_grad = _needs_grad = True
    _view_of = None

    @property
    def _edge(self) -> tuple[Any, int]:
        return self.node, self.output_nr

    @property
    def _spec(self) -> Spec:
        outputs: tuple[Spec, ...] = self.node.outputs or self.node.inputs  # a leaf has no outputs
        return outputs[self.output_nr]

    @property
    def shape(self) -> Size:
        """The shape of the tensor.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> adjit.autograd.graph.get_gradient_edge(x * 2).shape
            adjit.Size([2])
        """
        return self._spec.shape

    @property
    def dtype(self) -> dtype:
        """The dtype of the tensor.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> adjit.autograd.graph.get_gradient_edge(x * 2).dtype
            adjit.float32
        """
        return self._spec.dtype

    def numel(self) -> int:
        """Count the elements of the tensor.

        Example:
            >>> x = adjit.ones(2, requires_grad=True)
            >>> adjit.autograd.graph.get_gradient_edge(x * 2).numel()
            2
        """
        return self._spec.numel


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Give the edge at which the gradient of a tensor arrives.

    Raises:
        RuntimeError: the tensor needs no gradient.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> adjit.autograd.graph.get_gradient_edge(x).node.name()
        'torch::autograd::AccumulateGrad'
    """
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    edge = edge_of(tensor)
    assert edge is not None
    return GradientEdge(*edge)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Say that memory of tensors was written by somebody else: a backward that needs it then fails.

    Args:
        tensor: one or several; inference tensors have no version, and are left as they are.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> y = x.exp()
        >>> adjit.autograd.graph.increment_version(y)
        >>> y._version
        1
    """
    for t in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        if not t.is_inference():
            t._version_counter.version += 1


class saved_tensors_hooks:
    """Let hooks have what is saved for backward, in a `with` block.

    Each tensor that an operation saves is given to `pack_hook`, and what that returns is kept in
    its place. When backward needs the tensor, `unpack_hook` gives it back. The tensor is a handle
    of its own on the value at that time, without history. The innermost hooks act. Functions made
    by `adjit.compile` run as usual meanwhile. adjit saves other tensors than PyTorch here and there.

    Args:
        pack_hook: a function of a tensor, which returns anything.
        unpack_hook: a function of that, which returns a tensor with the same values.

    Raises:
        RuntimeError: on entering, inside of `disable_saved_tensors_hooks`.
        TypeError: in backward, if `unpack_hook` returns no tensor.

    Example:
        >>> def pack(t):
        ...     print("saved", t.tolist())
        ...     return t.tolist()
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> with adjit.autograd.graph.saved_tensors_hooks(pack, adjit.tensor):
        ...     y = (x * x).sum()
        saved [1.0, 2.0]
        saved [1.0, 2.0]
        >>> y.backward()
        >>> x.grad
        tensor([2., 4.])
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if state.saving_refused is not None:
            raise RuntimeError(state.saving_refused)
        state.saving = (*state.saving, (self.pack_hook, self.unpack_hook))
        be_careful()

    def __exit__(self, *_: object) -> None:
        state.saving = state.saving[:-1]
        be_careful()


class save_on_cpu(saved_tensors_hooks):
    """Keep what is saved for backward in the CPU's memory, in a `with` block.

    Args:
        pin_memory: keep it in memory that GPUs can reach, if there are any.
        device_type: accepted; the device of each tensor is its own.

    Example:
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> with adjit.autograd.graph.save_on_cpu():
        ...     y = x.exp().sum()
        >>> y.backward()
        >>> x.grad
        tensor([2.7183, 7.3891])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> tuple[Any, Tensor]:
            if not (pin_memory and t.device is not CPU):
                return t.device, t.cpu()
            kept = empty(t.size(), dtype=t.dtype, pin_memory=True)
            return t.device, kept.copy_(t)

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, t = packed
            return t.to(device)

        super().__init__(pack, unpack)


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Let programs write into tensors that are saved for backward, in a `with` block.

    Backward then gets the values as they were. A write does not touch what others hold, so this
    costs no copy, unless NumPy or somebody else shares the memory.

    Example:
        >>> x = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> with adjit.autograd.graph.allow_mutation_on_saved_tensors():
        ...     y = x.exp()
        ...     z = y.sin()
        ...     _ = y.detach().zero_()
        >>> z.sum().backward()
        >>> x.grad
        tensor([-2.4783,  3.3129])
    """

    def __init__(self) -> None:
        super().__init__(lambda t: t, lambda t: t)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Generator[None, None, None]:
    """Refuse `saved_tensors_hooks` in a `with` block, with an error of this text.

    Raises:
        RuntimeError: on entering, inside of hooks; and where hooks are entered.

    Example:
        >>> with adjit.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        ...     with adjit.autograd.graph.save_on_cpu():
        ...         pass
        Traceback (most recent call last):
            ...
        RuntimeError: no hooks here
    """
    if state.saving:
        raise RuntimeError(error_message)
    before = state.saving_refused
    state.saving_refused = error_message
    try:
        yield
    finally:
        state.saving_refused = before


class _MultiHandle(RemovableHandle):
    """One handle for several hooks."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        super().__init__({})
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[..., Any],
    *,
    mode: Literal["all", "any"] = "all",
) -> RemovableHandle:
    """Call a function once in a backward when gradients of several tensors have arrived.

    Args:
        tensors: all need gradients.
        fn: with `"all"` it is given the list of all gradients, once each of those that this
            backward reaches is there, None for the others; with `"any"` the first one that arrives.
        mode: `"all"` or `"any"`.

    Returns:
        A handle whose `remove()` takes the hooks away.

    Raises:
        ValueError: another mode.
        RuntimeError: a tensor needs no gradient.

    Example:
        >>> a, b = adjit.ones(2, requires_grad=True), adjit.ones(2, requires_grad=True)
        >>> handle = adjit.autograd.graph.register_multi_grad_hook([a, b], print)
        >>> (a * 2 + b * 3).sum().backward()
        [tensor([2., 2.]), tensor([3., 3.])]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of {('all', 'any')} but got {mode}")
    edges = [get_gradient_edge(t) for t in tensors]
    nodes = [edge.node for edge in edges]
    lock = threading.Lock()
    # By walk: how many will come, and those here.
    arrived: dict[Any, tuple[int, list[Tensor | None]]] = {}
    told: weakref.WeakSet[Any] = weakref.WeakSet()  # the walks whose first gradient is over

    def on_any(grad: Tensor) -> None:
        with lock:
            is_first = state.walk not in told
            told.add(state.walk)
        if is_first:
            fn(grad)

    def on_all(k: int) -> Callable[[Tensor], None]:
        def arrive(grad: Tensor) -> None:
            walk = running_walk()
            with lock:
                if walk not in arrived:
                    arrived[walk] = sum(map(walk.will_run, nodes)), [None] * len(nodes)
                expected, grads = arrived[walk]
                grads[k] = grad
                is_last = sum(g is not None for g in grads) == expected
                if is_last:
                    del arrived[walk]
            if is_last:
                fn(grads)

        return arrive

    hooks = [on_any if mode == "any" else on_all(k) for k in range(len(nodes))]
    return _MultiHandle([t.register_hook(hook) for t, hook in zip(tensors, hooks, strict=True)])
