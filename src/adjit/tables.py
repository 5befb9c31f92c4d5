"""Text that reports share: tables, and numbers in units that suit them."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """Rows as a table, the first one its head; the columns named in `right` end at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruler = "  ".join(["-" * width for width in widths])
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], ruler, *lines[1:], ruler])


def duration(us: float) -> str:
    """Microseconds in a unit that suits them.

    >>> duration(1500)
    '1.500ms'
    """
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def size(nbytes: float) -> str:
    """Bytes in a unit that suits them.

    >>> size(3072)
    '3.0 KiB'
    """
    if nbytes < 1024:
        return f"{nbytes:.0f} B"
    for unit in ("KiB", "MiB"):
        nbytes /= 1024
        if nbytes < 1024:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:.1f} GiB"


def shortened(text: str, length: int) -> str:
    """The text, its end left out where it is longer."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"
