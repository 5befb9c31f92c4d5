"""What templates make of other sizes is what is made of these directly, and they are made for nearly all ops.

`templates.checked()` compares every recipe, spec and trace of a template, word by word, with one that is made
of the same sizes without it. With ADJIT_TEST_SIZES=1 whole files of tests run so.
"""

import gc
import operator
import threading
import types
import weakref
from collections import Counter

import library
import numpy as np
import pytest
import templates
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.autograd import engine
from adjit.graph import elementwise_record, node, normalized, other_sizes, record, view_cache
from adjit.graph import operation as operation_module
from adjit.graph.composed import composed
from adjit.graph.fastpath import elementwise_recorder
from adjit.graph.normalized import forget_calls, normalizes
from adjit.graph.op_record import OpRecord
from adjit.graph.operation import OperationCall, operation
from adjit.graph.registry import registry
from adjit.graph.templates import alone, inquire
from adjit.graph.trace import Trace
from adjit.graph.view import ViewVjp
from adjit.graph.view_cache import CachedView
from adjit.schedule import plan_cache, settle
from adjit.schedule.jit import native
from adjit.schedule.planning.recipe import Recipe
from adjit.unknown import Inquiry, UnknownNumber, bounds_of, cached, text_of, through, whole

F = adjit.nn.functional


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before."""
    elementwise_recorder()  # which is made when it is called
    for family in native.families:
        assert family.load(compiling=True)


# ----- unknown numbers -----

BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "<<": lambda a, b: a << b % 5, ">>": lambda a, b: a >> b,
    "&": operator.and_, "|": operator.or_, "max": max, "min": min, "divmod": lambda a, b: sum(divmod(a, b)),
}  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


def computed(steps, numbers):
    """What some operations make of numbers, one after the other; comparisons decide which way they go."""
    values = [*numbers, 0, 1, 7]
    for symbol, a, b in steps:
        a, b = values[a % len(values)], values[b % len(values)]
        if isinstance(a, float) or isinstance(b, float):
            continue
        try:
            found = BINARY[symbol](a, b)
        except (ZeroDivisionError, ValueError):
            continue
        values.append(a * 3 - 1 if found is True else -b if found is False else found)
    return values


@settings(max_examples=300, deadline=None)
@given(
    STEPS,
    st.lists(st.integers(-9, 40), min_size=3, max_size=3),
    st.lists(st.integers(-9, 40), min_size=3, max_size=3),
)
def test_lines_give_what_python_gives_of_all_numbers_that_meet_the_conditions(
    steps, example, others
):
    with Inquiry() as inquiry:
        unknown = [inquiry.number(f"n{k}", value) for k, value in enumerate(example)]
        made = computed(steps, unknown)
    text = "\n    ".join([*inquiry.lines, f"return [{', '.join(map(text_of, made))}]"])
    names = {}
    exec(f"def again(n0, n1, n2):\n    {text}", names)
    assert names["again"](*example) == computed(steps, example)  # whose conditions they are
    found = names["again"](*others)
    if found is not None:
        wanted = computed(steps, others)
        assert found == wanted
        assert [*map(type, found)] == [*map(type, wanted)]


LOOKS = {
    "index": lambda n: range(n)[0], "hash": lambda n: {4: "four"}.get(n), "int": int, "float": float,
    "text": str, "format": lambda n: f"{n:3}", "repr": repr, "set": lambda n: n in {1, 2},
    "slice": lambda n: "abcdef"[:n], "times": lambda n: (0,) * n,
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_whatever_looks_at_a_number_makes_its_value_a_condition(look):
    with Inquiry() as inquiry:
        n = inquiry.number("n0", 4)
        assert look(n) == look(4)
    assert inquiry.lines == ["if not (n0 == 4): return None"]
    assert inquiry.fixes({"n0": 4})
    assert not inquiry.fixes({"n0": 5})


def test_an_unknown_number_is_an_int_to_those_who_ask():
    with Inquiry() as inquiry:
        n = inquiry.number("n0", 4)
        assert n.__class__ is int
        assert isinstance(n, int)
        assert whole(n) is n
        assert type(n) is UnknownNumber
        assert isinstance(n / 2, float)
        assert not inquiry.lines[1:]
        with pytest.raises(TypeError, match="class of its value"):
            n.__class__ = float
        with pytest.raises(TypeError):
            n + "a"


BOUND = st.none() | st.integers(-12, 12)


SLICE = st.tuples(st.integers(0, 9), BOUND, BOUND)


@given(SLICE, SLICE, st.sampled_from([None, 1, 2, 3]))
def test_bounds_of_slices_are_those_of_python(example, again, step):
    """Where one of them is unknown, for all numbers that meet the conditions."""
    given = [k for k in range(3) if example[k] is not None and again[k] is not None]
    with Inquiry() as inquiry:
        values = [inquiry.number(f"n{k}", n) if k in given else n for k, n in enumerate(example)]
        made = bounds_of(slice(values[1], values[2], step), values[0])
    text = "\n    ".join([*inquiry.lines, f"return ({', '.join(map(text_of, made))},)"])
    names = {}
    exec(f"def template(n0, n1, n2):\n    {text}", names)
    for numbers in (example, [again[k] if k in given else example[k] for k in range(3)]):
        found = names["template"](*numbers)
        assert found in (None, slice(numbers[1], numbers[2], step).indices(numbers[0]))
        assert found is not None or numbers is not example


def test_bounds_of_slices_backwards_have_to_be_known():
    assert bounds_of(slice(None, None, -1), 5) == (4, -1, -1)
    with Inquiry() as inquiry, pytest.raises(ValueError, match="only steps forward are known"):
        bounds_of(slice(None, None, -1), inquiry.number("n0", 5))


def test_numbers_of_two_inquiries_do_not_meet():
    with Inquiry() as first, Inquiry() as second:
        a, b = first.number("n0", 4), second.number("n0", 4)
        assert a != b
        for meet in (operator.add, operator.sub, operator.floordiv, operator.lt, max):
            with pytest.raises(RuntimeError, match="outlived its inquiry"):
                meet(a, b)
    assert first.lines == second.lines == []


def test_functions_of_unknown_numbers_are_called_later():
    with Inquiry() as inquiry:
        made = through(lambda n: n.bit_length(), inquiry.number("n0", 4))
    names = dict(inquiry.functions)
    exec(f"def again(n0):\n    {inquiry.lines[0]}\n    return {text_of(made)}", names)
    assert [names["again"](n) for n in (4, 100)] == [3, 7]
    assert through(abs, -4) == 4


def test_what_outlives_its_inquiry_says_so_and_is_in_no_cache():
    calls = []

    @cached(8)
    def squared(n):
        calls.append(n)
        return n * n

    with Inquiry() as inquiry:
        n = inquiry.number("n0", 4)
        squared(n)
        squared(n)
        kept = {n: 1}
    assert len(calls) == 2
    assert squared(4) == squared(4) == 16
    assert len(calls) == 3
    assert 4 not in kept
    assert n != 4
    for use in (lambda: n + 1, lambda: n < 3, lambda: -n, lambda: int(n), lambda: bool(n)):
        with pytest.raises(RuntimeError, match="outlived its inquiry"):
            use()


def test_other_threads_do_not_meet_unknown_numbers():
    found = []
    with Inquiry() as inquiry:
        n = inquiry.number("n0", 4)
        thread = threading.Thread(target=lambda: found.extend((n == 4, adjit.ones(4).tolist())))
        thread.start()
        thread.join()
    assert found == [False, [1.0] * 4]


# ----- calls -----


def leaf(*shape):
    torch = np.random.default_rng(sum(shape) + len(shape))
    return adjit.tensor(torch.standard_normal(shape).astype(np.float32), requires_grad=True)


def places(n, most):
    return adjit.tensor(np.random.default_rng(n).integers(0, most, n))


W, V, B = leaf(6, 5), leaf(6), leaf(5)
CALLS = {
    "a number": lambda x, n: x * 2.5 + 1,
    "a row": lambda x, n: x + V,
    "a column": lambda x, n: x / (1 + x[:, :1].abs()),
    "both sides": lambda x, n: x * x.sin() + x.exp(),
    "an integer": lambda x, n: (x * 10).to(adjit.int64) // 3,
    "where": lambda x, n: adjit.where(x > 0, x, 0.0),
    "sum": lambda x, n: x.sum(),
    "sum of columns": lambda x, n: x.sum(0),
    "sum of rows": lambda x, n: x.sum(1, keepdim=True),
    "mean": lambda x, n: x.mean(0) * x.mean(),
    "variance": lambda x, n: x.var(0, unbiased=False),
    "norm": lambda x, n: x.norm(dim=1),
    "largest": lambda x, n: x.max(1)[0] + x.min(1).values,
    "softmax": lambda x, n: x.softmax(-1),
    "softmax of columns": lambda x, n: x.softmax(0),
    "logsumexp": lambda x, n: x.logsumexp(1),
    "layer norm": lambda x, n: F.layer_norm(x, (6,), V),
    "batch norm": lambda x, n: F.batch_norm(adjit.cat([x, 2 * x]), None, None, V, V, training=True),
    "product": lambda x, n: x @ W,
    "product from the left": lambda x, n: x.t() @ x,
    "product with itself": lambda x, n: x @ x.t(),
    "linear": lambda x, n: F.linear(x, W.t(), B).relu(),
    "vector": lambda x, n: x @ V,
    "batch of products": lambda x, n: (x[:, :, None] @ x[:, None, :]).sum(0),
    "rows": lambda x, n: x[places(2 * n, n)],
    "rows added": lambda x, n: adjit.zeros(4, 6).index_add(0, places(n, 4), x),
    "rows of a table": lambda x, n: F.embedding(places(n, 6), W) * x[:, :5],
    "gather": lambda x, n: x.gather(1, places(n, 6)[:, None]),
    "scatter": lambda x, n: adjit.zeros(n, 6).scatter_add(1, places(n, 6)[:, None], x[:, :1]),
    "a mask": lambda x, n: x.masked_fill(x > 1, -1.0),
    "cat": lambda x, n: adjit.cat([x, x[: n // 2 + 1]]),
    "stack": lambda x, n: adjit.stack([x, 2 * x], 1),
    "slices": lambda x, n: x[: n // 2 + 1] * x[-(n // 2 + 1) :],
    "one row": lambda x, n: x[n - 1] + x[0],
    "view": lambda x, n: x.view(n * 3, 2) * 2,
    "reshape": lambda x, n: x.t().reshape(-1) * 3,
    "new axes": lambda x, n: (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1),
    "expand": lambda x, n: x[:, :1].expand(n, 6) * x,
    "transposed": lambda x, n: x.t().contiguous().tanh(),
    "flip": lambda x, n: x.flip(0),
    "repeat": lambda x, n: x.repeat(2, 1),
    "chunks": lambda x, n: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
    "cumsum": lambda x, n: x.cumsum(0),
    "sorted": lambda x, n: x.sort(0).values,
    "topk": lambda x, n: x.topk(2, 1).values,
    "tril": lambda x, n: (x @ x.t()).tril(),
    "cross entropy": lambda x, n: F.cross_entropy(x, places(n, 6)),
    "mse": lambda x, n: F.mse_loss(x, x.detach() * 0.5),
    "pad": lambda x, n: F.pad(x, (1, 2)),
    "a write": lambda x, n: x.clone().mul_(2).add_(1),
    "a written slice": lambda x, n: x.clone().index_fill(0, places(n, n)[:1], 3.0),
    "attention": lambda x, n: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0],
    "pooled": lambda x, n: F.avg_pool1d(x.t()[None], 1)[0],
    "one hot": lambda x, n: F.one_hot(places(n, 5), 6) * x,
    "arange": lambda x, n: x * adjit.arange(n)[:, None],
    "ones": lambda x, n: x * adjit.ones(n, 6) + adjit.full((n, 1), 2.0),
    "einsum": lambda x, n: adjit.einsum("ij,jk->ik", x, W),
}  # fmt: skip
SIZES = [30, 41, 17, 16, 1, 2, 3, 5, 8, 64, 100, 333, 1200]


def results(call, n):
    """A result and the gradients of its squares."""
    x = leaf(n, 6)
    W.grad = V.grad = B.grad = None
    out = call(x, n)
    found = [out.detach().numpy().copy()]
    if out.requires_grad:
        out.square().sum().backward()
        found += [None if t.grad is None else t.grad.numpy().copy() for t in (x, W, V, B)]
    return found


def forget():
    """Have every call be looked at anew."""
    library.forget_recipes()  # and what factories know
    for op in registry.values():
        for known in ("calls", "op_records", "sizes"):
            getattr(op, known, {}).clear()


@pytest.mark.parametrize("name", CALLS)
def test_templates_make_what_is_made_directly(name):
    call = CALLS[name]
    forget()
    with templates.checked() as counts:
        counts.clear()
        found = [results(call, n) for n in SIZES]
        assert counts["used"] >= 5, counts  # few, where other tests have made the same
    for n, one in zip(SIZES, found, strict=True):
        forget()
        wanted = results(call, n)
        for a, b in zip(one, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a, b, err_msg=f"{name} of {n} rows")


# What is looked at anew for each size, and why.
ANEW = {
    "attention": "x[None, None] is two views, made one by one",
    "pooled": "its result has the order of axes that its input has",
}  # fmt: skip
OFTEN = [17 + 7 * k for k in range(70)]


@pytest.mark.parametrize("name", CALLS)
def test_templates_are_for_most_sizes(name, monkeypatch):
    asked, given, inside = Counter(), Counter(), []
    original, by_template = other_sizes.Family.made, other_sizes.Family.made_by_template

    def made(family, numbers, make):
        inside.append(family)
        found = original(family, numbers, make)
        inside.pop()
        asked[family] += 1
        given[family] += found is not None
        return found

    def made_by_template(family, numbers):
        found = by_template(family, numbers)
        if found is not None and not inside:
            asked[family] += 1
            given[family] += 1
        return found

    forget()
    monkeypatch.setattr(other_sizes.Family, "made", made)
    monkeypatch.setattr(other_sizes.Family, "made_by_template", made_by_template)
    with templates.watched():
        for n in OFTEN:
            results(CALLS[name], n)
    often = [family for family, count in asked.items() if count > len(OFTEN) // 2]
    few = [
        (asked[f], given[f], f.met[-1], f.templates) for f in often if given[f] < 0.75 * asked[f]
    ]
    assert bool(few) == (name in ANEW), few


def test_a_template_is_made_once_some_sizes_were_looked_at_one_by_one():
    forget()
    op = registry["sin"]
    made = []
    for n in range(50, 50 + 3 * other_sizes.ENOUGH):
        assert adjit.zeros(n, 2).sin().sum().item() == 0
        made.append(sum(len(family.templates) for family in op.sizes.families.values()))
    assert made[: other_sizes.ENOUGH] == [0] * other_sizes.ENOUGH
    assert made[other_sizes.ENOUGH :] == [1] * (2 * other_sizes.ENOUGH)


@pytest.mark.parametrize("name", CALLS)
def test_what_was_recorded_for_all_of_a_memory_holds_for_a_part_of_it(name):
    """What a call records follows from specs, which do not say where in its memory a tensor begins."""

    def outcome(part):
        W.grad = V.grad = B.grad = None
        whole = np.random.default_rng(4).standard_normal((21, 6)).astype(np.float32)
        x = adjit.tensor(whole[7:14]) if part is None else adjit.tensor(whole)[part]
        x = x.detach().requires_grad_()
        assert x.storage_offset() == (0 if part is None else 42)
        y = adjit.cat([x * 2, CALLS[name](x, 7).reshape(-1, 1).expand(-1, 6)])
        y.backward(adjit.arange(y.numel()).reshape(y.shape) * 0.125)
        grads = [None if t.grad is None else t.grad.tolist() for t in (x, W, V, B)]
        return y.tolist(), grads

    forget()
    first = [outcome(None) for _ in range(4)]
    assert first[1:] == first[:-1]
    for _ in range(4):
        assert outcome(slice(7, 14)) == first[0]


DRAWS = {
    "dropout": lambda n: F.dropout(adjit.ones(n, 8), 0.5), "rand": lambda n: adjit.rand(n, 3),
    "randn": lambda n: adjit.randn(n, 3), "bernoulli": lambda n: adjit.bernoulli(adjit.full((n, 3), 0.5)),
    "randint": lambda n: adjit.randint(0, 9, (n,)),
}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_of_other_sizes_go_on_in_the_stream(draw, monkeypatch):
    def drawn():
        forget()
        adjit.manual_seed(3)
        return [draw(n).tolist() for n in (20, 21, 22, 300, 23, 20, 24)]

    with templates.checked() as counts:
        counts.clear()
        found = drawn()
        assert counts["used"] >= 4
    monkeypatch.setattr(other_sizes.Family, "made", lambda *call: None)
    with templates.watched():
        assert found == drawn()


def test_errors_are_those_of_calls_that_come_first():
    forget()
    with templates.checked():
        for n in (4, 5, 6, 7):
            (adjit.ones(n, 3) @ adjit.ones(3, n)).tolist()
            (adjit.ones(n, 3) + adjit.ones(n, 3)).tolist()
            adjit.ones(n, 3)[adjit.tensor([n - 1])].tolist()
        with pytest.raises(
            RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(8x3 and 4x8\)"
        ):
            adjit.ones(8, 3) @ adjit.ones(4, 8)
        with pytest.raises(
            RuntimeError, match=r"tensor a \(3\) must match the size of tensor b \(2\)"
        ):
            adjit.ones(9, 3) + adjit.ones(9, 2)
        with pytest.raises(
            IndexError, match="index 9 is out of bounds for dimension 0 with size 9"
        ):
            adjit.ones(9, 3)[adjit.tensor([9])].tolist()


def test_an_inquiry_leaves_nothing_behind():
    forget()
    settle.settle()
    with templates.checked() as counts:
        counts.clear()
        for n in (4, 5, 6, 7):
            adjit.cat([adjit.ones(n, 3), adjit.ones(n, 3)], 1).softmax(1)
        assert counts["made"]
        settle.settle()
        assert not settle.pending
    spec = adjit.ones(3)._spec
    settle.settle()
    with pytest.raises(ZeroDivisionError):  # whatever refers to what was recorded
        alone(lambda: (other_sizes.stand_in(spec).exp() + 1, 1 / 0))
    assert not settle.pending
    assert not other_sizes.state.careful
    assert not settle.captured_threads
    assert adjit.is_grad_enabled()
    assert adjit.ones(3, requires_grad=True).sin().requires_grad


def test_threads_that_settle_meet_nothing_of_an_inquiry():
    """Its nodes lie among what is pending, and what runs them has numbers that machine code cannot read."""
    forget()
    stop, errors = threading.Event(), []

    def settling():
        x = adjit.ones(50)
        while not stop.is_set():
            try:
                assert ((x + 1) * 2).sum().item() == 200
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=settling) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with templates.checked() as counts:
            counts.clear()
            for _ in range(6):
                forget()
                for n in range(40, 52):
                    x = adjit.ones(n, 3, requires_grad=True)
                    adjit.cat([x, x[:4]], 0).softmax(1).cumsum(0).sum().backward()
            assert counts["made"] > 5
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors


def test_templates_are_code_of_the_library():
    """Captures look for code that they do not know, errors for the line of the user."""
    template = inquire((3,), (4,), lambda numbers: [next(numbers)])
    assert template.function.__code__.co_filename == inquire.__code__.co_filename
    assert template.function.__module__ == inquire.__module__
    calls = adjit.compile(lambda x: (x * 2 + 1).sum())
    with templates.checked():
        for n in range(60, 70):
            assert calls(adjit.ones(n)).item() == 3 * n


def test_a_body_that_does_not_go_on_is_tried_ever_more_rarely():
    calls = []

    def make(numbers):
        calls.append(1)
        return [0] * next(numbers)

    family = other_sizes.Family()
    tried = []
    for n in range(20 * other_sizes.ENOUGH):
        assert family.made((n,), make) is None
        tried += [n] * (len(calls) > len(tried))
    assert tried == [other_sizes.ENOUGH * k for k in (1, 2, 4, 8, 16)]
    assert not family.templates


def test_what_may_hide_a_size_is_in_no_template():
    class Opaque:
        def __init__(self, n):
            self.n = n

    made = {
        "an object": Opaque, "its method": lambda n: Opaque(n).__init__, "a set": lambda n: {n},
        "a default": lambda n: lambda k=n: k,
    }  # fmt: skip
    for name, make in made.items():
        assert inquire((3,), (4,), lambda numbers, make=make: make(next(numbers))) is None, name
    template = inquire((3,), (4,), lambda numbers: (lambda n: lambda: n + 1)(next(numbers)))
    assert [template.function((n,))() for n in (3, 9)] == [4, 10]


def test_what_came_once_goes_again():
    forget()
    for n in range(500, 560):
        (adjit.ones(n, 3) * adjit.ones(n, 3)).sum(0).tolist()

    def kept():
        gc.collect()
        return sum(type(o) in (Recipe, Trace, OpRecord) for o in gc.get_objects())

    before = kept()
    plan_cache.clear()
    for n in range(1000, 1400):
        (adjit.ones(n, 3) * adjit.ones(n, 3)).sum(0).tolist()
    assert kept() - before < 400  # of 400 products, copies and sums
    assert len(registry["mul"].op_records) <= 2 * other_sizes.MOST_MADE
    assert len(node.made_once.items) <= node.made_once.most
    assert len(plan_cache.entries) < 100


def test_a_size_that_comes_back_is_planned_as_any():
    forget()
    with templates.checked():
        for n in (70, 71, 72):
            (adjit.ones(n) * 2 + 1).sum().item()
        seen = [adjit.ones(73).sin() for _ in range(3)]
        recipes = {id(t._storage.value.recipe) for t in seen}
    assert len(recipes) == 1


@pytest.mark.parametrize("decorate", [normalizes, composed])
def test_functions_in_front_of_ops_have_templates_of_their_own(decorate):
    """Once these are there, nothing of such a function runs, nor of what the op does for other sizes."""
    calls = []

    @operation("ScaledBackward0")
    def scaled(x, factor):
        return x * factor

    @scaled.vjp
    def _(g, factor):
        return g * factor

    @decorate
    def by_default(x):
        calls.append(1)
        return scaled.on(x, 2.0 if adjit.get_default_dtype() is adjit.float32 else 3.0)

    def results(n):
        x = adjit.ones(n, requires_grad=True)
        y = by_default(x)
        y.sum().backward()
        assert y.grad_fn.name() == "ScaledBackward0"
        assert adjit.equal(by_default(x.detach()), y.detach())
        return set(y.tolist() + x.grad.tolist())

    run = []
    for n in range(50, 50 + 3 * other_sizes.ENOUGH):
        assert results(n) == {2.0}
        run.append(len(calls))
    assert run[-1] == run[-other_sizes.ENOUGH]
    adjit.set_default_dtype(adjit.float64)
    try:
        for n in range(100, 100 + 2 * other_sizes.ENOUGH):
            x = adjit.ones(n, dtype=adjit.float32, requires_grad=n % 2 == 0)
            assert set(by_default(x).tolist()) == {3.0}
    finally:
        adjit.set_default_dtype(adjit.float32)
    assert results(200) == {2.0}


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_tensor_may_come_twice(is_turned):
    """Templates are of operands that differ; a function that turns them gets none."""

    @operation("DifferenceBackward0")
    def difference(x, y):
        return x - 2 * y

    @difference.vjp
    def _(g):
        return g, -2 * g

    @normalizes
    def made(x, y):
        return difference.on(y, x) if is_turned else difference.on(x, y)

    for n in range(60, 60 + 3 * other_sizes.ENOUGH):
        x, y = adjit.full((n,), 5.0, requires_grad=True), adjit.ones(n, requires_grad=True)
        made(*((y, x) if is_turned else (x, y))).sum().backward()
        assert (x.grad == 1).all()
        assert (y.grad == -2).all()
        x.grad = None
        made(x, x).sum().backward()
        assert (x.grad == -1).all()
        assert (made(x, x).detach() == -5).all()
        assert (made(x.detach(), y.detach()) == (1 - 10 if is_turned else 5 - 2)).all()


def recipes_in(thing):
    """The recipes that a template has made, somewhere in an object."""
    waiting, seen = [thing], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, types.FunctionType, types.ModuleType)):
            continue
        seen.add(id(one))
        if isinstance(one, Recipe) and one.is_resized:
            yield one
        if isinstance(
            one, (Recipe, OpRecord, OperationCall, Trace, ViewVjp, CachedView, tuple, list)
        ):
            waiting += gc.get_referents(one)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", CALLS)
def test_what_templates_made_goes_without_the_collector(name, monkeypatch):
    """It does not see the parts, so no cycle may go through them."""
    made, original = weakref.WeakSet(), other_sizes.first_made

    def watched(*given):
        found = original(*given)
        made.update(recipes_in(found))
        return found

    monkeypatch.setattr(other_sizes, "first_made", watched)
    dtypes_changed = [adjit.float64, adjit.float32]
    gc.collect()
    gc.disable()
    try:
        with templates.watched():
            for n in range(600, 600 + 3 * other_sizes.ENOUGH):
                results(CALLS[name], n)
        settle.settle(everything=True)
        seen = sum(map(gc.is_tracked, made))
        assert made
        assert seen <= len(made) // 8, "those that are their own alias"
        for kind in dtypes_changed:  # all that was known is forgotten
            adjit.set_default_dtype(kind)
        forget_calls()
        plan_cache.clear()
        for views in view_cache._views._functions:
            views.context.cached.clear()
        engine._unbroadcast_traces.clear()
        assert not [recipe for recipe in made if recipe.alias is not recipe]
    finally:
        gc.enable()
    gc.collect()
    assert not made


def test_nothing_is_learned_of_what_calls_no_op(monkeypatch):
    """Each call of such a function comes to Python, and is not to pay for it."""
    calls, original = [], normalized.learn_call

    def learn_call(*given):
        calls.append(given[2].__name__)
        return original(*given)

    monkeypatch.setattr(normalized, "learn_call", learn_call)
    x, w = adjit.ones(5), adjit.ones(4, 5)
    for _ in range(3):
        F.linear(x, w)
    calls.clear()
    for _ in range(5):
        F.linear(x, w)
        x @ w.t()
    assert calls.count("linear") == 0
    assert calls.count("matmul") <= 1
    assert F.linear(x[None], w).shape == (1, 4)  # of another spec there may be


def test_memory_whose_order_the_library_chose_goes_again_too():
    """Specs without a form are told apart as well."""
    x = adjit.ones(2, 8, 6, 6)
    weight = adjit.ones(8, 8, 3, 3)
    found = F.conv2d(x, weight)
    if not found._spec.chosen:
        pytest.skip("convolutions choose no order here")
    record.met.clear()
    kept = other_sizes.OtherSizes()
    entries = {}
    for n in range(2, 2 + 2 * record.MOST_MET_ONCE):
        spec = F.conv2d(adjit.ones(1, 8, n % 40 + 4, n // 40 + 4), weight)._spec
        entries[spec] = n
        kept.keep(entries, spec, "an op")
    assert len(entries) <= record.MOST_MET_ONCE


MADE_IN_MACHINE_CODE = {
    "one": lambda x: x.exp(), "two": lambda x: x * x, "number": lambda x: x * 2.5, "before": lambda x: 2.5 - x,
    "write": lambda x: x.clone().mul_(2.5), "attributes": lambda x: x.clamp(-1.0, 1.0),
    "three": lambda x: adjit.where(x > 0, x, x), "choice": lambda x: x.add(x, alpha=3.0),
}  # fmt: skip


@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "graded"])
@pytest.mark.parametrize("call", MADE_IN_MACHINE_CODE.values(), ids=MADE_IN_MACHINE_CODE)
def test_machine_code_asks_templates_itself(call, requires_grad, monkeypatch):
    """Python's `elementwise` is not there for sizes of which a template makes what is to be known."""
    for size in range(2000, 2000 + 3 * other_sizes.ENOUGH):
        call(adjit.ones(size, requires_grad=requires_grad))
    x = np.linspace(-2.0, 2.0, 2500, dtype=np.float32)
    fresh = adjit.tensor(x, requires_grad=requires_grad)

    def refuse(*args):
        raise AssertionError(f"planned in Python: {args}")

    with monkeypatch.context() as patch:
        patch.setattr(elementwise_record, "plan", refuse)
        out = call(fresh)
    adjit.testing.assert_close(out.detach(), call(adjit.tensor(x.copy())))
    assert out.requires_grad is requires_grad


def test_an_interrupt_in_a_template_is_told(monkeypatch):
    """Machine code passes on what Python raises while it looks for a template."""

    def interrupted(*args):
        raise KeyboardInterrupt

    weight = adjit.ones(3, 3, requires_grad=True)
    for n in range(2000, 2000 + 3 * other_sizes.ENOUGH):
        F.linear(adjit.ones(n, 3), weight)
    monkeypatch.setattr(operation_module.Operation, "knows_saves", interrupted)
    with pytest.raises(KeyboardInterrupt):
        F.linear(adjit.ones(2501, 3), weight)
    monkeypatch.undo()
    assert F.linear(adjit.ones(2501, 3), weight).sum().item() == 2501 * 9
