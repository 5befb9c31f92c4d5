"""Two versions of adjit side by side, row by row:

    python bench/versions.py OTHER/.venv/bin/python [--rows PATTERN] [--threads 1] [--turns 12] [--out FILE]

OTHER is a checkout of another version with its own installation in it; the rows are this checkout's. Two
processes, one of each version, hold the same row and are timed in turn, so that whatever else the machine does
hits both; a figure is the shortest of all samples, of several pairs of processes: where memory lies makes up
to a fifth. Rows that the other version lacks something for are named,
not counted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import timing

HERE = Path(__file__)


def rows_matching(pattern: str) -> list[Any]:
    """The rows of the bench that adjit runs, captured ones too."""
    from everyday import CALLS
    from programs import PROGRAMS
    from rows import ROWS

    return [r for r in (*ROWS, *CALLS, *PROGRAMS) if re.search(pattern, f"{r.group}: {r.name}")]


def serve(pattern: str, threads: int) -> None:
    """Time what is asked for, a line each: `prepare K`, answered by an error or "", then `turn`, by seconds."""
    timing.limit_threads(threads)
    sys.path.insert(0, str(Path(sys.prefix).parent / "bench"))  # how that version is waited for
    import libraries as known

    del sys.path[0]

    library = known.Adjit()
    library.set_threads(threads)
    captured = known.CapturedAdjit()
    rows = rows_matching(pattern)
    call: Callable[[], Any] = int
    number = count = 1
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        verb, *rest = line.split()
        answer: Any = ""
        try:
            if verb == "prepare":
                call = int
                library.forget()
                row, chosen = rows[int(rest[0])], captured if rest[1] == "captured" else library
                call = row.prepare(chosen)
                chosen.warm_up(call)
                number, count = timing.samples_of(call, 0.05)
            else:
                answer = min(timing.sample(call, number) for _ in range(count)) / row.operations
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=out, flush=True)


Compared = tuple[str, str, str | tuple[float, float]]


class Version:
    """A process of one version."""

    def __init__(self, python: str, pattern: str, threads: int) -> None:
        command = [python, str(HERE), "--serve", f"--rows={pattern}", f"--threads={threads}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: str) -> Any:
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        print(request, file=requests, flush=True)
        return json.loads(answers.readline() or '"the process has ended"')


def compared(other: Version, this: Version, rows: list[Any], turns: int) -> Iterator[Compared]:
    """Each row's group, name, and seconds before and now, or what went wrong."""
    import libraries as known

    kinds = [("", known.Adjit), ("captured", known.CapturedAdjit)]
    for k, row in enumerate(rows):
        for kind, library in kinds:
            if not row.runs_in(library) or row.note(library):
                continue
            told = f"prepare {k} {kind or 'eager'}"
            fault = other.ask(told) or this.ask(told)
            found: dict[Version, list[float]] = {other: [], this: []}
            for turn in range(0 if fault else turns):
                for version in (other, this) if turn % 2 else (this, other):
                    answer = version.ask("turn")
                    if isinstance(answer, str):
                        fault = answer
                    else:
                        found[version].append(answer)
            group = f"{row.group}, {kind}" if kind else row.group
            yield group, row.name, fault or (min(found[other]), min(found[this]))


def table(results: list[Compared]) -> str:
    """Markdown: the geometric mean of each group, then the rows."""
    groups: dict[str, list[float]] = defaultdict(list)
    lines, faults = [], []
    for group, name, found in results:
        if isinstance(found, tuple):
            before, now = found
            groups[group].append(now / before)
            lines.append(
                f"| {group} | {name} | {before * 1e6:.4g} | {now * 1e6:.4g} | {now / before:.2f} |"
            )
        else:
            faults.append(f"- {group}: {name}: {found}")
    means = [
        f"| {group} | {len(ratios)} | {exp(fmean(map(log, ratios))):.3f} | {max(ratios):.2f} |"
        for group, ratios in groups.items()
    ]
    head = [
        "| group | rows | now / before, geometric mean | largest |",
        "|---|---|---|---|",
        *means,
    ]
    body = [
        "| group | row | before, us | now, us | now / before |",
        "|---|---|---|---|---|",
        *lines,
    ]
    missing = ["", "Not compared:", "", *faults] if faults else []
    return "\n".join([*head, "", *body, *missing, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?")
    parser.add_argument("--rows", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--processes", type=int, default=3, help="of each version, in turn")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve(options.rows, options.threads)
        return
    fastest: dict[tuple[str, str], str | tuple[float, float]] = {}
    started = perf_counter()
    for _ in range(options.processes):
        other, this = (
            Version(python, options.rows, options.threads)
            for python in (options.other, sys.executable)
        )
        for group, name, found in compared(other, this, rows_matching(options.rows), options.turns):
            before = fastest.setdefault((group, name), found)
            if isinstance(found, tuple) and isinstance(before, tuple):
                fastest[group, name] = min(before[0], found[0]), min(before[1], found[1])
            print(f"[{perf_counter() - started:.0f} s] {group}: {name} {found}", file=sys.stderr)
        for version in (other, this):
            version.process.kill()
    text = table([(group, name, found) for (group, name), found in fastest.items()])
    if options.out is not None:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
