"""Recordings of programs: the public calls with their arguments, tensors by number.

    x * 2 + bias      number 0 is an input, 1 a parameter
    mul(<0>, 2)       gives 2
    add(<2>, <1>)     gives 3

A function that no rule knows is entered: what it calls inside is recorded instead.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from ..overrides import NAMED, TorchFunctionMode, is_method
from ..tensor import Tensor
from .errors import OnnxExporterError

# What says something about a tensor and not about its values, or shows them to people only.
METADATA = frozenset({
    "__format__", "__len__", "__repr__", "__str__", "data_ptr", "dim", "element_size", "get_device",
    "has_names", "is_coalesced", "is_complex", "is_contiguous", "is_floating_point", "is_inference",
    "is_neg", "is_conj", "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed", "is_tensor",
    "ndimension", "nelement", "numel", "requires_grad_", "result_type", "can_cast", "size",
    "storage_offset", "stride", "retain_grad", "untyped_storage", "storage", "type_of",
})  # fmt: skip
# What gives other values each time.
DRAWS = frozenset({
    "alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "empty", "empty_like", "exponential", "feature_alpha_dropout", "feature_dropout", "geometric",
    "gumbel_softmax", "log_normal", "multinomial", "new_empty", "normal", "poisson", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "rrelu",
    "uniform",
})  # fmt: skip

# Methods whose arguments have another order than those of the function of their name.
METHODS_APART = {"where": "Tensor.where"}


@dataclass(frozen=True)
class Reference:
    """Stands in recorded arguments for a tensor: the number of its contents."""

    index: int


@dataclass
class Contents:
    """What a tensor contains between two writes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    source: str = ""  # the name of an input or of a parameter; "" for others
    depends_on_inputs: bool = False
    depends_on_state: bool = False
    held: Tensor | None = None  # a tensor that the program has from elsewhere
    array: np.ndarray[Any, Any] | None = None  # its values, if they depend on neither


@dataclass
class RecordedCall:
    """A call of a public function: arguments with references, and the numbers of what it made."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]
    written: list[int] = field(default_factory=list)  # new contents of tensors among its arguments
    draws: bool = False


@dataclass
class Recording:
    """The calls of one run of a program."""

    contents: list[Contents] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


def leaves_in(tree: Any) -> Iterator[Any]:
    """What is in a structure of containers, in its order."""
    if isinstance(tree, slice):
        tree = tree.start, tree.stop, tree.step
    elif isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from leaves_in(part)
    else:
        yield tree


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """The tensors in a structure of containers, in its order."""
    return (leaf for leaf in leaves_in(tree) if isinstance(leaf, Tensor))


def with_tensors(tree: Any, change: Callable[[Tensor], Any]) -> Any:
    """The structure with something else in the place of each tensor."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        parts = [with_tensors(part, change) for part in tree]
        if hasattr(tree, "_fields"):
            return type(tree)(*parts)
        return parts if isinstance(tree, list) else tuple(parts)
    if isinstance(tree, Mapping):
        pairs = {key: with_tensors(part, change) for key, part in tree.items()}
        return pairs if type(tree) is dict else type(tree)(pairs)  # type: ignore[call-arg]
    if isinstance(tree, slice):
        return slice(*with_tensors((tree.start, tree.stop, tree.step), change))
    return tree


def array_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A copy of the values of a tensor."""
    return np.array(tensor.detach().cpu().numpy())


@functools.cache
def _property_names() -> dict[int, str]:
    """The names of properties of tensors, by the functions that look."""
    found = {name: inspect.getattr_static(Tensor, name) for name in dir(Tensor)}
    return {id(p.fget): name for name, p in found.items() if isinstance(p, property)}


def name_of(func: Any) -> tuple[str, bool]:
    """The name of what was called, and whether it is a property."""
    looked = getattr(getattr(func, "__self__", None), "fget", None)
    if looked is not None:
        return _property_names().get(id(looked), "property"), True
    name = str(getattr(func, "__name__", func))
    if is_method(func):
        name = METHODS_APART.get(name, name)
    return NAMED.get(name, name), False


class Known(NamedTuple):
    """What is known of a tensor: itself, the number of its contents, and when they were written."""

    tensor: Tensor
    number: int
    version: int


class Recorder(TorchFunctionMode):
    """Records the calls made while it is entered.

    Args:
        has_rule: whether a function of a name is written as ONNX; others are entered.
        opaque: functions known to do more than what is recorded of them, which are not; more are added.
    """

    def __init__(self, has_rule: Callable[[str], bool], opaque: set[str]) -> None:
        super().__init__()
        self.opaque = opaque
        self.recording = Recording()
        self.has_rule = has_rule
        self.known: dict[int, Known] = {}  # by id
        self._journal: list[tuple[int, Known | None]] = []  # of `known`: what was there before
        self.sharing: set[int] = set()  # ids of tensors whose writes would change others unseen

    def __enter__(self) -> Self:
        _property_names()  # as they are while no mode is entered
        super().__enter__()
        return self

    def name_input(self, tensor: Tensor, source: str, is_input: bool) -> int:
        """Say that a tensor is an input of the program, or else part of its state."""
        found = Contents(*_kind_of(tensor), source, is_input, not is_input)
        return self._know(tensor, found)

    def index_of(self, tensor: Tensor) -> int:
        """The number of what a tensor contains now.

        Raises:
            OnnxExporterError: if it was written through another tensor with the same memory.
        """
        if id(tensor) not in self.known:
            made = Contents(*_kind_of(tensor), held=tensor, array=array_of(tensor))
            return self._know(tensor, made)
        _, index, version = self.known[id(tensor)]
        if version != tensor._version:
            raise OnnxExporterError(
                "a tensor is used after another one with the same memory (a view of it, or what it is a view "
                "of) was written in place: an ONNX graph has no shared memory. Write without in-place "
                "operations, or index and write in one statement, as in x[:, 0] = y"
            )
        return index

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, and record it or what it calls."""
        kwargs = kwargs or {}
        name, is_property = name_of(func)
        plain = getattr(func, "function", func)
        if name in METADATA:
            return plain(*args, **kwargs)
        if is_property and not isinstance(made := plain(*args), Tensor):
            return made
        given = with_tensors((args, kwargs), lambda t: Reference(self.index_of(t)))
        is_entered = not self.has_rule(name) and name not in self.opaque
        made = self._entered(name, plain, args, kwargs) if is_entered else plain(*args, **kwargs)
        self._note(name, given, args, kwargs, made)
        return made

    def _entered(
        self, name: str, plain: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Run a function that has no rule, and record what it calls, unless it does more than that."""
        calls, contents, journal = self.recording.calls, self.recording.contents, self._journal
        before = len(calls), len(contents), len(journal)
        with self:
            made = plain(*args, **kwargs)
        is_all = (
            all(id(tensor) in self.known for tensor in tensors_in(made))
            and not self._written(args, kwargs)
            and not any(c.held is not None for c in contents[before[1] :])
        )
        if not is_all:
            self.opaque.add(name)
            while len(journal) > before[2]:
                key, last = journal.pop()
                if last is None:
                    del self.known[key]
                else:
                    self.known[key] = last
            del calls[before[0] :], contents[before[1] :]
        return made

    def _written(self, args: Any, kwargs: dict[str, Any]) -> dict[int, Tensor]:
        """The tensors that a call wrote and nothing recorded says so.

        Others that changed share memory with these, or are statistics: they are not to be used again.
        """
        targets = tensors_in((args[:1], kwargs.get("out")))
        return {id(t): t for t in targets if self.known[id(t)].version != t._version}

    def _note(self, name: str, given: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
        """Record a call, if it made or wrote something that is not recorded yet."""
        written = self._written(args, kwargs)
        results = list(tensors_in(made))
        draws = name in DRAWS or name.rstrip("_") in DRAWS
        tensors = tensors_in((args, kwargs))
        depends = [self.recording.contents[self.known[id(t)].number] for t in tensors]
        on_inputs = any(c.depends_on_inputs for c in depends) or draws
        if not written and not results and on_inputs and made is not None:
            raise OnnxExporterError(
                f"the program looks at values that depend on its inputs (by '{name}'), and an ONNX graph "
                "does the same for all values: use where() and other operations of tensors instead"
            )
        fresh = {id(t): t for t in results if id(t) not in self.known}
        if not written and not fresh:
            return
        if self.sharing & written.keys():
            raise OnnxExporterError(
                "a tensor is written in place that `.data` was taken of, or gave; use detach(), or no writes"
            )
        if name == "data":
            self.sharing |= fresh.keys() | {id(args[0])}
        on_state = any(c.depends_on_state for c in depends)
        for tensor in (*written.values(), *fresh.values()):
            array = None if on_inputs or on_state else array_of(tensor)
            self._know(tensor, Contents(*_kind_of(tensor), "", on_inputs, on_state, array=array))
        known_args, known_kwargs = given
        call = RecordedCall(name, known_args, known_kwargs, self._numbers(results))
        call.written, call.draws = self._numbers(written.values()), draws
        self.recording.calls.append(call)

    def _numbers(self, tensors: Iterable[Tensor]) -> list[int]:
        return [self.known[id(tensor)].number for tensor in tensors]

    def _know(self, tensor: Tensor, contents: Contents) -> int:
        self.recording.contents.append(contents)
        index = len(self.recording.contents) - 1
        self._journal.append((id(tensor), self.known.get(id(tensor))))
        self.known[id(tensor)] = Known(tensor, index, tensor._version)
        return index


def _kind_of(tensor: Tensor) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return tuple(tensor.shape), np.dtype(tensor.dtype.name)
