"""`export`: a program is run and recorded, and what it did is written as an ONNX graph."""

from __future__ import annotations

import contextlib
import enum
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..autograd import no_grad
from ..nn import Module
from ..ops.creation import tensor as tensor_of
from ..overrides import as_asking
from ..tensor import Tensor
from ..version import __version__
from . import dynamic
from .builder import GraphBuilder, OnnxValue, onnx_package
from .errors import OnnxExporterError
from .program import ONNXProgram
from .recording import Recorder, Recording, array_of, tensors_in, with_tensors
from .rules import has_rule
from .sizes import Size
from .translation import Translation

__all__ = [
    "OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export", "select_model_mode_for_export",
]  # fmt: skip

OPSETS = range(18, 24)  # in which the nodes of the rules mean the same
DEFAULT_OPSET = 20

_exporting = 0


class TrainingMode(enum.Enum):
    """Says in which mode a model is exported: in evaluation, as it is, or in training.

    Example:
        >>> adjit.onnx.TrainingMode.EVAL
        <TrainingMode.EVAL: 0>
    """

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """Says with which operators a graph is written: ONNX's own, the only ones here.

    Example:
        >>> adjit.onnx.OperatorExportTypes.ONNX
        <OperatorExportTypes.ONNX: 0>
    """

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    """True while a model is being exported.

    Example:
        >>> adjit.onnx.is_in_onnx_export()
        False
    """
    return bool(_exporting)


@contextlib.contextmanager
def _while_exporting() -> Iterator[None]:
    global _exporting
    _exporting += 1
    try:
        yield
    finally:
        _exporting -= 1


@contextlib.contextmanager
def select_model_mode_for_export(model: Any, mode: TrainingMode) -> Iterator[Any]:
    """Have a model in the mode of an export in a block, and as it was afterwards.

    Args:
        model: the model.
        mode: the mode; with PRESERVE nothing is changed.

    Yields:
        The model.

    Example:
        >>> model = nn.Dropout()
        >>> with adjit.onnx.select_model_mode_for_export(model, adjit.onnx.TrainingMode.EVAL):
        ...     model.training
        False
        >>> model.training
        True
    """
    before = {module: module.training for module in model.modules()}
    try:
        if mode is not TrainingMode.PRESERVE:
            model.train(mode is TrainingMode.TRAINING)
        yield model
    finally:
        for module, was_training in before.items():
            module.training = was_training


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


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: Any = False,
    autograd_inlining: bool = True,
) -> ONNXProgram | None:
    """Export a model as an ONNX graph.

    The model is run, without gradients, and its calls of the library become nodes. Parameters and buffers are
    initializers with the names that they have in `state_dict()`. What depends on the size of a dynamic
    dimension is found by running the model with further sizes; a program that does something else for them,
    or looks at values, is refused.

    Args:
        model: the module.
        args: its arguments; tensors become inputs of the graph, everything else is as it is here.
        f: the file to write, if there is to be one.
        kwargs: further arguments by name.
        verbose: show the graph.
        input_names: of the inputs in their order; those without are named as the arguments of `forward`.
        output_names: of the outputs in their order.
        opset_version: of ONNX's operators, 18 to 23; 20 if it is None.
        dynamo: return the program; with False, None is returned.
        external_data: put weights of 1024 bytes and more into a file beside `f`, whose name ends in `.data`.
        dynamic_shapes: for arguments, by name or in their order, the names of dimensions by axis.
        custom_translation_table: refused; there are no other rules.
        report: refused.
        optimize: of no effect: nodes are written as they are needed.
        verify: compare what the graph gives, by the reference evaluator, with what the model gave.
        profile: refused.
        dump_exported_program: refused.
        artifacts_dir: where what is refused would go.
        export_params: write the weights; without, they are inputs of the graph.
        keep_initializers_as_inputs: weights may be given when the graph runs.
        dynamic_axes: for inputs and outputs, by name, the dynamic dimensions: their names by axis, or a list.
        training: the mode in which the model is run.
        operator_export_type: ONNX's operators are the only ones.
        do_constant_folding: of no effect: what depends on no input and no weight is a constant.
        custom_opsets: refused.
        export_modules_as_functions: refused.
        autograd_inlining: of no effect.

    Returns:
        The program, or None if `dynamo` is False.

    Raises:
        ModuleNotFoundError: if the package onnx is not installed.
        UnsupportedOperatorError: for an operation that has no rule.
        OnnxExporterError: for a program that is no graph.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> program = adjit.onnx.export(
        ...     model, (adjit.ones(1, 2),), "model.onnx", input_names=["x"], output_names=["y"],
        ...     dynamic_axes={"x": {0: "batch"}},
        ... )
        >>> [node.op_type for node in program.model_proto.graph.node]
        ['Gemm', 'Relu']
        >>> program.call_reference(adjit.ones(5, 2))[0].shape
        adjit.Size([5, 3])
    """
    onnx_package()
    _refuse(
        custom_translation_table=custom_translation_table, report=report, profile=profile,
        dump_exported_program=dump_exported_program, custom_opsets=custom_opsets,
        export_modules_as_functions=export_modules_as_functions,
        operator_export_type=operator_export_type.value,
    )  # fmt: skip
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if opset not in OPSETS:
        raise OnnxExporterError(
            f"opset_version={opset} is not written; {OPSETS[0]} to {OPSETS[-1]} are"
        )
    if not isinstance(model, Module):
        raise TypeError(
            f"export needs a Module, not {type(model).__name__}: put the function into one"
        )
    given = _Arguments(model, args, kwargs or {}, input_names)
    axes = dynamic.axes_of_names(dynamic_axes)
    axes |= dynamic.axes_of_shapes(dynamic_shapes, list(given.inputs), given.parameters)
    with _while_exporting(), no_grad(), select_model_mode_for_export(model, training):
        translation = _recorded(given, axes)
    translation.write()
    proto = _Model(translation, given, axes, output_names).proto(opset)
    program = ONNXProgram(proto)
    if verify:
        _verify(program, translation, given)
    if verbose:
        print(onnx_package().printer.to_text(proto))
    if f is not None:
        program.save(
            f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
        )  # fmt: skip
    return program if dynamo else None


def _refuse(**settings: Any) -> None:
    for name, value in settings.items():
        if value:
            raise NotImplementedError(f"export has no {name}; leave it out")


class _Arguments:
    """The arguments of a model, with names for their tensors."""

    def __init__(
        self, model: Module, args: Any, kwargs: dict[str, Any], input_names: Sequence[str] | None
    ) -> None:
        self.model = model
        self.args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        self.kwargs = kwargs
        self.inputs: dict[str, Tensor] = {}
        self.parameters: list[str] = []  # of forward, one for each input
        bound = inspect.signature(model.forward).bind(*self.args, **kwargs)
        wanted = iter(input_names or ())
        for parameter, value in _named(bound):
            tensors = list(tensors_in(value))
            for k, tensor in enumerate(tensors):
                name = next(wanted, None) or (
                    parameter if len(tensors) == 1 else f"{parameter}_{k}"
                )
                if name in self.inputs:
                    raise OnnxExporterError(f"two inputs are named {name!r}")
                self.inputs[name] = tensor
                self.parameters.append(parameter)
        if (extra := next(wanted, None)) is not None:
            raise OnnxExporterError(
                f"input_names has {extra!r} for more tensors than the {len(self.inputs)} given"
            )
        self.state = _state_of(model)

    def recorded(self, inputs: Mapping[str, Tensor]) -> Recording:
        """A recording of the model with inputs of other sizes."""
        copies = {name: value.detach().clone() for name, value in inputs.items()}
        left = iter(copies.values())
        args, kwargs = with_tensors((self.args, self.kwargs), lambda tensor: next(left))
        recorder = Recorder(has_rule)
        for name, tensor in copies.items():
            recorder.name_input(tensor, name, True)
        for name, (tensor, _) in self.state.items():
            recorder.name_input(tensor, name, False)
        with recorder, functions_asking(self.model):
            made = self.model(*args, **kwargs)
        recorder.recording.outputs = [recorder.index_of(tensor) for tensor in tensors_in(made)]
        self._check(made)
        self._restore(recorder)
        return recorder.recording

    @staticmethod
    def _check(made: Any) -> None:
        def look(part: Any) -> None:
            if isinstance(part, Mapping):
                part = list(part.values())
            if isinstance(part, (tuple, list)):
                for one in part:
                    look(one)
            elif part is not None and not isinstance(part, Tensor):
                raise OnnxExporterError(
                    f"the model returns {type(part).__name__}; tensors and containers of them can be exported"
                )

        look(made)

    def _restore(self, recorder: Recorder) -> None:
        """Undo what a run wrote into parameters and buffers."""
        for name, (tensor, array) in self.state.items():
            if tensor._version != recorder.version_before[name]:
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


def _state_of(model: Module) -> dict[str, tuple[Tensor, Any]]:
    """Parameters and buffers with their values, by the names of `state_dict`; each once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: (tensor, array_of(tensor)) for name, tensor in named}


def _recorded(given: _Arguments, axes: dynamic.Axes) -> Translation:
    """The model recorded, with other sizes of the dynamic dimensions too."""
    places = dynamic.sized(axes, given.inputs)
    given.recorded(given.inputs)  # what it makes at its first run and keeps is there afterwards
    first = given.recorded(given.inputs)
    if not places:
        return Translation([first, given.recorded(given.inputs)], GraphBuilder([]))
    for way in range(len(dynamic.WAYS_TO_GROW)):
        more = [dynamic.grown(given.inputs, places, way, run) for run in (0, 1)]
        try:
            further = [given.recorded(inputs) for inputs in more]
        except OnnxExporterError:
            raise
        except Exception as error:
            failed = error
            continue
        dimensions = dynamic.dimensions_of(places, [given.inputs, *more])
        return Translation([first, *further], GraphBuilder(dimensions))
    sizes = ", ".join(places)
    raise OnnxExporterError(
        f"the model does not run with other sizes of {sizes}, which are to be dynamic: {failed}"
    ) from failed


class _Model:
    """Puts nodes, inputs, weights and outputs together."""

    def __init__(
        self,
        translation: Translation,
        given: _Arguments,
        axes: dynamic.Axes,
        output_names: Sequence[str] | None,
    ) -> None:
        self.builder = translation.builder
        self.onnx = self.builder.onnx
        self.given, self.axes = given, axes
        self.translation = translation
        self.outputs = self._named_outputs(list(output_names or ()))

    def _named_outputs(self, names: list[str]) -> list[OnnxValue]:
        """Values with the names of the outputs: those of nodes renamed, others handed on."""
        found: list[OnnxValue] = []
        outputs = [self.translation.value(index) for index in self.translation.first.outputs]
        if len(names) > len(outputs):
            raise OnnxExporterError(f"{len(names)} output_names for {len(outputs)} outputs")
        for k, value in enumerate(outputs):
            name = names[k] if k < len(names) else self._default_name(k, len(outputs))
            if name in (*self.given.inputs, *(v.name for v in found)):
                raise OnnxExporterError(f"an output is named {name!r} like another input or output")
            node = self.builder.onnx.helper.make_node(
                "Identity", [value.name], [name], name=f"node_{name}"
            )
            self.builder.nodes.append(node)
            found.append(OnnxValue(name, value.dtype, value.shape))
        return found

    def _default_name(self, k: int, count: int) -> str:
        return self.builder.fresh("output" if count == 1 else f"output_{k}")

    def proto(self, opset: int) -> Any:
        """The model in ONNX's format."""
        helper = self.onnx.helper
        nodes = without_handing_on(self.builder.nodes, {v.name for v in self.outputs})
        used = {name for node in nodes for name in node.input}
        weights = {
            name: array for name, (_, array) in self.given.state.items()
        } | self.builder.constants
        initializers = [
            self.onnx.numpy_helper.from_array(array, name)
            for name, array in weights.items()
            if name in used
        ]
        values = {c.source: i for i, c in enumerate(self.translation.first.contents) if c.source}
        inputs = [self.translation.value(values[name]) for name in self.given.inputs]
        graph = helper.make_graph(
            nodes, type(self.given.model).__name__, [self._info(v) for v in inputs],
            [self._info(v) for v in self.outputs], initializers,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(
            graph, producer_name="adjit", producer_version=__version__, opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
        )  # fmt: skip

    def _info(self, value: OnnxValue) -> Any:
        dims = [self._dim(value.name, axis, size) for axis, size in enumerate(value.shape)]
        code = self.builder.code_of(value.dtype)
        return self.onnx.helper.make_tensor_value_info(value.name, code, dims)

    def _dim(self, name: str, axis: int, size: int | Size) -> int | str:
        """A size, or the name of a dynamic dimension."""
        axes = self.axes.get(name, {})
        if isinstance(size, Size):
            found = self.builder.explanation(size)
            if found is not None and found.name is not None:
                return found.name
            return axes.get(axis, f"{name}_dim_{axis}")
        return axes.get(axis, size)


def without_handing_on(nodes: Sequence[Any], outputs: set[str]) -> list[Any]:
    """The nodes without those that only hand values on, which get the names of the outputs where they can."""
    sources: dict[str, str] = {}
    made = {name for node in nodes for name in node.output}
    for node in nodes:
        if node.op_type == "Identity" and node.output[0] not in outputs:
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    kept = [node for node in nodes if node.output[0] not in sources]
    names: dict[str, str] = {}
    for node in kept:
        if node.op_type == "Identity" and node.output[0] in outputs:
            source = sources.get(node.input[0], node.input[0])
            if source in made and source not in outputs and source not in names:
                names[source] = node.output[0]
    found = []
    for node in kept:
        given = [sources.get(name, name) for name in node.input]
        if node.op_type == "Identity" and names.get(given[0]) == node.output[0]:
            continue
        node.input[:] = [names.get(name, name) for name in given]
        node.output[:] = [names.get(name, name) for name in node.output]
        found.append(node)
    return found


def _verify(program: ONNXProgram, translation: Translation, given: _Arguments) -> None:
    """See that the graph gives what the model gave.

    Raises:
        OnnxExporterError: if it does not.
    """
    import numpy as np

    onnx_package().checker.check_model(program.model_proto)
    found = program.call_reference(*given.inputs.values())
    with no_grad():
        expected = list(tensors_in(given.model(*given.args, **given.kwargs)))
    for one, other in zip(found, expected, strict=True):
        if not np.allclose(array_of(one), array_of(other), 1e-3, 1e-5, equal_nan=True):
            raise OnnxExporterError("the graph gives other values than the model")
