"""The arguments of a model that is exported, and recordings of the model with them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..nn import Module
from ..ops.creation import tensor as tensor_of
from ..overrides import as_asking
from ..tensor import Tensor
from .errors import OnnxExporterError
from .recording import Recorder, Recording, array_of, leaves_in, tensors_in, with_tensors
from .rules import has_rule


@contextlib.contextmanager
def functions_asking(model: Module) -> Iterator[None]:
    """Have the functions that modules keep as attributes be seen when they are called, in a block."""
    kept = []
    for module in model.modules():
        attributes = vars(module)
        for name, value in list(attributes.items()):
            if (asks := as_asking(value)) is not value:
                kept.append((attributes, name, value))
                attributes[name] = asks
    try:
        yield
    finally:
        for attributes, name, value in kept:
            attributes[name] = value


class ExportArguments:
    """The arguments of a model, with names for their tensors."""

    def __init__(
        self, model: Module, args: Any, kwargs: dict[str, Any], input_names: Sequence[str] | None
    ) -> None:
        self.model = model
        self.state = _state_of(model)
        self.opaque: set[str] = set()
        self.inputs: dict[str, Tensor] = {}
        self.parameters: list[str] = []  # of forward, one for each input
        given = args if isinstance(args, (tuple, list)) else (args,)
        self.bound = inspect.signature(model.forward).bind(*given, **kwargs)
        wanted = iter(input_names or ())
        for parameter, value in _named(self.bound):
            _refuse_hidden_tensors(value)
            tensors = list(tensors_in(value))
            for k, tensor in enumerate(tensors):
                default = parameter if len(tensors) == 1 else f"{parameter}_{k}"
                self._name(next(wanted, default), tensor)
                self.parameters.append(parameter)
        if (extra := next(wanted, None)) is not None:
            raise OnnxExporterError(
                f"input_names has {extra!r} for more tensors than the {len(self.inputs)} given"
            )

    def _name(self, name: str, tensor: Tensor) -> None:
        if name in self.inputs or name in self.state:
            other = "input" if name in self.inputs else "parameter or buffer"
            raise OnnxExporterError(
                f"an input is named {name!r} as another {other}; choose input_names"
            )
        self.inputs[name] = tensor

    def recorded(self, inputs: Mapping[str, Tensor]) -> Recording:
        """A recording of the model with inputs of other sizes.

        A function of the library may take a shorter way the second time, on which nobody is asked: once it did,
        the recordings that entered it are of no use.
        """
        copies = {name: value.detach().clone() for name, value in inputs.items()}
        left = iter(copies.values())
        bound = inspect.BoundArguments(
            self.bound.signature,
            {
                name: with_tensors(v, lambda _: next(left))
                for name, v in self.bound.arguments.items()
            },
        )
        recorder = Recorder(has_rule, self.opaque)
        for name, tensor in copies.items():
            recorder.name_input(tensor, name, True)
        for name, (tensor, _) in self.state.items():
            recorder.name_input(tensor, name, False)
        try:
            with recorder, functions_asking(self.model):
                made = self.model(*bound.args, **bound.kwargs)
            recorder.recording.outputs = [recorder.index_of(tensor) for tensor in tensors_in(made)]
        finally:
            self._restore()
        for leaf in leaves_in(made):
            if leaf is not None and not isinstance(leaf, Tensor):
                raise OnnxExporterError(
                    f"the model returns {type(leaf).__name__}; tensors and containers of them can be exported"
                )
        return recorder.recording

    def all_recorded(self, inputs: Sequence[Mapping[str, Tensor]]) -> list[Recording]:
        """Recordings with inputs of several sizes, for which the same functions were entered."""
        while True:
            before = len(self.opaque)
            runs = [self.recorded(given) for given in inputs]
            if len(self.opaque) == before:
                return runs

    def _restore(self) -> None:
        """Undo what a run wrote into parameters and buffers."""
        for tensor, array in self.state.values():
            if not np.array_equal(
                tensor.detach().cpu().numpy(), array, equal_nan=array.dtype.kind == "f"
            ):
                tensor.copy_(tensor_of(array))


def _named(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Arguments in their order, those of `*args` and `**kwargs` one by one."""
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}_{k}", part) for k, part in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _refuse_hidden_tensors(value: Any) -> None:
    """See that no argument has tensors as attributes: they would become constants."""
    for leaf in leaves_in(value):
        hidden = [] if isinstance(leaf, Tensor) else getattr(leaf, "__dict__", {}).values()
        if any(isinstance(part, Tensor) for part in hidden):
            raise OnnxExporterError(
                f"an argument is {type(leaf).__name__} with tensors; give tensors, or containers of them"
            )


def _state_of(model: Module) -> dict[str, tuple[Tensor, Any]]:
    """Parameters and buffers with their values, by the names of `state_dict`; each once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: (tensor, array_of(tensor)) for name, tensor in named}
