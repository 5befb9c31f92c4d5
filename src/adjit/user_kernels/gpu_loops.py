"""A loop by `prange` as device kernels, and the code for the host that launches them.

Rounds run again on the way back, each with a tape of its own, whose length the forward pass has counted.
Adjoints of elements that one round has are stored; those that many have get a number for each thread, added
up in order, or are added to atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .gpu_text import Given, KernelArray, KernelText
from .parallel import Rounds
from .structure import Procedure, Repeat
from .tape_layout import trips_text
from .vocabulary import text
from .writing import Lines, PlainWriter

_KINDS = {"b1": "b", "i8": "i", "f4": "f4", "f8": "f8"}
_WORDS = ("first_unit", "all_threads")
_DEVICE = "adjit.kernels.language.device"


class DeviceRounds(Rounds):
    """How a loop runs on a GPU."""

    def __init__(self, f: Procedure, loop: Repeat) -> None:
        super().__init__(f, loop)
        self.definitions: dict[str, str] = {}  # of kernels, by what they do

    def array(self, name: str) -> Given:
        ndim, dtype = self.f.arrays[name]
        return Given(name, dtype, ndim)

    def given(self, names: Sequence[str]) -> list[Given]:
        f = self.f
        return [self.array(n) if n in f.arrays else Given(n, f.types.get(n, "f8")) for n in names]

    def run(self, w: Lines) -> None:
        """Code in the place of the loop, which is not differentiated."""
        body = Lines()
        PlainWriter(self.f).block(self.loop.body, body)
        self._hand_on(body)
        self.define("rounds", self.given(self.names), body, [c.inside for c in self.sums])
        self.launch("rounds", self.names, w)

    def run_counted(self, body: Lines, w: Lines) -> None:
        """The same before its way back: `body` are its rounds with what they keep, which is only counted."""
        self._hand_on(body)
        sums = [c.inside for c in self.sums]
        counts = self.define("counted", self.given(self.names), body, sums, counts=True)
        if not counts:
            del self.definitions["counted"]
            self.run(w)
        else:
            self.launch("counted", self.names, w)

    def _hand_on(self, body: Lines) -> None:
        for c in self.sums:
            body.add(f"{c.inside} = {text(c.following)}")

    def launch(self, name: str, args: Sequence[str], w: Lines) -> None:
        t = self.trips
        w.add(f"{t} = {trips_text(self.loop)}")
        given = [text(self.loop.start), t, *args]
        w.add(f"{t}_s, {t}_p = {t}_{name}({', '.join(given)})")
        for k, c in enumerate(self.sums):
            w.add(f"{c.after} = {text(c.first)} + {t}_s[{k}]")

    def keep_arrays(self, w: Lines) -> None:
        for k, name in enumerate(self.arrays):
            w.add(f"{self.trips}_{k}q = {name}.copy()")

    def restore_arrays(self, w: Lines) -> None:
        for k, name in enumerate(self.arrays):
            w.add(f"{name}[:] = {self.trips}_{k}q")

    # ----- kernels -----

    def define(
        self,
        name: str,
        given: Sequence[Given],
        body: Lines,
        sums: Sequence[str],
        *,
        counts: bool = False,
    ) -> bool:
        """Note the kernel of the rounds; says whether they use the tape."""
        shared = [g.name for g in given if g.is_shared]
        ways = ["rows", "atomic"] if shared else ["plain"]
        made = [self._kernel(name, given, body, sums, counts, adds) for adds in ways]
        kernel = made[0]
        w = Lines()
        w.add(f"{self.trips}_{name} = LoopKernel(")
        w.add(f"    {self.kernel_name(name)!r},")
        w.add("    [")
        for g in given:
            w.add(f"        {tuple(g)!r},")
        w.add("    ],")
        w.add(f"    sums={len(sums)}, counts={counts and kernel.text.uses_tape}, ")
        w.add(f"    tape={kernel.text.uses_tape and not counts}, errors={kernel.text.messages!r},")
        for k in made:
            w.add(f"    {k.adds}={_quoted(k.source)},")
        w.add(")")
        self.definitions[name] = "\n".join(w.lines) + "\n"
        return kernel.text.uses_tape

    def kernel_name(self, name: str) -> str:
        return f"{self.f.name}_{self.trips}_{name}"

    def _kernel(
        self,
        name: str,
        given: Sequence[Given],
        body: Lines,
        sums: Sequence[str],
        counts: bool,
        adds: str,
    ) -> _Kernel:
        arrays = {
            g.name: KernelArray(g.ndim, g.kind, g.of or g.name, adds if g.is_shared else "plain")
            for g in given if g.ndim >= 0
        }  # fmt: skip
        kinds: dict[str, str | None] = {
            g.name: _KINDS.get(g.kind, "i") for g in given if g.ndim < 0
        }
        kinds |= dict.fromkeys(("first_k", "rounds_k", "thread_k", "n_k"), "i")
        written = KernelText(self.f, arrays, kinds, counts)
        step = self.loop.step
        by = "" if step == 1 else f" * ({step})"
        lines = [f"{s} = 0.0" for s in sums]
        lines.append(
            f"for {self.loop.counter} in range(first_k + thread_k{by}, first_k + rounds_k{by}, n_k{by}):"
        )
        inside = [line for line in body.lines if line.strip()] or ["pass"]
        if not body.has_code:
            inside.append("pass")
        code = written.translated([*lines, *["    " + line for line in inside]])
        if written.uses_tape:
            at = next(
                k for k, line in enumerate(code) if line.startswith(f"for {self.loop.counter} ")
            )
            code.insert(at + 1, "    tape_k = int64(0)")
            written.imports["numpy"].add("int64")
        return _Kernel(adds, written, self._source(name, given, written, code, sums))

    def _source(
        self,
        name: str,
        given: Sequence[Given],
        written: KernelText,
        code: list[str],
        sums: Sequence[str],
    ) -> str:
        head, end = [], []
        for g in given:
            if g.kind == "f4" and g.ndim < 0:
                head.append(f"{g.name} = float32({g.name}_word_k)")
                written.imports["numpy"].add("float32")
            elif g.kind == "b1" and g.ndim < 0:
                head.append(f"{g.name} = {g.name}_word_k != 0")
        imports = {m: set(n) for m, n in written.imports.items()}
        words = set(_WORDS) | imports.pop(_DEVICE, set())
        parameters = [p for g in given for p, _ in g.parameters()] + ["first_k", "rounds_k"]
        if written.uses_tape and written.counts:
            head.append("peak_k = int64(0)")
            end.append("atomic_max_k(status_k, 1, peak_k)")
            words.add("atomic_max")
        elif written.uses_tape:
            head.append("base_k = memory_k + thread_k * 8")
            parameters.append("memory_k")
        if sums:
            parameters.append("sums_k")
            for k, s in enumerate(sums):
                end.append(f"sums_k[thread_k * {len(sums)} + {k}] = {s}")
        if written.messages or (written.uses_tape and written.counts):
            parameters.append("status_k")
        lines = [f"def {self.kernel_name(name)}({', '.join([*parameters, 'n_k'])}):"]
        lines.append("    for thread_k in range(first_unit_k(), n_k, all_threads_k()):")
        lines += ["        " + line for line in [*head, *code, *end]]
        top = [f"from {_DEVICE} import {', '.join(f'{x} as {x}_k' for x in sorted(words))}"]
        for module, names in sorted(imports.items()):
            if names:
                listed = ", ".join("at as at_k" if n == "at" else n for n in sorted(names))
                top.append(f"from {module} import {listed}")
        helpers = []
        if any("wrap_k(" in line for line in code):
            helpers += ["def wrap_k(i, n):", "    return i + n if i < 0 else i", "", ""]
        if any("word_k(" in line for line in code):
            helpers.append("def word_k(byte, threads):")
            helpers += ["    return (byte >> 3) * (8 * threads) + (byte & 7)", "", ""]
        return "\n".join(["", "import math", "", *top, "", "", *helpers, *lines, ""])


def _quoted(source: str) -> str:
    """A text over several lines, which may have lines of the user's in comments."""
    escaped = source.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    return f"'''{escaped}'''"


class _Kernel(NamedTuple):
    adds: str
    text: KernelText
    source: str
