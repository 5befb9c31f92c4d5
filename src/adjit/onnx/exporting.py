"""`export`: a program is run and recorded, and what it did is written as an ONNX graph."""

from __future__ import annotations

import contextlib
import enum
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd import no_grad
from ..nn import Module
from ..tensor import Tensor
from . import dynamic
from .arguments import ExportArguments
from .builder import GraphBuilder, onnx_package
from .errors import OnnxExporterError
from .model import ModelWriter
from .program import ONNXProgram
from .recording import Recording, array_of, tensors_in
from .sizes import Dimension
from .translation import Translation

__all__ = [
    "OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export", "select_model_mode_for_export",
]  # fmt: skip

OPSETS = range(18, 24)  # in which the nodes of the rules mean the same
DEFAULT_OPSET = 20
OLDEST_OPSET = 7  # into which ONNX converts graphs

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
        opset_version: of ONNX's operators, up to 23; 20 if it is None. Graphs for one below 18 are converted by
            ONNX's own converter; where it cannot, they stay at 18, with a warning.
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
    if not OLDEST_OPSET <= opset <= OPSETS[-1]:
        raise OnnxExporterError(
            f"opset_version={opset} is not written; {OLDEST_OPSET} to {OPSETS[-1]} are"
        )
    if not isinstance(model, Module):
        raise TypeError(
            f"export needs a Module, not {type(model).__name__}: put the function into one"
        )
    given = ExportArguments(model, args, kwargs or {}, input_names)
    axes = dynamic.axes_of_names(dynamic_axes)
    axes |= dynamic.axes_of_shapes(dynamic_shapes, list(given.inputs), given.parameters)
    with _while_exporting(), no_grad(), select_model_mode_for_export(model, training):
        runs, dimensions = _recorded(given, axes)
        expected = (
            list(tensors_in(given.model(*given.bound.args, **given.bound.kwargs))) if verify else []
        )
    taken = [*given.inputs, *given.state, *(output_names or ())]
    translation = Translation(runs, GraphBuilder(dimensions, taken))
    translation.write()
    proto = ModelWriter(translation, given, axes, output_names).proto(max(opset, OPSETS[0]))
    if opset < OPSETS[0]:
        proto = _converted(proto, opset)
    program = ONNXProgram(proto)
    if verify:
        _verify(program, given, expected)
    if verbose:
        print(onnx_package().printer.to_text(proto))
    if f is not None:
        program.save(
            f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
        )  # fmt: skip
    return program if dynamo else None


def _converted(proto: Any, opset: int) -> Any:
    """The graph with operators of an older opset, or as it is if it has some that no older one has."""
    from onnx import version_converter

    try:
        made = version_converter.convert_version(proto, opset)
        onnx_package().checker.check_model(made, full_check=True)
    except Exception as error:  # the converter raises whatever its checks in C++ are
        warnings.warn(
            f"the graph stays at opset {OPSETS[0]}: ONNX does not convert it to opset {opset} ({error})",
            stacklevel=3,
        )
        return proto
    return made


def _refuse(**settings: Any) -> None:
    for name, value in settings.items():
        if value:
            raise NotImplementedError(f"export has no {name}; leave it out")


def _recorded(
    given: ExportArguments, axes: dynamic.Axes
) -> tuple[list[Recording], list[Dimension]]:
    """The model recorded, with other sizes of the dynamic dimensions too."""
    places = dynamic.sized(axes, given.inputs)
    given.recorded(given.inputs)  # what it makes at its first run and keeps is there afterwards
    if not places:
        return given.all_recorded([given.inputs, given.inputs]), []
    for way in range(len(dynamic.WAYS_TO_GROW)):
        more = [dynamic.grown(given.inputs, places, way, run) for run in (0, 1)]
        inputs = [given.inputs, *more]
        try:
            return given.all_recorded(inputs), dynamic.dimensions_of(places, inputs)
        except OnnxExporterError:
            raise
        except Exception as error:
            failed = error
    sizes = ", ".join(places)
    raise OnnxExporterError(
        f"the model does not run with other sizes of {sizes}, which are to be dynamic: {failed}"
    ) from failed


def _verify(program: ONNXProgram, given: ExportArguments, expected: list[Tensor]) -> None:
    """See that the graph gives what the model gave.

    Raises:
        OnnxExporterError: if it does not.
    """
    onnx_package().checker.check_model(program.model_proto)
    found = program.call_reference(*given.inputs.values())
    for one, other in zip(found, expected, strict=True):
        if not np.allclose(array_of(one), array_of(other), 1e-3, 1e-5, equal_nan=True):
            raise OnnxExporterError("the graph gives other values than the model")
