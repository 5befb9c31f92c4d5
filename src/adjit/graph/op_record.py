"""What recording and backward know of an elementwise op on operands of given specs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ..dtypes import dtype
from ..schedule.codegen.body import Body
from ..schedule.planning.recipe import Recipe
from .node import GradContext, GradOp, NewTensor, Spec

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)

PASSED, NOTHING = -1, -2  # among the sources of a vjp
AS_IS, AS_TENSOR, FITTED = range(3)  # its fixes

Pick = Callable[[Any], tuple[Any, ...]]  # of a tuple of anything, some of it in order


class Kernel(NamedTuple):
    """A kernel that gives gradients of some operands."""

    recipe: Recipe
    only: int  # the operand whose gradient is its only result and fits, or -1
    which: tuple[int, ...]  # the operands that it gives gradients for
    numbers: tuple[int, ...]  # the positions of its numbers among the forward's
    pick: Pick  # picks its inputs out of `g` and the saved values
    reads: tuple[int, ...]  # the places of its inputs there


class Vjp(NamedTuple):
    """How the gradients of an elementwise op's operands come from that of its result, `g`."""

    passed: Pick | None  # of (g, None): those that are `g` itself, if there are any
    fits: bool  # whether `g` has the specs of these operands
    kernels: tuple[Kernel, ...]  # for the others
    made: tuple[Spec, ...]  # what the kernels give, one after the other
    # For each operand its place among these, `PASSED` for `g`, or `NOTHING`.
    sources: tuple[int, ...]
    fixes: tuple[int, ...]  # for each operand what to make of that, as `fix` says


class VjpOnTensors(NamedTuple):
    """A vjp as a function of tensors, which records what can be differentiated again."""

    function: Callable[..., Sequence[NewTensor]]
    which: tuple[int, ...]  # the operands that it gives gradients for
    saved: int  # how many tensors the node has saved
    places: tuple[int, ...]  # where its arguments are among `g`, these, the numbers, and None


Number = float | int | bool  # of Python
# What operands look like: the spec of a tensor, the class of a number.
OpKey = tuple[Spec | type, ...] | Spec | type


class MemoryOfSizes(Protocol):
    """What an op keeps for operands of ever other sizes; `other_sizes.py` has the class."""

    def made(
        self, form: Hashable, numbers: tuple[int, ...], make: Callable[[Iterator[int]], _T]
    ) -> _T | None:
        """What `make` gives for numbers, made by a template; None if there is none for them."""

    def keep(
        self,
        entries: dict[_K, _T],
        key: _K,
        name: object,
        said: object = None,
        *,
        is_made: bool = False,
    ) -> None:
        """Keep a new entry, for good if its key, or what it says, was met before."""


class ElementwiseOp(GradOp, Protocol):
    """An elementwise op as recording needs it; `elementwise.py` has the class of all."""

    name: str
    arity: int
    params: list[str]
    attributes: list[str]
    body: Body
    back: Body | None
    differentiable: bool
    laid_by: Sequence[int]  # operands, first that whose order of axes counts first; none: C order
    tensors_only: Sequence[int]  # operands that may not be numbers
    straight: str
    op_records: dict[OpKey, OpRecord]
    saves: dict[int, tuple[int, ...]]  # what to save, -1 the result: by who needs gradients
    dtypes: Callable[[list[tuple[dtype, int]]], tuple[dtype, dtype]]

    @property
    def sizes(self) -> MemoryOfSizes:
        """What it keeps for operands of ever other sizes."""

    def words(
        self, op_record: OpRecord, numbers: Sequence[Number], attributes: Sequence[Number]
    ) -> tuple[int, ...]:
        """Python numbers as words."""

    def numbers(self, op_record: OpRecord, words: Sequence[int]) -> dict[str, Number]:
        """The Python numbers behind words, by name."""

    def record_known(
        self, operands: tuple[object, ...], attributes: tuple[object, ...], over: bool
    ) -> NewTensor:
        """Record a call of which the op record is known by now, in the shortest way."""

    def functions(self) -> dict[str, Callable[..., NewTensor]]:
        """What names in the body of the derivative mean on tensors."""


class OpRecord(GradContext):
    """An elementwise op on operands of given specs: its lowered op, and what recording has to know besides."""

    __slots__ = (
        "compute", "differentiable", "floating", "kin", "numbers", "operands", "over", "recipe", "uniform",
        "vjps", "vjps_by_spec", "vjps_on_tensors", "whole",
    )  # fmt: skip
    of_sizes = ("recipe", "operands")
    of_its_own = ("vjps", "vjps_by_spec", "vjps_on_tensors")

    def __init__(
        self,
        recipe: Recipe,
        operands: tuple[Spec | None, ...],
        numbers: tuple[str, ...],
        compute: dtype,
        *,
        whole: bool,
        differentiable: bool,
        uniform: bool = True,
    ) -> None:
        self.recipe = recipe  # what runs it
        self.over: Recipe | None = None  # what may write over the first operand, once asked for
        self.operands = operands  # a spec for each, None for a Python number
        self.numbers = numbers  # names of the Python numbers, in the order of words
        self.compute = compute  # the dtype that the body runs in
        # A word of a number is the bits of a float, or the number itself; where both are among those of a
        # call, neither holds, and Python makes the words.
        self.floating, self.uniform = compute.is_floating_point and uniform, uniform
        self.whole = whole
        self.differentiable = differentiable
        # For a bare `g`, which has the spec of the result: by which operands need gradients, as bits.
        self.vjps: dict[int, Vjp] = {}
        self.vjps_on_tensors: dict[int, VjpOnTensors] = {}
        self.vjps_by_spec: dict[tuple[Spec, int], Vjp] = {}  # for a tensor `g`: by its spec too
        # The vjps of those that one template has made.
        self.kin: MemoryOfSizes | None = None
