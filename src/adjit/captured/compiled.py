"""`adjit.compile`: functions that are captured once and replayed as one plan."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from itertools import count
from operator import is_not
from types import CodeType
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from .. import config, devices, dtypes
from ..graph import record
from ..graph.state import state
from ..schedule.plan_cache import warn
from ..schedule.settle import lock, settle
from . import logs
from .codes import Run
from .decisions import OtherWay, decide
from .exported import Exported
from .guards import Guards
from .logs import Unsupported
from .reach import Reached
from .replay import Replay
from .result_graphs import Graphs
from .tracing import Session

F = TypeVar("F", bound=Callable[..., Any])

MAX_CAPTURES = 64  # of one function; the one used least recently goes first
MAX_VARIANTS = 8  # of one capture, that differ in what the function finds outside, or decides
# Calls that began a capture in vain: so many, and more than every third, are enough.
TURNS, TURNS_APART = 8, 3


# What else comes back than a function, by what was given: made of that and the function.
compiled_forms: dict[type, Callable[[Any, Any], Any]] = {}

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
BACKENDS = ("inductor", "cudagraphs", "aot_eager", "eager")


@overload
def compile(
    model: F, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str = "inductor",
    mode: str | None = None, options: Mapping[str, Any] | None = None, disable: bool = False,
    assume_pure: bool = False,
) -> F: ...  # fmt: skip


@overload
def compile(
    model: None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str = "inductor", mode: str | None = None, options: Mapping[str, Any] | None = None,
    disable: bool = False, assume_pure: bool = False,
) -> Callable[[F], F]: ...  # fmt: skip


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str = "inductor", mode: str | None = None, options: Mapping[str, Any] | None = None,
    disable: bool = False, assume_pure: bool = False,
) -> Any:  # fmt: skip
    """Capture a function when it is called again, and replay it as one plan from then on.

    **The contract: `compile(f)` gives what `f` gives, always.** The first call runs as usual; it tells
    which code runs, and optimisers and modules make then what they make only once. The second is watched and
    recorded: its results, what it writes in place (parameters, buffers, the state of optimisers), the
    `.grad` of leaves. Later calls run the fused kernels of all that in one go, without the function's
    Python, as long as everything that this Python can read is as it was.

    *Looked up anew at every call*: the elements of tensors given as arguments, of every tensor from
    outside, random numbers of adjit, the options and counters of the optimisers of `adjit.optim`.

    *Guarded*, and captured anew where it has changed (up to 8 variants are kept): shapes, dtypes, layouts and
    Python values of arguments; `requires_grad`, `is_grad_enabled()`, the default dtype; what a global, a
    variable of a closure or a default is; attributes of modules and other objects, such as numbers,
    parameters, buffers, submodules, `training`; the contents of lists, dicts and sets; hooks; methods,
    functions and modules that were replaced; small NumPy arrays; `os.environ`. What code can read is
    found from its bytecode, so some of what is guarded may not be read, never the other way round.
    Truths of tensors (`if not valid.all(): raise ...`, `while error > limit`) are steps of the plan; a call
    that decides otherwise leaves nothing behind and is captured anew, or runs as usual where more than
    every third call does.

    *Run as usual*, which is right, recorded and planned but not skipped, are calls of a function that
    looks at the numbers of a tensor (`item()`, `print`), draws random numbers of Python or NumPy, asks
    for the time, reads or writes files, prints; that changes what it can read (a counter, a list, an
    attribute, a scheduler stepped inside); that reads what nobody can look into (an iterator, a large
    array, an object of an extension module); that raises, is called in a profiler or in anomaly mode; or
    that sends gradients back through a graph from outside, has results which share memory and need
    gradients, or an `autograd.Function` behind them, or writes memory of a NumPy array, or such at which it
    can look through an array itself.
    Such calls are tried again, ever more rarely.
    `ADJIT_LOGS=graph_breaks,recompiles` (or `adjit._logging.set_logs`) says which, and why.

    Results that need gradients have a graph behind them, one node of it for those that belong
    together: `loss = f(x); loss.backward()` replays a plan too. Arguments may have a graph, results
    may be used further, hooks on them run. The forward waits until somebody looks at a result; if
    gradients are sent back before, both run as one plan. Otherwise a call keeps what its backward
    reads, less what is quickly computed again. With `create_graph=True` its backward is recorded like
    any other, and costs as much.

    With `ADJIT_JIT=off` or `ADJIT_EAGER=1` nothing is captured: every call runs the function itself. So it
    is inside of another compiled function, which captures both.

    Args:
        model: a function, or an `nn.Module`, for which a module comes back whose `forward` is compiled and
            which has the other's parameters under `_orig_mod.`. Without it, a decorator.
        fullgraph: raise `adjit._dynamo.exc.Unsupported` for a call that cannot be captured; what the call
            did has been done then.
        dynamic: accepted; every shape has a capture of its own.
        backend: accepted; with "eager" nothing is captured.
        mode, options: accepted; there is one way to capture.
        disable: return what was given.
        assume_pure: believe that all that the function does is what it does to tensors, and that whatever
            else it reads never changes. **Nothing is checked**: numbers, branches, lists and hooks stay as they
            were when it was captured, and what it prints, counts or draws happens no more. For calls so short
            that a microsecond of guards counts.

    Raises:
        RuntimeError: for a mode or backend that PyTorch does not know, or mode and options together.
        TypeError: if `model` cannot be called.

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
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if backend not in BACKENDS:
        raise RuntimeError(
            f"Invalid backend: {backend!r}. adjit has one compiler of its own; leave `backend` out, or "
            "use 'eager' to run the function as it is"
        )
    if model is None:
        return lambda given: compile(
            given, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
            disable=disable, assume_pure=assume_pure,
        )  # fmt: skip
    if not callable(model):
        raise TypeError(
            f"adjit.compile: expected a function or a module, got {type(model).__name__}"
        )
    if disable or backend == "eager":
        return model
    compiled = compiled_function(model, fullgraph, assume_pure)
    for cls, wrap in compiled_forms.items():
        if isinstance(model, cls):
            return wrap(model, compiled)
    return compiled


def compiled_function(f: Any, fullgraph: bool = False, assume_pure: bool = False) -> Any:
    """The compiled form of a function, which is a function too."""
    captured = CompiledFunction(f, fullgraph, assume_pure)

    @functools.wraps(f, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return captured(args, kwargs)

    return call


class Capture(NamedTuple):
    """A plan that answers calls, the form of its result, and what it depends on in Python."""

    replay: Replay
    form: Any
    guards: Guards


class Captures:
    """The captures for arguments of one kind; none if there was one call so far."""

    __slots__ = ("began", "decides", "is_hit", "misses", "replays", "turns", "used")

    def __init__(self, used: int) -> None:
        self.replays: tuple[Capture, ...] = ()
        self.used = used  # when: the number of a call
        self.is_hit = True  # whether the newest of them has answered a call
        self.misses = 0  # calls since capturing began to be of no use
        self.decides = True  # whether captures may depend on what is decided by tensors
        self.turns = self.began = 0  # calls that began a capture in vain, and since when

    def add(self, capture: Capture) -> None:
        """Have calls answered by a capture; callers hold the lock."""
        self.replays = (*self.replays, capture)[-MAX_VARIANTS:]

    def forget(self, capture: Capture) -> None:
        """Take away a capture that fits no more."""
        with lock:
            self.replays = tuple(filter(partial(is_not, capture), self.replays))

    def prefer(self, capture: Capture) -> None:
        """Have a capture tried first."""
        with lock:
            others = filter(partial(is_not, capture), self.replays)
            self.replays = (capture, *others)

    def turned(self) -> None:
        """Note that a call decided otherwise than a capture: if many do, decisions are no use."""
        if not self.turns:
            self.began = self.used
        self.turns += 1
        if self.turns >= TURNS and TURNS_APART * self.turns > self.used - self.began:
            self.decides = False
            with lock:
                self.replays = tuple([c for c in self.replays if not c.replay.decides])

    def is_time(self) -> bool:
        """Whether to try a capture; where that was of no use, ever more rarely: it takes its time."""
        count = self.misses
        if count:
            self.misses = count + 1
        return not count & (count - 1)


class CompiledFunction:
    """The captures of one function, by what their arguments were."""

    def __init__(self, f: Callable[..., Any], fullgraph: bool, assume_pure: bool) -> None:
        self.f, self.fullgraph, self.assume_pure = f, fullgraph, assume_pure
        self.captures: dict[Any, Captures] = {}
        self.clock = count()
        self.codes: set[CodeType] = set()  # the code that calls have run
        self.is_dynamic = False
        _made.add(self)

    @property
    def name(self) -> str:
        """What messages call the function."""
        return getattr(self.f, "__qualname__", None) or type(self.f).__qualname__

    def reset(self) -> None:
        """Forget everything that was captured."""
        with lock:
            self.captures.clear()
            self.codes.clear()

    def __call__(self, args: Any, kwargs: Any) -> Any:
        if config.EAGER or config.JIT == "off" or state.careful or state.session is not None:
            return self.f(*args, **kwargs)
        if state.inside or state.levels or state.forward:  # the function itself is transformed
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
        if found is None:
            return self._run_first(args, kwargs)
        turned = ""
        for capture in found.replays:
            replay, result_form, guards = capture
            if replay.fits(arguments) and guards.hold():
                try:
                    results = replay.run(arguments)
                except OtherWay:
                    if not turned:
                        found.turned()
                    turned = "what it decides by the value of a tensor"
                    continue
                if results is not None:
                    found.is_hit = True
                    if turned:
                        found.prefer(capture)
                    if result_form is None:
                        return results[0]
                    return unflatten(result_form, iter(results))
                found.forget(capture)
                break
        if not found.is_time():
            return self._run_as_usual(args, kwargs)
        if found.replays:
            reason = turned or found.replays[-1].guards.failed or "a tensor from outside"
            logs.recompiles(self.name, reason)
        return self._capture(found, args, kwargs, leaves, arguments)

    def _run_as_usual(self, args: Any, kwargs: Any) -> Any:
        before, state.compiling = state.compiling, True
        try:
            return self.f(*args, **kwargs)
        finally:
            state.compiling = before

    def _run_first(self, args: Any, kwargs: Any) -> Any:
        """The first call of its kind; the very first tells which code runs."""
        if self.codes or self.assume_pure:
            return self._run_as_usual(args, kwargs)
        run = Run()
        with run.watching():
            returned = self._run_as_usual(args, kwargs)
        self._learn(run)
        return returned

    def _learn(self, run: Run) -> bool:
        """Note which code runs; whether there was any that is new."""
        is_new = not (run.codes <= self.codes and run.is_dynamic <= self.is_dynamic)
        with lock:
            self.codes |= run.codes
            self.is_dynamic |= run.is_dynamic
        return is_new

    def _make_room(self) -> None:
        """Let go of what was used least recently, if another capture would be too many."""
        if len(self.captures) >= MAX_CAPTURES:
            del self.captures[min(self.captures, key=lambda key: self.captures[key].used)]

    def _key(self, form: Any, leaves: Sequence[Any]) -> Any:
        """What a capture depends on."""
        parts: list[Any] = [
            form, state.grad, state.inference, dtypes.get_default_dtype(), devices.get_default_device(),
        ]  # fmt: skip
        seen: dict[int, tuple[int, int]] = {}
        edges: dict[Any, int] = {}  # where gradients go
        for leaf in leaves:
            if leaf.__class__ in record.tensor_classes:
                first, offset = seen.setdefault(id(leaf._storage), (len(seen), leaf._offset))
                parts += (
                    leaf._spec, leaf._needs_grad, first, leaf._offset - offset, leaf._view_of is None,
                    leaf._version_counter is leaf._storage,
                )  # fmt: skip
                if leaf._needs_grad or leaf._view_of is not None:
                    way = edges.setdefault(record.edge_of(leaf), len(edges))
                    parts += (way, leaf._edge is None, _has_hooks(leaf))
            elif leaf.__class__ is float:
                parts += (float, leaf.hex())
            elif leaf.__class__ in _BY_VALUE:
                parts += (leaf.__class__, leaf)
            else:
                parts += (None, id(leaf))  # which its guards hold
        return tuple(parts)

    def _capture(
        self, found: Captures, args: Any, kwargs: Any, leaves: Sequence[Any],
        arguments: Sequence[Any],
    ) -> Any:  # fmt: skip
        """Run the function while it is watched; what it recorded becomes a plan, and runs."""
        objects = [self.f, *[leaf for leaf in leaves if leaf.__class__ not in _BY_VALUE]]
        objects = [one for one in objects if one.__class__ not in record.tensor_classes]
        before = None
        if not self.assume_pure:
            before = Reached([self.f, args, kwargs], self.codes, self.is_dynamic)
            if before.problem or any(map(_has_hooks, arguments)):
                found.misses += 1
                self._explain(before.problem or "an argument has hooks", is_done=False)
                return self._run_as_usual(args, kwargs)
        exported = None if before is None else Exported(before.met())
        session = Session(arguments, exported, decide if found.decides else None)
        run = Run(self.codes, partial(session.saw_new_code, NEW_CODE))
        with lock, bringing_home(exported):
            settle(everything=True)
            with session.watching(), nullcontext() if before is None else run.watching():
                returned = self._run_as_usual(args, kwargs)
                results: list[Any] = []
                form = flatten(returned, results)
                graphs = Graphs(session, arguments, results)
            problem, guards = self._examine(session, run, before, objects, results)
            if not problem:
                del returned, before
                replay = Replay(session, arguments, results, graphs)
                returned = unflatten(form, iter(replay.first))
                replay.first = []
                try:
                    replay.prepare()
                except Exception as error:
                    warn("adjit.compile could not plan a captured function", error)
                    problem = f"its plan failed: {error}"
                else:
                    found.misses = 0 if found.is_hit else found.misses + 1
                    found.is_hit = False
                    found.add(Capture(replay, form, self._shared(guards)))
                    if replay.waits and not replay.draws:
                        del returned, session, run, graphs  # what was recorded never runs
                        made = replay.run(arguments)
                        assert made is not None
                        return unflatten(form, iter(made))
            del session, run, graphs  # or old values could not be written over
            settle(everything=True)
        if problem:
            if problem is not NEW_CODE:
                found.misses += 1
            self._explain(problem)
        return returned

    def _examine(
        self, session: Session, run: Run, before: Reached | None, objects: Sequence[Any],
        results: Sequence[Any],
    ) -> tuple[str, Guards]:  # fmt: skip
        """Why a call that was watched cannot be repeated by a plan; else, what that depends on."""
        if session.problem is NEW_CODE:
            self._learn(run)
        problem = session.problem or session.tensors_problem() or session.linked_results(results)
        if not problem and not all(map(is_plain, results)):
            problem = "it returns an object that is neither a tensor nor a plain value"
        if problem or before is None:
            return problem, Guards([])
        if self._learn(run):
            return run.problem or NEW_CODE, Guards([])
        changed = next((unit for unit in before.units if not unit.holds()), None)
        if run.problem or changed is not None:
            return run.problem or f"it changes {changed.change()}", Guards([])  # type: ignore[union-attr]
        reached = Reached([*objects, *run.registries.values()], run.codes, run.is_dynamic)
        hidden = next((code for code in run.codes if not reached.explains(code)), None)
        if hidden is not None:
            problem = (
                f"it runs {hidden.co_qualname} ({hidden.co_filename}:{hidden.co_firstlineno}), to which no "
                "way from it was found"
            )
        problem = reached.problem or problem
        unexplained = None if problem else session.unexplained(reached.tensors)
        if unexplained is not None:
            shape = tuple(unexplained.tensor.shape)
            problem = f"it reads a tensor of shape {shape}, to which no way from it was found"
        return problem, Guards([] if problem else reached.units)

    def _shared(self, guards: Guards) -> Guards:
        """These, or such as another capture has: arguments of other shapes mostly find the same outside.

        Forty captures with their own words read a quarter of a megabyte, from past the nearest cache.
        """
        others = (c.guards for captures in self.captures.values() for c in captures.replays)
        return next((other for other in others if guards.is_like(other)), guards)

    def _explain(self, problem: str, *, is_done: bool = True) -> None:
        """Say why a call runs, or has run, as usual."""
        logs.graph_breaks(self.name, problem)
        if self.fullgraph and problem is not NEW_CODE:
            done = "The call has run, as usual" if is_done else "The call did not run"
            raise Unsupported(f"{self.name} cannot be captured whole: {problem}. {done}.")


@contextmanager
def bringing_home(exported: Exported | None) -> Iterator[None]:
    """Have others see, however a call ends, what it has written where they look."""
    try:
        yield
    finally:
        if exported is not None:
            exported.bring_home()


NEW_CODE = "code ran that had not run before"
_made: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
_BY_VALUE = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        dtypes.dtype,
        devices.device,
        type(Ellipsis),
    }
)


def reset() -> None:
    """Forget everything that was captured, of all functions.

    Example:
        >>> adjit.compiler.reset()
    """
    for compiled in list(_made):
        compiled.reset()


def _has_hooks(t: Any) -> bool:
    """Whether a tensor has hooks of its own."""
    return t._autograd_meta is not None and bool(
        t._autograd_meta.hooks or t._autograd_meta.post_hooks
    )


# ----- arguments and results as trees -----


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
