"""Benches that time rows in both libraries: command line, a process for each count of threads, table."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
from timing import limit_threads

RESULTS = Path(__file__).parent / "results"

Row = dict[str, Any]
Time = Callable[[float, int], Row]  # of (seconds for each pass, least number of turns)


def run(
    script: str,
    about: str,
    rows: Callable[[], Iterable[tuple[str, Time]]],
    report: Callable[[list[Row]], str],
    *,
    seconds: float,
) -> None:
    """Time the rows that the command line asks for and print the report; all rows' is written to results/.

    `rows` gives names and what times them, and is called in the process of one count of threads; `report`
    makes the text of what they found, beside "name" and "threads".
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--seconds", type=float, default=seconds, help="for each pass of a row")
    parser.add_argument("--turns", type=int, default=3, help="at least, for each library")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        print(json.dumps(_timed(rows, options)))
        return
    found: list[Row] = []
    for threads in options.threads.split(","):
        command = [sys.executable, script, f"--process={threads}", f"--rows={options.rows}"]
        command += [f"--seconds={options.seconds}", f"--turns={options.turns}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found += json.loads(done.stdout.splitlines()[-1])
    if not found:
        parser.error(f"no row matches {options.rows!r}")
    name = Path(script).stem
    text = f"{machine.description()}\n\n`python bench/{name}.py`\n\n{report(found)}"
    print(text)
    if not options.rows:
        target = RESULTS / f"{machine.short_name()}-{name}"
        target.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        written = {"machine": machine.description(), "rows": found}
        target.with_suffix(".json").write_text(json.dumps(written, indent=1) + "\n")


def _timed(
    rows: Callable[[], Iterable[tuple[str, Time]]], options: argparse.Namespace
) -> list[Row]:
    threads = options.process
    limit_threads(threads)
    import torch

    import adjit

    torch.set_num_threads(threads)
    adjit.set_num_threads(threads)
    chosen = [(name, time) for name, time in rows() if re.search(options.rows, name)]
    found = []
    for k, (name, time) in enumerate(chosen, 1):
        print(f"[threads {threads}, {k} of {len(chosen)}] {name}", file=sys.stderr)
        found.append({"name": name, "threads": threads} | time(options.seconds, options.turns))
    return found
