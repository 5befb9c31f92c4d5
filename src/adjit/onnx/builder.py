"""Writes the nodes of an ONNX graph: what rules are given."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from .errors import OnnxExporterError, UnsupportedOperatorError
from .sizes import Dimension, DynamicSize, Explanation, explained

Array = np.ndarray[Any, Any]
Shape = tuple[int | DynamicSize, ...]


def onnx_package() -> Any:
    """The package `onnx`, which knows the format.

    Raises:
        ModuleNotFoundError: if it is not installed.
    """
    try:
        importlib.import_module("onnx.numpy_helper")
        return importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "adjit.onnx.export writes files by the package onnx, which is not installed: pip install onnx",
            name=error.name,
        ) from error


class OnnxValue:
    """A value of the graph: its name, dtype, and its shape where that is known."""

    __slots__ = ("dtype", "known_shape", "name")

    def __init__(self, name: str, dtype: np.dtype[Any], shape: Shape | None = None) -> None:
        self.name, self.dtype, self.known_shape = name, dtype, shape

    @property
    def shape(self) -> Shape:
        """The shape of a value that the program has; those between the nodes of a rule have none."""
        assert self.known_shape is not None
        return self.known_shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """True for floating point numbers."""
        return self.dtype.kind == "f"

    def __repr__(self) -> str:
        return f"OnnxValue({self.name!r}, {self.dtype}, {self.known_shape})"


Operand = OnnxValue | bool | int | float | DynamicSize


class GraphBuilder:
    """Nodes and constants of a graph that is being made.

    Args:
        dimensions: those whose sizes are known only when the graph runs.
        taken: names that no value between inputs and outputs may have.

    Attributes:
        out: the result of the call that a rule writes: what dtype and shape it has to have.
        outs: all results of the call.
    """

    def __init__(self, dimensions: Sequence[Dimension], taken: Iterable[str]) -> None:
        self.onnx = onnx_package()
        self.dimensions = dimensions
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.outs: list[OnnxValue] = []
        self._names = set(taken)
        self._known_constants: dict[Any, OnnxValue] = {}
        self._sizes: dict[tuple[int, ...], OnnxValue] = {}
        self._sized: list[tuple[OnnxValue, int, tuple[int, ...]]] = []

    @property
    def out(self) -> OnnxValue:
        """The first result of the call."""
        return self.outs[0]

    def fresh(self, name: str) -> str:
        """A name that nothing in the graph has yet."""
        found, count = name, 0
        while found in self._names:
            count += 1
            found = f"{name}_{count}"
        self._names.add(found)
        return found

    def node(
        self,
        op: str,
        *inputs: OnnxValue | None,
        dtype: Any = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> Any:
        """Write a node.

        Args:
            op: the operator.
            inputs: its inputs; None for one that is left out.
            dtype: of the results, if it is not that of the first input; several for several results.
            outputs: how many results there are.
            attributes: of the node; those that are None are left out.

        Returns:
            The result, or a list of several.
        """
        kinds = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * outputs
        first = next((value for value in inputs if value is not None), None)
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        given = [value.name if value is not None else "" for value in inputs]
        while given and not given[-1]:
            given.pop()
        there = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(
            self.onnx.helper.make_node(op, given, names, name=f"node_{names[0]}", **there)
        )
        made = [
            OnnxValue(name, np.dtype(kind) if kind is not None else first.dtype)  # type: ignore[union-attr]
            for name, kind in zip(names, kinds, strict=True)
        ]
        return made if outputs > 1 else made[0]

    def constant(self, value: Any, dtype: Any = None, name: str = "constant") -> OnnxValue:
        """A constant; equal small ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is None or key not in self._known_constants:
            made = OnnxValue(self.fresh(name), array.dtype, array.shape)
            self.constants[made.name] = array
            if key is None:
                return made
            self._known_constants[key] = made
        return self._known_constants[key]

    def cast(self, value: OnnxValue, dtype: Any) -> OnnxValue:
        """The value in a dtype."""
        kind = np.dtype(dtype)
        if value.dtype == kind:
            return value
        made: OnnxValue = self.node("Cast", value, dtype=kind, to=self.code_of(kind))
        made.known_shape = value.known_shape
        return made

    def code_of(self, dtype: Any) -> int:
        """The number that stands for a dtype in ONNX."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def operand(self, value: Operand, dtype: Any) -> OnnxValue:
        """A tensor or a number as a value of a dtype."""
        if isinstance(value, OnnxValue):
            return self.cast(value, dtype)
        if isinstance(value, DynamicSize):
            return self.cast(self.node("Squeeze", self.size(value)), dtype)
        return self.constant(value, dtype)

    def operands(self, *values: Operand) -> list[OnnxValue]:
        """Tensors and numbers in the dtype that they have together."""
        kind = self.common(*values)
        return [self.operand(value, kind) for value in values]

    def common(self, *values: Operand) -> np.dtype[Any]:
        """The dtype that tensors and numbers have together, by the rules of promotion."""
        kinds = [
            (dtypes.of_numpy(v.dtype), 0 if v.ndim == 0 else 1)
            if isinstance(v, OnnxValue)
            else (dtypes.of_scalar(0 if isinstance(v, DynamicSize) else v), -1)
            for v in values
        ]
        return dtypes.result_of(kinds).numpy

    # ----- sizes -----

    def know_sizes(self, value: OnnxValue) -> None:
        """Let the dimensions of a value explain numbers of later calls."""
        for axis, size in enumerate(value.shape):
            if isinstance(size, DynamicSize):
                self._sized.append((value, axis, size.numbers))

    def explanation(self, size: DynamicSize) -> Explanation | None:
        """A size as a term of the dynamic dimensions, if it is one."""
        return explained(size, self.dimensions)

    def size(self, size: int | DynamicSize) -> OnnxValue:
        """A number as a vector of one int64.

        Raises:
            OnnxExporterError: if nothing explains it.
        """
        if not isinstance(size, DynamicSize):
            return self.constant([size], np.int64)
        if size.numbers not in self._sizes:
            self._sizes[size.numbers] = self._computed(size)
        return self._sizes[size.numbers]

    def _computed(self, size: DynamicSize) -> OnnxValue:
        found = self.explanation(size)
        if found is not None:
            parts = [self._dimension(d) for d in found.dimensions]
            value = parts[0]
            for part in parts[1:]:
                value = self.node("Mul", value, part)
            steps = (
                ("Mul", found.factor.numerator, 1),
                ("Div", found.factor.denominator, 1),
                ("Add", found.rest, 0),
            )
            for op, number, neutral in steps:
                if number != neutral:
                    value = self.node(op, value, self.constant([number], np.int64))
            return value
        for value, axis, numbers in self._sized:
            if numbers == size.numbers:
                return self.shape_of(value, axis, axis + 1)
        names = ", ".join(d.name for d in self.dimensions)
        raise OnnxExporterError(
            f"a number of the program, {', '.join(map(str, size.numbers))} for {self._told()}, depends on the "
            f"size of {names} in a way that the graph cannot compute; make the dimension static, or take the "
            "number from the shape of a tensor"
        )

    def _told(self) -> str:
        return " and ".join(f"{d.name} = {', '.join(map(str, d.numbers))}" for d in self.dimensions)

    def _dimension(self, dimension: Dimension) -> OnnxValue:
        if dimension.numbers not in self._sizes:
            source = OnnxValue(dimension.source, np.dtype(np.int64))
            axis = dimension.axis
            self._sizes[dimension.numbers] = self.shape_of(source, axis, axis + 1)
        return self._sizes[dimension.numbers]

    def shape_of(
        self, value: OnnxValue, start: int | None = None, end: int | None = None
    ) -> OnnxValue:
        """The shape of a value when the graph runs, or part of it: a vector of int64."""
        made: OnnxValue = self.node("Shape", value, dtype=np.int64, start=start, end=end)
        return made

    def ints(self, numbers: Sequence[int | DynamicSize]) -> OnnxValue:
        """A vector of int64."""
        if not any(isinstance(number, DynamicSize) for number in numbers):
            return self.constant(list(numbers), np.int64)
        made: OnnxValue = self.node("Concat", *map(self.size, numbers), axis=0)
        return made

    # ----- what many rules need -----

    def reshape(self, value: OnnxValue, shape: Sequence[int | DynamicSize]) -> OnnxValue:
        """The value in another shape, in which one size may be -1."""
        sizes: list[int | DynamicSize] = list(shape)
        dynamic = [axis for axis, size in enumerate(sizes) if isinstance(size, DynamicSize)]
        if len(dynamic) == 1 and -1 not in sizes and 0 not in sizes:
            sizes[dynamic[0]] = -1
        made: OnnxValue = self.node(
            "Reshape", value, self.ints(sizes), allowzero=1 if 0 in sizes else None
        )
        made.known_shape = tuple(shape) if -1 not in list(shape) else None
        return made

    def squeeze(self, value: OnnxValue, *axes: int) -> OnnxValue:
        """The value without dimensions of size 1."""
        made: OnnxValue = (
            self.node("Squeeze", value, self.constant(axes, np.int64)) if axes else value
        )
        return made

    def unsqueeze(self, value: OnnxValue, *axes: int) -> OnnxValue:
        """The value with further dimensions, counted in the result."""
        made: OnnxValue = (
            self.node("Unsqueeze", value, self.constant(axes, np.int64)) if axes else value
        )
        return made

    def transpose(self, value: OnnxValue, order: Sequence[int]) -> OnnxValue:
        """The value with its dimensions in another order."""
        if list(order) == list(range(len(order))):
            return value
        made: OnnxValue = self.node("Transpose", value, perm=list(order))
        return made

    def slice(self, value: OnnxValue, axis: int, start: Any, end: Any, step: int = 1) -> OnnxValue:
        """A part of a value along one dimension; None as end is the end."""
        if any(isinstance(number, OnnxValue) for number in (start, end, step)):
            raise UnsupportedOperatorError("slices from or to values of tensors have no rule")
        last = np.iinfo(np.int64).max if end is None else end
        made: OnnxValue = self.node(
            "Slice",
            value,
            self.ints([start or 0]),
            self.ints([last]),
            self.ints([axis]),
            self.ints([step]),
        )
        return made

    def expand(self, value: OnnxValue, shape: Sequence[int | DynamicSize]) -> OnnxValue:
        """The value repeated to a shape."""
        made: OnnxValue = self.node("Expand", value, self.ints(shape))
        return made

    def binary(self, op: str, x: OnnxValue, other: Operand) -> OnnxValue:
        """A node of two operands, the second one in the dtype of the first."""
        made: OnnxValue = self.node(op, x, self.operand(other, x.dtype))
        return made

    def count(self, shape: Sequence[int | DynamicSize]) -> int | DynamicSize:
        """How many elements there are."""
        found: int | DynamicSize = prod(shape)
        return found
