"""A program as an ONNX graph, in memory: it can be saved, and run by the reference evaluator."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..ops.creation import tensor
from ..tensor import Tensor
from .builder import onnx_package
from .recording import array_of, tensors_in

__all__ = ["ONNXProgram"]

LARGE = 1024  # bytes of a weight that goes to the file beside the graph


class ONNXProgram:
    """A model as an ONNX graph: what `export` returns.

    Attributes:
        model_proto: the model as the package onnx has it.

    Example:
        >>> program = adjit.onnx.export(nn.Linear(2, 3), (adjit.ones(1, 2),))
        >>> [node.op_type for node in program.model_proto.graph.node]
        ['Gemm']
        >>> [weight.name for weight in program.model_proto.graph.initializer]
        ['weight', 'bias']
    """

    def __init__(self, model_proto: Any) -> None:
        self.model_proto = model_proto

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a file.

        Args:
            destination: the file, by its path or open for writing bytes.
            include_initializers: write the weights. Without them they are inputs of the graph.
            keep_initializers_as_inputs: the weights may be given when the graph runs.
            external_data: put large weights into a file beside it, whose name ends in `.data`. None does so
                where the model is too large for one file.

        Example:
            >>> program = adjit.onnx.export(nn.Linear(2, 3), (adjit.ones(1, 2),))
            >>> program.save("linear.onnx")
            >>> import onnx
            >>> onnx.load("linear.onnx").graph.output[0].name
            'output'
        """
        onnx = onnx_package()
        model = onnx.ModelProto()
        model.CopyFrom(self.model_proto)
        weights = list(model.graph.initializer)
        if keep_initializers_as_inputs or not include_initializers:
            given = [
                onnx.helper.make_tensor_value_info(w.name, w.data_type, list(w.dims))
                for w in weights
            ]
            model.graph.input.extend(given)
        if not include_initializers:
            del model.graph.initializer[:]
        if external_data is None:
            external_data = model.ByteSize() > onnx.checker.MAXIMUM_PROTOBUF
        if hasattr(destination, "write"):
            destination.write(model.SerializeToString())
            return
        beside = Path(f"{os.fspath(destination)}.data")
        if external_data:
            beside.unlink(missing_ok=True)  # to what is there, onnx would append
        onnx.save_model(
            model, os.fspath(destination), save_as_external_data=external_data, location=beside.name,
            size_threshold=LARGE,
        )  # fmt: skip

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the graph by ONNX's reference evaluator, in NumPy.

        Args:
            args: the inputs in the order of the graph.
            kwargs: inputs by their names.

        Returns:
            The outputs.

        Example:
            >>> program = adjit.onnx.export(nn.ReLU(), (adjit.ones(2),))
            >>> program.call_reference(adjit.tensor([-1., 2.]))
            (tensor([0., 2.]),)
        """
        onnx_package()
        evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(self.model_proto)
        names = [value.name for value in self.model_proto.graph.input]
        given = dict(zip(names, map(array_of, tensors_in(args)), strict=False))
        given |= {name: array_of(value) for name, value in kwargs.items()}
        with np.errstate(all="ignore"):  # what is not a number in a graph is none in the model
            return tuple(tensor(made) for made in evaluator.run(None, given))
