"""Machine code that works on the interpreter's objects does what its twins in Python do."""

import gc
import os
import re
import subprocess
import sys
import weakref
from array import array
from functools import partial
from itertools import product

import numpy as np
import pytest

import adjit as T
from adjit.autograd import engine
from adjit.graph import record, recorder
from adjit.ops import activations, arithmetic, comparison, transcendental
from adjit.schedule import hot, native, structure
from adjit.schedule import settle as scheduling
from adjit.storage import Storage

pytestmark = pytest.mark.skipif(not native.is_supported, reason="another interpreter")


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before."""
    for family in native.families:
        assert family.load(compiling=True)


@pytest.fixture(autouse=True)
def clean():
    scheduling.settle()
    yield
    scheduling.settle()


# ----- recording -----


def leaf():
    return T.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)


def used(x):
    x.kept = x * 1  # its accumulator stays
    return x


def written_base():
    base = leaf() * 1
    view = base[0]
    base.mul_(2)
    return view


def under(mode, make):
    with mode:
        return make()


class Mine(T.Tensor):
    pass


TENSORS = {
    "plain": lambda: T.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "leaf": leaf,
    "used leaf": lambda: used(leaf()),
    "result": lambda: leaf() * 2,
    "detached": lambda: (leaf() * 2).detach(),
    "data": lambda: (leaf() * 2).data,
    "parameter": lambda: T.nn.Parameter(T.ones(2, 3)),
    "row": lambda: T.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])[1],
    "row of a leaf": lambda: leaf()[1],
    "row of a result": lambda: (leaf() * 2)[1],
    "view without gradients": lambda: under(T.no_grad(), lambda: leaf()[0]),
    "view of a written base": written_base,
    "turned": lambda: T.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).t(),
    "double": lambda: T.ones(2, 3, dtype=T.float64),
    "whole numbers": lambda: T.tensor([[1, 2, 3], [4, 5, 6]]),
    "truth": lambda: T.tensor([True, False, True]),
    "scalar": lambda: T.tensor(2.5),
    "shared": lambda: T.from_numpy(np.ones((2, 3), np.float32)),
    "inference": lambda: under(T.inference_mode(), lambda: T.ones(2, 3)),
    "empty": lambda: T.ones(0, 3),
}
NUMBERS = {
    "half": 0.5, "three": 3, "minus one": -1.0, "true": True, "big": 1 << 40, "huge": 10**400,
    "nan": float("nan"), "numpy": np.float32(1.5), "zero": 0, "text": "2", "none": None,
}  # fmt: skip
BINARY = [
    arithmetic.mul, arithmetic.total, arithmetic.difference, arithmetic.quotient, comparison.gt,
    arithmetic.from_number, transcendental.atan2,
]  # fmt: skip
UNARY = [transcendental.exp, transcendental.sigmoid, arithmetic.neg, activations.relu]


def described(t, operands=()):
    """Everything that recording decides; operands and what belongs to them by their place."""
    names = {}
    for k, x in enumerate(operands):
        if isinstance(x, T.Tensor):
            parts = {"operand": x, "cell": x.storage, "value": x.storage.value}
            names |= {id(part): f"{name} {k}" for name, part in parts.items()}
    names[id(t.storage)] = "result"
    node = t.storage.value
    fn = t.edge and t.edge[0]
    history = None
    if fn is not None:
        edges = [
            e and (type(e[0]).__name__, names.get(id(getattr(e[0], "variable", None))), e[1])
            for e in fn.edges
        ]
        history = (
            type(fn), fn.op, fn.recipe, edges, fn.inputs, fn.outputs, type(fn.saved), fn.mask, fn.scalars,
            fn.extras, t.edge[1], [names.get(id(kept)) for kept in fn.saved[::2]], fn.saved[1::2],
        )  # fmt: skip
    return (
        type(t), t.spec, t.offset, t.needs_grad, t.view_of, t.counter is t.storage, t.storage.version,
        t.storage.shared, t.storage.spec, node.recipe, node.scalars, node.offsets, history,
        node.inputs and [names.get(id(value)) for value in node.inputs], t.meta,
    )  # fmt: skip


def outcome(f, *args):
    """What a call records, or its error."""
    before = len(scheduling.tape)
    try:
        found = f(*args)
    except Exception as error:
        return type(error), str(error)
    if found is NotImplemented:
        return found
    return described(found, args), len(scheduling.tape) - before


def both(op, *makers):
    """What the machine code does, and what its twin does, each on operands of its own."""
    twin = {1: record.unary_recorder, 2: record.binary_recorder}[op.arity](op)
    outcome(twin, *[make() for make in makers])  # makes the recipe
    found = outcome(recorder.compiled(op, twin), *[make() for make in makers])
    return found, outcome(twin, *[make() for make in makers])


OPERANDS = TENSORS | {name: partial(lambda number: number, n) for name, n in NUMBERS.items()}


@pytest.mark.parametrize("graded", [True, False])
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_binary_recorders_agree(op, graded):
    for a, b in product(OPERANDS, OPERANDS):
        if a in TENSORS or b in TENSORS:
            with T.set_grad_enabled(graded):
                found, expected = both(op, OPERANDS[a], OPERANDS[b])
            assert found == expected, (a, b)


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
@pytest.mark.parametrize("a", TENSORS)
def test_unary_recorders_agree(op, a):
    found, expected = both(op, TENSORS[a])
    assert found == expected


def test_an_operand_may_come_twice():
    x = TENSORS["result"]()
    found, expected = both(arithmetic.mul, lambda: x, lambda: x)
    assert found == expected


@pytest.mark.parametrize("mode", [T.no_grad, T.inference_mode, T.enable_grad])
def test_recorders_agree_in_modes(mode):
    x = leaf()
    with mode():
        found, expected = both(arithmetic.mul, lambda: x, leaf)
    assert found == expected


def test_a_recorder_does_not_need_its_twin():
    mul = arithmetic.mul

    def refuse(*_):
        raise AssertionError("the twin was called")

    x = leaf()
    kept = x * 1.0
    assert (x * x * 2.0 + kept * x).shape == x.shape  # recipes and accumulator are known
    fast = recorder.compiled(mul, refuse)
    assert described(fast(x, x)) == described(x * x)
    assert described(fast(x, 2.0)) == described(x * 2.0)
    assert described(fast(kept, x)) == described(kept * x)
    with pytest.raises(AssertionError, match="the twin was called"):
        fast(x, "2")
    with pytest.raises(AssertionError, match="the twin was called"):
        fast(x)


def test_functions_look_like_functions():
    method = T.Tensor.exp
    assert "exp" in repr(method) or "compiled" in repr(method)
    assert method.__doc__ == T.exp.__doc__
    assert T.ones(2).exp.__self__.shape == (2,)
    assert T.ones(2).mul(other=T.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError):
        T.ones(2).exp(1, 2)


def test_a_full_tape_is_settled(monkeypatch):
    x = T.ones(3)
    for _ in range(5 * scheduling.MAX_PENDING):
        x = x * 1.0
    assert len(scheduling.tape) < scheduling.MAX_PENDING
    assert x.tolist() == [1, 1, 1]


def test_machine_code_that_cannot_be_loaded_leaves_the_work_to_its_twin(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no compiler")

    hot.wait()  # nothing else is being compiled
    family = native.Family("recorder", "record")
    monkeypatch.setattr(native, "families", [family])
    monkeypatch.setattr(native, "is_wanted", True)
    monkeypatch.setattr(native.cache, "address_of", refuse)
    x = T.ones(3) * 2
    with pytest.warns(
        RuntimeWarning, match=r"could not load recorder.record \(OSError: no compiler\)"
    ):
        assert x.tolist() == [2, 2, 2]  # nothing that was recorded is lost
    assert family.function(lambda: 7, ())() == 7


# ----- structures -----


def checked_reads(monkeypatch):
    """Compare every structure that the machine code reads with its twin's."""
    compiled, seen = structure._read, []

    def read(batch):
        found = compiled(batch)
        expected = structure.read(batch)
        assert array("q", found[0]) == array("q", expected[0])
        assert found[1] == expected[1]
        seen.append(found[0])
        return found

    drop = scheduling._drop_unwanted
    monkeypatch.setattr(structure, "_read", read)
    monkeypatch.setattr(scheduling, "_drop_unwanted", lambda batch: drop(batch) or 1 << 30)
    return seen


def program(rng, x, w):
    """A random program of plain ops, views, writes, values that are dropped and values kept."""
    values, kept = [x, w, x * w], []
    for _ in range(int(rng.integers(3, 25))):
        a, b = (values[int(k)] for k in rng.integers(len(values), size=2))
        made = [
            lambda a, b: a * b, lambda a, b: a + b, lambda a, b: (a - b).sigmoid(), lambda a, b: a * 0.5,
            lambda a, b: 2 - b, lambda a, b: a[1:].sum() * b, lambda a, b: a.exp().log1p() + a,
            lambda a, b: T.where(a > b, a, b), lambda a, b: (a.clone().mul_(0.5) + b).tanh(),
            lambda a, b: a + b[:1], lambda a, b: a.max(0).values + b,
            lambda a, b: a.t().chunk(3)[1].t() + (b * 2).chunk(3, 1)[2].sigmoid() * b,
        ][int(rng.integers(12))](a, b)  # fmt: skip
        values.append(made)
        if rng.random() < 0.2:
            kept.append(made)
        if rng.random() < 0.2:
            del values[int(rng.integers(2, len(values)))]
        if len(values) < 3:
            values.append(x * 2)
    return values[-1], kept


@pytest.mark.parametrize("seed", range(12))
def test_structures_agree(seed, monkeypatch):
    seen = checked_reads(monkeypatch)
    for _ in range(3):
        rng = np.random.default_rng(seed)
        x = T.tensor(rng.standard_normal((4, 3)).astype(np.float32), requires_grad=True)
        w = T.tensor(rng.standard_normal((4, 3)).astype(np.float32), requires_grad=True)
        out, kept = program(rng, x, w)
        out.sum().backward()
        with T.no_grad():
            w -= 0.1 if w.grad is None else 0.1 * w.grad
            w.mul_(0.5)
        [k.tolist() for k in kept]
        w.tolist()
    assert len(seen) >= 3


def test_structures_with_offsets_and_shared_memory_agree(monkeypatch):
    seen = checked_reads(monkeypatch)
    table = T.arange(60.0).reshape(20, 3)
    array_ = np.ones(3, np.float32)
    total = T.zeros(3)
    for row in range(20):
        total = total + table[row] * table[(7 * row) % 20]
    assert total.sum().item() > 0
    total.add_(T.from_numpy(array_))
    total.mul_(2)
    assert np.allclose(
        total.numpy(), 2 * (table.numpy() * table.numpy()[(7 * np.arange(20)) % 20]).sum(0) + 2
    )
    assert seen


# ----- the walk -----


def recorded(walk):
    """The nodes that a walk back leaves, by what tells them apart."""
    scheduling.settle()
    start = len(scheduling.tape)
    found = walk()
    nodes = scheduling.tape[start:]
    number = {id(node): k for k, node in enumerate(nodes)}
    told = [
        (
            n.recipe.name,
            n.recipe.inputs,
            n.recipe.outputs,
            n.recipe.constants,
            [step.source for step in n.recipe.steps],
            n.scalars,
            [number.get(id(v), id(v)) for v in n.inputs],
            n.offsets,
        )
        for n in nodes
    ]
    return told, [number.get(id(g.storage.value)) for g in found if g is not None]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keep", [False, True])
def test_walks_agree(seed, keep, monkeypatch):
    rng = np.random.default_rng(seed)
    x = T.tensor(rng.standard_normal((4, 3)).astype(np.float32), requires_grad=True)
    w = T.tensor(rng.standard_normal((4, 3)).astype(np.float32), requires_grad=True)
    out = program(rng, x, w)[0].sum()
    monkeypatch.setattr(engine, "settle", lambda: None)

    def walk(keep=True):
        return T.autograd.grad(out, [x, w], retain_graph=keep, allow_unused=True)

    order = [out.grad_fn]
    engine._reach(order, set(order))
    saves = any(fn.saved for fn in order)
    for _ in range(3):  # templates and pullbacks are known after that
        walk()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "advance", engine._advance)
        patch.setattr(engine, "reach", engine._reach)
        expected = recorded(walk)
    assert recorded(lambda: walk(keep)) == expected
    if not keep and saves:
        with pytest.raises(RuntimeError, match="second time"):
            walk()


def test_a_written_value_is_refused():
    x = leaf()
    y = (x * 1).exp()
    z = (y * 2).sin() * y
    z.sum().backward(retain_graph=True)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_gradients_meet_at_several_outputs_of_one_function():
    for _ in range(3):
        x = T.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), requires_grad=True)
        a, b = x.chunk(2)
        (a * b + a * 2 + b.exp() + a * b * a).sum().backward()
        p, q = x.detach().numpy()[:2], x.detach().numpy()[2:]
        expected = np.concatenate([q + 2 + 2 * p * q, p + np.exp(q) + p * p])
        assert np.allclose(x.grad.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("yes", [True, 1])
def test_switches_may_be_any_truth(yes):
    x = leaf()
    y = (x * x.exp()).sum()
    (g,) = T.autograd.grad(y, x, create_graph=yes)
    assert g.requires_grad
    y.backward(retain_graph=yes)
    y.backward()


def test_an_error_in_the_middle_goes_through(monkeypatch):
    x = leaf()
    y = x.exp()
    z = (y + y.sin() * y).sum()
    z.backward(retain_graph=True)
    monkeypatch.setattr(engine.Walk, "meet", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        z.backward(retain_graph=True)
    monkeypatch.undo()
    x.grad = None
    z.backward()
    assert np.allclose(
        x.grad.numpy(), T.autograd.grad((x.exp() + x.exp().sin() * x.exp()).sum(), x)[0].numpy()
    )


# ----- references -----


def test_references_are_counted():
    """What is recorded and walked a thousand times leaves no reference behind, and none too few."""
    x, y = leaf(), T.ones(2, 3)
    z = x * y
    fn, recipe = weakref.ref(z.grad_fn), z.storage.value.recipe
    del z

    def step():
        v = ((x * y + 0.5).exp() * x[1]).sin()
        w = (v + v * 2).sum()
        w.backward()
        x.grad = None

    watched = [
        recipe,
        T.Tensor,
        type(recipe),
        Storage,
        x,
        y,
        x.spec,
        x.storage,
        y.storage.value,
        float,
        (),
    ]
    for _ in range(20):
        step()
    gc.collect()
    before, objects = [sys.getrefcount(w) for w in watched], len(gc.get_objects())
    for _ in range(1000):
        step()
    gc.collect()
    after = [sys.getrefcount(w) for w in watched]
    assert fn() is None
    assert not [
        (w, a - b) for w, a, b in zip(watched, after, before, strict=True) if abs(a - b) > 300
    ]
    assert abs(len(gc.get_objects()) - objects) < 1500


PROGRAM = """
import adjit as T
from adjit.schedule import native
x = T.tensor([1.0, 2.0], requires_grad=True)
for _ in range(30):
    y = (x * 2 + x.exp()).sum()
    x.grad = None
    y.backward()
    y.item()
print(x.grad.tolist(), native.is_supported)
"""


@pytest.mark.parametrize("recorder", ["compiled", "python"])
def test_the_recorder_can_be_chosen(recorder):
    env = {**os.environ, "ADJIT_RECORDER": recorder, "ADJIT_JIT": "sync"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    expected = [4.71828174591064, 9.389056205749512]
    assert np.allclose([float(k) for k in re.findall(r"\d+\.\d+", done.stdout)], expected)
    assert done.stdout.strip().endswith(str(recorder == "compiled"))
