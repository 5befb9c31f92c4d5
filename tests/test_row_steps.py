"""Tables are moved by the rows that their gradients name, with the bits of moving along all rows."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest
from library import putting_off, seen

import adjit as T
from adjit.nn import functional as F
from adjit.ops import steps
from adjit.schedule import deferred
from adjit.storage import SMALL

ROWS = 60


@pytest.fixture(autouse=True)
def everything():
    """Whatever the size."""
    with putting_off():
        yield
    assert not deferred.asked
    gc.collect()
    assert not deferred.tables


LOOKS = {
    "embedding": lambda w, i: F.embedding(i, w),
    "with padding": lambda w, i: F.embedding(i, w, padding_idx=int(i[0])),
    "by frequency": lambda w, i: F.embedding(i, w, scale_grad_by_freq=True),
    "in brackets, from the end": lambda w, i: w[i - ROWS],
    "index_select": lambda w, i: w.index_select(0, i),
    "turned values": lambda w, i: F.embedding(i, w).flip(1),
    "bags": lambda w, i: F.embedding_bag(i.view(-1, 3), w, mode="sum"),
    "bags by offsets": lambda w, i: F.embedding_bag(i, w, T.tensor([0, 3, 3, 7])),
    "indices behind others": lambda w, i: F.embedding(i[2:], w),
    "rows behind others": lambda w, i: T.cat([w.detach()[8:10], F.embedding(i, w)]),
    "looked up twice": lambda w, i: F.embedding(i, w) + F.embedding(i.flip(0), w),
    "looked up three times": lambda w, i: T.cat(
        [F.embedding(i[:5], w), F.embedding(i[3:], w, padding_idx=11), w[i[:3] - ROWS] * 0.0]
    ),
    "rows of one table alone": lambda w, i: T.cat(
        [F.embedding(i, w), F.embedding(T.tensor([5, 8, 5]), w) * -0.0]
    ),
    "as often as can wait": lambda w, i: T.cat([F.embedding(i[k : k + 2], w) for k in range(8)]),
    "once more": lambda w, i: T.cat([F.embedding(i[k : k + 2], w) for k in range(9)]),
    "looked up and read": lambda w, i: F.embedding(i, w) + w[8:9],
    "of another table too": lambda w, i: F.embedding(i, w) + F.embedding(i, w * 2),
}
RUNS = set(LOOKS) - {"once more", "looked up and read", "of another table too"}


def table(width, dtype="float32", rows=ROWS):
    """A parameter, of which some rows would tell if anything was added to them."""
    w = T.tensor(np.random.default_rng(0).standard_normal((rows, width)).astype(dtype))
    w[5], w[6], w[7] = -0.0, float("inf"), float("nan")
    return w.requires_grad_()


def trained(look, width, dtype, lr=0.1, reads=(3,), **options):
    """The bits of a table, of a factor and of gradients after five steps."""
    w, factor = (
        table(width, dtype),
        T.full((width,), 0.7, dtype=getattr(T, dtype), requires_grad=True),
    )
    rng, found = np.random.default_rng(1), []
    moves = T.optim.SGD([w, factor], lr=lr, **options)
    for step in range(5):
        places = T.tensor(rng.integers(8, ROWS, 12 if step % 2 else 9))
        moves.zero_grad()
        (look(w, places) * factor).sin().sum().backward()
        moves.step()
        if step in reads:
            found.append(w.grad)
    found += [w, factor, w.grad]
    return [t.detach().numpy().tobytes() for t in found]


def by_rows(monkeypatch):
    """How many tables have been moved by their rows, counted from now on; a list of one number."""
    count, move = [0], steps.sgd_rows

    def counting(params, tables, numbers):
        count[0] += len(params)
        return move(params, tables, numbers)

    monkeypatch.setattr(steps, "sgd_rows", counting)
    return count


def dense(monkeypatch):
    monkeypatch.setattr(steps, "recorded_tables", lambda *_: {})


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("width", "dtype"), [(1, "float64"), (7, "float32"), (64, "float32"), (100, "float64")]
)
def test_the_bits_are_those_of_moving_all_rows(look, width, dtype, monkeypatch):
    count = by_rows(monkeypatch)
    found = trained(LOOKS[look], width, dtype)
    assert count[0] >= 3 if look in RUNS else True
    dense(monkeypatch)
    assert found == trained(LOOKS[look], width, dtype)


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"maximize": True},
        {"lr": 0.0},
        {"lr": T.tensor(0.1)},
        {"lr": float("inf")},
    ],
    ids=str,
)
def test_steps_that_move_other_rows_too_are_made_along_all(options, monkeypatch):
    count = by_rows(monkeypatch)
    found = trained(LOOKS["embedding"], 5, "float32", **options)
    assert (count[0] > 0) == (options == {"lr": 0.0})
    dense(monkeypatch)
    assert found == trained(LOOKS["embedding"], 5, "float32", **options)


def test_the_table_of_the_gradient_is_never_made(monkeypatch):
    w, places = table(64), T.tensor([9, 11, 9])
    moves = T.optim.SGD([w], lr=0.1)
    for _ in range(6):
        moves.zero_grad()
        lost(places, w).backward()
        moves.step()
    with T.profiler.profile() as profile:
        moves.zero_grad()
        lost(places, w).backward()
        moves.step()
        w.sum().item()
    names = {event.key.rsplit("_float", 1)[0] for event in profile.key_averages()}
    assert {"link_rows", "sgd_rows"} <= {name.rsplit("_int", 1)[0] for name in names}
    assert not names & {"add_to_table", "add_chains", "sgd_step"}
    assert [node.recipe.name for node in deferred.nodes] == ["constant_float", "copy_elements"]
    expected = np.zeros((ROWS, 64), np.float32)
    expected[9], expected[11] = 2, 1
    np.testing.assert_array_equal(w.grad.numpy(), expected)
    assert deferred.nodes == []
    moves.zero_grad()


def lost(places, w):
    """A loss whose gradient is one in every element that is looked up."""
    rows = F.embedding(places, w)
    return (rows * T.ones(rows.shape)).sum()


def waiting(w, places, steps_before=2):
    """An optimiser of a table whose next gradient waits."""
    moves = T.optim.SGD([w], lr=0.5)
    for _ in range(steps_before):
        moves.zero_grad()
        lost(places, w).backward()
        moves.step()
    moves.zero_grad()
    return moves


def test_a_gradient_that_is_looked_at_before_the_step_is_one(monkeypatch):
    w, places = table(3), T.tensor([9, 11, 9])
    moves = waiting(w, places)
    lost(places, w).backward()
    assert deferred.nodes
    assert w.grad[9].tolist() == [2, 2, 2]
    assert deferred.nodes == []
    before = w[9].tolist()
    count = by_rows(monkeypatch)
    moves.step()
    assert not count[0]
    assert w[9].tolist() == [x - 1 for x in before]


def test_gradients_that_were_set_to_zero_wait_too(monkeypatch):
    count = by_rows(monkeypatch)
    w, places = table(3), T.tensor([9, 11, 9])
    moves, before = waiting(w, places), w.detach().clone()
    for _ in range(3):
        moves.zero_grad(set_to_none=False)
        lost(places, w).backward()
        kept = w.grad
        moves.step()
    assert count[0] == 1 + 3
    assert w.grad is kept
    assert (w[9] == before[9] - 1 - 1 - 1).all()
    assert w.grad[9].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "gradient",
    [
        lambda rows: T.full((ROWS, ROWS), 2.0).index_add(0, T.tensor([9]), rows),
        lambda rows: T.zeros(ROWS, ROWS).index_add(0, T.tensor([9]), rows).t(),
        lambda rows: T.zeros(2 * ROWS, ROWS).index_add(0, T.tensor([9]), rows)[4 : 4 + ROWS],
        lambda rows: T.zeros(2 * ROWS, ROWS).index_add(0, T.tensor([9]), rows)[:ROWS],
        lambda rows: T.zeros(ROWS, ROWS).index_add(1, T.tensor([9]), rows.t()),
        lambda rows: T.zeros(ROWS, ROWS).index_copy(0, T.tensor([9]), rows),
    ],
)
def test_what_only_looks_like_a_table_is_none(gradient):
    w, rows = table(ROWS), T.arange(1.0, ROWS + 1).view(1, ROWS)
    expected = w.detach().numpy() - 0.5 * gradient(rows).numpy()
    w.grad = gradient(rows)
    T.optim.SGD([w], lr=0.5).step()
    np.testing.assert_array_equal(w.detach().numpy(), expected)


ADDED = {
    "index_add": lambda base, places, rows: base.index_add(0, places, rows),
    "index_put": lambda base, places, rows: base.index_put((places,), rows, accumulate=True),
}


@pytest.mark.parametrize("add", ADDED.values(), ids=ADDED)
@pytest.mark.parametrize("first", [0.0, 2.0])
def test_what_rows_were_added_to_is_told_of_each_gradient(add, first, monkeypatch):
    """What a call records is known by the specs of its tensors, whatever these hold."""
    count, zeros = by_rows(monkeypatch), 0
    places, rows = T.tensor([9, 11, 9]), T.ones(3, 5) * 3
    w = table(5)
    moves, expected = T.optim.SGD([w], lr=0.5), w.detach().numpy().copy()
    for filling in [first] * 4 + [2.0 - first] * 4 + [first]:
        base = T.full((ROWS, 5), filling)
        w.grad = add(base, places, rows)
        moves.step()
        gradient = np.full((ROWS, 5), filling, np.float32)
        np.add.at(gradient, [9, 11, 9], 3)
        expected -= np.float32(0.5) * gradient
        np.testing.assert_array_equal(w.detach().numpy(), expected)
        zeros += not filling
    assert count == [zeros]


@pytest.mark.parametrize("on_array", [seen, lambda array: T.from_numpy(array.copy())])
def test_indices_that_an_array_shows_are_copied_so_that_the_table_waits(on_array, monkeypatch):
    """And those of an array that nobody holds are left where they are."""
    count = by_rows(monkeypatch)
    layer, places = T.nn.Embedding(ROWS, 3), on_array(np.array([9, 11, 9]))
    moves = T.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(5):
        moves.zero_grad()
        layer(places).sin().sum().backward()
        moves.step()
    assert count[0] == 4


def test_clipped_gradients_and_sums_of_two_walks_are_dense():
    w, places = table(3), T.tensor([9, 11, 9])
    moves = waiting(w, places)
    for _ in range(3):
        lost(places, w).backward()
        lost(places, w).backward()
        T.nn.utils.clip_grad_value_([w], 3.0)
        before = w[9].tolist(), w[11].tolist()
        moves.step()
        assert w[9].tolist() == [x - np.float32(1.5) for x in np.float32(before[0])]
        assert w[11].tolist() == [x - np.float32(1) for x in np.float32(before[1])]
        moves.zero_grad(set_to_none=False)


def test_indices_that_change_before_the_step_are_read_as_they_were():
    w, array = table(3), np.array([9, 11, 9])
    for places in (T.from_numpy(array), T.tensor([9, 11, 9])):
        moves = waiting(w, places)
        before = w.detach().clone()
        lost(places, w).backward()
        array += 1
        places += 1
        moves.step()
        moved = (w.detach() != before).any(1).nonzero().flatten().tolist()
        assert moved == [7, 9, 11]  # a NaN is never equal
        assert w.grad.sum(1).nonzero().flatten().tolist() == [9, 11]
        array[:] = 9, 11, 9


def test_an_index_out_of_bounds_is_told():
    w, other = table(3), table(3)
    moves = T.optim.SGD([w, other], lr=0.5)
    for p, places in ((w, [9, 10]), (other, [9, ROWS])):
        with T.no_grad():
            p.grad = T.zeros_like(p).index_add(0, T.tensor(places), T.ones(2, 3))
    expected = "index 60 is out of bounds for dimension 0 with size 60"
    with pytest.raises(RuntimeError, match=expected):
        moves.step()
    with pytest.raises(RuntimeError, match=expected):
        other.sum().item()


def test_a_parameter_that_an_array_shows_is_moved_where_it_lies():
    w, places = table(3), T.tensor([9, 11, 9])
    shown = w.detach().numpy()
    moves = waiting(w, places)
    before = shown[9].copy()
    lost(places, w).backward()
    moves.step()
    np.testing.assert_array_equal(shown[9], before - 1)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_who_holds_the_old_values_keeps_them(times):
    w, places = table(3), T.tensor([9, 11, 9])
    moves = waiting(w, places)
    sum(lost(places, w) for _ in range(times)).backward()
    old = w.detach().clone()
    kept = (w * 1).sum(1)  # of a graph that has the parameter's value
    moves.step()
    assert kept[9].item() == old[9].sum().item()
    expected = old.numpy()
    expected[9] -= times
    expected[11] -= 0.5 * times
    np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("last", [0.3, -0.1, float("inf")])
def test_a_captured_step_gives_the_same_bits(last, monkeypatch):
    places = [T.tensor(np.random.default_rng(k).integers(8, ROWS, 9)) for k in range(7)]

    def training(capture):
        w = table(7)
        moves = T.optim.SGD([w], lr=0.1)

        @capture
        def step(places):
            moves.zero_grad()
            loss = F.embedding(places, w).sin().sum()
            loss.backward()
            moves.step()
            return loss

        found = []
        for k, at in enumerate(places):
            moves.param_groups[0]["lr"] = 0.1 * (k + 1) if k < 6 else last
            found.append(step(at))
        return [t.detach().numpy().tobytes() for t in (*found, w, w.grad)]

    found = training(T.compile)
    assert found == training(lambda f: f)
    dense(monkeypatch)
    assert found == training(lambda f: f)


def capturing(reads, width=3, look=F.embedding):
    """A parameter, and a captured step along it that gives what `reads` makes of the gradient inside."""
    w = table(width)
    moves = T.optim.SGD([w], lr=0.5)

    @T.compile(fullgraph=True)
    def step(places):
        moves.zero_grad()
        rows = look(places, w)
        loss = (rows * T.ones(rows.shape)).sum()
        loss.backward()
        moves.step()
        return loss, reads(w.grad)

    return w, step


@pytest.mark.parametrize(
    "reads", [lambda g: None, lambda g: g, lambda g: g.sum(), lambda g: g[9:12] + 1]
)
def test_gradients_of_captured_steps_are_there_for_whoever_asks(reads):
    w, step = capturing(reads)
    kept, places = [], [T.tensor([9, 11, 9]), T.tensor([10, 10, 12])]
    for k in range(6):
        before = w.detach().clone()
        _, found = step(places[k % 2])
        assert (w.detach()[8:] == (before - 0.5 * w.grad)[8:]).all() or k % 3
        kept.append((k, w.grad, found))
    for k, gradient, found in kept:
        expected = np.zeros((ROWS, 3), np.float32)
        np.add.at(expected, places[k % 2].numpy(), 1)
        np.testing.assert_array_equal(gradient.numpy(), expected)
        if found is not None:
            np.testing.assert_array_equal(
                found.numpy(), np.array(reads(T.tensor(expected)).tolist())
            )


def test_what_was_recorded_of_a_gradient_is_not_lost_when_a_replay_replaces_it():
    w, step = capturing(lambda g: None, width=SMALL // ROWS)
    places = T.tensor([9, 11, 9]), T.tensor([10, 12, 10])
    for _ in range(4):
        step(places[0])
    total, part = (w.grad * 2).sum(), w.grad[9:10]
    step(places[1])
    more = w.grad * 3
    step(places[0])
    assert total.item() == 2 * 3 * w.shape[1]
    assert part.unique().tolist() == [2]
    assert more[10].unique().tolist() == [6]
    assert w.grad[9].unique().tolist() == [2]


@pytest.mark.parametrize("shown", [lambda g: g, lambda g: g.detach(), lambda g: g[9:12]])
def test_a_replay_may_read_what_it_replaces_by_another_name(shown):
    w = table(SMALL // ROWS)
    moves = T.optim.SGD([w], lr=0.5)

    def walk(places):
        moves.zero_grad()
        loss = lost(places, w)
        loss.backward()
        moves.step()
        return loss

    first = T.compile(walk, fullgraph=True)
    other = T.compile(lambda places, g: g.sum() + 0 * walk(places), fullgraph=True)
    places = T.tensor([9, 11, 9])
    for _ in range(4):
        first(places)
        assert other(places, shown(w.grad)).item() == 3 * w.shape[1]


def test_captured_steps_make_no_tables():
    _, step = capturing(lambda g: None, width=SMALL // ROWS)
    places = T.tensor([9, 11, 9])
    for _ in range(5):
        step(places)
    assert [node.recipe.name for node in deferred.nodes] == ["constant_float", "copy_elements"]
    with T.profiler.profile() as profile:
        step(places)
    names = {event.key.split("_float")[0] for event in profile.key_averages()}
    assert "sgd_rows" in names
    assert not names & {"add_to_table", "add_chains"}


def test_memory_of_others_is_read_at_once_by_captured_steps():
    w, step = capturing(lambda g: None, look=lambda places, w: w[places])
    array = np.array([9, 11, 9])
    for _ in range(4):
        step(T.from_numpy(array))
        array += 1
        assert w.grad.sum(1).nonzero().flatten().tolist() == [array[0] - 1, array[1] - 1]
    places = T.tensor([9, 11, 9])
    shown = places.numpy()
    for _ in range(4):
        step(places)
        shown += 1
        assert w.grad.sum(1).nonzero().flatten().tolist() == [shown[0] - 1, shown[1] - 1]


def test_a_captured_step_that_fails_moves_nothing():
    w, step = capturing(lambda g: None)
    for _ in range(3):
        step(T.tensor([9, 11, 9]))
    before, gradient = w.detach().clone(), w.grad
    with pytest.raises(IndexError, match="index out of range in self"):
        step(T.tensor([9, 11, ROWS]))
    assert (w.detach() == before)[8:].all()
    assert gradient[9].tolist() == [2, 2, 2]
    step(T.tensor([9, 11, 9]))
    assert (w[9] == before[9] - 1).all()


class Program:
    """What a program of random statements about two tables has seen, as bytes and numbers."""

    def __init__(self, seed):
        self.pick, self.draw = random.Random(seed), np.random.default_rng(seed)
        width = self.pick.choice([1, 3, 33, 70])
        numbers = (
            self.draw.standard_normal(shape) for shape in ((ROWS, width), (ROWS, width), width)
        )
        *self.tables, self.factor = (
            T.tensor(n.astype(np.float32)).requires_grad_() for n in numbers
        )
        self.params = [*self.tables, self.factor]
        self.moves = T.optim.SGD(self.params, lr=0.1)
        self.arrays = [self.draw.integers(0, ROWS, 5) for _ in range(2)]
        self.seen, self.steps = [], {}
        for _ in range(self.pick.randrange(6, 16)):
            self.make_a_statement()

    def chance(self, share):
        return self.pick.random() < share

    def places(self):
        if self.chance(0.3):
            return T.from_numpy(self.pick.choice(self.arrays))
        return T.tensor(self.draw.integers(0, ROWS, self.pick.choice([1, 4, 9])))

    def look(self, w, places):
        padding = 9 if self.chance(0.2) else None
        how = self.pick.choice(["embedding", "brackets", "index_select", "dense too"])
        if how in ("embedding", "dense too"):
            rows = F.embedding(places, w, padding_idx=padding)
            return rows * w.sum() if how == "dense too" and self.chance(0.5) else rows
        return w[places] if how == "brackets" else w.index_select(0, places)

    def make_a_statement(self):
        w = self.pick.choice(self.tables)
        statements = {
            self.train: 9,
            self.captured: 4,
            self.look_at: 3,
            self.moves.step: 1,
            self.option: 2,
        }
        statements |= {self.write_array: 1, self.write: 1}
        statement = self.pick.choices([*statements], [*statements.values()])[0]
        statement(w) if statement.__name__ in ("train", "look_at", "write") else statement()

    def train(self, w):
        self.moves.zero_grad(set_to_none=self.chance(0.7))
        places = self.places()
        loss = (self.look(w, places) * self.factor).sin().sum()
        while self.chance(0.4):
            other = self.pick.choice(self.tables)
            loss = loss + (self.look(other, self.places()) * self.factor).cos().sum()
        loss.backward(retain_graph=self.chance(0.2))
        if self.chance(0.2):
            self.seen.append(loss.item())
        if self.chance(0.15):
            places.clamp_(max=3)
        if self.chance(0.2) and w.grad is not None:
            how = self.pick.randrange(4)
            self.seen.append(
                w.grad.numpy() if how == 0 else w.grad.sum().item() if how == 1 else w.grad
            )
            if how == 2:
                w.grad.mul_(0.5)
            if how == 3:
                T.nn.utils.clip_grad_norm_(self.tables, 1.0)
        if self.chance(0.85):
            self.moves.step()

    def captured(self):
        key, count = self.pick.randrange(2), self.pick.randrange(1, 4)
        w, moves, factor = self.tables[key], self.moves, self.factor

        def step(*places):
            moves.zero_grad()
            loss = sum((F.embedding(p, w) * factor).sin().sum() for p in places)
            loss.backward()
            moves.step()
            return loss

        compiled = self.steps.setdefault((key, count), T.compile(step))
        self.seen.append(compiled(*[self.places() for _ in range(count)]).detach())

    def look_at(self, w):
        how = self.pick.randrange(5)
        if how == 0:
            self.seen.append(w.detach().numpy())
        elif w.grad is not None:
            reads = w.grad, w.grad.clone(), w.grad * 2, (w.grad[3:9] + 1).sum()
            self.seen.append(self.pick.choice(reads))
        else:
            self.seen.append((w * 2)[4])

    def option(self):
        name, values = self.pick.choice([("lr", [0.1, 0.2, 0.0]), ("weight_decay", [0, 0.1])])
        self.moves.param_groups[0][name] = self.pick.choice(values)

    def write_array(self):
        self.pick.choice(self.arrays)[:] = self.draw.integers(0, ROWS, 5)

    def write(self, w):
        with T.no_grad():
            w[3] = 1.0

    def bits(self):
        everything = [*self.seen, *self.params, *[p.grad for p in self.params]]
        return [
            t.detach().numpy().tobytes() if isinstance(t, T.Tensor) else np.array(t).tobytes()
            for t in everything
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_nobody_can_tell_that_gradients_wait(seed, monkeypatch):
    found = Program(seed).bits()
    dense(monkeypatch)
    monkeypatch.setattr(deferred, "take_tables", lambda _: None)
    assert found == Program(seed).bits()


def test_hundreds_of_lookups_in_a_step_are_dense():
    """Sums of sums of sums: nothing that looks at them may go in as deep."""
    w = table(3)
    moves = waiting(w, T.tensor([9, 11]))
    before = w.detach().numpy().copy()
    sum(lost(T.tensor([8 + k % 50]), w) for k in range(600)).backward()
    moves.step()
    np.testing.assert_allclose(w.detach().numpy()[8:58], before[8:58] - 6, rtol=1e-5)


def test_tables_are_forgotten_with_their_parameters():
    w = table(3)
    waiting(w, T.tensor([9, 11, 9]))
    assert len(deferred.tables) == 1
    del w
    gc.collect()
    T.ones(3).sum().item()
    assert deferred.tables == []
    assert deferred.nodes == []


def test_a_table_that_is_kept_is_computed_after_a_while():
    w, places = table(3), T.tensor([9, 11, 9])
    moves = waiting(w, places)
    lost(places, w).backward()
    moves.step()
    x = T.ones(3)
    for _ in range(deferred.PATIENCE):
        assert deferred.nodes
        x.sum().item()
    x.sum().item()
    assert deferred.nodes == []
    assert w.grad[9].tolist() == [2, 2, 2]
    moves.zero_grad()
    lost(places, w).backward()
    assert deferred.nodes


def test_parameters_without_such_gradients_are_tried_ever_more_rarely(monkeypatch):
    tried, w = [], table(3)
    track = deferred.track_table
    monkeypatch.setattr(
        deferred, "track_table", lambda s, *, waits: (tried.append(waits), track(s, waits=waits))
    )
    moves = T.optim.SGD([w], lr=0.1)
    for _ in range(9):
        moves.zero_grad()
        w.sum().backward()
        moves.step()
    assert [k for k, waits in enumerate(tried, 1) if waits] == [1, 2, 4, 8]
    assert not any(reference() is w._storage for reference in deferred.tables)


def test_threads_train_tables_of_their_own():
    def bits():
        return trained(LOOKS["embedding"], 7, "float32", reads=())

    expected, found = bits(), []
    threads = [
        threading.Thread(target=lambda: found.append([bits() for _ in range(10)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[expected] * 10] * 4


def test_values_are_pytorchs():
    torch = pytest.importorskip("torch")
    ways = []
    for L in (T, torch):
        w = L.tensor(np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32))
        w.requires_grad_()
        moves, rng = L.optim.SGD([w], lr=0.1), np.random.default_rng(1)
        for _ in range(6):
            moves.zero_grad()
            L.nn.functional.embedding(L.tensor(rng.integers(0, ROWS, 20)), w).sin().sum().backward()
            moves.step()
        ways.append((w.detach().numpy(), w.grad.numpy()))
    for ours, theirs in zip(*ways, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
