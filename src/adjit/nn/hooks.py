"""Full backward hooks of modules: two identity nodes bracket the forward and see the gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..autograd.function import Function
from ..autograd.modes import is_grad_enabled
from ..tensor import Tensor

Grads = tuple[Tensor | None, ...]


class BackwardHookFunction(Function):
    """Identity over all tensors, so that one node holds the gradients of all of them."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Grads:
        return grads


class BackwardHook:
    """One call of a module whose full backward hooks wait for the gradients of inputs and outputs.

    The gradients of the outputs arrive first and are kept; once those of the inputs are there too,
    the user's hooks see both. What is no tensor is None in either tuple.
    """

    def __init__(
        self,
        module: Any,  # an `nn.Module`
        hooks: Sequence[Callable[..., Any]],
        pre_hooks: Sequence[Callable[..., Any]],
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_outputs: Grads | None = None
        self.input_count = 0
        self.output_count = 0
        self.input_positions: list[int] | None = None
        self.output_positions: list[int] | None = None

    def bracket_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, behind a node that reports their gradients."""
        self.input_count = len(args)
        replaced, self.input_positions, node = _behind_identity(args)
        if node is not None:
            node.register_hook(self._on_input_grads)
        return replaced

    def bracket_outputs(self, result: Any) -> Any:
        """The module's result, behind a node that reports its gradients."""
        outputs = result if isinstance(result, tuple) else (result,)
        self.output_count = len(outputs)
        replaced, self.output_positions, node = _behind_identity(outputs)
        if node is not None:
            node.register_hook(self._on_output_grads)
        return replaced if isinstance(result, tuple) else replaced[0]

    def _on_output_grads(self, _: Grads, grads: Grads) -> Grads:
        assert self.output_positions is not None
        self.grad_outputs = _spread(self.output_positions, grads, self.output_count)
        for hook in self.pre_hooks:
            changed = hook(self.module, self.grad_outputs)
            if changed is None:
                continue
            if len(changed) != self.output_count:
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(changed)}, but expected {self.output_count}"
                )
            self.grad_outputs = changed
        passed_on = self.grad_outputs
        if self.input_positions is None:
            self._run_without_input_grads()
        return tuple(passed_on[i] for i in self.output_positions)

    def _run_without_input_grads(self) -> None:
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module "
            "outputs since no inputs require gradients. See "
            "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
            "#torch.nn.Module.register_full_backward_hook for more details.",
            stacklevel=5,
        )
        grad_inputs: Grads = (None,) * self.input_count
        for hook in self.hooks:
            changed = hook(self.module, grad_inputs, self.grad_outputs)
            is_all_none = isinstance(changed, tuple) and all(grad is None for grad in changed)
            if changed is not None and not is_all_none:
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )
        self.grad_outputs = None

    def _on_input_grads(self, grads: Grads, _: Grads) -> Grads | None:
        if self.grad_outputs is None:
            # The gradient reached the inputs without passing through the outputs, as it does
            # in double backward.
            return None
        assert self.input_positions is not None
        grad_inputs = _spread(self.input_positions, grads, self.input_count)
        for hook in self.hooks:
            changed = hook(self.module, grad_inputs, self.grad_outputs)
            if changed is None:
                continue
            if len(changed) != self.input_count:
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(changed)}, but expected {self.input_count}"
                )
            grad_inputs = changed
        self.grad_outputs = None
        return tuple(grad_inputs[i] for i in self.input_positions)


def hook_output(
    module: Any, hooks: Sequence[Callable[..., Any]], args: tuple[Any, ...], result: Any
) -> None:
    """Put hooks of the old kind on the function that made a module's output."""
    first = result
    while not isinstance(first, Tensor):
        first = (
            next(value for value in first.values() if isinstance(value, Tensor))
            if isinstance(first, dict)
            else first[0]
        )
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(partial(hook, module))
    outputs = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(value, Tensor) for value in outputs):
        _warn_old(
            "on a Module that does not return a single Tensor or a tuple of Tensors", "output"
        )
    elif not all(isinstance(value, Tensor) for value in args):
        _warn_old(
            "on a Module that does not take as input a single Tensor or a tuple of Tensors", "input"
        )
    elif len({value.grad_fn for value in outputs if value.grad_fn is not None}) > 1:
        _warn_old("when outputs are generated by different autograd Nodes", "output")
    else:
        before = {value.grad_fn for value in args if value.grad_fn is not None}
        if not before <= {fn for fn, _ in node.next_functions}:
            _warn_old("when the forward contains multiple autograd Nodes", "input")


def _warn_old(where: str, missing: str) -> None:
    hook = "a non-full backward hook" if where.startswith("when") else "non-full backward hooks"
    warnings.warn(
        f"Using {hook} {where} is deprecated and will be removed in future versions. This hook will "
        f"be missing some grad_{missing}. Please use register_full_backward_hook to get the "
        "documented behavior.",
        FutureWarning,
        stacklevel=5,
    )


def _behind_identity(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """The values with their tensors behind one identity node, the tensors' positions, the node."""
    positions = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not (is_grad_enabled() and any(values[i].requires_grad for i in positions)):
        return values, None, None
    tensors = BackwardHookFunction.apply(*(values[i] for i in positions))
    replaced = list(values)
    for i, tensor in zip(positions, tensors, strict=True):
        replaced[i] = tensor
    node = next(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None)
    if type(values) is tuple:
        return tuple(replaced), positions, node
    return type(values)(*replaced), positions, node  # a namedtuple


def _spread(positions: list[int], grads: Grads, count: int) -> Grads:
    spread: list[Tensor | None] = [None] * count
    for i, grad in zip(positions, grads, strict=True):
        spread[i] = grad
    return tuple(spread)
