"""Switches of the current thread: whether gradients are recorded, and how carefully."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import call
from typing import Any, Protocol

from .. import errors
from ..storage import Storage
from .levels import Level
from .node import Edge, GradNode, Node


class CapturingSession(Protocol):
    """What watches a function that is being captured; `captured` has its class."""

    def depends_on(self, read: Callable[[], object]) -> None:
        """What was captured holds as long as `read()` gives what it gives now."""

    def numbers(
        self, values: Sequence[int], again: Callable[[], Sequence[int]], is_unique: bool = False,
        save: Callable[[], Callable[[], object]] | None = None,
    ) -> None:  # fmt: skip
        """The next node whose Python numbers contain `values` takes those of `again()` later."""

    def can_wait(self, gradient: Node) -> None:
        """Note a gradient, the rows of a table, of which the function reads no more than these rows."""

    def decide(self, t: object) -> bool | None:
        """Whether the only element of a tensor is not zero, as it will be in calls that are answered by the
        capture; None if it has to be looked at, which ends the capture."""

    def ran_backward(self, nodes: Iterable[GradNode]) -> None:
        """Note that the function has sent gradients back through these backward nodes."""

    def came_before(self, storage: Storage) -> bool:
        """Whether a storage was there before."""

    def refuse(self, problem: str) -> None:
        """Say why what was done cannot be repeated by a plan."""


class Counter(Protocol):
    """Who counts what ops do; `utils.flop_counter` has its class."""

    def knows(self, op: object) -> bool:
        """Whether an op is counted as a whole; else the ops that it consists of are."""

    def ran(self, op: object, args: object, kwargs: object, out: object) -> None:
        """Count a call of an op that is known."""

    def add(self, name: str, count: int) -> None:
        """Count what PyTorch has a name for."""


class BackwardWalk(Protocol):
    """A backward pass; `autograd.engine` has its class."""

    straight: list[Edge | None]  # along which zeros would run
    depth: int  # how many are around it

    @property
    def is_whole(self) -> bool:
        """Whether gradients go to all leaves, also in the passes around it."""

    def will_run(self, fn: GradNode) -> bool:
        """Whether it is going to run a backward node."""


class RandomGenerator(Protocol):
    """A generator of random numbers; `random` has its class."""

    def advance(self, blocks: int) -> tuple[int, int, int]:
        """Use up blocks of numbers, and say where they begin."""


SavingHooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # of the user: pack, unpack


class State(threading.local):
    """Class attributes are what a new thread starts with."""

    grad = True  # operations record backward nodes
    inference = False  # results are inference tensors
    anomaly = False  # forward tracebacks are kept, gradients are checked
    check_nan = True
    saving: tuple[SavingHooks, ...] = ()  # hooks of what is saved
    saving_refused: str | None = None  # why there may be none
    walk: BackwardWalk | None = None  # the backward pass that is running
    moved = 0  # how many times passes inside of each other have gone on in another thread
    careful = False  # any of these, or counters: recording is left to Python, call by call
    attentive = False  # but for counters: it is not, and new backward nodes are attended to
    counters: tuple[Counter, ...] = ()  # of what ops do
    session: CapturingSession | None = None  # while a function is being captured
    compiling = False  # inside of a function that `adjit.compile` has made
    inside = False  # of a function that a transform differentiates
    levels: tuple[Level, ...] = ()  # of transforms, those entered last at the end
    forward: tuple[Level, ...] = ()  # of functions that are differentiated forward
    deterministic = True  # nothing happened that specs do not determine: no look at values, no draw
    whole = False  # what is being traced was told that an operand is all of its memory
    generator: RandomGenerator | None = None  # that is asked instead of the default one
    rehearsing = False  # on stand-ins for operands: nothing that is drawn is used up


state = State()


@contextlib.contextmanager
def below(level: Level) -> Iterator[None]:
    """A block that works on what a level's tracers stand for: neither that level nor later ones are there."""
    before = state.levels, state.forward
    state.levels, state.forward = (
        tuple([other for other in levels if other.number < level.number]) for levels in before
    )
    try:
        yield
    finally:
        state.levels, state.forward = before


def running_walk() -> BackwardWalk:
    """The backward pass that this thread is in."""
    assert state.walk is not None
    return state.walk


def be_careful() -> None:
    """Have recording of this thread left to Python where a switch asks for that, or what is recorded looked
    at by it."""
    before = state.careful
    now = bool(state.anomaly or state.saving or state.counters)
    if now and not before:
        modes_used[:0] = (True,)
    state.careful, state.attentive = now, now and not state.counters
    if before and not now:
        del modes_used[0]


unrecorded: list[None] = []  # as long as there are threads that record no backward nodes


def record_gradients(on: bool) -> bool:
    """Have operations of this thread record backward nodes or not; how that was before. In inference mode
    none are recorded.

    To be called instead of setting `state.grad`: machine code, which does not know of threads, asks for
    that only where some thread has switched it off.
    """
    before = state.grad
    on = on and not state.inference
    if on is not before:
        if not on:
            unrecorded[:0] = (
                None,
            )  # no call, here and below: an interrupt finds both done or neither
        state.grad = on
        if on:
            del unrecorded[0]
    return before


# `record_gradients(True)` in a thread that records none: a call without Python, which nothing can keep a
# `finally` from making. An interrupt would be raised where a function of Python begins.
resume_gradients: Callable[[], object] = partial(
    next,
    zip(
        map(call, repeat(partial(setattr, state, "grad", True))),
        map(call, repeat(unrecorded.pop)),
        strict=True,
    ),
)

inferring: list[None] = []  # as long as there are threads in inference mode
inference_used: list[bool] = []  # not empty once any thread was: operands may be inference tensors


def infer(on: bool) -> bool:
    """Have results of this thread be inference tensors or not; how that was before."""
    before = state.inference
    if on is not before:
        if on:
            inference_used[:] = (True,)
            inferring[:0] = (None,)  # no call, as above
        state.inference = on
        if not on:
            del inferring[0]
    return before


# Not empty as long as there are threads in anomaly mode, or with hooks of what is saved or counters.
modes_used: list[object] = []

# Those who want to know where nodes are recorded, or what a captured function does: they have put
# properties in the place of slots, so that machine code, which does not see these, does nothing.
Sites = dict[int, errors.CallSite | None]  # of nodes, by their ids
observers: list[Sites] = []
