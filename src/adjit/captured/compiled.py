"""`adjit.compile`: functions that are captured once and replayed as one plan."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import count
from typing import Any, TypeVar, overload

import numpy as np

from .. import config, devices, dtypes
from ..graph import record
from ..graph.state import state
from ..schedule.hot import warn
from ..schedule.settle import lock, looking_threads, settle
from .capture import Session
from .replay import Replay
from .sending import Graphs

F = TypeVar("F", bound=Callable[..., Any])

MAX_CAPTURES = 64  # of one function; the one used least recently goes first
MAX_VARIANTS = 8  # of one capture, that differ in what the function finds outside


@overload
def compile(f: F, *, mode: str = "step") -> F: ...


@overload
def compile(f: None = None, *, mode: str = "step") -> Callable[[F], F]: ...


def compile(f: Any = None, *, mode: str = "step") -> Any:
    """Capture a function the second time it is called, replay it as one plan from then on.

    The first call runs as usual, so that optimisers and modules make what they make only once. The
    second call records everything that the function does: its results, what it writes in place
    (parameters, buffers, the state of optimisers), the `.grad` of leaves. Later calls run the
    fused kernels of all that in one go; no Python inside the function runs any more.

    What is looked up anew at every call: the tensors given as arguments, every tensor from outside
    that is read, random numbers, the numbers that the optimisers of `adjit.optim` compute from
    their step. Everything else is as it was when the function was captured: Python numbers,
    branches, loops, hooks, which tensors a module or an optimiser has. A call whose arguments have
    other shapes, dtypes or Python values, in which `requires_grad`, `is_grad_enabled()` or
    `Module.training` differ, or for which a tensor from outside has new memory, is captured on its
    own. Where the function sends gradients back through a graph from outside, where a result is an
    object of another kind or shares memory with another that needs gradients, and where memory is
    written that a NumPy array looks at, calls run as usual.

    Results that need gradients have a graph behind them, one node of it for those that belong
    together: `loss = f(x); loss.backward()` replays a plan too. Arguments may have a graph, results
    may be used further, hooks on them run. The forward waits until somebody looks at a result; if
    gradients are sent back before, both run as one plan. Otherwise a call keeps what its backward
    reads, less what is quickly computed again. Hooks on tensors inside of such a graph make calls
    run as usual. With `create_graph=True` its backward is recorded like any other, and costs as much.

    Calls that run as usual are tried again, ever more rarely: watching a function takes its time.

    With `ADJIT_JIT=off` or `ADJIT_EAGER=1` nothing is captured: every call runs the function itself,
    which may then look at values too. So it is in anomaly mode and inside of another compiled
    function.

    Args:
        f: the function. Its arguments and results are tensors and Python values, also in lists,
            tuples and dicts.
        mode: "step", the only one: all that the function does belongs to a step, `backward()` and
            optimisers included.

    Raises:
        RuntimeError: at the first call, if the function looks at the value of a tensor.
        TypeError: for an argument that is neither a tensor nor hashable.

    Example:
        >>> w = adjit.ones(3, requires_grad=True)
        >>> opt = adjit.optim.SGD([w], lr=0.1)
        >>> @adjit.compile
        ... def step(x):
        ...     opt.zero_grad()
        ...     loss = (w * x).sum()
        ...     loss.backward()
        ...     opt.step()
        ...     return loss.detach()
        >>> [round(step(adjit.ones(3)).item(), 2) for _ in range(3)]
        [3.0, 2.7, 2.4]
        >>> loss_of = adjit.compile(lambda x: (w * x).sum())
        >>> for _ in range(3):
        ...     opt.zero_grad()
        ...     loss_of(adjit.ones(3)).backward()
        >>> w.grad
        tensor([1., 1., 1.])
    """
    if mode != "step":
        raise ValueError(f"adjit.compile: mode must be 'step', got {mode!r}")
    if f is None:
        return lambda function: compile(function, mode=mode)
    if not callable(f):
        raise TypeError(f"adjit.compile: expected a function, got {type(f).__name__}")
    captured = _Compiled(f)

    @functools.wraps(f, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return captured(args, kwargs)

    return call


class Captures:
    """The captures for arguments of one kind; none if there was one call so far."""

    __slots__ = ("replays", "used")

    def __init__(self, used: int) -> None:
        self.replays: tuple[tuple[Replay, Any], ...] = ()  # each with the form of the result
        self.used = used  # when: the number of a call

    def add(self, replay: Replay, form: Any) -> None:
        """Have calls answered by a replay; callers hold the lock."""
        self.replays = (*self.replays, (replay, form))[-MAX_VARIANTS:]

    def forget(self, capture: tuple[Replay, Any]) -> None:
        """Take away a capture that fits no more."""
        with lock:
            self.replays = tuple([other for other in self.replays if other is not capture])


class _Compiled:
    """The captures of one function, by what their arguments were."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.captures: dict[Any, Captures] = {}
        self.clock = count()
        self.refused: dict[Any, int] = {}  # calls since it could not be captured

    def __call__(self, args: Any, kwargs: Any) -> Any:
        if config.EAGER or config.JIT == "off" or state.anomaly or is_inside():
            return self.f(*args, **kwargs)
        leaves: list[Any] = []
        form = flatten(args, leaves), flatten(kwargs, leaves) if kwargs else None
        tensors = record.tensor_classes
        arguments = [leaf for leaf in leaves if leaf.__class__ in tensors]
        key = self._key(form, leaves)
        with lock:
            found = self.captures.get(key)
            if found is None:
                self._make_room()
                self.captures[key] = Captures(next(self.clock))
            else:
                found.used = next(self.clock)
        if found is None or not (found.replays or self._is_time(key)):
            with Session().only_looking():
                return self.f(*args, **kwargs)
        for capture in found.replays:
            replay, result_form = capture
            if replay.fits(arguments):
                results = replay.run(arguments)
                if results is not None:
                    if result_form is None:
                        return results[0]
                    return unflatten(result_form, iter(results))
                found.forget(capture)
                break
        returned, is_captured = self._capture(found, args, kwargs, arguments)
        if is_captured:
            self.refused.pop(key, None)
        else:
            self.refused[key] = self.refused.get(key, 0) + 1
        return returned

    def _make_room(self) -> None:
        """Let go of what was used least recently, if another capture would be too many."""
        if len(self.captures) >= MAX_CAPTURES:
            oldest = min(self.captures, key=lambda key: self.captures[key].used)
            del self.captures[oldest]
            self.refused.pop(oldest, None)

    def _is_time(self, key: Any) -> bool:
        """Whether to try a capture; where that has failed, ever more rarely: it takes its time."""
        count = self.refused.get(key, 0)
        if count:
            self.refused[key] = count + 1
        return not count & (count - 1)

    def _key(self, form: Any, leaves: Sequence[Any]) -> Any:
        """What a capture depends on."""
        parts: list[Any] = [form, state.grad, state.inference, dtypes.get_default_dtype()]
        seen: dict[int, tuple[int, int]] = {}
        edges: dict[Any, int] = {}  # where gradients go
        for leaf in leaves:
            if leaf.__class__ in record.tensor_classes:
                first, offset = seen.setdefault(id(leaf.storage), (len(seen), leaf.offset))
                parts += (
                    leaf.spec, leaf.needs_grad, first, leaf.offset - offset, leaf.view_of is None,
                    leaf.counter is leaf.storage,
                )  # fmt: skip
                if leaf.needs_grad or leaf.view_of is not None:
                    way = edges.setdefault(record.edge_of(leaf), len(edges))
                    parts += (way, leaf.edge is None)
            else:
                parts += (leaf.__class__, leaf.hex() if leaf.__class__ is float else leaf)
        key = tuple(parts)
        try:
            hash(key)
        except TypeError:
            odd = next(v for v in leaves if not record.is_tensor(v) and v.__hash__ is None)
            raise TypeError(
                f"adjit.compile: arguments must be tensors or hashable values, also in lists, tuples "
                f"and dicts, got {type(odd).__name__}"
            ) from None
        return key

    def _capture(
        self, found: Captures, args: Any, kwargs: Any, arguments: Sequence[Any]
    ) -> tuple[Any, bool]:
        """Run the function while it is watched; what it recorded becomes a plan, and runs.

        Returns what it returned, and whether that can be repeated.
        """
        session = Session(arguments)
        with lock:
            settle(everything=True)
            with session.watching():
                returned = self.f(*args, **kwargs)
                leaves: list[Any] = []
                form = flatten(returned, leaves)
                graphs = Graphs(session, arguments, leaves)
            is_captured = (
                session.is_repeatable
                and all(map(is_plain, leaves))
                and not any(cell.shared for cell in session.written)
            )
            if is_captured:
                del returned
                replay = Replay(session, arguments, leaves, graphs)
                returned = unflatten(form, iter(replay.first))
                replay.first = []
                try:
                    replay.prepare()
                except Exception as error:
                    warn("adjit.compile could not plan a captured function", error)
                else:
                    found.add(replay, form)
                    if replay.waits and not replay.draws:
                        del returned, session, graphs  # what was recorded never runs
                        results = replay.run(arguments)
                        assert results is not None
                        return unflatten(form, iter(results)), True
            del session, graphs  # or old values could not be written over
            settle(everything=True)
        return returned, is_captured


# ----- arguments and results as trees -----


def is_inside() -> bool:
    """Whether this thread is inside of another compiled function."""
    if state.session is not None:
        return True
    return bool(looking_threads) and threading.get_ident() in looking_threads


def is_plain(leaf: Any) -> bool:
    """Whether a leaf of a result is a tensor or cannot hold one, and cannot change."""
    kinds = (type(None), bool, int, float, complex, str, bytes, dtypes.dtype, devices.device)
    return record.is_tensor(leaf) or isinstance(leaf, (*kinds, Enum, np.generic, type))


def flatten(tree: Any, leaves: list[Any]) -> Any:
    """Collect the leaves of nested lists, tuples and dicts; returns a hashable form of the rest."""
    if tree.__class__ in record.tensor_classes:
        leaves.append(tree)
        return None
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple([flatten(branch, leaves) for branch in tree])
    if type(tree) in (dict, OrderedDict):
        return type(tree), tuple([(key, flatten(branch, leaves)) for key, branch in tree.items()])
    record.is_tensor(tree)  # which remembers the class, if it is one of the user's
    leaves.append(tree)
    return None


def unflatten(form: Any, leaves: Iterator[Any]) -> Any:
    """The tree of a form, with other leaves."""
    if form is None:
        return next(leaves)
    kind, branches = form
    if kind is dict or kind is OrderedDict:
        return kind((key, unflatten(branch, leaves)) for key, branch in branches)
    made = [
        next(leaves) if branch is None else unflatten(branch, leaves) for branch in branches
    ]  # fmt: skip
    return kind(*made) if hasattr(kind, "_fields") else kind(made)
