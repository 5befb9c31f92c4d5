"""The whole model in ONNX's format: nodes, inputs, weights and outputs put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..version import __version__
from .arguments import ExportArguments
from .builder import OnnxValue
from .dynamic import Axes
from .errors import OnnxExporterError
from .sizes import DynamicSize
from .translation import Translation


class ModelWriter:
    """Puts nodes, inputs, weights and outputs together."""

    def __init__(
        self,
        translation: Translation,
        given: ExportArguments,
        axes: Axes,
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
            if name in (*self.given.inputs, *self.given.state, *(v.name for v in found)):
                raise OnnxExporterError(
                    f"an output is named {name!r} as an input, a parameter or another output"
                )
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

    def _dim(self, name: str, axis: int, size: int | DynamicSize) -> int | str:
        """A size, or the name of a dynamic dimension."""
        axes = self.axes.get(name, {})
        if isinstance(size, DynamicSize):
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
