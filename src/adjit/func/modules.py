"""Functions of modules: called with parameters that are given, and several modules as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..nn.utils.stateless import called_with
from ..ops.joining import stack
from ..tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers in the place of its own. Differentiable in them.

    What the module writes into buffers in place is seen in those that are given; what it replaces is put
    into the dictionaries.

    Args:
        module: the module.
        parameter_and_buffer_dicts: the tensors by their names in the module; one dictionary, or several
            without a common name.
        args: an argument, or a tuple of arguments.
        kwargs: arguments by name.
        tie_weights: whether what is given for one of several names of a parameter stands for all of them.
        strict: whether each parameter and buffer has to be given, and nothing else.

    Raises:
        ValueError: if a name comes twice.
        RuntimeError: with `strict`, if names are missing or unknown.

    Example:
        >>> m = adjit.nn.Linear(2, 1, bias=False)
        >>> adjit.func.functional_call(m, {"weight": adjit.tensor([[1., 2.]])}, adjit.ones(2))
        tensor([3.])
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError(
                "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
            )
        names = [name for d in parameter_and_buffer_dicts for name in d]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(
                f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        given = {name: t for d in parameter_and_buffer_dicts for name, t in d.items()}
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    return called_with(module, given, args, kwargs, tie_weights, strict)


def stack_module_state(
    models: Sequence[Module],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of one kind, those of one name stacked along a new first axis.

    With `vmap` over that axis and `functional_call` of one of the modules they run as one.

    Returns:
        Two dictionaries. The parameters are new leaves, which require gradients if those of the modules do.

    Raises:
        RuntimeError: if there is no module, or they differ in class, mode, or in what requires gradients.

    Example:
        >>> models = [adjit.nn.Linear(3, 2) for _ in range(4)]
        >>> params, buffers = adjit.func.stack_module_state(models)
        >>> params["weight"].shape
        adjit.Size([4, 2, 3])
        >>> def call(params, x):
        ...     return adjit.func.functional_call(models[0], params, x)
        >>> adjit.func.vmap(call, in_dims=(0, None))(params, adjit.ones(3)).shape
        adjit.Size([4, 2])
    """
    if not len(models):
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len(set(map(type, models))) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {name: _stacked([p[name] for p in parameters], name) for name in parameters[0]},
        {name: _stacked([b[name] for b in buffers], name) for name in buffers[0]},
    )


def _stacked(tensors: Sequence[Tensor], name: str) -> Tensor:
    wants = {t.requires_grad for t in tensors}
    if len(wants) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    made = stack(list(tensors))
    return made.detach().requires_grad_() if True in wants else made


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Have the batch norms in a module keep no running statistics, which `vmap` could not write.

    They normalise by the batch's own from then on, in evaluation mode too.

    Returns:
        The module.

    Example:
        >>> net = adjit.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
        >>> net[0].running_mean is None
        True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
