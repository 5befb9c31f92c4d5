"""The README's tables of programs and of other rows, out of stored results.

python bench/readme.py bench/results/zen5-2core-quick.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from table import CAPTURE, geometric_mean, head, line, ratio

Rows = list[dict[str, Any]]
PEERS = ("PyTorch", "JAX", "autograd")
MEANS = {  # groups of which the README gives means
    "unary float32": "unary functions, 4M float32",
    "unary float64": "unary functions, 1M float64",
    "binary float32": "binary functions, 4M float32",
    "calls": "everyday calls on small tensors",
    "looks": "such calls, the result looked at at once",
    "moves": "moves, counts and sorts, 1M elements",
    "images": "operations on images, forward and backward",
}


def best(row: dict[str, Any], own: str, peers: list[str]) -> float | None:
    """The time of the fastest of some peers divided by ours."""
    return min((r for peer in peers if (r := ratio(row, peer, own)) is not None), default=None)


def shown(value: float | None) -> str:
    """A ratio with three digits, but two decimals at most."""
    return "" if value is None else f"{value:.{2 if value < 10 else 1}f}"


def program_table(rows: Rows) -> list[str]:
    """A line for each program: both ways of running it, on one thread and on two."""
    programs = [row for row in rows if row["group"] == "programs"]
    threads = sorted({row["threads"] for row in programs})
    columns = [(own, peers, n) for own, *peers in CAPTURE.values() for n in threads]
    titles = ("PyTorch eager / adjit", "faster of JAX jit and torch.compile / `adjit.compile`")
    named = [f"{title}, {n} thread{'s' * (n > 1)}" for title in titles for n in threads]
    lines, found = head(["program", *named], 1), []
    for name in dict.fromkeys(row["name"] for row in programs):
        by_threads = {row["threads"]: row for row in programs if row["name"] == name}
        found.append([best(by_threads[n], own, peers) for own, peers, n in columns])
        lines.append(line([name, *map(shown, found[-1])]))
    means = [geometric_mean([v for v in column if v]) for column in zip(*found, strict=True)]
    lines.append(line(["**geometric mean**", *[f"**{shown(mean)}**" for mean in means]]))
    return lines


def mean_table(rows: Rows) -> list[str]:
    """Geometric means of groups, and the rows that have no group of their own."""
    lines = head(["others", "threads", "PyTorch eager", *PEERS[1:]], 1)
    for group, title in MEANS.items():
        chosen = [row for row in rows if row["group"] == group]
        for n in sorted({row["threads"] for row in chosen}):
            here = [row for row in chosen if row["threads"] == n]
            ratios = [[r for row in here if (r := ratio(row, peer))] for peer in PEERS]
            cells = [shown(geometric_mean(found)) if found else "" for found in ratios]
            lines.append(line([f"{len(here)} {title} (geometric mean)", str(n), *cells]))
    for row in rows:
        if row["group"] in ("overhead", "start", "memory"):
            cells = [shown(ratio(row, peer)) for peer in PEERS]
            lines.append(line([row["name"], str(row["threads"]), *cells]))
    for row in rows:
        if row["group"] == "start of programs":
            cells = [shown(ratio(row, "torch.compile")), "", ""]
            lines.append(line([f"{row['name']}: torch.compile", str(row["threads"]), *cells]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    rows = json.loads(parser.parse_args().results.read_text())["rows"]
    print("\n".join([*program_table(rows), "", *mean_table(rows)]))


if __name__ == "__main__":
    main()
