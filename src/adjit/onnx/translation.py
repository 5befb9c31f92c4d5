"""From recordings to a graph: what they have in common, written by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .builder import GraphBuilder, OnnxValue
from .errors import OnnxExporterError, UnsupportedOperatorError
from .recording import RecordedCall, Recording, Reference
from .rules import rule_of
from .sizes import size_of

# NumPy's names of parameters, which functions here take too.
PYTORCH_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def references_in(tree: Any) -> set[int]:
    """The numbers of the tensors in recorded arguments."""
    if isinstance(tree, Reference):
        return {tree.index}
    if isinstance(tree, (tuple, list)):
        return set().union(*map(references_in, tree))
    if isinstance(tree, Mapping):
        return references_in(list(tree.values()))
    if isinstance(tree, slice):
        return references_in((tree.start, tree.stop, tree.step))
    return set()


class Translation:
    """Writes the graph of a program that was recorded several times.

    Args:
        runs: the recordings, with different sizes of the dynamic dimensions.
        builder: the graph.
    """

    def __init__(self, runs: Sequence[Recording], builder: GraphBuilder) -> None:
        self.runs, self.builder = runs, builder
        self.first = runs[0]
        self.values: dict[int, OnnxValue] = {}
        self._check_calls()
        self.constant = self._constants()

    def _check_calls(self) -> None:
        """See that the program does the same in all runs."""
        named = [[call.name for call in run.calls] for run in self.runs]
        if all(names == named[0] for names in named) and self._numbered_alike():
            return
        for k, names in enumerate(zip(*named, strict=False)):
            if len(set(names)) > 1:
                raise self._differs(f"call {k} was {' and '.join(sorted(set(names)))}")
        raise self._differs(f"it made {' and '.join(str(len(names)) for names in named)} calls")

    def _numbered_alike(self) -> bool:
        numbers = [
            [(call.results, call.written) for call in run.calls] + [(run.outputs, [])]
            for run in self.runs
        ]
        return all(found == numbers[0] for found in numbers)

    def _differs(self, told: str) -> OnnxExporterError:
        names = ", ".join(d.name for d in self.builder.dimensions)
        why = (
            f"depends on the size of {names}" if names else "does something else each time it runs"
        )
        return OnnxExporterError(f"the program {why}, and cannot be written as one graph: {told}")

    def _constants(self) -> set[int]:
        """The contents that are the same in all runs, and come from nothing that changes."""
        found = {
            index
            for index, contents in enumerate(self.first.contents)
            if contents.held is not None
            and self._is_held_by_all(index)
            and self._is_equal_in_all(index)
        }
        for call in self.first.calls:
            made = {*call.results, *call.written}
            if not call.draws and references_in((call.args, call.kwargs)) <= found:
                found |= {index for index in made if self._is_equal_in_all(index)}
        return found

    def _is_held_by_all(self, index: int) -> bool:
        held = self.first.contents[index].held
        return all(
            index < len(run.contents) and run.contents[index].held is held for run in self.runs
        )

    def _is_equal_in_all(self, index: int) -> bool:
        array = self.first.contents[index].array
        others = [run.contents[index].array for run in self.runs[1:]]
        return array is not None and all(
            other is not None
            and other.shape == array.shape
            and np.array_equal(other, array, equal_nan=array.dtype.kind == "f")
            for other in others
        )

    def needed(self) -> list[int]:
        """The calls that results depend on, in their order."""
        wanted = set(self.first.outputs)
        found = []
        for k in reversed(range(len(self.first.calls))):
            call = self.first.calls[k]
            made = {*call.results, *call.written} - self.constant
            if made & wanted:
                found.append(k)
                wanted |= references_in((call.args, call.kwargs))
        return found[::-1]

    def write(self) -> None:
        """Write the nodes of all calls that are needed."""
        for k in self.needed():
            self._write_call([run.calls[k] for run in self.runs])

    def _write_call(self, calls: Sequence[RecordedCall]) -> None:
        call, builder = calls[0], self.builder
        rule = rule_of(call.name)
        if rule is None:
            raise UnsupportedOperatorError(
                f"no rule writes {call.name!r} as ONNX; write it with other operations, or compute it outside "
                "of the model"
            )
        if len(call.written) > 1:
            raise OnnxExporterError(
                f"{call.name!r} writes several tensors in place; write it without in-place operations"
            )
        args = self._merged([c.args for c in calls], call.name)
        kwargs = self._merged([c.kwargs for c in calls], call.name)
        kwargs = {
            PYTORCH_NAMES.get(key, key): value for key, value in kwargs.items() if key != "out"
        }
        targets = call.written or call.results
        builder.outs = [self._expected(index) for index in targets]
        try:
            made = rule(builder, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise UnsupportedOperatorError(
                f"the rule for {call.name!r} does not know these arguments: {error}"
            ) from error
        results = list(_flat(made))
        for index, expected, value in zip(targets, builder.outs, results, strict=True):
            if index not in self.values:
                cast = builder.cast(value, expected.dtype)
                self.values[index] = OnnxValue(cast.name, expected.dtype, expected.shape)
                builder.know_sizes(self.values[index])

    def _expected(self, index: int) -> OnnxValue:
        shapes = [run.contents[index].shape for run in self.runs]
        if len({len(shape) for shape in shapes}) > 1:
            raise self._differs(f"a tensor had the shapes {' and '.join(map(str, shapes))}")
        shape = tuple(size_of(numbers) for numbers in zip(*shapes, strict=True))
        return OnnxValue("", self.first.contents[index].dtype, shape)

    def value(self, index: int, user: str = "return") -> OnnxValue:
        """The value in the graph that has some contents.

        Args:
            index: their number.
            user: what needs them.
        """
        if index not in self.values:
            self.values[index] = self._taken_in(index, user)
        return self.values[index]

    def _taken_in(self, index: int, user: str) -> OnnxValue:
        contents, builder = self.first.contents[index], self.builder
        if contents.source:
            expected = self._expected(index)
            return OnnxValue(contents.source, contents.dtype, expected.shape)
        if index in self.constant:
            return builder.constant(contents.array)
        raise OnnxExporterError(
            f"{user!r} gets a tensor of {self.first.contents[index].shape} that the program makes in a way "
            "that cannot be recorded: by a custom autograd.Function, by NumPy, or by a function of the library "
            "that it keeps in a container; make it with operations of tensors"
        )

    def _merged(self, trees: Sequence[Any], name: str) -> Any:
        """Arguments of all runs as one: values for references, sizes for numbers that differ."""
        first = trees[0]
        if isinstance(first, Reference):
            if any(tree != first for tree in trees):
                raise self._differs(f"{name!r} was called with other tensors")
            return self.value(first.index, name)
        kinds = {type(tree) for tree in trees}
        if isinstance(first, (tuple, list)) and len({len(tree) for tree in trees}) == 1:
            parts = [self._merged(parts, name) for parts in zip(*trees, strict=True)]
            return tuple(parts) if isinstance(first, tuple) else parts
        if isinstance(first, Mapping) and all(tree.keys() == first.keys() for tree in trees):
            return {key: self._merged([tree[key] for tree in trees], name) for key in first}
        if isinstance(first, slice):
            ends = [(tree.start, tree.stop, tree.step) for tree in trees]
            return slice(*self._merged(ends, name))
        if kinds == {int} and self.builder.dimensions:
            return size_of(trees)
        if all(_is_same(tree, first) for tree in trees):
            return first
        raise self._differs(f"{name!r} was called with {' and '.join(map(repr, trees))}")


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and bool(one is other or one == other or one != one)


def _flat(made: Any) -> Iterable[OnnxValue]:
    if isinstance(made, OnnxValue):
        yield made
    elif isinstance(made, (tuple, list)):
        for part in made:
            yield from _flat(part)
