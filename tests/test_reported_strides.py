"""What is a view and what a copy, and what strides are, does not depend on how the library lays out memory."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from against_torch import torch

import adjit
from adjit.schedule.jit import native

Step = tuple[str, Callable[[Any], Any]]  # its name, and what it does


@pytest.fixture(autouse=True, scope="module")
def machine_code():
    assert all(family.load(compiling=True) for family in native.families)


def features(T: Any, form: str = "plain") -> tuple[Any, Any]:
    """A leaf, and what a convolution makes of it: (2, 4, 3, 3), or something like it."""
    x = (T.arange(2.0 * 3 * 5 * 5).reshape(2, 3, 5, 5) * 0.01 - 0.7).requires_grad_()
    w = (T.arange(4.0 * 3 * 9).reshape(4, 3, 3, 3) % 7 - 3) * 0.25
    given = x.to(memory_format=T.channels_last) if form == "channels last" else x
    y = T.nn.functional.conv2d(given, w)
    if form == "pooled":
        y = T.nn.functional.max_pool2d(T.nn.functional.pad(y, (1, 2, 2, 1)), 2, 1)
    if form == "three axes":
        y = T.nn.functional.conv1d(y[:, :, 0], T.ones(4, 4, 1))
    return x, y


FORMS = ["plain", "channels last", "pooled", "three axes"]


def results() -> tuple[Any, Any]:
    """Results without history, ours and PyTorch's."""
    return features(adjit)[1].detach() + 0, features(torch)[1].detach() + 0


def of(t: Any) -> Any:
    """The library of a tensor."""
    return torch if isinstance(t, torch.Tensor) else adjit


def told(t: Any) -> tuple[Any, ...]:
    """What a tensor says of its layout; strides of axes with one place say nothing."""
    strides = [st for n, st in zip(t.shape, t.stride(), strict=True) if n > 1]
    return tuple(t.shape), strides if t.numel() else [], t.is_contiguous()


def same(mine: Any, theirs: Any, story: Any = "") -> None:
    """Compare layouts and elements."""
    assert told(mine) == told(theirs), story
    np.testing.assert_allclose(
        mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=str(story)
    )


def attempt(run: Callable[[], Any]) -> Any:
    """What a call gives, or how it fails."""
    try:
        return run()
    except (RuntimeError, IndexError) as problem:
        return problem


# ----- what convolutions and others give -----


@pytest.mark.parametrize("form", FORMS)
def test_results_and_what_is_computed_of_them_report_the_strides_of_pytorch(form):
    computed: dict[str, Callable[[Any], Any]] = {
        "itself": lambda y: y, "elementwise": lambda y: (y.relu() + 1) * y,
        "where": lambda y: y.where(y > 0, y * 2),
        "turned": lambda y: y.transpose(1, -1) * 2, "cat": lambda y: of(y).cat([y, y], 1),
        "normalised": lambda y: of(y).nn.BatchNorm1d(4)(y) if y.dim() == 3 else of(y).nn.BatchNorm2d(4)(y),
        "larger": lambda y: of(y).nn.functional.interpolate(y, scale_factor=2),
        "padded": lambda y: of(y).nn.functional.pad(y, (1, 1)), "like": lambda y: of(y).zeros_like(y),
        "of another dtype": lambda y: y.double(), "a part": lambda y: y[:, 1:3] * 2,
        "as wide as a weight": lambda y: y + of(y).arange(4.0).view(4, *[1] * (y.dim() - 2)),
    }  # fmt: skip
    (_, mine), (_, theirs) = features(adjit, form), features(torch, form)
    for name, compute in computed.items():
        a, b = compute(mine), compute(theirs)
        assert told(a) == told(b), name
        if b.dim() == 4:
            other = [t.clone(memory_format=of(t).channels_last) for t in (a, b)]
            for order in (1, -1):
                joined = [of(t).cat([t, o][::order], 1) for t, o in zip((a, b), other, strict=True)]
                assert told(joined[0]) == told(joined[1])
            last = of(b).channels_last
            assert a.is_contiguous(memory_format=adjit.channels_last) is b.is_contiguous(
                memory_format=last
            )
    for part, its in (
        (mine[1:, 2:], theirs[1:, 2:]),
        (mine[1:, 2:].detach(), theirs[1:, 2:].detach()),
    ):
        assert part.storage_offset() == its.storage_offset()
    windows = [y.unfold(-1, 2, 1).transpose(0, -1).flatten(1, 2) for y in (mine, theirs)]
    np.testing.assert_allclose(windows[0].detach(), windows[1].detach(), rtol=1e-5)
    wide, its = [y.unsqueeze(0).expand(3, *y.shape).detach() for y in (mine, theirs)]
    same(wide[:, 1], its[:, 1])
    same(wide.flatten(2), its.flatten(2))


@pytest.mark.parametrize("case", ["usual", "causal", "mask", "dropout", "other widths"])
@pytest.mark.parametrize("is_turned", [True, False])
def test_attention_reports_the_strides_of_pytorch(case, is_turned):
    found = []
    for T in (adjit, torch):
        shape = (2, 5, 3, 8) if is_turned else (2, 3, 5, 8)
        query = T.ones(shape).transpose(1, 2) if is_turned else T.ones(shape)
        value = query[..., :6] if case == "other widths" else query
        mask = T.ones(5, 5, dtype=T.bool) if case == "mask" else None
        p = 0.5 if case == "dropout" else 0.0
        y = T.nn.functional.scaled_dot_product_attention(
            query, query, value, mask, p, case == "causal"
        )
        y = y.nan_to_num() * 0 + T.arange(240.0 if case != "other widths" else 180.0).view(y.shape)
        tokens = y.transpose(1, 2).reshape(2, 5, -1)
        tokens[0] = 7
        found.append((y, tokens))
    for mine, theirs in zip(*found, strict=True):
        same(mine, theirs)


SIGNALS: dict[str, Callable[[Any, Any], Any]] = {
    "conv1d": lambda F, x: F.conv1d(x, x[:, :, :3]),
    "conv1d, weight turned": lambda F, x: F.conv1d(x, x.transpose(1, 2)[:, :3].transpose(1, 2)),
    "pointwise": lambda F, x: F.conv1d(x, x[:, :, :1]),
    "by groups": lambda F, x: F.conv1d(x, x[:1].permute(1, 0, 2)[..., :3], groups=8, stride=2),
    "one of them": lambda F, x: F.conv1d(x[:1], x[:, :, :3], padding=1),
    "conv_transpose1d": lambda F, x: F.conv_transpose1d(x, x.transpose(0, 1)[:, :, :3]),
    "relu": lambda F, x: F.relu(x),
    "batch_norm": lambda F, x: F.batch_norm(x, None, None, training=True),
    "interpolate": lambda F, x: F.interpolate(x, scale_factor=2),
    "linear": lambda F, x: F.interpolate(x, scale_factor=2, mode="linear"),
    "pad": lambda F, x: F.pad(x, (1, 1)),
    "reflect": lambda F, x: F.pad(x, (1, 1), mode="reflect"),
    "max_pool1d": lambda F, x: F.max_pool1d(x, 2),
    "places": lambda F, x: F.max_pool1d(x, 2, return_indices=True)[1],
    "back": lambda F, x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2),
    "avg_pool1d": lambda F, x: F.avg_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda F, x: F.adaptive_avg_pool1d(x, 2),
    "adaptive_max_pool1d": lambda F, x: F.adaptive_max_pool1d(x, 2),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_whose_channels_lie_last_report_the_strides_of_pytorch(name):
    """As those of `embedding(text).transpose(1, 2)` do; and what is written into views, and gradients."""
    found = []
    for T in (adjit, torch):
        for needs_grad in (False, True):
            x = T.arange(96.0, dtype=T.float64).view(2, 6, 8).sin().transpose(1, 2)
            x.requires_grad_(needs_grad)
            y = SIGNALS[name](T.nn.functional, x)
            flat = y.reshape(2, -1)
            found.append(y)
            if needs_grad and y.requires_grad:
                found.append(T.autograd.grad((y * y * y).sum(), x)[0])
                flat = y.detach().reshape(2, -1)
            flat[0] = 7
            found.append(y.detach())
    half = len(found) // 2
    for mine, theirs in zip(found[:half], found[half:], strict=True):
        same(mine, theirs)


def test_the_gradient_of_a_leaf_reports_the_strides_of_the_leaf():
    for first in (True, False):
        p = adjit.nn.Parameter(adjit.zeros(2, 8, 8, 32))
        x = adjit.randn(2, 64, 64, 3).permute(0, 3, 1, 2)
        x = adjit.nn.Conv2d(3, 32, 8, 8)(x if first else x.contiguous()).permute(0, 2, 3, 1)
        for _ in range(2):
            (x + p).square().sum().backward(retain_graph=True)
            assert p.grad.stride() == p.stride()
            p.grad.view(-1)


def test_axes_with_one_place_report_the_strides_of_pytorch():
    (_, mine), (_, theirs) = features(adjit), features(torch)
    for a, b in (
        (mine[:1] * 2, theirs[:1] * 2),
        (mine[:1], theirs[:1]),
        (mine[..., :1], theirs[..., :1]),
    ):
        assert a.stride() == b.stride()
        assert a.permute(1, 2, 3, 0).stride() == b.permute(1, 2, 3, 0).stride()
        assert a.unsqueeze(2).stride() == b.unsqueeze(2).stride()
        assert a[0].stride() == b[0].stride()


def test_the_library_lays_out_what_it_makes_as_it_likes():
    """This is what all of this is about: channels lie last in memory, and what is computed follows."""
    _, y = features(adjit)
    for made in (y, y.relu(), y + y, y[:, :2].exp()):
        assert made._spec.strides[1] == 1
        assert made.is_contiguous()


def test_a_layout_that_was_asked_for_is_reported():
    mine, theirs = results()
    for a, b in ((mine, theirs), (mine.permute(0, 3, 1, 2), theirs.permute(0, 3, 1, 2))):
        last, its_last = adjit.channels_last, torch.channels_last
        same(a.contiguous(memory_format=last), b.contiguous(memory_format=its_last))
        same(a.to(memory_format=last), b.to(memory_format=its_last))
        same(a.clone(memory_format=last), b.clone(memory_format=its_last))
        same(a.contiguous(memory_format=last) * 2, b.contiguous(memory_format=its_last) * 2)
        same(
            a.clone(memory_format=adjit.contiguous_format),
            b.clone(memory_format=torch.contiguous_format),
        )


def test_copies_and_files_report_the_same(tmp_path):
    y, _ = results()
    adjit.save(y, tmp_path / "y.pt")
    for made in (copy.deepcopy(y), pickle.loads(pickle.dumps(y)), adjit.load(tmp_path / "y.pt")):
        assert made.stride() == y.stride()
        assert made.tolist() == y.tolist()


# ----- random views and writes -----


def steps(draw: random.Random, t: Any) -> Step:
    """A view, or something computed, of a tensor with such a shape."""
    n, shape = t.dim(), tuple(t.shape)
    axes = list(range(n))
    draw.shuffle(axes)
    d = draw.randrange(n) if n else 0
    choices: list[Step] = [
        ("relu", lambda t: t.relu()), ("* 2", lambda t: t * 2), ("clone", lambda t: t.clone()),
        ("detach", lambda t: t.detach()), ("contiguous", lambda t: t.contiguous()),
        ("contiguous", lambda t: t.contiguous()), ("ravel", lambda t: t.ravel()),
        ("itself", lambda t: t[...]), ("zeros like", lambda t: t.new_zeros(t.shape) + t),
        ("view -1", lambda t: t.view(-1)), ("reshape -1", lambda t: t.reshape(-1)),
        ("double", lambda t: t.double().float()), ("expand", lambda t: t.expand(2, *t.shape)),
        ("[None]", lambda t: t[None]), ("[..., None]", lambda t: t[..., None]),
    ]  # fmt: skip
    if n:
        k, size = draw.randrange(shape[d]) if shape[d] else 0, shape[d]
        choices += [
            (f"permute {axes}", lambda t: t.permute(axes)),
            (f"permute {axes}", lambda t: t.permute(axes)),
            (f"unsqueeze {d}", lambda t: t.unsqueeze(d)),
            (f"slice {d} {k}", lambda t: t.narrow(d, k, size - k)),
            (f"every second {d}", lambda t: t[(slice(None),) * d + (slice(None, None, 2),)]),
        ]
        if size > 1:
            choices += [(f"unfold {d}", lambda t: t.unfold(d, 2, 2))]
        if size:
            choices += [(f"select {d} {k}", lambda t: t.select(d, k))]
            choices += [(f"chunk {d}", lambda t: t.chunk(2, d)[0])]
    if n > 1:
        a, b = sorted(draw.sample(range(n), 2))
        choices += [
            (f"flatten {a} {b}", lambda t: t.flatten(a, b)),
            (f"flatten {a} {b}", lambda t: t.flatten(a, b)),
            ("flatten 1", lambda t: t.flatten(1)),
            ("view 1", lambda t: t.view(t.shape[0], -1)),
            ("transpose", lambda t: t.transpose(a, b)),
            ("rows", lambda t: t.reshape(-1, t.shape[-1])),
            ("diagonal", lambda t: t.diagonal(0, a, b)),
        ]
    if n == 4:
        choices += [
            ("to last", lambda t: t.movedim(1, -1)), ("to last", lambda t: t.permute(0, 2, 3, 1)),
            ("channels last", lambda t: t.contiguous(memory_format=of(t).channels_last)),
            ("to channels last", lambda t: t.to(memory_format=of(t).channels_last)),
            ("by its strides", lambda t: t.as_strided(t.shape, t.stride(), t.storage_offset())),
        ]  # fmt: skip
    return draw.choice(choices)


def writes(draw: random.Random) -> Step:
    """Something written into a tensor."""
    number = draw.choice([0.5, 2.0, -1.5])
    choices: list[Step] = [
        (f"add_ {number}", lambda t: t.add_(number)), (f"mul_ {number}", lambda t: t.mul_(number)),
        ("zero_", lambda t: t.zero_()), ("copy_", lambda t: t.copy_(t.detach().flip(0) * 2)),
        ("t[0] =", lambda t: t.__setitem__(0, number)), ("fill_", lambda t: t.fill_(number)),
        ("t[-1] *=", lambda t: t[-1].mul_(number)), ("relu_", lambda t: t.relu_()),
        ("t[::2] = t", lambda t: t.__setitem__(slice(None, None, 2), t[::2].detach() + 1)),
    ]  # fmt: skip
    return draw.choice(choices)


def gradient(T: Any, tensors: list[Any], x: Any) -> Any:
    """That of the sum of all squares."""
    total = sum((t * t).sum() for t in tensors if t.requires_grad)
    return T.autograd.grad(total, x, allow_unused=True)[0]


def run(seed: int) -> None:
    """Views of a result and what is computed of it, and writes, beside PyTorch's."""
    draw = random.Random(seed)
    form, graded = draw.choice(FORMS), draw.random() < 0.6
    here, there = features(adjit, form), features(torch, form)
    mine, theirs, story = [here[1]], [there[1]], [seed, form, graded]
    if not graded:
        mine, theirs = [here[1].detach() + 0], [there[1].detach() + 0]
    for _ in range(draw.randint(2, 9)):
        k = draw.randrange(len(mine))
        is_write = draw.random() < 0.3
        name, step = writes(draw) if is_write else steps(draw, theirs[k])
        story.append((k, name))
        expected = attempt(lambda step=step, k=k: step(theirs[k]))
        if isinstance(expected, Exception):
            if is_write:
                found = attempt(lambda step=step, k=k: step(mine[k]))
                assert isinstance(found, Exception), story
            continue
        made = attempt(lambda step=step, k=k: step(mine[k]))
        if isinstance(made, Exception):
            # Where it lies cannot be told, or PyTorch tells of it later.
            is_refused = str(made).startswith("as_strided: where this tensor lies")
            its_is_late = isinstance(attempt(lambda t=expected: t.grad_fn), Exception)
            assert is_refused or its_is_late, (story, made)
            return
        if not is_write:
            mine.append(made)
            theirs.append(expected)
        for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            same(a, b, (*story, place))
        if draw.random() < 0.15 and len(mine) > 1:
            gone = draw.randrange(len(mine))
            del mine[gone], theirs[gone]
            story.append(("gone", gone))
    if not (graded and any(t.requires_grad for t in theirs)):
        return
    expected = attempt(lambda: gradient(torch, theirs, there[0]))
    if isinstance(
        expected, Exception
    ):  # one that is kept for backward was written; here it need not be kept
        return
    found = gradient(adjit, mine, here[0])
    if expected is None:
        assert found is None or not found.any(), story
    else:
        np.testing.assert_allclose(
            found, expected.numpy(), rtol=1e-4, atol=1e-4, err_msg=str(story)
        )


@pytest.mark.parametrize("first", range(0, 600, 30))
def test_random_views_and_writes(first):
    for seed in range(first, first + 30):
        run(seed)


# ----- writes -----


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda y: y.view(2, -1), "reshape": lambda y: y.reshape(-1), "flatten": lambda y: y.flatten(1),
    "contiguous": lambda y: y.contiguous(), "a part": lambda y: y[:, 1:3].flatten(1),
    "by strides": lambda y: y.as_strided((2, 36), (36, 1)), "data": lambda y: y.data.view(-1),
    "data of a view": lambda y: y.view(-1).data, "turned": lambda y: y.permute(2, 3, 0, 1).flatten(2),
}  # fmt: skip
WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda t: t.add_(1), "copy_": lambda t: t.copy_(of(t).ones_like(t) * 3),
    "zero_": lambda t: t.zero_(),
    "a number": lambda t: t.__setitem__(0, 7), "a row": lambda t: t.__setitem__(0, t[1].clone()),
    "where": lambda t: t.__setitem__(t > 0.5, 0), "out=": lambda t: of(t).mul(t, 2, out=t),
    "several": lambda t: of(t)._foreach_mul_([t], 2), "drawn": lambda t: t.uniform_(1, 1 + 1e-7),
    "filled": lambda t: t.index_fill_(0, of(t).tensor([0]), 5.0), "init": lambda t: of(t).nn.init.ones_(t),
    "clamp_": lambda t: t.clamp_(max=0.25),
    "dropout": lambda t: of(t).nn.functional.dropout(t, 1.0, True, True),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_every_write_reaches_both(view, write):
    for _ in range(4):  # machine code knows it after some
        (mine, theirs), written = results(), WRITES[write]
        part, its = VIEWS[view](mine), VIEWS[view](theirs)
        written(part), written(its)
        same(mine, theirs)
        same(part, its)
        written(mine), written(theirs)
        same(mine, theirs)
        same(part, its)


def test_running_statistics_may_be_such_a_view():
    mine, theirs = results()
    for T, y in ((adjit, mine), (torch, theirs)):
        means = y.view(-1)[:4]
        T.nn.functional.batch_norm(T.ones(3, 4), means, T.ones(4), training=True)
    same(mine, theirs)


def test_running_statistics_may_be_parts_of_one_memory():
    for make in (
        lambda T: T.zeros(8),
        lambda T: features(T)[1].detach().flatten(),
        lambda T: results_of(T)[1],
    ):
        buffers = []
        for T in (adjit, torch):
            buffer = make(T)
            x = T.arange(12.0).view(3, 4)
            T.nn.functional.batch_norm(x, buffer[:4], buffer[4:8], training=True)
            buffers.append(buffer)
        same(*buffers)


def results_of(T: Any) -> tuple[Any, Any]:
    """A result, and what stands for a view of it."""
    y = features(T)[1].detach() + 0
    return y, y.view(-1)


def test_several_writes_into_one_memory_are_made_one_after_the_other():
    found = []
    for T in (adjit, torch):
        y, flat = results_of(T)
        T._foreach_add_([y, flat, flat[:3]], 1)
        T.nn.functional.batch_norm(T.arange(12.0).view(3, 4), flat[:4], flat[4:8], training=True)
        found.append((y, flat))
    for mine, theirs in zip(*found, strict=True):
        same(mine, theirs)


def test_two_copies_whose_base_is_gone_are_still_one_memory():
    mine, theirs = results()
    views = [(y.view(2, -1), y[1].view(-1), y[1, 2:].view(-1)) for y in (mine, theirs)]
    del mine, theirs
    for written in range(3):
        for tensors in views:
            tensors[written].mul_(3)
        for a, b in zip(*views, strict=True):
            same(a, b)


def test_what_backward_still_reads_is_noticed():
    for T in (adjit, torch):
        y = features(T)[1].tanh().flatten(1)
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_view_that_may_not_be_written_is_not_written_through_a_copy():
    for T in (adjit, torch):
        _, y = features(T)
        with T.no_grad():
            flat = y.flatten(1)
        with pytest.raises(
            RuntimeError, match="created in no_grad mode and is being modified inplace"
        ):
            flat.add_(T.ones(2, 36, requires_grad=True))
        half = y.chunk(2, 1)[0]
        for part in (half.flatten(1), half.as_strided(half.shape, half.stride())):
            with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
                part.add_(1)


def test_copies_of_what_is_detached_have_no_history():
    for is_first in (True, False):
        x, y = features(adjit)
        y = y * 1
        detached = y.detach()
        plain = detached.flatten(1) if is_first else None
        flat = y.flatten(1)
        plain = detached.flatten(1) if plain is None else plain
        y.mul_(x.mean())
        assert not plain.requires_grad
        assert plain.tolist() == flat.tolist() == y.flatten(1).tolist()
        (found,) = adjit.autograd.grad(flat.sum(), x)
        x, y = features(adjit)
        (expected,) = adjit.autograd.grad((y * x.mean()).sum(), x)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_a_leaf_that_needs_gradients_is_not_written_through_a_copy():
    y, _ = results()
    flat = y.requires_grad_().flatten(1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        flat.add_(1)
    assert flat.tolist() == y.flatten(1).tolist()


def test_arrays_on_either_can_only_be_read_while_both_are_there():
    y, _ = results()
    flat = y.view(2, -1)
    assert not flat.numpy().flags.writeable
    assert not y.numpy().flags.writeable
    del flat
    y.numpy()[:] = 0
    assert y.abs().sum().item() == 0


def test_no_such_view_while_an_array_is_on_the_base():
    y, _ = results()
    array = y.numpy()
    with pytest.raises(RuntimeError, match=r"view\(\): others look at the memory .* Use \.reshape"):
        y.view(2, -1)
    flat = y.reshape(2, -1)
    y.add_(1)
    assert flat.tolist() == y.flatten(1).tolist()
    expected = array + 1
    flat.add_(1)
    assert array.tolist() == expected.tolist()
    adjit._foreach_add_([flat], 1)
    assert array.tolist() == (expected + 1).tolist()
    large = adjit.conv2d(adjit.ones(1, 3, 64, 64), adjit.ones(16, 3, 1, 1))
    kept, its = large.numpy(), large.reshape(-1)
    large.add_(1)
    assert (its == 4).all()
    assert (kept == 4).all()
    last = y.permute(0, 2, 3, 1).contiguous()  # a copy in PyTorch
    before = last.tolist()
    array[:] = 7
    assert last.tolist() == before
    del array, flat
    assert y.view(2, -1).shape == (2, 36)


# ----- what tells of memory -----


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_the_storage_has_the_order_that_is_reported():
    for mine, theirs in (results(), [y.permute(0, 2, 3, 1) for y in results()]):
        stored, memory = mine.storage(), theirs.as_strided((72,), (1,), 0)
        np.testing.assert_allclose(stored.tolist(), memory.tolist(), rtol=1e-5)
        stored[5] = memory[5] = 7.0
        same(mine, theirs)


def test_an_address_is_refused_where_the_elements_lie_otherwise():
    y, _ = results()
    with pytest.raises(RuntimeError, match=r"data_ptr\(\): .* strides \(36, 1, 12, 4\), not as"):
        y.data_ptr()
    with pytest.raises(
        RuntimeError, match=r"resize_\(\): .* not lie in memory as stride\(\) reports"
    ):
        y.resize_(3)
    assert y.contiguous().data_ptr()
    assert y.untyped_storage().data_ptr() == y[:].untyped_storage().data_ptr()
    assert torch.from_dlpack(y).tolist() == y.tolist()


def test_as_strided_where_a_part_lies_is_refused():
    mine, theirs = results()
    a, b = mine[1:].flatten(1), theirs[1:].flatten(1)
    same(a.as_strided((3, 4), (4, 1)), b.as_strided((3, 4), (4, 1)))
    with pytest.raises(RuntimeError, match="as_strided: where this tensor lies in the storage"):
        a.as_strided((3, 4), (4, 1), 0)
    a, b = mine[:, 1:3].flatten(1), theirs[:, 1:3].flatten(1)
    with pytest.raises(RuntimeError, match="as_strided: where this tensor lies in the storage"):
        a.as_strided((2, 4), (36, 1))


def test_view_of_a_permuted_tensor_is_refused_as_in_pytorch():
    x = adjit.ones(2, 4, 4, 3).permute(0, 3, 1, 2)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.view(2, -1)


# ----- captured functions -----


def written_inside(T: Any, x: Any) -> Any:
    y = T.nn.functional.conv2d(x, T.ones(4, 3, 3, 3))
    flat = y.flatten(1)
    flat.relu_()
    y[:, 1] *= 2
    return y.sum((1, 2, 3)), flat.sum(1)


def given_and_written(T: Any, y: Any) -> Any:
    flat = y.flatten(1)
    flat.relu_()
    return flat.sum(1)


def written(T: Any, y: Any) -> Any:
    return y.mul_(2).sum()


def both(T: Any, x: Any) -> Any:
    y = T.nn.functional.conv2d(x, T.ones(4, 3, 3, 3))
    return y, y.flatten(1)


def image(T: Any, k: int) -> Any:
    return T.arange(2.0 * 3 * 5 * 5).reshape(2, 3, 5, 5) * 0.1 - k


def test_captured_writes_reach_both():
    within = adjit.compile(lambda x: written_inside(adjit, x), fullgraph=True)
    given = adjit.compile(lambda y: given_and_written(adjit, y), fullgraph=True)
    for k in range(4):
        for a, b in zip(
            within(image(adjit, k)), written_inside(torch, image(torch, k)), strict=True
        ):
            same(a, b)
        mine, theirs = results()
        same(given(mine), given_and_written(torch, theirs))
        same(mine, theirs)


@pytest.mark.parametrize("are_linked", [(True,) * 4 + (False,) * 3, (False,) * 4 + (True,) * 3])
def test_captures_do_not_write_what_was_linked_before(are_linked):
    """Neither what is linked in the first calls nor what is in the last ones."""
    compiled, kept = adjit.compile(lambda y: written(adjit, y)), []
    for is_linked in are_linked:
        mine, theirs = results()
        kept.append((mine, theirs))
        if is_linked:
            flat, its = mine.flatten(1), theirs.flatten(1)
            kept.append((flat, its))
            same(compiled(flat), written(torch, its))
        same(compiled(mine), written(torch, theirs))
        for a, b in kept:
            same(a, b)
        if is_linked:
            del flat, its
            kept.pop()


def test_captures_do_not_return_two_that_are_linked():
    compiled = adjit.compile(lambda x: both(adjit, x))
    for k in range(4):
        (a, flat), (b, its) = compiled(image(adjit, k)), both(torch, image(torch, k))
        flat.add_(1), its.add_(1)
        same(a, b)
        same(flat, its)
    whole = adjit.compile(lambda x: both(adjit, x), fullgraph=True)
    linked = adjit.compile(lambda y: written(adjit, y), fullgraph=True)
    y = results()[0]
    flat = y.flatten(1)
    linked(y)  # which is not captured yet
    with pytest.raises(
        RuntimeError, match="it writes into a tensor that is linked with another one"
    ):
        linked(y)
    whole(image(adjit, 0))
    with pytest.raises(RuntimeError, match="it returns a tensor and a copy that stands for a view"):
        whole(image(adjit, 0))


# ----- turned operands -----


TURNED: dict[str, Callable[[Any, Any], Any]] = {
    "filled": lambda T, x: x.t().masked_fill(x.t() > 3, 0.0),
    "filled by a tensor": lambda T, x: x.t().masked_fill(x.t() > 3, T.tensor(7.0)),
    "filled in place": lambda T, x: (x + 0).t().masked_fill_(x.t() > 3, 0.0),
    "from a tensor": lambda T, x: T.rsub(x.t(), x.t().contiguous()),
    "cross entropies": lambda T, x: T.nn.functional.binary_cross_entropy_with_logits(
        x.t(), (x.t() > 3).to(x.dtype).contiguous(), reduction="none"
    ),
    "rolled": lambda T, x: x.t().roll(1, 0),
    "moved nowhere": lambda T, x: x.t().roll(0, 0),
    "turned": lambda T, x: T.rot90(x.t(), 4),
    "flipped": lambda T, x: x.t().flip(0),
    "sorted": lambda T, x: x.t().sort(0, descending=True).values,
    "of norms": lambda T, x: T.nn.functional.rms_norm(x.t(), (4,)),
    "scaled": lambda T, x: x.t().renorm(2, 0, 1.0),
    "with a row": lambda T, x: T.select_scatter(x.t(), T.zeros(4), 0, 1),
    "distinct": lambda T, x: T.unique(x.t(), dim=1),
}


@pytest.mark.parametrize("way", ["recorded", "needs gradients", "captured"])
@pytest.mark.parametrize("name", TURNED)
def test_results_of_turned_matrices_can_be_seen_in_other_shapes_as_in_pytorch(name, way):
    found: list[Any] = []
    for T in (adjit, torch):
        x = T.arange(20.0).reshape(4, 5)

        def run(x, T=T):
            return TURNED[name](T, x)

        if way == "needs gradients":
            x.requires_grad_()
        if way == "captured" and T is adjit and name != "distinct":
            run = adjit.compile(run, fullgraph=True)
            run(x)
        y = run(x)
        found += [attempt(lambda y=y: y.view(-1)), y, y[1:] * 2, y.t().contiguous()]
    half = len(found) // 2
    for mine, theirs in zip(found[:half], found[half:], strict=True):
        assert isinstance(mine, Exception) == isinstance(theirs, Exception)
        if not isinstance(theirs, Exception):
            same(mine, theirs, name)


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 4, 5)])
def test_gradients_of_each_example_lie_as_the_weight_does(shape):
    found = []
    for T in (adjit, torch):
        layer, weight = T.nn.Linear(5, 3), T.arange(15.0).view(3, 5)

        def through_layer(weight, x, layer=layer, T=T):
            values = {"weight": weight, "bias": T.zeros(3)}
            return T.func.functional_call(layer, values, (x,)).square().sum()

        def product(weight, x):
            return (x @ weight).square().sum()

        xs = T.arange(7.0 * int(np.prod(shape))).view(7, *shape)
        for function, given in (
            (through_layer, weight), (product, weight.t()), (product, weight.t().contiguous())
        ):  # fmt: skip
            found.append(T.func.vmap(T.func.grad(function), (None, 0))(given, xs))
    for mine, theirs in zip(found[:3], found[3:], strict=True):
        assert told(mine) == told(theirs)
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_einsum_lays_its_results_as_pytorch(seed):
    """Of one to three operands, whose axes are summed, shared or of one alone, in any order."""
    rng = random.Random(seed)
    for _ in range(25):
        sizes = {letter: rng.randint(2, 5) for letter in "abcdef"}
        terms = [
            rng.sample("abcdef", rng.randint(1, 4)) for _ in range(rng.choice([1, 2, 2, 2, 3]))
        ]
        letters = list(dict.fromkeys(letter for term in terms for letter in term))
        result = rng.sample(letters, rng.randint(0, len(letters)))
        equation = ",".join(map("".join, terms)) + "->" + "".join(result)
        arrays = [
            np.random.default_rng(seed).standard_normal([sizes[c] for c in term]) for term in terms
        ]
        mine, theirs = [T.einsum(equation, *map(T.tensor, arrays)) for T in (adjit, torch)]
        if len(terms) < 3:  # of more, what is made between has an order of its own
            assert told(mine) == told(theirs), equation
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9)
