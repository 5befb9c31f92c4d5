"""`y.plan()` and `y.kernels()`: what would run, without running it."""

import threading
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from library import forget_recipes

import adjit as T
from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import cache

SVG = "{http://www.w3.org/2000/svg}"
N = 5000  # enough elements to be fused


@pytest.fixture
def x():
    made = T.linspace(0.1, 1, N)
    made.sum().item()
    return made


def names(plan):
    return [step.source.label for step in plan.steps]


# ----- the plan -----


def test_a_fused_chain(x):
    plan = (x * 2 + 1).sum().plan()
    assert plan.fused
    assert str(plan).splitlines() == [
        "step  kernel               elements  reads          writes",
        "----  -------------------  --------  -------------  ------------",
        "   0  fused mul, add, sum      5000  x0 external 0  sum0 block 0",
        "----  -------------------  --------  -------------  ------------",
        "1 step, no memory for values in between",
    ]
    assert repr(plan) == str(plan)


def test_small_operations_run_one_by_one():
    forget_recipes()  # those of tests that fuse anything
    x = T.tensor([1.0, 2.0])
    plan = (x * 2 + x).plan()
    assert not plan.fused
    assert names(plan) == ["mul_f32_f32_to_f32_ckc", "add_f32_f32_to_f32_ccc"]
    assert "x block 0, y external 0" in str(plan)
    assert "there is nothing to fuse" in str(plan)


def test_nothing_left_to_run(x):
    y = x + 1
    y.tolist()
    assert "nothing is left to run" in str(y.plan())
    assert "nothing is left to run" in y.plan().svg()
    assert T.ones(2, 2)[0].kernels().startswith("# constant_float")


def test_values_that_somebody_holds_have_blocks(x):
    def total(keep):
        y = x.exp()
        kept = [y] if keep else []
        y = (y * 2).cumsum(0)
        return (y * y).sum(), kept

    plain, held = (total(keep) for keep in (False, True))
    kinds = [{life.kind for life in out.plan().lives()} for out, _ in (plain, held)]
    assert kinds == [{"external", "arena", "held"}] * 2
    blocks = [sum(life.kind == "held" for life in out.plan().lives()) for out, _ in (plain, held)]
    assert blocks == [1, 2]


def test_what_lives_in_the_arena_at_once_does_not_overlap(x):
    y = x
    for _ in range(6):
        y = (y * 1.5 + x).cumsum(0).softmax(0)
    plan = y.sum().plan()
    lives = [life for life in plan.lives() if life.kind == "arena"]
    assert len(lives) > 4
    assert max(life.at + life.nbytes for life in lives) <= plan.arena
    assert plan.arena < plan.arena_values == sum(life.nbytes for life in lives)
    for a in lives:
        for b in lives:
            if a is not b and a.first < b.last and b.first < a.last:
                assert a.at + a.nbytes <= b.at or b.at + b.nbytes <= a.at


def running_sums(x):
    return (x * 2).cumsum(0)


def results_that_nobody_reads(x):
    return (x * 2).sort().values


def shorter_values_in_place_of_longer_ones(x):
    half = (x[: N // 2] * 3 + 1).cumsum(0)
    return T.cat([half, half])


@pytest.mark.parametrize(
    "f", [running_sums, results_that_nobody_reads, shorter_values_in_place_of_longer_ones]
)
def test_the_arena_does_not_grow_with_the_number_of_steps(x, f):
    def plan(steps):
        y = x
        for _ in range(steps):
            y = f(y)
        return y.sum().plan()

    assert plan(9).fused
    assert plan(9).arena == plan(3).arena < plan(9).arena_values


def test_the_plan_is_the_one_that_runs(x):
    def f():
        return ((x * 2).cumsum(0) + x).tanh().sum()

    for _ in range(3):
        f().item()
        plan_cache.wait()
    with T.profiler.profile() as p:
        y = f()
        plan = y.plan()
        y.item()
    assert [event.name for event in p.events()] == names(plan)
    assert [event.bytes for event in p.events()] == [step.nbytes for step in plan.steps]


def test_nothing_is_disturbed(x):
    w = T.full((N,), 0.5, requires_grad=True)
    y = (w * x).sin()
    loss = (y * y).sum()
    before, entries = list(map(id, scheduling.pending)), len(plan_cache.entries)
    linked = len(cache._linked)
    texts = [str(loss.plan()), loss.kernels(), loss.plan().svg()]
    assert list(map(id, scheduling.pending)) == before
    for _ in range(2):
        loss.plan(backward=True)
    assert [str(loss.plan()), loss.kernels(), loss.plan().svg()] == texts
    assert (len(plan_cache.entries), len(cache._linked)) == (entries, linked)
    assert not scheduling.captured_threads
    assert w.grad is None
    loss.backward()
    expected = 2 * np.sin(0.5 * x.numpy()) * np.cos(0.5 * x.numpy()) * x.numpy()
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5)


def test_writes_and_picks_are_shown(x):
    y = x.clone()
    y[:10] = 0.0
    values, places = y.sort()
    plan = ((values * 2).sum() + places[0]).plan()
    assert plan.fused
    assert any(name.startswith("copy") for name in names(plan))
    small = T.zeros(4)
    small[1:] = T.ones(3)
    values, _ = small.sort()
    assert not values.plan().fused
    assert values.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_an_error_of_an_operation_is_raised(x):
    bad = x[T.tensor([N + 1])] * 2
    with pytest.raises(IndexError):
        bad.tolist()
    for look in (bad.plan, bad.kernels, (bad + 1).plan):
        with pytest.raises(IndexError, match=f"index {N + 1}"):
            look()


def test_plans_while_others_record(x):
    errors = []

    def work():
        try:
            for _ in range(20):
                y = (x * 2 + 1).tanh()
                found = str(y.plan())  # another thread may have run it, or its beginning
                assert "tanh" in found or "nothing is left" in found
                assert y.shape == (N,)
                y.sum().item()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ----- with backward -----


def test_with_backward_nothing_in_between_is_kept(x):
    w = T.full((N,), 0.5, requires_grad=True)
    w.sum().item()
    loss = (w * x).sin().sum()
    forward, both = loss.plan(), loss.plan(backward=True)
    assert not any("vjp" in name for name in names(forward))
    assert any("sin_vjp" in name for name in names(both))
    held = [life.nbytes for life in both.lives() if life.kind == "held"]
    assert sorted(held) == [4, 4 * N]  # the loss and the gradient
    loss.backward()
    assert w.grad[0].item() == pytest.approx(np.cos(0.05) * 0.1)


def test_backward_of_many_numbers_and_of_a_leaf(x):
    w = T.full((N,), 0.5, requires_grad=True)
    assert "vjp" in ((w * x).sin() * 2).kernels(backward=True)
    assert w.plan(backward=True).steps
    with pytest.raises(RuntimeError, match="the tensor does not require grad"):
        x.plan(backward=True)


# ----- the sources -----


def test_fused_sources(x):
    y = (x * 2 + 1).tanh()
    text = y.kernels()
    assert text.startswith("# fused mul, add, tanh, 5000 elements\n")
    assert text.count("def ") == 1
    assert "def fused_mul_add_tanh_3(args, start, stop):" in text
    assert len(y) == N
    y.tolist()
    assert "nothing is left to run" in y.kernels()


# ----- on a GPU, which need not be there -----


def test_the_kernels_of_a_gpu(x):
    y = (x * 2 + 1).tanh()
    text = y.kernels(device="cuda")
    assert text.startswith(
        "# fused_mul_add_tanh_3_on_gpu, 5000 units of work, 256 threads a block\n"
    )
    assert text.count("def ") == 1
    assert "range(first_unit(), whole, all_threads())" in text
    assert text == y.kernels(device=T.device("cuda:3")) != y.kernels() == y.kernels(device="cpu")
    assert [kernel.text for kernel in T.cuda.kernels(y)] == [text.partition("\n")[2]]
    assert len(y) == N
    y.tolist()
    assert "nothing is left to run" in y.kernels(device="cuda")
    with pytest.raises(NotImplementedError, match="device 'meta' is not supported"):
        y.kernels(device="meta")


def test_sums_rows_and_activations_are_fused_on_a_gpu_too(x):
    w = T.ones(N, requires_grad=True)
    w.tolist()
    loss = (w * x).square().sum()
    shown = [kernel.name for kernel in T.cuda.kernels(loss, backward=True)]
    assert shown == ["constant_float_on_gpu", "fused_mul_square_square_vjp_mul_vjp_4_on_gpu"]
    assert names(loss.plan())[-1] == "fused mul, square, sum"
    product = T.nn.functional.linear(T.ones(8, 8), T.ones(8, 8), T.ones(8)).relu()
    assert T.cuda.kernels(product)[-1].name == "product_and_bias_by_tiles_on_gpu"


def test_small_operations_and_writes_on_a_gpu(monkeypatch):
    x = T.ones(4)
    x[1:] = T.zeros(3)
    written = [kernel.name for kernel in T.cuda.kernels(x)]
    assert written[-1] == "copy_f32_to_f32_cc_on_gpu"
    x.tolist()
    assert [kernel.name for kernel in T.cuda.kernels(x.sort().values)] == ["sort_by_warps_on_gpu"]
    monkeypatch.setattr(plan_cache, "is_on", False)
    y = (x * 2 + 1) * x.sort().values
    alone = ["mul_f32_f32", "add_f32_f32", "sort_by_warps", "mul_f32_f32"]
    assert [k.name[: len(n)] for k, n in zip(T.cuda.kernels(y), alone, strict=True)] == alone


# ----- the picture -----


class Picture:
    """The bars of an SVG document by the kind of memory."""

    def __init__(self, plan):
        root = ElementTree.fromstring(plan.svg())
        self.frame = [float(number) for number in root.get("viewBox").split()]
        self.texts = [text.text for text in root.findall(f"{SVG}text")]
        self.bars = {"external": [], "arena": [], "held": [], "frame": []}
        for rect in root.findall(f"{SVG}rect"):
            x, y, w, h = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
            self.bars[rect.get("class")].append((x, y, x + w, y + h))


def test_the_picture_shows_every_value(x):
    w = T.full((N,), 0.5, requires_grad=True)
    w.sum().item()
    y = ((w * x).cumsum(0) + x).tanh().sum()
    plan = y.plan(backward=True)
    assert plan._repr_svg_() == plan.svg()
    picture = Picture(plan)
    for kind in ("external", "arena", "held"):
        lives = [life for life in plan.lives() if life.kind == kind]
        assert len(picture.bars[kind]) == len(lives) > 0
    [(left, top, right, bottom)] = picture.bars["frame"]
    for bar in picture.bars["arena"]:
        assert left <= bar[0] < bar[2] <= right
        assert top <= bar[1] < bar[3] <= bottom + 2
    for bars in picture.bars.values():
        for bar in bars:
            assert 0 <= bar[0] < bar[2] <= picture.frame[2]
            assert 0 <= bar[1] < bar[3] <= picture.frame[3]
    assert {"arena", "block 0", "external 0", "0"} <= set(picture.texts)


def test_bars_of_the_arena_do_not_overlap(x):
    y = x
    for _ in range(6):
        y = (y * 1.5 + x).cumsum(0).softmax(0)
    bars = Picture(y.sum().plan()).bars["arena"]
    for k, a in enumerate(bars):
        for b in bars[:k]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 0.2 or b[3] <= a[1] + 0.2
            assert apart, (a, b)


def test_a_long_plan_has_a_narrow_picture(x):
    others = [T.full((N,), float(k)) for k in range(20)]
    for other in others:
        other.sum().item()
    y = x
    for other in others:
        y = (y * other).cumsum(0)
    picture = Picture(y.plan())
    assert picture.frame[2] < 1400
    assert "9 more" in picture.texts
