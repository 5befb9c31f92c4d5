"""Watching a function: what it reads from outside, what it writes, what it draws.

Three slots are watched while it runs: the value of every storage, the `.grad` and the storage of
every tensor. What is read before it is written comes from outside; what is
written and can still be reached afterwards is an effect. Watching costs nothing when nobody
watches.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..atomic import at_once, calling, together
from ..devices import CPU
from ..graph import call_sites
from ..graph.links import links_of
from ..graph.node import GradNode, Meta, Node, sequence
from ..graph.record import tensor_classes
from ..graph.state import Sites, state
from ..schedule.settle import captured_threads, give_up, pending, stop_capturing
from ..storage import Storage
from ..tensor import Tensor
from .exported import Exported

value_slot: Any = Storage.__dict__["value"]
shared_slot: Any = Storage.__dict__["shared"]
grad_slot: Any = Meta.__dict__["grad"]
storage_slot: Any = Tensor.__dict__["_storage"]


class Seen(NamedTuple):
    """A tensor that was there before, as it was then."""

    tensor: Any
    storage: Storage
    spec: Any
    offset: int
    needs_grad: bool
    edge: Any
    counter: Any
    version: int

    @classmethod
    def now(cls, t: Any) -> Seen:
        """A tensor as it is."""
        storage, counter = storage_slot.__get__(t), t._version_counter
        return cls(
            t, storage, t._spec, t._offset, t._needs_grad, _edge(t), counter, counter.version
        )  # fmt: skip

    @property
    def is_unchanged(self) -> bool:
        """Whether the tensor still looks at the same elements and needs gradients as it did."""
        t = self.tensor
        return bool(
            storage_slot.__get__(t) is self.storage
            and t._spec is self.spec
            and t._offset == self.offset
            and t._needs_grad == self.needs_grad
        )


class Draw(NamedTuple):
    """Python numbers of nodes that are new at every replay, such as the counters of Philox."""

    start: int  # in `pending`
    values: tuple[int, ...]
    again: Callable[[], Sequence[int]]
    is_unique: bool  # no other draw gives the same: every node that has them takes the new ones
    save: Callable[[], Callable[[], object]] | None  # before `again`: what takes it back


class Session:
    """What one run of a function did."""

    def __init__(
        self, arguments: Sequence[Any] = (), exported: Exported | None = None,
        decision: Callable[[Any], tuple[bool, Node]] | None = None,
    ) -> None:  # fmt: skip
        self.decision = decision  # how to decide by a tensor, where the function may
        self.decisions: list[Node] = []  # steps that hold to what was decided
        self.thread = threading.get_ident()
        # Memory at which others look, and which the function writes; without it, that stops the capture.
        self.exported = exported
        self.arguments = [Seen.now(t) for t in arguments]
        self.outside: dict[int, Seen] = {}  # other tensors that were there before, by their id
        self.made: set[int] = set()  # ids of tensors that were not
        # The first values of the storages that were there before.
        self.storages: dict[Storage, Any] = {}
        self.versions: dict[Storage, int] = {}  # and their first versions
        self.written: weakref.WeakSet[Storage] = weakref.WeakSet()
        self.grads: dict[Meta, Any] = {}  # the first gradients
        self.set_grads: set[Meta] = set()
        self.new_metas: set[Meta] = set()
        self.problem = ""  # why what was done cannot be repeated by a plan
        self.draws: list[Draw] = []
        self.tables: list[Node] = []  # gradients of which only rows were read
        self.sites: Sites = {}  # where the nodes were recorded
        self.conditions: list[tuple[Callable[[], Any], Any]] = []
        self.began = sequence()  # backward nodes with lower numbers are not the function's own

    def unexplained(self, reached: set[int]) -> Seen | None:
        """A tensor from outside that is not among those reached, nor an argument or a gradient."""
        known = {id(seen.tensor) for seen in self.arguments}
        known.update(id(g) for g in self.grads.values())
        return next((s for k, s in self.outside.items() if k not in known | reached), None)

    def numbers(
        self, values: Sequence[int], again: Callable[[], Sequence[int]], is_unique: bool = False,
        save: Callable[[], Callable[[], object]] | None = None,
    ) -> None:  # fmt: skip
        """The next node whose Python numbers contain `values` takes those of `again()` later.

        What `save()` gives before that takes back what it changes.

        So do all others where the values are unique: backward draws the mask of a dropout again.
        """
        self.draws.append(Draw(len(pending), tuple(values), again, is_unique, save))

    def can_wait(self, gradient: Node) -> None:
        """Note a gradient, the rows of a table, of which the function reads no more than these rows."""
        self.tables.append(gradient)

    def depends_on(self, read: Callable[[], Any]) -> None:
        """What was captured holds as long as `read()` gives what it gives now."""
        self.conditions.append((read, read()))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what this thread does; nothing that it records is run meanwhile."""
        self.thread = threading.get_ident()
        owners = Storage, Meta, Tensor, Storage
        names = "value", "grad", "_storage", "shared"
        watched = [
            property(self._get_value, self._set_value),
            property(self._get_grad, self._set_grad),
            property(self._get_storage, self._set_storage),
            property(self._get_shared, shared_slot.__set__),
        ]
        self.made.clear()
        slots = value_slot, grad_slot, storage_slot, shared_slot
        leave = together(
            calling([partial(captured_threads.discard, self.thread)]),
            calling(
                [partial(give_up.pop, self.thread, None), partial(setattr, state, "session", None)]
            ),
            map(setattr, owners, names, slots),
        )
        try:
            at_once(
                map(setattr, owners, names, watched),
                calling([partial(setattr, state, "session", self)]),
                calling([partial(give_up.__setitem__, self.thread, self.refuse)]),
                calling([partial(captured_threads.add, self.thread)]),
            )
            with call_sites.recording_sites(self.sites):
                yield
        finally:
            leave()

    def came_before(self, storage: Storage) -> bool:
        """Whether a storage was there before."""
        self._get_value(storage)
        return storage in self.storages

    def linked_results(self, results: Sequence[Any]) -> str:
        """Why results hinder: nobody would write into one what is written into another one."""
        tensors = [t for t in results if t.__class__ in tensor_classes]
        seen = {id(t._storage) for t in tensors} | self.storages_before()
        for t in tensors:
            for known in links_of(t._storage):
                if {id(known.base.memory()), id(known.copy.memory())} <= seen:
                    return "it returns a tensor and a copy that stands for a view of it, or of an argument"
        return ""

    def forget_metas(self, lasting: set[Meta]) -> None:
        """Let go of the gradients of tensors that only the function itself has seen."""
        self.grads = {meta: grad for meta, grad in self.grads.items() if meta in lasting}
        self.set_grads &= lasting
        self.new_metas.clear()

    def storages_before(self) -> set[int]:
        """The ids of the storages that were there before."""
        seen = [*self.outside.values(), *self.arguments]
        return {id(storage) for storage in self.storages} | {id(found.storage) for found in seen}

    def decide(self, t: Any) -> bool | None:
        """Whether the only element of a tensor is not zero, as it will be in calls that are answered by the
        capture; None if it has to be looked at, which ends the capture."""
        if self.problem or self.decision is None or t._spec.device is not CPU or t._storage.shared:
            return None
        answer, node = self.decision(t)
        self.decisions.append(node)
        return answer

    def ran_backward(self, nodes: Iterable[GradNode]) -> None:
        """Note that the function has sent gradients back through these backward nodes."""
        if any(fn.seq < self.began and fn.edges for fn in nodes):
            self.refuse("it sends gradients back through a graph from outside")

    def refuse(self, problem: str) -> None:
        """Say why what was done cannot be repeated by a plan."""
        self.problem = self.problem or problem
        if self.exported is not None and self.thread not in captured_threads:
            self.exported.bring_home()  # the call goes on as usual, and others see what it has written

    def saw_new_code(self, problem: str) -> None:
        """Code runs of which nobody knew what it reads: perhaps memory that was to be written."""
        if self.exported is not None and not self.problem:
            if self.exported.homes:
                stop_capturing(problem)
            self.exported.is_possible = False

    def tensors_problem(self) -> str:
        """Why tensors that were there before hinder: each must have kept its storage and its history."""
        for seen in [*self.arguments, *self.outside.values()]:
            if not (seen.is_unchanged and _edge(seen.tensor) is seen.edge):
                return "it gives a tensor from outside another storage, or another history"
        return ""

    def _is_mine(self) -> bool:
        return threading.get_ident() == self.thread

    def _get_value(self, storage: Storage) -> Any:
        value = value_slot.__get__(storage)
        if self._is_mine() and storage not in self.written and storage not in self.storages:
            self.storages[storage], self.versions[storage] = value, storage.version
            if self.exported and not self.problem and self.exported.meets(value, storage):
                stop_capturing("it reads by another name what it writes where an array looks")
                return value_slot.__get__(storage)
        return value

    def _get_shared(self, storage: Storage) -> int:
        shared: int = shared_slot.__get__(storage)
        if not shared or not self._is_mine() or self.exported is None:
            return shared
        if self.problem and storage not in self.exported.homes:
            return shared
        return 0 if self.exported.hides(storage, value_slot.__get__(storage)) else shared

    def _set_value(self, storage: Storage, value: Any) -> None:
        if self._is_mine():
            if storage not in self.written and storage not in self.storages:
                with contextlib.suppress(AttributeError):  # of a storage that is being made
                    self.storages[storage] = value_slot.__get__(storage)
                    self.versions[storage] = storage.version
            self.written.add(storage)
            if getattr(storage, "shared", 0):  # it has none while it is being made
                # The function may read that memory.
                stop_capturing("it writes memory that an array looks at")
            elif self.exported and storage in self.storages and shared_slot.__get__(storage):
                # It was hidden from what wrote there.
                self.exported.homes.setdefault(storage, self.storages[storage])
        value_slot.__set__(storage, value)

    def _get_grad(self, meta: Meta) -> Any:
        grad = grad_slot.__get__(meta)
        if self._is_mine():
            self.grads.setdefault(meta, grad)
        return grad

    def _set_grad(self, meta: Meta, grad: Any) -> None:
        if self._is_mine():
            try:
                self.grads.setdefault(meta, grad_slot.__get__(meta))
                self.set_grads.add(meta)
            except AttributeError:  # it is being made
                self.new_metas.add(meta)
        grad_slot.__set__(meta, grad)

    def _get_storage(self, t: Any) -> Storage:
        storage: Storage = storage_slot.__get__(t)
        if self._is_mine() and id(t) not in self.made and id(t) not in self.outside:
            self.outside[id(t)] = Seen.now(t)
        return storage

    def _set_storage(self, t: Any, storage: Storage) -> None:
        if self._is_mine() and id(t) not in self.outside:
            try:
                self.outside[id(t)] = Seen.now(t)
            except AttributeError:  # it is being made
                self.made.add(id(t))
        storage_slot.__set__(t, storage)


def _edge(t: Any) -> Any:
    """Where the history of a tensor begins; that of a view is its base's."""
    return t._edge if t._view_of is None else t._view_of.base._edge


def reachable(wanted: Sequence[Any]) -> list[Any]:
    """The recorded nodes that some values need, in the order in which they were recorded."""
    seen: set[int] = set()
    stack = [value for value in wanted if value.recipe is not None]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += [v for v in node.inputs or () if v.recipe is not None]
    return [node for node in pending if id(node) in seen]
