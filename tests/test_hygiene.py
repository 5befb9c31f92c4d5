"""The names of a body are its own, whatever the loops around it call theirs.

Every op's bodies are pasted into every loop that kernels are made of, with their names exchanged for
those of the loop: in the text nothing changes but these names.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import keyword
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from adjit.kernels.ops.softmax import softmax_rows
from test_elementwise_laws import OPS, accepts, named

import adjit as T
from adjit.graph.elementwise import Elementwise, elementwise, scalar_functions
from adjit.graph.registry import registry
from adjit.ops.arithmetic import mul
from adjit.schedule.codegen import fused, loops, loops_cuda, row_kernels, units_cuda
from adjit.schedule.codegen.body import Body
from adjit.schedule.fusion.row_groups import Limits, RowGroup
from adjit.schedule.planning.recipe import Element, Operand, Reduction, RowCall, Source, Text

# ----- bodies under other names -----


class Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


class Disguised(Body):
    """A body whose names are others."""

    def __init__(self, body: Body, names: dict[str, str]) -> None:
        self.name = body.name
        self.params = [names.get(p, p) for p in body.params]
        self.attributes = [names.get(a, a) for a in body.attributes]
        self.logical = frozenset([names.get(p, p) for p in body.logical])
        self.parsed = tuple(
            [Renamed(names).visit(copy.deepcopy(node)) for node in nodes] for nodes in body.parsed
        )


def locals_of(body: Body) -> list[str]:
    found = [n.id for s in body.assigns for n in ast.walk(s)
             if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]  # fmt: skip
    return [*dict.fromkeys(found)]


class Case(NamedTuple):
    """A body and what it computes: as `graph.record` has it."""

    label: str
    body: Body
    wanted: tuple[int, ...]
    compute: Any
    logical: frozenset[str]  # of the operands
    kinds: tuple[Any, ...]  # dtypes of the results
    results: tuple[str, ...]

    def disguised(self, names: dict[str, str]) -> Case:
        return self._replace(
            body=Disguised(self.body, names),
            logical=frozenset([names.get(n, n) for n in self.logical]),
            results=tuple([f"g_{names.get(r[2:], r[2:])}" if r != "out" else r for r in self.results]),
        )  # fmt: skip

    def operands(self, *strides: tuple[int, ...], kind: Any = None) -> list[Operand]:
        """What the body reads, with the strides in turn, and from there on with the last of them."""
        found = [
            Operand(
                name,
                T.bool if name in self.logical else kind or self.compute,
                strides[min(k, len(strides) - 1)],
            )
            for k, name in enumerate(self.body.params)
        ]
        return found + [Operand(name, self.compute, None) for name in self.body.attributes]

    def outputs(self, strides: tuple[int, ...]) -> list[Operand]:
        return [
            Operand(name, kind, strides)
            for name, kind in zip(self.results, self.kinds, strict=True)
        ]


def cases_of(op: Elementwise) -> Iterator[Case]:
    """The bodies of an op."""
    dtypes = (T.float32, T.int64, T.bool)
    kind = next((d for d in dtypes if accepts(op, *[d] * op.arity)), T.float32)
    kinds = [(kind, 1) for p in op.params if p not in op.body.logical]
    compute, made = op.dtypes(kinds) if kinds else (kind, kind)
    yield Case(op.name, op.body, (0,), compute, op.body.logical, (made,), ("out",))
    if op.back is not None:
        wanted = tuple(k for k, p in enumerate(op.params) if p not in op.body.logical)
        results = tuple(f"g_{op.params[k]}" for k in wanted)
        yield Case(
            f"{op.name}_vjp", op.back, wanted, compute, op.body.logical, (made,) * len(wanted), results
        )  # fmt: skip


# ----- the loops -----

LARGE = loops.STREAM_BYTES  # elements, of any size


def flat_loops(case: Case) -> Iterator[Source]:
    """Every loop over one body."""
    for shape, given, order in (
        ((6,), [(1,)], [0]),
        ((6,), [(0,), (1,)], [0]),  # repeated
        ((6,), [(2,), (1,), (3,)], [0]),  # with steps
        ((4, 6), [(6, 1), (1, 4)], [0, 1]),  # rows
        ((2, 3, 6), [(1, 12, 2), (0, 6, 1), (18, 0, 0)], [0, 1, 2]),
        ((4, 6), [(0, 1), (6, 1)], [0, 1]),  # one row for all
        ((LARGE,), [(1,)], [0]),  # streamed, where nothing is computed
        ((LARGE, 4), [(4, 1), (0, 1)], [0, 1]),
    ):
        dense = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        results = case.outputs(dense)
        step, _ = loops.elementwise(
            case.label, case.body, case.wanted, case.compute, case.operands(*given), results,
            shape, order, fresh=True,
        )  # fmt: skip
        yield step.source
    operands = case.operands((1,))
    operands[0] = operands[0]._replace(strides=None)  # a Python number
    if len(operands) > 1:
        step, _ = loops.elementwise(
            case.label, case.body, case.wanted, case.compute, operands, case.outputs((1,)), (6,), [0]
        )  # fmt: skip
        yield step.source
    step, _ = loops.elementwise(
        case.label, case.body, case.wanted, case.compute, case.operands((1,)),
        case.outputs((1,)), (6,), [0], alias=True,
    )  # fmt: skip
    yield step.source


def group_of(case: Case, copies: int = 1) -> tuple[list[fused.GroupMember], list[str], list[str]]:
    """The body, some times, and the product of what the first made with itself; names of what is read,
    and of what is made. Once the body converts what it reads."""
    element = Element(
        case.body, case.wanted, case.compute, tuple(case.operands((1,))), tuple(case.outputs((1,))), (6,)
    )  # fmt: skip
    converting = element._replace(inputs=tuple(case.operands((1,), kind=T.int8)))
    reads = [f"x{k}" for k in range(len(case.body.params))]
    numbers = [f"k{k}" for k in range(len(case.body.attributes))]
    members, made = [], []
    for k in range(copies):
        targets = tuple(f"v{len(made) + place}" for place in range(len(case.wanted)))
        made += targets
        which = converting if k == 1 else element
        members.append(fused.GroupMember(case.label, which, (*reads, *numbers), targets))
    kind = case.kinds[0]
    x, y, out = (Operand(name, kind, (1,)) for name in ("x", "y", "out"))
    product = Element(mul.body, (0,), kind, (x, y), (out,), (6,))
    made.append(f"v{len(made)}")
    members.append(fused.GroupMember("mul", product, (made[0], made[0]), (made[-1],)))
    return members, reads, made


def group_inputs(case: Case, *strides: tuple[int, ...]) -> list[Operand]:
    return [
        o._replace(name=f"x{k}" if o.strides is not None else f"k{k - len(case.body.params)}")
        for k, o in enumerate(case.operands(*strides))
    ]


def group_loops(case: Case) -> Iterator[Source]:
    """Every loop over a group of bodies."""
    kind = case.kinds[0]
    for shape, given, copies, padded in (
        ((6,), [(1,)], 2, False),
        ((6,), [(1,)], 1, True),
        ((LARGE,), [(1,)], 1, False),
        ((LARGE,), [(1,)], 4, False),  # through blocks
        ((4, 6), [(0, 1), (6, 1)], 1, False),
        ((4, 6), [(6, 1), (1, 4)], 1, False),
        ((4, 6), [(1, 4), (0, 1), (6, 0)], 1, False),
    ):
        dense = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        members, _, made = group_of(case, copies)
        outputs = [Operand(name, kind, dense) for name in made]
        step, _ = fused.kernel(
            members, group_inputs(case, *given), outputs, [], shape, {}, padded=padded
        )
        yield step.source
    for copies, given in ((1, [(0,), (1,)]), (4, [(1,)])):
        members, _, made = group_of(case, copies)
        sums = [fused.FusedSum(made[-1], Reduction("sum", kind, kind, (6, 6, 1))),
                fused.FusedSum(made[0], Reduction("squares", kind, kind, (6, 6, 1)))]  # fmt: skip
        outputs = [Operand(name, kind, (1,)) for name in made]
        step, _ = fused.kernel(members, group_inputs(case, *given), outputs, sums, (6,), {})
        yield step.source


def row_group_loops(case: Case, limits: Limits, columns: bool = True) -> Iterator[Source]:
    """Groups that go row by row: the body over elements and over rows, sums, and a kernel of rows."""
    whole, kind = RowGroup(8, 96), case.kinds[0]
    for given in ([(96, 1)], [(0, 1), (96, 1), (1, 0)], [(200, 1)]):
        members, _, made = group_of(case)
        count = len(made)
        names = [f"v{count + k}" for k in range(4)]
        column = members[0]._replace(
            targets=tuple(f"v{count + 4 + k}" for k in range(len(case.wanted))),
            arguments=(names[0],) * len(case.body.params) + members[0].arguments[len(case.body.params):],
            is_of_rows=True,
        )  # fmt: skip
        parts = [
            *members,
            row_kernels.RowSum(made[-1], names[0], Reduction("sum", kind, kind, (96, 96, 1))),
            column,
            members[-1]._replace(arguments=(made[0], column.targets[0]), targets=(names[1],)),
            row_kernels.RowSum(names[1], names[2], Reduction("columns", kind, kind, (8, 96, 8, 1))),
            row_kernels.RowFunction(
                RowCall(softmax_rows.row, T.float32, (96, 3)), (names[1],), (names[3],)
            ),
        ]
        outputs = [Operand(name, kind, (96, 1)) for name in (made[-1], names[1], names[3])]
        outputs.append(Operand(column.targets[0], kind, (1, 0)))
        if not columns:
            del parts[-2]
        step, _ = row_kernels.kernel(
            parts, group_inputs(case, *given), outputs, whole, {}, limits
        )  # fmt: skip
        yield step.source


def device_text(source: Source) -> str:
    """The kernel for a GPU that stems from one for the CPU."""
    if isinstance(source.origin, Text):
        return units_cuda.by_text(source, 30).text
    return loops_cuda.elementwise(source.origin, 2, "int32").text


def texts_of_one(case: Case) -> list[str]:
    """The kernels of a body alone, whose operands have the names that it gives them."""
    sources = [*flat_loops(case)]
    return [source.text for source in sources] + [device_text(source) for source in sources]


def texts_of(case: Case, every: bool = False) -> list[str]:
    """The kernels of a body, all of them or without those that a GPU takes over as they are: these
    take long to write."""
    sources = [*group_loops(case), *row_group_loops(case, Limits(room=1 << 14))]
    other = [s for s in sources if every or not isinstance(s.origin, Text)]
    sources += row_group_loops(case, Limits(), columns=False)  # eight rows at a time
    return texts_of_one(case) + [s.text for s in sources] + [device_text(s) for s in other]


# ----- the law -----

WORD = re.compile(r"[^\W\d]\w*")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What is made of bodies under other names is not kept."""
    monkeypatch.setattr(loops, "_sources", {})
    monkeypatch.setattr(fused, "_fused", {})


def same_but_for_names(text: str, other: str) -> bool:
    """Whether texts differ in names alone, each of one standing for one of the other."""
    if WORD.sub("", text) != WORD.sub("", other):
        return False
    pairs = {*zip(WORD.findall(text), WORD.findall(other), strict=True)}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def words_of(texts: Sequence[str], given_up: Sequence[str]) -> list[str]:
    """The names in kernels, but for keywords and those that a body is to give up."""
    found = dict.fromkeys(word for text in texts for word in WORD.findall(text))
    return [word for word in found if not keyword.iskeyword(word) and word not in given_up]


def with_locals(case: Case, names: Sequence[str]) -> Case:
    """The body with more locals, one after the other on the way of its first result."""
    made = case.disguised({})
    assigns, results = made.body.parsed
    for name in names:
        assigns.append(ast.Assign([ast.Name(name, ast.Store())], results[0], lineno=0))
        results[0] = ast.Name(name, ast.Load())
    return made


def given_names(case: Case) -> list[str]:
    """The names of operands and attributes; what a derivative calls `g` and `out` has no other name."""
    return [n for n in case.body.params + case.body.attributes if n not in ("g", "out")]


def assert_same(wanted: list[str], found: list[str]) -> None:
    assert [b for a, b in zip(wanted, found, strict=True) if not same_but_for_names(a, b)] == []


def check_names(case: Case, share: int, turn: int) -> int:
    """Exchange the names of a body for the `turn`th of so many shares of the words around it: all of them
    at once for locals, and one after the other for each operand and attribute."""
    inner, outer = locals_of(case.body), given_names(case)
    neutral = {name: f"{name[0]}{k}q" for k, name in enumerate([*inner, *outer])}
    plain, every = case.disguised(neutral), share == 1
    words = words_of(texts_of(plain, every), [*neutral.values()])[turn::share]
    more = [f"w{k}z" for k in range(len(words))]
    assert_same(
        texts_of(with_locals(plain, more), every), texts_of(with_locals(plain, words), every)
    )
    texts = texts_of_one(plain)
    names = [w for w in words if w not in ("g", "out") and not w.startswith("g_")]  # refused
    for first in range(0, len(names) if outer else 0, max(len(outer), 1)):
        chosen = dict(zip(outer, names[first:], strict=False))
        assert_same(texts, texts_of_one(case.disguised(neutral | chosen)))
    return len(words)


@pytest.mark.in_turn(4)
@named(OPS)
def test_a_body_may_call_its_own_what_the_loops_around_it_call_theirs(op: Elementwise) -> None:
    for turn, case in enumerate(cases_of(op)):
        check_names(case, 64, (OPS.index(op) + 32 * turn) % 64)


def test_so_may_one_with_every_word_of_the_loops() -> None:
    *_, derivative = cases_of(registry["clamp"])
    assert check_names(derivative, 1, 0) > 150


def test_a_loop_that_hides_what_it_calls_is_not_written() -> None:
    with pytest.raises(NameError, match="kernel gives another meaning to float32, stack"):
        loops.assemble(
            "kernel",
            "    for stack in range(3):\n        i, float32 = 1, 2",
            {"stack": "lanes"},
            {},
        )


# ----- numbers -----


@pytest.fixture(scope="module")
def hostile() -> Iterator[Any]:
    """x y tanh(x) scaled, by a body with all the wrong names; it writes to its parameters too."""

    @elementwise(ref=None, name="hostile", domain=((-2, 2), (-2, 2)))
    def body(p, T, *, inner=1.0, start=0.0):  # type: ignore[no-untyped-def]
        first = math.tanh(p)
        p, row = p * T, first * inner
        start = start * 2
        i = min = row + start
        T = float32 = i * p
        tanh_f32 = range = T + 0
        return tanh_f32 + (range - float32) + (i - min)  # fmt: skip

    @body.vjp
    def _(g, p, T, inner, start):  # type: ignore[no-untyped-def]
        tail = math.tanh(p)
        block = tail * inner + 2 * start
        phase = p * T
        outer = (1 - tail * tail) * inner
        g = g * 2
        at = g * 0.5
        g_p = at * (T * block + phase * outer)
        return g_p, at * p * block

    yield body
    del registry["hostile"], scalar_functions["hostile"]


def plain(x: Any, y: Any, scale: float, shift: float) -> Any:
    """The same of tensors, one op after the other."""
    return (x.tanh() * scale + shift * 2) * (x * y)


def layouts(rows: int, columns: int) -> dict[str, Any]:
    numbers = np.random.default_rng(rows)

    def made(*shape: int) -> Any:
        return T.tensor(numbers.uniform(-2, 2, shape).astype(np.float32))

    whole = made(rows, columns)
    return {
        "contiguous": (whole, made(rows, columns)),
        "transposed": (made(columns, rows).t(), whole),
        "stepped": (made(rows, 2 * columns)[:, ::2], made(rows, 3 * columns)[:, 1::3]),
        "of a row": (whole, made(columns)),
        "of a column": (made(rows, 1), whole),
        "of one": (made(1, 1), whole),
        "expanded": (made(columns).expand(rows, columns), made(rows, 1).expand(rows, columns)),
    }


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("size", [(4, 3), (130, 70)], ids=str)
@pytest.mark.parametrize("layout", layouts(1, 1))
def test_a_body_with_all_the_wrong_names_computes_what_it_says(hostile, layout, size) -> None:
    x, y = layouts(*size)[layout]
    for round_ in range(3):  # one by one, and by its plan
        found, wanted = [], []
        for function, results in ((hostile, found), (plain, wanted)):
            leaves = [t.detach().requires_grad_() for t in (x, y)]
            given = (*leaves, 0.5 + round_, -0.75)
            value = (
                function(*given)
                if function is plain
                else function(*given[:2], inner=given[2], start=given[3])
            )
            grads = T.autograd.grad(value.mean(-1).square().sum(), leaves, create_graph=True)
            second = T.autograd.grad((grads[0] * grads[0]).sum() + grads[1].sum(), leaves)
            results += [t.detach().numpy().copy() for t in (value, *grads, *second)]
            sums = value.detach() - value.detach().amax(1, keepdim=True)
            results += [(sums * sums.sum(1, keepdim=True)).numpy().copy()]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * max(1e-3, np.abs(b).max()))


def test_a_body_that_writes_to_what_it_was_given_reads_it_once() -> None:
    @elementwise(ref=None, name="twice")
    def twice(x, *, step=2.0):  # type: ignore[no-untyped-def]
        x, step = step * x, x
        x = x + step
        return x  # noqa: RET504

    @twice.vjp
    def _(g, step):  # type: ignore[no-untyped-def]
        g = g * (step + 1)
        return g  # noqa: RET504

    del registry["twice"], scalar_functions["twice"]
    for shape in ((4, 3), (1, 3), (4, 1)):
        x = T.rand(shape, requires_grad=True)
        y = twice(x.expand(4, 3), step=5.0)
        np.testing.assert_allclose(
            y.detach().numpy(), np.broadcast_to(x.detach().numpy() * 6, (4, 3)), rtol=1e-6
        )
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), 6.0 * 12 / np.prod(shape))


def test_what_bodies_may_not_say() -> None:
    outside = 3.0

    def refused(function: Any) -> str:
        try:
            op = elementwise(ref=None, name="refused")(function)
            with pytest.raises(TypeError) as caught:
                op(T.ones(2))
        finally:
            registry.pop("refused", None), scalar_functions.pop("refused", None)
        return str(caught.value)

    def reads_outside(x):  # type: ignore[no-untyped-def]
        return x * outside

    def reads_a_frame(x):  # type: ignore[no-untyped-def]
        return x * start  # noqa: F821

    def walrus(x):  # type: ignore[no-untyped-def]
        return (y := x * 2) + y

    def calls(x):  # type: ignore[no-untyped-def]
        return round(x)

    def module(x):  # type: ignore[no-untyped-def]
        return np.tanh(x)

    def hides_math(x):  # type: ignore[no-untyped-def]
        math = x
        return math.tanh(x)

    def indexes(x):  # type: ignore[no-untyped-def]
        return x[0]

    for function, line, text in (
        (reads_outside, 2, "reads 'outside', which is neither a parameter nor assigned before"),
        (reads_a_frame, 2, "reads 'start'"), (walrus, 2, "has '(y := (x * 2))'"), (calls, 2, "has 'round(x)'"),
        (module, 2, "has 'np.tanh'"), (hides_math, 3, "has 'math.tanh'"), (indexes, 2, "has 'x[0]'"),
    ):  # fmt: skip
        said = refused(function)
        assert f"{function.__name__}: line {line} {text}" in said
        assert (
            "keyword-only parameter" in said
            or "math.f(x), special.f(x), abs, bool, max and min" in said
        )

    for function in (lambda out: out, lambda x, g: x, lambda x, *, g_x=1: x):
        with pytest.raises(
            TypeError, match=r"<lambda>: expected parameters of other names than (out|g|g_x): its"
        ):
            elementwise(ref=None)(function)


def test_the_text_of_a_body_is_that_of_its_function_though_its_file_was_edited(tmp_path):
    """It is read when it is needed: another function may stand in its lines by then."""
    path = tmp_path / "edited_bodies.py"
    path.write_text("def halved(x):\n    return x / 2\n\n\ndef doubled(x):\n    return x * 2\n")
    spec = importlib.util.spec_from_file_location("edited_bodies", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    halved, doubled = Body(module.halved), Body(module.doubled)
    path.write_text("def doubled(x):\n    return x * 3\n\n\ndef halved(x):\n    return x / 2\n")
    os.utime(path, ns=(1, 1))
    assert ast.unparse(halved.parsed[1][0]).endswith("/ 2")
    with pytest.raises(RuntimeError, match=r"doubled: .* has been edited since it was imported"):
        _ = doubled.parsed
