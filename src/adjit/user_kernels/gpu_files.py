"""Functions with loops by `prange` for arrays on a GPU: code for the host, in files with the device kernels.

The function and its way back are what they are on the CPU, run as plain Python on arrays of a GPU: loops by
`prange`, and those of whole-array statements, are launches, with a thread for each round (or for several,
when there are very many).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from numba import types

from .. import config
from .checkpoints import outer_loops
from .generated import (
    GeneratedFile,
    digest_of_room,
    facts_of,
    file_of,
    is_floating,
    pullback_source,
    read_with_types,
)
from .gpu_loops import DeviceRounds
from .gpu_text import Given
from .parallel import Rounds
from .refusal import NotDifferentiable
from .reverse import ReverseWriter, WayBack
from .source import Function, Meaning, python_function
from .structure import Load, Make, Procedure, Repeat, StoreElement, walk
from .tape_layout import trips_text
from .vocabulary import text
from .writing import Lines, PlainWriter, results_text, shape_text


def loops_on_gpu(f: Procedure) -> dict[Repeat, DeviceRounds]:
    """The loops that are launches.

    Raises:
        RuntimeError: if something of the function cannot run there.
        NotDifferentiable: if it cannot be shown that no two rounds of a prange write one place.
    """
    found: dict[Repeat, DeviceRounds] = {}
    for loop in outer_loops(f.body):
        if loop.is_parallel:
            found[loop] = DeviceRounds(f, loop)
        elif loop.is_library:
            try:
                found[loop] = DeviceRounds(f, loop)
            except NotDifferentiable:
                raise RuntimeError(
                    f"{f.heading}: this statement of {f.name} cannot run on a GPU\n    {loop.note}\n"
                    "Do it on tensors, outside of the kernel, or write a loop by prange."
                ) from None
        elif any(isinstance(i, (Load, StoreElement, Make)) for _, i in walk(loop.body)):
            raise RuntimeError(
                f"{f.heading}: a loop of {f.name} that is in no prange cannot run on a GPU\n"
                f"    {loop.note}\nMark it by prange if its rounds are independent; steps that follow each "
                "other are calls of a kernel that makes one. Or move the tensors by .cpu()."
            )
    if not found:
        raise RuntimeError(
            f"{f.heading}: {f.name} cannot run on a GPU: none of its loops is marked as independent\n"
            "Write `for i in prange(n)` for its outer loop, or move the tensors by .cpu()."
        )
    return found


class _OnHost(PlainWriter):
    """Writes arrays that are made as such of the GPU."""

    def make(self, item: Make, w: Lines) -> None:
        fill = None if item.fill is None else text(item.fill)
        w.add(f"{item.dst} = {self.new_array(item, fill)}")

    def new_array(self, item: Make, fill: str | None) -> str:
        near = next(p for p in self.f.params if p in self.f.arrays)
        return f"{near}.new({shape_text(item.shape)}, {item.dtype!r}, {fill})"


class HostWriter(_OnHost):
    """Writes the function with launches in the place of loops."""

    def __init__(self, f: Procedure, rounds: Mapping[Repeat, DeviceRounds]) -> None:
        super().__init__(f)
        self.rounds = rounds

    def loop(self, item: Repeat, w: Lines) -> None:
        if item in self.rounds:
            self.rounds[item].run(w)
        else:
            super().loop(item, w)

    def source(self, name: str) -> str:
        w = Lines()
        w.add(f"def {name}({', '.join(self.f.params)}):")
        with w.indented():
            self.block(self.f.body, w)
            w.add(f"return {results_text([text(v) for v in self.f.returns], self.f.returns_tuple)}")
        return "\n".join(w.lines) + "\n"


class HostReverseWriter(ReverseWriter, _OnHost):
    """Writes the way back with launches in the place of loops."""

    def __init__(
        self, f: Procedure, params: Sequence[str], rounds: Mapping[Repeat, DeviceRounds]
    ) -> None:
        super().__init__(f, params)
        self.rounds: dict[Repeat, DeviceRounds] = dict(rounds)  # type: ignore[assignment]

    def loop(self, item: Repeat, w: Lines) -> None:
        rounds = self.rounds.get(item)
        if rounds is None:
            super().loop(item, w)
            return
        rounds.keep_arrays(w)
        body = Lines()
        self.block(item.body, body)
        rounds.run_counted(body, w)

    def make(self, item: Make, w: Lines) -> None:
        _OnHost.make(self, item, w)
        if self.is_active(item.dst):
            has_seed = item.dst in self.f.returns
            w.add(f"{item.dst}_b = {f'{item.dst}_seed' if has_seed else self.new_array(item, '0')}")

    def takes_turns(self, loop: Repeat) -> bool:
        """Never: a device kernel has other threads to go on with."""
        return False

    def back_make(self, item: Make, back: WayBack) -> None:
        """Nothing: arrays are memory of their own."""

    def _back_in_parallel(self, rounds: Rounds, back: WayBack) -> None:
        assert isinstance(rounds, DeviceRounds)
        item, w, f = rounds.loop, back.w, self.f
        live, inner, body = self.enter_rounds(rounds, back)
        sums = list(inner.outer_adjoints)
        if not inner.w.has_code and not sums:  # nothing to do for any round
            rounds.definitions.pop("back", None)
            self.leave_rounds(live, back)
            return
        arrays = [a for a in rounds.names if a in f.arrays and self.is_active(a)]
        names = [*rounds.names, *[n for n in inner.outer if n not in rounds.names]]
        rounds.restore_arrays(w)
        given = rounds.given(names)
        given += [
            Given(f"{a}_b", f.arrays[a][1], f.arrays[a][0], a, a in rounds.shared) for a in arrays
        ]
        given += [Given(f"{c.inside}_c", "f8") for c in live]
        again = Lines()
        for c in rounds.sums:  # which nobody reads
            again.add(f"{c.inside} = 0.0")
        again.extend(body)
        again.extend(inner.w)
        rounds.define("back", given, again, [f"{n}_b" for n in sums])
        t = item.trips
        args = [text(item.start), t, *[g.name for g in given]]
        w.add(f"{t} = {trips_text(item)}")
        if self._uses_tape(rounds):
            args.append(f"tape={t}_p")
        w.add(f"{t}_s, _ = {t}_back({', '.join(args)})")
        for k, n in enumerate(sums):
            w.add(f"{n}_b += {t}_s[{k}]")
        self.leave_rounds(live, back)

    def _uses_tape(self, rounds: DeviceRounds) -> bool:
        return "tape=True" in rounds.definitions["back"]


_HEADER = '''"""`{name}` and its way back on a GPU.

Made by adjit, from {heading}. The functions run on the host; each LoopKernel is a device kernel.
"""

import math

import numpy as np
from numpy import float32, float64, int32, int64

from adjit.user_kernels.gpu_run import (
    LoopKernel, at_b1, at_f4, at_f8, at_i8, close_tape, digamma, nat, on_host, open_tape, over, overlap, pick,
    release, reserve, rest, rounds, tape_less, tape_low, tape_more, tape_set, tape_top, trigamma,
)

FACTS = {facts!r}

'''


def generated_on_gpu(
    function: Function, argument_types: Sequence[types.Type], wrt: tuple[int, ...] | None
) -> GeneratedFile:
    """The file for arrays on a GPU, made if it is not there; arguments and errors are those of `generated`.

    Raises:
        RuntimeError: if something of the function cannot run on a GPU.
    """
    name = python_function(function).__name__
    floating = [k for k, t in enumerate(argument_types) if is_floating(t)]
    wanted = tuple(floating if wrt is None else wrt)
    key = (
        Meaning(function).digest,
        str(argument_types),
        str(wanted),
        str(config.DEBUG),
        digest_of_room(),
    )
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    return file_of(f"user_{name}_on_gpu_{digest}", lambda: _text(function, argument_types, wanted))


def _text(function: Function, argument_types: Sequence[types.Type], wanted: tuple[int, ...]) -> str:
    f = read_with_types(function, argument_types, on_gpu=True)
    rounds, params = loops_on_gpu(f), [f.params[k] for k in wanted]
    primal = HostWriter(f, rounds).source("primal")
    writer = HostReverseWriter(f, params, rounds)
    functions = [primal, writer.write("way_back"), pullback_source(f, writer, params)]
    kernels = [text for r in rounds.values() for text in r.definitions.values()]
    head = _HEADER.format(name=f.name, heading=f.heading, facts=facts_of(f, writer, params))
    return head + "\n\n".join([*kernels, *[f"@on_host\n{text}" for text in functions]])
