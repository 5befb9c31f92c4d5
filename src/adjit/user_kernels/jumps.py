"""`break`, `continue`, early `return` and the `else` of a loop as flags and nested branches.

What follows a branch that always leaves goes into its other side. A flag is set only where control may
go on behind a branch or not; a loop keeps one `break`, at the end of a round, for the flag it is left by.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

# The value to return; whether a loop was left by `return`. With a dot, as all names that are made while
# reading, they are none that a text could have: that of tangents has the names made for the function.
RESULT, DONE = "result.", "done."


class LeavingFor(ast.For):
    """A `for` with the flag by which it is left behind a round."""

    flag: str | None = None


class LeavingWhile(ast.While):
    """A `while` with the flag by which it is left behind a round."""

    flag: str | None = None


def may_jump(statements: Sequence[ast.stmt]) -> bool:
    """Whether control may leave these statements by `break`, `continue` (of this loop) or `return`."""
    return any(
        isinstance(s, (ast.Return, ast.Break, ast.Continue))
        or (isinstance(s, ast.If) and (may_jump(s.body) or may_jump(s.orelse)))
        or (isinstance(s, (ast.For, ast.While)) and (may_return(s.body) or may_jump(s.orelse)))
        for s in statements
    )


def may_return(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Return) for s in statements for n in ast.walk(s))


def returns_value(statements: Sequence[ast.stmt]) -> bool:
    """Whether there is a `return` of something else than None."""
    values = [n.value for s in statements for n in ast.walk(s) if isinstance(n, ast.Return)]
    return any(not (v is None or (isinstance(v, ast.Constant) and v.value is None)) for v in values)


def _may_break(statements: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(s, (ast.Break, ast.Return))
        or (isinstance(s, ast.If) and (_may_break(s.body) or _may_break(s.orelse)))
        or (isinstance(s, (ast.For, ast.While)) and (may_return(s.body) or _may_break(s.orelse)))
        for s in statements
    )


def _always_jumps(statements: Sequence[ast.stmt]) -> bool:
    if any(isinstance(s, (ast.Return, ast.Break, ast.Continue, ast.Raise)) for s in statements):
        return True
    last = statements[-1] if statements else None
    return isinstance(last, ast.If) and _always_jumps(last.body) and _always_jumps(last.orelse)


def always_returns(statements: Sequence[ast.stmt]) -> bool:
    """Whether control cannot reach the end of a function's statements."""
    for s in statements:
        if isinstance(s, (ast.Return, ast.Raise)):
            return True
        if isinstance(s, ast.If) and always_returns(s.body) and always_returns(s.orelse):
            return True
        if isinstance(s, (ast.For, ast.While)) and not _breaks_out(s.body):
            forever = isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and s.test.value
            if forever or always_returns(s.orelse):
                return True
    return False


def _breaks_out(statements: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(s, ast.Break)
        or (isinstance(s, ast.If) and (_breaks_out(s.body) or _breaks_out(s.orelse)))
        or (isinstance(s, (ast.For, ast.While)) and _breaks_out(s.orelse))
        for s in statements
    )


class Jumps:
    """Rewrites the statements of one function."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: set[str] = set()  # counters that are read behind their loops, or set in them
        self.has_result = True

    def rewrite(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        self.has_result = returns_value(statements)
        for s in statements:
            self._find_kept(s, frozenset())
        return self._block(statements, None, None)

    def _find_kept(self, node: ast.AST, inside: frozenset[str]) -> None:
        """`inside`: the counters of the loops around."""
        match node:
            case ast.For(ast.Name(counter), over, body, orelse):
                if any(
                    isinstance(n, ast.Name) and n.id == counter and isinstance(n.ctx, ast.Store)
                    for s in body
                    for n in ast.walk(s)
                ):
                    self.kept.add(counter)
                for part in (over, *orelse):
                    self._find_kept(part, inside)
                for s in body:
                    self._find_kept(s, inside | {counter})
            case ast.Name(name, ast.Load()):
                if name not in inside:
                    self.kept.add(name)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._find_kept(child, inside)

    def _flag(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def _block(
        self, statements: Sequence[ast.stmt], leave: str | None, skip: str | None
    ) -> list[ast.stmt]:
        """`leave`: the flag of the loop around; `skip`: set where control does not go on behind."""
        out: list[ast.stmt] = []
        for k, s in enumerate(statements):
            rest = statements[k + 1 :]
            skipping = [_set(skip, True, s)] if skip else []
            match s:
                case ast.Return():
                    if self.has_result:
                        value = s.value or ast.Constant(None)
                        out.append(placed(ast.Assign([ast.Name(RESULT, ast.Store())], value), s))
                    if leave:
                        out += [_set(DONE, True, s), _set(leave, True, s)]
                    return out + skipping
                case ast.Break():
                    return [*out, _set(leave or "", True, s), *skipping]
                case ast.Continue():
                    return out + skipping
                case ast.If() if may_jump([s]):
                    return out + self._jumping_branch(s, rest, leave, skip)
                case ast.If():
                    body, orelse = (
                        self._block(s.body, leave, None),
                        self._block(s.orelse, leave, None),
                    )
                    out.append(_branch(s, body, orelse))
                case ast.For() | ast.While():
                    own = self._flag("leave.") if _may_break(s.body) else None
                    out += self._loop(s, own)
                    behind = self._behind(s, own)
                    if behind:
                        return out + self._block([*behind, *rest], leave, skip)
                case _:
                    out.append(s)
        return out

    def _jumping_branch(
        self, s: ast.If, rest: Sequence[ast.stmt], leave: str | None, skip: str | None
    ) -> list[ast.stmt]:
        if _always_jumps(s.body):
            other = self._block([*s.orelse, *rest], leave, skip)
            return [_branch(s, self._block(s.body, leave, skip), other)]
        if _always_jumps(s.orelse):
            body = self._block([*s.body, *rest], leave, skip)
            return [_branch(s, body, self._block(s.orelse, leave, skip))]
        if not rest and not skip:
            body, other = self._block(s.body, leave, None), self._block(s.orelse, leave, None)
            return [_branch(s, body, other)]
        own = self._flag("left.")
        body, other = self._block(s.body, leave, own), self._block(s.orelse, leave, own)
        skipped: list[ast.stmt] = [_set(skip, True, s)] if skip else [placed(ast.Pass(), s)]
        following = self._block(rest, leave, skip) or [placed(ast.Pass(), s)]
        behind = placed(ast.If(ast.Name(own, ast.Load()), skipped, following), s)
        return [_set(own, False, s), _branch(s, body, other), behind]

    def _behind(self, s: ast.For | ast.While, own: str | None) -> list[ast.stmt]:
        """What follows a loop: it was left by `return`, or not left and has an `else`."""
        behind: list[ast.stmt] = []
        if may_return(s.body):
            again = ast.Return(ast.Name(RESULT, ast.Load()) if self.has_result else None)
            behind.append(placed(ast.If(ast.Name(DONE, ast.Load()), [placed(again, s)], []), s))
        if s.orelse and own:
            ended = ast.UnaryOp(ast.Not(), ast.Name(own, ast.Load()))
            behind.append(placed(ast.If(ended, s.orelse, []), s))
        return behind if own else [*behind, *s.orelse]

    def _loop(self, s: ast.For | ast.While, own: str | None) -> list[ast.stmt]:
        out: list[ast.stmt] = [_set(own, False, s)] if own else []
        if may_return(s.body):
            out.append(_set(DONE, False, s))
        body = self._block(s.body, own, None)
        loop: LeavingFor | LeavingWhile
        if isinstance(s, ast.For):
            target = s.target
            if isinstance(target, ast.Name) and target.id in self.kept:
                name = f"round.{s.lineno}.{s.col_offset}"
                body = [placed(ast.Assign([target], ast.Name(name, ast.Load())), s), *body]
                target = ast.Name(name, ast.Store())
            loop = LeavingFor(target, s.iter, body, [])
        else:
            loop = LeavingWhile(s.test, body, [])
        loop.flag = own
        return [*out, placed(loop, s)]


_T = TypeVar("_T", bound=ast.stmt)


def placed(node: _T, where: ast.stmt) -> _T:
    """A new node in the place of another one of the user's text."""
    return ast.fix_missing_locations(ast.copy_location(node, where))


def _set(name: str, value: bool, where: ast.stmt) -> ast.stmt:
    return placed(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value)), where)


def _branch(s: ast.If, body: list[ast.stmt], orelse: list[ast.stmt]) -> ast.stmt:
    return placed(ast.If(s.test, body or [placed(ast.Pass(), s)], orelse), s)
