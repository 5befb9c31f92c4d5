"""Making a program that shows something shorter, as long as it still shows it."""

from __future__ import annotations

import re
from collections.abc import Callable

from .compare import found_in
from .programs import Program
from .ways import WAYS, Workers

SIMPLER = [
    (re.compile(r"\.requires_grad_\(\)$"), ""),
    (re.compile(r"\)\.(?:transpose\(0, -1\)|permute\([\d, ]+\))$"), ")"),
    (re.compile(r"^with T\.\w+\(\):\n    "), ""),
]


def shortest(workers: Workers, program: Program, way: str, what: str) -> tuple[Program, str]:
    """The shortest program that differs in this way, as this one does; and how it differs."""
    names = list(dict.fromkeys([next(iter(WAYS)), way]))

    def shows(shorter: Program) -> bool:
        found = found_in(workers, shorter, names)
        return found is not None and kind(found[1]) == kind(what)

    if not shows(program):
        return program, f"{what}\n(not again)"
    program = shrunk(program, shows)
    return program, (found_in(workers, program, names) or ("", what))[1]


def kind(what: str) -> str:
    """Of which kind a difference is: an error, another value, another fact."""
    return "".join(c for c in what.partition("\n")[0] if not c.isdigit())[:60]


def shrunk(program: Program, shows: Callable[[Program], bool]) -> Program:
    """A program from which no line can be left out, and whose lines cannot be made simpler."""
    before = None
    while program != before:
        before = program
        for k in reversed(range(len(program.lines))):
            lines = program.lines[:k] + program.lines[k + 1 :]
            shorter = Program(lines, program.inputs - (k < program.inputs))
            if lines and shows(shorter):
                program = shorter
        for k in range(len(program.lines)):
            for pattern, text in SIMPLER:
                line = pattern.sub(text, program.lines[k])
                simpler = Program(
                    [*program.lines[:k], line, *program.lines[k + 1 :]], program.inputs
                )
                if line != program.lines[k] and shows(simpler):
                    program = simpler
    return program
