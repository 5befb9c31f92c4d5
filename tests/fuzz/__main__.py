"""Run random programs and print what they find: `python tests/fuzz 1000 --settings ADJIT_CPU=x86-64-v3`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("ADJIT_JIT", "off")  # of the process that writes the programs

from fuzz import compare, programs, shrink, ways

A_PALETTE = 1000  # programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first program's number")
    parser.add_argument("--settings", nargs="*", default=[], help="NAME=value, of all processes")
    parser.add_argument("--ways", nargs="*", help=f"some of: {', '.join(ways.WAYS)}")
    parser.add_argument("--most", type=int, default=20, help="stop after so many findings")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # an end that still says how far it was
    settings = dict(text.split("=", 1) for text in given.settings)
    names = [
        n for n in ways.WAYS if not given.ways or n in given.ways or n == next(iter(ways.WAYS))
    ]
    found, done, start = 0, 0, time.monotonic()
    with ways.workers(settings, names) as workers:
        with contextlib.suppress(KeyboardInterrupt):
            for k in range(given.seed, given.seed + given.programs):
                if k % A_PALETTE == 0 or k == given.seed:
                    palette = programs.Palette.of(k // A_PALETTE)
                chosen = workers.names if given.ways else workers.chosen(k)
                program = programs.program(k, palette)
                difference = compare.found_in(workers, program, chosen)
                if difference:
                    found += 1
                    way, what = difference
                    program, what = shrink.shortest(workers, program, way, what)
                    print(f"===== program {k}, {way}: {what}\n{program}\n", flush=True)
                done += 1
                if done % 1000 == 0:
                    print(
                        f"{done} programs, {found} found, {time.monotonic() - start:.0f} s",
                        flush=True,
                    )
                if found >= given.most:
                    break
        seconds = time.monotonic() - start
        print(f"{done} programs from number {given.seed} in {seconds:.0f} s, {found} found")
        print(
            "runs: " + ", ".join(f"{name} {count}" for name, count in workers.runs.items()),
            flush=True,
        )
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
