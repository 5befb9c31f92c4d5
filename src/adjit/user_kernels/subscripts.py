"""What is known of subscripts without running anything."""

from __future__ import annotations

from .structure import Apply, Atom, Branch, Procedure, Repeat, Suite

_DEPTH = 8  # of arithmetic that is looked through


def affine(f: Procedure, a: Atom) -> tuple[str | None, int] | None:
    """An index as (counter of a loop or None, offset), if it is that."""
    if not isinstance(a, str):
        return (None, a) if type(a) is int else None
    item = f.makers.get(a)
    if isinstance(item, Repeat) and item.counter == a:
        return a, 0
    if isinstance(item, Apply) and item.function in ("+", "-"):
        x, y = item.args
        if type(y) is int and isinstance(x, str):
            base = affine(f, x)
            return base and (base[0], base[1] + (y if item.function == "+" else -y))
        if type(x) is int and isinstance(y, str) and item.function == "+":
            base = affine(f, y)
            return base and (base[0], base[1] + x)
    return None


def least(f: Procedure, a: Atom, block: Suite | None) -> int:
    """The least value of an affine index in a block, −1 where that is not known to be at least 0."""
    known = affine(f, a)
    if known is None:
        return -1
    counter, offset = known
    if counter is None:
        return offset
    lowest = max(_first_or_last(f, counter), _let_through(f, counter, block))
    return lowest + offset if lowest >= 0 else -1


def _first_or_last(f: Procedure, counter: str) -> int:
    """The least value of a counter by the bounds of its loop, −1 where that is not known."""
    loop = f.makers[counter]
    assert isinstance(loop, Repeat)
    around = f.places[loop.trips][0]
    if loop.step > 0:
        return least(f, loop.start, around)
    if type(loop.stop) is int:
        return loop.stop + 1 if loop.stop >= -1 else -1
    last = least(f, loop.stop, around)
    return last + 1 if last >= 0 else -1


def _let_through(f: Procedure, counter: str, block: Suite | None) -> int:
    """The least value of a counter by the branches around a block, −1 where they do not tell."""
    found = -1
    while block is not None:
        if isinstance(block.owner, Branch):
            is_then = block.owner.then is block
            found = max(found, _implied(f, block.owner.condition, counter, is_then))
        block = block.parent
    return found


def _implied(f: Procedure, condition: Atom, counter: str, holds: bool) -> int:
    """The least value that a counter has where a condition holds, or does not; −1 if that does not tell."""
    item = f.makers.get(condition) if isinstance(condition, str) else None
    if not isinstance(item, Apply):
        return -1
    if item.function == "not":
        return _implied(f, item.args[0], counter, not holds)
    if item.function == ("and" if holds else "or"):
        return max(_implied(f, a, counter, holds) for a in item.args)
    test, (a, b) = item.function, (*item.args, None, None)[:2]
    if b == counter and test in _TURNED:
        test, a, b = _TURNED[test], b, a
    if a != counter or type(b) is not int:
        return -1
    test = test if holds else _OPPOSITE.get(test, "")
    if test == ">" or (test == "!=" and b == _first_or_last(f, counter)):
        return b + 1
    return b if test in (">=", "==") else -1


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE = {"<": ">=", "<=": ">", "==": "!=", "!=": "=="}


def never_negative(f: Procedure, a: Atom, depth: int = _DEPTH) -> bool:
    """Whether a whole number is known to be 0 or more."""
    if not isinstance(a, str):
        return a >= 0
    if least(f, a, f.places[a][0] if a in f.places else None) >= 0:
        return True
    item = f.makers.get(a) if depth else None

    def both(*atoms: Atom) -> bool:
        return all(never_negative(f, x, depth - 1) for x in atoms)

    match item:
        case Repeat(counter=counter) if counter == a:
            return item.step > 0 and both(item.start)
        case Repeat():
            return any(_grows(f, item, a) and both(c.first) for c in item.carried if c.inside == a)
        case Branch():
            return any(dst == a and both(x, y) for dst, x, y in item.results)
        case Apply(function="shape"):
            return True
        case Apply(function="+" | "*" | "min" | "&" | "//" | "%", args=args):
            return both(*args)
        case Apply(function="select", args=args):
            return both(*args[1:])
        case Apply(function="max", args=args):
            return any(both(x) for x in args)
    return False


def _grows(f: Procedure, loop: Repeat, name: str) -> bool:
    """Whether a loop hands a name on with a number of the text added, which is not negative."""
    for c in loop.carried:
        item = f.makers.get(c.following) if isinstance(c.following, str) else None
        if c.inside == name and isinstance(item, Apply) and item.function == "+":
            x, y = item.args
            return x == name and type(y) is int and y >= 0
    return False
