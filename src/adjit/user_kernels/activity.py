"""Which names depend on what is differentiated, and matter for a result: only those have adjoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .rules import PICKS, rules_for
from .structure import Apply, Atom, Branch, Load, Make, Procedure, Repeat, StoreElement, walk


def active_names(f: Procedure, params: Sequence[str]) -> set[str]:
    """Names of numbers, and roots of arrays, on some way from `params` to a result."""
    flows = [
        (a, b)
        for a, b in _flows(f)
        if isinstance(a, str) and _has_derivative(f, a) and _has_derivative(f, b)
    ]
    varied = _reached({f.root(p) for p in params}, flows)
    results = {f.root(v) for v in f.returns if isinstance(v, str)}
    results |= {root for p in f.params if p in f.arrays and (root := f.root(p)) in f.written}
    return varied & _reached(results, [(b, a) for a, b in flows])


def _has_derivative(f: Procedure, name: str) -> bool:
    return f.arrays[name][1][0] == "f" if name in f.arrays else f.is_float(name)


def _reached(start: set[str], flows: list[tuple[str, str]]) -> set[str]:
    follows: dict[str, list[str]] = {}
    for a, b in flows:
        follows.setdefault(a, []).append(b)
    found, left = set(start), list(start)
    while left:
        for b in follows.get(left.pop(), ()):
            if b not in found:
                found.add(b)
                left.append(b)
    return found


def _flows(f: Procedure) -> Iterator[tuple[Atom | None, str]]:
    """Pairs (from, to) of a value that another one depends on."""
    for _, item in walk(f.body):
        match item:
            case Apply(dst=dst, function="select", args=args):
                yield from ((a, dst) for a in args[1:])
            case Apply(dst=dst, function=function, args=args) if function in PICKS:
                yield from ((a, dst) for a in args)
            case Apply(dst=dst, function=function, args=args):
                yield from (
                    (a, dst)
                    for a, rule in zip(args, rules_for(function, args), strict=False)
                    if rule
                )
            case Load():
                yield f.root(item.array), item.dst
            case StoreElement():
                yield item.value, f.root(item.array)
            case Make():
                yield item.fill, f.root(item.dst)
            case Branch():
                for dst, a, b in item.results:
                    yield a, dst
                    yield b, dst
            case Repeat():
                for c in item.carried:
                    if not c.is_array:
                        yield from [
                            (c.first, c.inside),
                            (c.following, c.inside),
                            (c.inside, c.after),
                        ]
