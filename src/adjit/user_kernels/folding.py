"""Values that one statement makes for the next, written where they are used.

The structured form names the result of every operation, and the way back every part of a gradient. Most of
these names have one use, in the line below: `a[i] = b[i] + h * k[i]` is what a reader would write. Operations
are the same, and their order; only loads may come later, if no store is between.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import pairwise

from .vocabulary import CASTS

_TEMPORARY = re.compile(r"t(_\d+)?(_[bd])?")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"(\w+) = (.+)")
_STORES = re.compile(r"([\w, ]+) = (.+)|for (\w+) in (.+)")
_CHANGES = re.compile(r"(\w+) \S+= .+")
# Lines that end what may be moved: a `while` asks again every round.
_ENDS = re.compile(r"#|@|(while|def|return|raise|break)\b")
_TEXT = re.compile(r"\s*(#|raise\b)")
_CONTINUES = re.compile(r"\s*(else|elif)\b")
_PURE_CALLS = {
    "nat",
    "pick",
    "rest",
    "over",
    "abs",
    "min",
    "max",
    "round",
    "digamma",
    "trigamma",
    *CASTS,
}
_MAKERS = {"np.empty", "np.zeros", "np.full"}
_WIDEST = 100

Places = dict[str, list[tuple[int, bool]]]  # of names: lines, and whether a value is given there


def folded(source: str) -> str:
    """The source of a function with such values written where they are used."""
    lines = _without_copies(source.split("\n"))
    once = _used_once(lines)
    done: list[str] = []
    waiting: dict[str, tuple[str, ast.expr]] = {}

    def write_out(names: set[str]) -> None:
        """Write values that wait, and before them those that they read: a line that would have been too long
        with these still names them."""
        found = {n for n in names if n in waiting}
        while more := {n for f in found for n in _names(waiting[f][1]) if n in waiting} - found:
            found |= more
        for name in [n for n in waiting if n in found]:
            done.append(waiting.pop(name)[0])

    for line in lines:
        code = line.strip()
        if not code or _ENDS.match(code):
            write_out({*waiting})
            done.append(line)
            continue
        values = {n[0]: waiting[n[0]][1] for n in _NAME.finditer(code) if n[0] in waiting}
        if values and len(whole := _with_values(line, values)) <= _WIDEST:
            line, code = whole, whole.strip()
            for name in values:
                del waiting[name]
        target = _ASSIGNED.fullmatch(code)
        if target is None or not _TEMPORARY.fullmatch(target[1]) or not _is_pure(target[2]):
            write_out({*waiting})
            done.append(line)
            continue
        name, value = target[1], ast.parse(target[2], mode="eval").body
        needed = _names(value) if name not in once else set()
        write_out(needed | {n for n, (_, other) in waiting.items() if name in _names(other)})
        if name in once:
            waiting[name] = line, value
        else:
            done.append(line)
    write_out({*waiting})
    return "\n".join(done)


def _places(lines: list[str]) -> Places:
    seen: Places = defaultdict(list)
    for k, line in enumerate(lines):
        if _TEXT.match(line):
            continue
        code = line.strip()
        stores = _STORES.match(code)
        target, rest = (stores[1] or stores[3], stores[2] or stores[4]) if stores else ("", code)
        if changes := _CHANGES.fullmatch(code):  # used and given a value by one statement
            seen[changes[1]] += [(k, True)]
        for text, is_store in ((rest, False), (target, True)):
            for found in _NAME.finditer(text):
                seen[found[0]].append((k, is_store))
    return seen


def _used_once(lines: list[str]) -> set[str]:
    """Names of which every value is used once, by a statement of the same block."""
    return {
        name
        for name, places in _places(lines).items()
        if [is_store for _, is_store in places] == [True, False] * (len(places) // 2)
        and all(
            _is_behind(lines, stored, used) and _depth(lines[used]) == _depth(lines[stored])
            for (stored, is_store), (used, _) in pairwise(places)
            if is_store
        )
    }


def _without_copies(lines: list[str]) -> list[str]:
    """Without names that are other names for one value."""
    places = _places(lines)
    once = {name for name, found in places.items() if sum(is_store for _, is_store in found) == 1}
    same: dict[str, str] = {}
    copies = set()
    for k, line in enumerate(lines):
        copy = re.fullmatch(r"\s+(\w+) = (\w+)", line)
        if (
            copy
            and {copy[1], copy[2]} <= once
            and _TEMPORARY.fullmatch(copy[1])
            and all(k == used or _is_behind(lines, k, used) for used, _ in places[copy[1]])
        ):
            same[copy[1]] = same.get(copy[2], copy[2])
            copies.add(k)
    return [
        line if _TEXT.match(line) else _NAME.sub(lambda name: same.get(name[0], name[0]), line)
        for k, line in enumerate(lines)
        if k not in copies
    ]


def _is_behind(lines: list[str], first: int, last: int) -> bool:
    """Whether a line is in the block of one before, or in a block of that."""
    depth = _depth(lines[first])
    between = [line for line in lines[first : last + 1] if line.strip()]
    return first < last and all(
        _depth(line) > depth or (_depth(line) == depth and not _CONTINUES.match(line))
        for line in between
    )


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_pure(value: str) -> bool:
    """Whether a value may be computed later, if no element is stored and no name is given a value before."""
    for node in ast.walk(ast.parse(value, mode="eval")):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in _MAKERS or not (name in _PURE_CALLS or name.startswith(("np.", "math."))):
                return False
    return True


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


class _Values(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _with_values(line: str, values: dict[str, ast.expr]) -> str:
    code = line.strip()
    tree = _Values(values).visit(ast.parse(f"{code} pass" if code.endswith(":") else code))
    return line[: _depth(line)] + ast.unparse(tree).split("\n")[0]
