"""A report as Markdown: one table, geometric means, and where adjit is the slower one."""

from __future__ import annotations

from math import exp, log
from typing import Any

from rates import BYTES, COPY

UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
MIB = 1 << 20  # less than that is what the allocator happens to do
OWN = ("adjit", "adjit.compile")
PROGRAMS = ("programs", "applications")  # groups of rows that can be captured
CAPTURE = {  # a column: ours, and those of whom the fastest counts
    "without capture: PyTorch": ("adjit", "PyTorch"),
    "with capture: the faster of JAX and torch.compile": ("adjit.compile", "JAX", "torch.compile"),
}


def quantity(cell: dict[str, Any]) -> float | None:
    """The figure that ratios are made of, where a cell has one."""
    if "bytes" in cell:
        return float(cell["bytes"]) if cell["bytes"] >= MIB else None
    return cell.get("seconds")


def text_of(cell: dict[str, Any]) -> str:
    """A cell's figure with three digits and a fitting unit."""
    if "error" in cell:
        return "failed"
    if "note" in cell:
        return str(cell["note"])
    if "bytes" in cell:
        return f"{cell['bytes'] / MIB:.1f} MiB" if cell["bytes"] >= MIB else "< 1 MiB"
    unit, scale = next((u for u in UNITS if cell["seconds"] >= u[1]), UNITS[-1])
    value = cell["seconds"] / scale
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def times(factor: float) -> str:
    """A ratio with two decimals, or with two digits where it is small."""
    return f"{factor:.2f}×" if factor >= 0.1 else f"{factor:.2g}×"


def ratio(row: dict[str, Any], peer: str, own: str = "adjit") -> float | None:
    """The peer's figure divided by adjit's: above 1, adjit is the better one."""
    mine, other = (quantity(row["cells"].get(name, {})) for name in (own, peer))
    return other / mine if mine and other else None


def geometric_mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def head(titles: list[str], left: int) -> list[str]:
    """The title line and the rule below it; all but the first `left` columns align right."""
    return [line(titles), line(["---"] * left + ["---:"] * (len(titles) - left))]


def columns_of(rows: list[dict[str, Any]]) -> list[str]:
    """The libraries of all rows, in the order in which they first appear, adjit first."""
    names = list(dict.fromkeys(name for row in rows for name in row["cells"]))
    order = [*OWN, "NumPy", "PyTorch", "torch.compile", "JAX", "autograd"]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def main_table(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    lines = head(["row", "threads", *columns], 1)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    rows = sorted(
        rows,
        key=lambda r: (groups.index(r["group"]), names.index(r["name"]), r["threads"]),
    )
    for row in rows:
        cells = []
        for name in columns:
            cell = row["cells"].get(name)
            factor = None if name == "adjit" else ratio(row, name)
            text = text_of(cell) if cell else ""
            cells.append(text if factor is None else f"{text} ({times(factor)})")
        lines.append(line([row["name"], str(row["threads"]), *cells]))
    return lines


def mean_table(rows: list[dict[str, Any]], peers: list[str]) -> list[str]:
    lines = head(["geometric mean of ratios, and of how many", "threads", *peers], 1)
    steady = [row for row in rows if not row["group"].startswith(("start", "memory"))]
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        for row in rows:
            if row["group"] == group:
                parts.setdefault((group, str(row["threads"])), []).append(row)
    parts["all but start and memory", "all"] = steady
    for (group, threads), chosen in parts.items():
        cells = []
        for peer in peers:
            found = [value for row in chosen if (value := ratio(row, peer)) is not None]
            cells.append(f"{times(geometric_mean(found))} of {len(found)}" if found else "")
        lines.append(line([group, threads, *cells]))
    return lines


def capture_table(rows: list[dict[str, Any]]) -> list[str]:
    """Like beside like: steps as they are written, and steps that are captured first."""
    lines = head(["geometric mean of ratios, programs", "threads", *CAPTURE], 1)
    programs = [row for row in rows if row["group"] in PROGRAMS]
    for threads in sorted({row["threads"] for row in programs}):
        cells = []
        for own, *peers in CAPTURE.values():
            found = [
                min(ratios)
                for row in programs
                if row["threads"] == threads
                and (ratios := [r for peer in peers if (r := ratio(row, peer, own)) is not None])
            ]
            cells.append(f"{times(geometric_mean(found))} of {len(found)}" if found else "")
        lines.append(line(["programs", str(threads), *cells]))
    return lines


def rate_table(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    """What rows of bytes and of products reach in a second; bytes beside the fastest copy."""
    lines = head(["row", *columns], 1)
    rates = {
        row["name"]: {
            name: row["moves"] / cell["seconds"]
            for name, cell in row["cells"].items()
            if "seconds" in cell
        }
        for row in rows
    }
    best = max(rates.get(COPY, {}).values(), default=0.0)
    for row in rows:
        cells = []
        for name in columns:
            rate = rates[row["name"]].get(name)
            if rate is None:
                cells.append("")
            elif row["group"] == BYTES:
                share = f" ({rate / best:.0%} of the copy)" if best else ""
                cells.append(f"{rate / 1e9:.0f} GB/s{share}")
            else:
                cells.append(f"{rate / 1e12:.1f} TFLOP/s")
        lines.append(line([row["name"], *cells]))
    return lines


def where(row: dict[str, Any]) -> str:
    return f"{row['name']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"


def slower_rows(rows: list[dict[str, Any]], peer: str) -> list[str]:
    """The rows on which a peer is ahead, worst first."""
    behind = [(value, row) for row in rows if (value := ratio(row, peer)) is not None and value < 1]
    behind.sort(key=lambda item: item[0])
    return [f"- {where(row)}: {times(value)}" for value, row in behind]


def failures(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"- {where(row)}, {name}: {cell['error']}"
        for row in rows
        for name, cell in row["cells"].items()
        if "error" in cell
    ]


def markdown(report: dict[str, Any]) -> str:
    """The whole report."""
    rows = report["rows"]
    columns = columns_of(rows)
    peers = [name for name in columns if name not in OWN]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    parts = [
        f"{report['machine']}  \n{versions}",
        "Shortest of many turns. In brackets the ratio of the library's figure to adjit's: "
        "above 1, adjit is ahead.",
        "\n".join(main_table(rows, columns)),
        "\n".join(mean_table(rows, peers)),
    ]
    if any(row["group"] in PROGRAMS for row in rows):
        parts.append("\n".join(capture_table(rows)))
    if rated := [row for row in rows if "moves" in row]:
        parts.append("\n".join(rate_table(rated, columns_of(rated))))
    for peer in peers:
        if behind := slower_rows(rows, peer):
            parts.append("\n".join([f"{peer} is ahead here:", "", *behind]))
    if failed := failures(rows):
        parts.append("\n".join(["Failed:", "", *failed]))
    return "\n\n".join(parts)
