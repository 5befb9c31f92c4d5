"""Branches and loops as functions: `cond`, `while_loop`, `map`."""

import numpy as np
import pytest

import adjit
from adjit._higher_order_ops import cond, map, while_loop


@pytest.mark.parametrize("pred", [True, False, 1, 0.0, adjit.tensor(True), adjit.tensor([0])])
def test_cond_calls_one_branch_and_records_it(pred):
    x = adjit.tensor([0.5, 2.0], requires_grad=True)
    out = adjit.cond(pred, lambda x, y: (x * y).sin(), lambda x, y: x - y, (x, adjit.ones(2)))
    wanted = x.detach().sin() if bool(pred) else x.detach() - 1
    adjit.testing.assert_close(out.detach(), wanted)
    out.sum().backward()
    adjit.testing.assert_close(x.grad, x.detach().cos() if bool(pred) else adjit.ones(2))


def test_cond_in_a_compiled_function_follows_the_value():
    @adjit.compile
    def f(x):
        return cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))

    for sign in (1, 1, -1, 1, -1, -1):
        x = adjit.full((3,), float(sign))
        adjit.testing.assert_close(f(x), x * (2 if sign > 0 else 3))


TORCH_ERRORS = {
    "elements": lambda t, f: f(t.ones(2) > 0, abs, abs, (t.ones(2),)),
    "predicate": lambda t, f: f("a", abs, abs, (t.ones(2),)),
    "branch": lambda t, f: f(t.tensor(True), 3, abs, (t.ones(2),)),
    "operands": lambda t, f: f(t.tensor(True), abs, abs, (3,)),
}


@pytest.mark.parametrize("case", TORCH_ERRORS.values(), ids=TORCH_ERRORS)
def test_errors_of_cond_are_those_of_pytorch(case):
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as found:
        case(adjit, adjit.cond)
    with pytest.raises(RuntimeError) as wanted:
        case(torch, torch.cond)
    assert str(found.value).replace("adjit", "torch") == str(wanted.value)


def test_while_loop_goes_on_until_it_is_told():
    """Newton's root of 2, and its derivative: half of it."""
    x = adjit.tensor(2.0, dtype=adjit.float64, requires_grad=True)
    steps, (root, kept) = while_loop(
        lambda k, s: (k < 6) & (s[0] > 0), lambda k, s: (k + 1, ((s[0] + s[1] / s[0]) / 2, s[1])),
        (adjit.tensor(0), (x, x)),
    )  # fmt: skip
    assert steps.item() == 6
    assert kept is x
    assert root.item() == pytest.approx(np.sqrt(2), rel=1e-12)
    root.backward()
    assert x.grad.item() == pytest.approx(1 / (2 * np.sqrt(2)), rel=1e-9)


def test_while_loop_counts_ints_and_runs_no_step_for_nothing():
    assert while_loop(lambda k: k < 5, lambda k: (k + 2,), (0,)) == (6,)
    assert while_loop(lambda k: False, lambda k: 1 / 0, (3,)) == (3,)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda x: (x, x), "it must return the same"),
        (lambda x: (x.double(),), r"float64 \[2\] in its place"),
        (lambda x: (x[:1],), r"float32 \[1\] in its place"),
        (lambda x: (1,), "int in its place"),
    ],
)
def test_while_loop_refuses_a_body_that_returns_something_else(body, text):
    with pytest.raises(RuntimeError, match=text):
        while_loop(lambda x: True, body, (adjit.ones(2),))
    with pytest.raises(RuntimeError, match="callable"):
        while_loop(3, body, (adjit.ones(2),))
    with pytest.raises(RuntimeError, match="tensor or int leaves"):
        while_loop(lambda x: True, body, ("a",))


def test_map_stacks_what_rows_give():
    x = adjit.arange(12.0, dtype=adjit.float64).reshape(4, 3).requires_grad_()
    scale = adjit.tensor(2.0, dtype=adjit.float64, requires_grad=True)
    found = map(lambda row, s: {"sum": row["x"].sum() * s, "last": row["x"][-1]}, {"x": x}, scale)
    adjit.testing.assert_close(found["sum"], x.sum(1) * 2)
    adjit.testing.assert_close(found["last"], x[:, -1])
    found["sum"].square().sum().backward()
    adjit.testing.assert_close(x.grad, (x.sum(1, keepdim=True) * 8).expand(4, 3).detach())


@pytest.mark.parametrize(
    ("xs", "text"),
    [
        ([], "can only consist of tensors"),
        ([1], "can only consist of tensors"),
        (adjit.tensor(1.0), "must have a leading dimension"),
        (adjit.ones(0, 2), "cannot be 0"),
        ([adjit.ones(2), adjit.ones(3)], "must be consistent"),
    ],
)
def test_map_refuses_what_has_no_rows(xs, text):
    with pytest.raises(RuntimeError, match=text):
        map(lambda x: x, xs)
