"""Run the programs of a file of this room, so that their kernels are compiled: in a process of their own.

python -m adjit.packing.programs networks
"""

from __future__ import annotations

import importlib
import sys
import warnings

from ..schedule.jit import native


def main(name: str) -> None:
    """Run the programs of a file; `fastpath` is the interpreter's part of recording."""
    if name == "fastpath":
        for family in native.families:
            family.load(compiling=True)
        return
    warnings.simplefilter("ignore")  # of what programs do, users are told in their own
    for program in importlib.import_module(f"{__package__}.{name}").PROGRAMS:
        program()


if __name__ == "__main__":
    main(*sys.argv[1:])
