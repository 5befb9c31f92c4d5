"""Parts of tensors that are read and written, with gradients, beside PyTorch: random programs, each so often
that what came back is done by machine code and by plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjit
from adjit.autograd import engine
from adjit.schedule import plan_cache
from adjit.schedule.jit import native

torch = pytest.importorskip("torch")

SHAPE = 4, 6
KEYS = (
    np.s_[1:3], np.s_[2], np.s_[:, 1], np.s_[:, 2:5], np.s_[1:-1, 1:-1], np.s_[::2, 1::2], np.s_[..., 3],
    np.s_[None, 1:], np.s_[3, 2:], np.s_[:, :], np.s_[1:3, ...], np.s_[0, 4], np.s_[0:4, 0:6], np.s_[2:2, 1],
)  # fmt: skip
VIEWS = (
    *[lambda x, key=key: x[key] for key in KEYS],
    lambda x: x.t()[1:4],
    lambda x: x.narrow(1, 1, 3),
    lambda x: x.select(0, 1),
    lambda x: x.diagonal(),
    lambda x: x.unfold(1, 3, 1),
    lambda x: x.expand(2, *SHAPE)[:, 1],
    lambda x: x.view(-1)[5:17],
    lambda x: x.as_strided((3, 3), (6, 2), 1),
    lambda x: x.permute(1, 0)[::2, 1:],
    lambda x: x[1:].view(3, 2, 3)[:, 1],
)
WRITES = (
    lambda part, y: part.mul_(0.5),
    lambda part, y: part.add_(y),
    lambda part, y: part.copy_(part * y),
    lambda part, y: part.zero_(),
    lambda part, y: part.fill_(1.5),
    lambda part, y: part.relu_(),
    lambda part, y: part.add_(0.5),
    lambda part, y: part.sub_(y, alpha=2),
    lambda part, y: part.clamp_(0.3, 1.2),
    lambda part, y: part.mul_(part),
    lambda part, y: part.addcmul_(y, y, value=0.5),
)

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "add", "write", "set", "augment", "whole"]),
        st.integers(0, 40), st.integers(0, 11),
    ),
    min_size=1, max_size=7,
)  # fmt: skip


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.5, shape)


def run(T: Any, steps: list[Step], is_graded: bool, moved: float = 0.0) -> list[Any]:
    """A loss, and the gradients of what it was made of."""
    leaf = T.tensor(values(*SHAPE) + moved, requires_grad=is_graded)
    factor = T.tensor(0.75 - moved, dtype=T.float64, requires_grad=is_graded)
    x, total = leaf * 1.25, factor * 1.0
    for kind, which, how in steps:
        view = VIEWS[which % len(VIEWS)]
        if kind == "read":
            total = total + (view(x) + factor).sin().sum()
        elif kind == "add":
            part, other = view(x), VIEWS[how % len(KEYS)](x)
            total = total + (part.sum() * other).sum()
        elif kind == "write" and which % len(VIEWS) not in (len(KEYS) + 4, len(KEYS) + 5):
            WRITES[how % len(WRITES)](view(x), factor)
        elif kind == "set":
            key = KEYS[which % len(KEYS)]
            x[key] = factor if how == 7 else x[key] * factor + how if how % 3 else float(how)
        elif kind == "augment":
            key = KEYS[which % len(KEYS)]
            if how % 4 == 3:
                x[key] = x[key] if how == 3 else x[key].detach()
            elif how % 4 == 2:
                x[how % 3] = x[3]
            elif how % 2:
                x[key] += factor if how % 3 else 0.5
            else:
                x[key] *= x[key]
        elif kind == "whole":
            x = WRITES[how % len(WRITES)](x, factor)
    total = total + (x * x).sum()
    if not is_graded:
        return [total, x]
    try:
        gradients = T.autograd.grad(total, [leaf, factor])
    except RuntimeError as error:  # what was saved has been written over
        if "modified by an inplace operation" not in str(error):
            raise
        return [total.detach(), x.detach()]
    return [total.detach(), x.detach(), *gradients]


@given(STEPS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_programs_of_views_and_writes(steps, is_graded):
    expected = [t.numpy() for t in run(torch, steps, is_graded)]
    for _ in range(4):
        found = [t.numpy() for t in run(adjit, steps, is_graded)]
        plan_cache.wait()
        assert len(found) >= len(expected)
        for ours, theirs in zip(found, expected, strict=False):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        detaches = any(kind == "augment" and how in (7, 11) for kind, _, how in steps)
        if len(found) > len(expected) and not detaches:  # PyTorch had to keep what was written over
            above, below = (float(run(torch, steps, False, step)[0]) for step in (1e-6, -1e-6))
            slope = found[2].sum() - found[3]
            np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6, atol=1e-6)


def stencil(x: Any) -> Any:
    return x[2:, 1:-1] * 2 + x[:-2, 1:-1] * 3 + x[1:-1, 2:] * x[1:-1, :-2]


@pytest.mark.parametrize("shape", [(4, 5), (60, 50)])  # small gradients wait to be summed at once
@pytest.mark.parametrize("is_first", [True, False])
def test_gradients_of_parts_are_added_where_the_others_are(shape, is_first, monkeypatch):
    """And are the same bits as padded ones, by either recorder."""

    def gradient() -> Any:
        x = adjit.tensor(values(*shape), requires_grad=True)
        whole = (x * 3).sum() + (x * x).sum()  # arrive before those of parts, or after
        parts = stencil(x).sum()
        loss = whole + parts if is_first else parts + whole
        return adjit.autograd.grad(loss, x)[0].tolist()

    for _ in range(4):
        found = gradient()
        plan_cache.wait()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "advance", lambda *_: None)
        assert gradient() == found
        patch.setattr(engine.Walk, "add_part", lambda *_: False)
        padded = gradient()
    x = torch.tensor(values(*shape), requires_grad=True)
    ((x * 3).sum() + (x * x).sum() + stencil(x).sum()).backward()
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(found, padded, rtol=1e-12)


def test_a_gradient_that_others_hold_is_not_written_over():
    """The gradient of a sum goes to both of its terms, of which one gets that of a part too."""
    for T in (adjit, torch):
        for _ in range(12):
            x = T.tensor(values(*SHAPE), requires_grad=True)
            y, z = x * 2, x * 3
            loss = ((y + z) * 1.5).sum() + (z[1:3, 2] ** 2).sum()
            to_y, to_z = T.autograd.grad(loss, [y, z])
        assert to_y.tolist() == T.full(SHAPE, 1.5, dtype=T.float64).tolist()
        assert to_z[0].tolist() == [1.5] * 6
        assert to_z[1, 2].item() == 1.5 + 2 * z[1, 2].item()


def test_a_view_by_several_indices_is_one_node():
    x = adjit.ones(4, 5, requires_grad=True)
    for key, name in (
        (np.s_[1:, 2], "SelectBackward0"), (np.s_[1, 2:], "SliceBackward0"),
        (np.s_[1:, 2:, None], "UnsqueezeBackward0"), (np.s_[1:, :, ...], "SliceBackward0"),
    ):  # fmt: skip
        fn = x[key].grad_fn
        assert fn.name() == name
        assert fn.next_functions[0][0].variable is x


def test_second_derivatives_of_parts():
    found = []
    for T in (adjit, torch):
        x = T.tensor(values(*SHAPE), requires_grad=True)
        y = (x[1:3, 2:5] ** 3).sum() * x[0, 1] + (x[:, 1:-1] * x[:, 2:]).sum()
        (first,) = T.autograd.grad(y, x, create_graph=True)
        (second,) = T.autograd.grad((first[1:, 1:] ** 2).sum(), x)
        found.append([first.tolist(), second.tolist()])
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_the_gradient_of_an_axis_that_was_added_is_a_view():
    fn = adjit.ones(4, 5, requires_grad=True)[None, :, :].grad_fn
    assert fn.name() == "UnsqueezeBackward0"
    g = adjit.ones(1, 4, 5)
    assert fn.context.function(g)._storage is g._storage


def of_numpy(T: Any, a: Any) -> Any:
    return T.from_numpy(a).requires_grad_()


def shown_to_numpy(T: Any, a: Any) -> Any:
    source = T.tensor(a, requires_grad=True)
    shown.append(source.detach().numpy())
    return source


shown: list[Any] = []


@pytest.mark.parametrize("made", [of_numpy, shown_to_numpy])
def test_what_was_written_is_what_memory_had_then(made):
    """Somebody else writes there before anything is read."""
    for T in (adjit, torch):
        for _ in range(12):
            given = np.ones(3)
            shown.clear()
            source = made(T, given)
            x = T.zeros(4, 3, dtype=T.float64)
            x[1] = source
            for memory in (given, *shown):
                memory[:] = 7
            assert x.tolist() == [[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3]
            (g,) = T.autograd.grad((x * 2).sum(), source)
            assert g.tolist() == [2.0] * 3


def test_elements_that_are_one_in_memory_are_not_written():
    for T in (adjit, torch):
        source = T.ones(2, 3, requires_grad=True)
        for _ in range(12):
            base = T.zeros(3)
            with pytest.raises(
                RuntimeError, match="more than one element of the written-to tensor"
            ):
                base.expand(2, 3).copy_(source)
            assert base.tolist() == [0.0] * 3


# ----- views that are remembered -----


@pytest.fixture
def machine_code():
    for family in native.families:
        assert family.load(compiling=True)


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("T", [adjit, torch])
def test_parts_are_written_one_by_one_where_pytorch_makes_them_one_by_one(T):
    for _ in range(4):
        x = T.arange(6.0).view(2, 3).requires_grad_() * 1
        for parts in (x.tensor_split(2, 1), x.hsplit(3), x.vsplit(2)):
            parts[0].mul_(2)
        x.sum().backward()
        with pytest.raises(RuntimeError, match="multiple views"):
            x.split(1)[0].mul_(2)
        leaf, plain = T.ones(2, 1).requires_grad_(), T.zeros(2, 3)
        plain.hsplit(3)[1].add_(leaf)
        plain.sum().backward()
        assert leaf.grad.tolist() == [[1.0], [1.0]]
        with pytest.raises(RuntimeError, match="multiple views"):
            T.zeros(2, 3).split(1, 1)[0].add_(leaf)


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("T", [adjit, torch])
def test_strides_from_the_first_element_on_are_those_of_each_tensor(T):
    flat = T.arange(20.0)
    for start in (0, 3, 5, 8):
        x = flat[start : start + 9].view(3, 3)
        assert x.as_strided((2, 2), (3, 1)).tolist() == [
            [start, start + 1.0],
            [start + 3.0, start + 4],
        ]
        assert x.as_strided((2,), (2,), 1).tolist() == [1.0, 3.0]
        assert x.unfold(1, 2, 1)[0].tolist() == [[start, start + 1.0], [start + 1.0, start + 2]]


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("T", [adjit, torch])
def test_strides_that_leave_a_tensor_are_checked_each_time(T):
    whole = T.arange(12.0)
    for k in range(4):
        assert whole[:4].as_strided((2,), (9,)).tolist() == [0.0, 9.0]  # within the memory
        with pytest.raises(RuntimeError, match="out of bounds"):
            (whole[:4] + k).as_strided((2,), (9,))


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_the_gradient_of_a_written_tensor_may_be_a_part_of_another_one(order):
    """What was recorded for a gradient with a memory of its own was used for one that begins elsewhere."""
    for in_cat in (*[order[0]] * 5, *[order[1]] * 5, order[0]):
        u = adjit.arange(6.0, requires_grad=True)
        y = u * 1
        y[3:5] = 1
        weights = adjit.arange(12.0) + 1
        if in_cat:
            (adjit.cat([u * 0, y]) * weights).sum().backward()
        else:
            (y * weights[6:]).sum().backward()
        assert u.grad.tolist() == [7, 8, 9, 0, 0, 12]
