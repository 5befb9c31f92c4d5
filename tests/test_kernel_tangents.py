"""Forward mode of users' kernels on tensors: duals, Jacobians, Hessians, in `vmap` and around it."""

import math

import numpy as np
import pytest

import adjit
from adjit import func
from adjit.autograd import forward_ad

pytestmark = pytest.mark.in_turn(2)


@adjit.kernel
def smooth(x, rate):
    y = np.empty_like(x)
    y[0] = x[0] * x[0]
    for i in range(1, len(x)):
        y[i] = rate * y[i - 1] * x[i] + math.sin(x[i])
    return y


@adjit.kernel
def softdtw(costs, gamma):
    n, m = costs.shape
    r = np.full((n + 1, m + 1), np.inf)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a, b, c = -r[i - 1, j - 1] / gamma, -r[i - 1, j] / gamma, -r[i, j - 1] / gamma
            top = max(a, b, c)
            total = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = costs[i - 1, j - 1] - gamma * (math.log(total) + top)
    return r[n, m]


@adjit.kernel
def heat(u, rate):
    """Arrays that change places, and a loop whose end depends on the data."""
    v = u.copy()
    u = u * 1.0
    rounds = 0
    while v[1] * v[1] > 0.3 and rounds < 3:
        for i in range(1, len(u) - 1):
            v[i] = u[i] + rate * (u[i - 1] - 2.0 * u[i] + u[i + 1]) * u[i]
        u, v = v, u
        rounds += 1
    return u[1] * u[2] + rounds, rounds, v


@adjit.kernel
def several(x, out, n):
    for i in range(len(x)):
        out[i] += x[i] ** n
    return np.sum(x), x * out, n + 1, np.ones(2)


X = [0.31, 0.72, -0.55, 0.93]


def tensor(values):
    return adjit.tensor(values, dtype=adjit.float64)


def arguments(f):
    if f is softdtw:
        return tensor(np.random.default_rng(1).random((2, 3)).tolist()), tensor(0.7)
    return tensor(X), tensor(0.6)


def close(a, b):
    adjit.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.in_turn(3)
def test_all_ways_to_derivatives_agree():
    x, rate = arguments(smooth)
    jacobian = func.jacfwd(smooth)(x, rate)
    close(jacobian, func.jacrev(smooth)(x, rate))
    close(func.jvp(lambda v: smooth(v, rate), (x,), (x.cos(),))[1], jacobian @ x.cos())
    expected = func.jacrev(func.jacrev(smooth))(x, rate)
    assert float(expected.abs().max()) > 0.1
    for one in (func.jacfwd, func.jacrev):
        close(one(func.jacfwd(smooth))(x, rate), expected)
    close(func.jacfwd(func.jacrev(smooth))(x, rate), expected)


def test_the_hessian_of_a_kernel_with_a_border_of_infinity():
    costs, gamma = arguments(softdtw)
    found = func.hessian(softdtw)(costs, gamma)
    close(found, func.jacrev(func.jacrev(softdtw))(costs, gamma))
    assert float(found.abs().max()) > 0.1


def test_gradcheck_of_forward_mode():
    x, rate = arguments(smooth)
    x.requires_grad_(), rate.requires_grad_()
    assert adjit.autograd.gradcheck(smooth, (x, rate), check_forward_ad=True)
    assert adjit.autograd.gradgradcheck(smooth, (x, rate), check_fwd_over_rev=True)


@adjit.kernel
def turns(x, rate):
    """Arrays that change places in a loop of a loop: the tangents cannot be read as a function."""
    u, v = x * x, x * rate
    for i in range(2):
        for _ in range(i + 1):
            u, v = v, u
        u[0] *= v[1] * u[0]
    return u[0] * v[2] + v[0]


def test_double_backward_where_tangents_cannot_be_read():
    x, rate = arguments(turns)
    x.requires_grad_(), rate.requires_grad_()
    assert adjit.autograd.gradgradcheck(turns, (x, rate))
    with pytest.raises(adjit.user_kernels.NotDifferentiable, match="that this loop writes"):
        func.jvp(lambda v: turns(v, rate), (x.detach(),), (x.detach(),))


@pytest.mark.in_turn(3)
def test_third_derivatives():
    def cubic(x, rate):
        return smooth(x, rate).sum()

    x, rate = arguments(smooth)
    forward = func.jacfwd(func.jacfwd(func.jacfwd(cubic)))(x, rate)
    assert float(forward.abs().max()) > 0.5
    close(func.jacrev(func.jacrev(func.jacrev(cubic)))(x, rate), forward)
    close(func.jacfwd(func.jacrev(func.jacfwd(cubic)))(x, rate), forward)


def test_duals_and_results_that_are_no_floats():
    x, rate = arguments(smooth)
    with forward_ad.dual_level():
        value, rounds, other = heat(forward_ad.make_dual(x, x.cos()), rate)
        tangent = forward_ad.unpack_dual(value).tangent
        of_array = forward_ad.unpack_dual(other).tangent
    assert isinstance(rounds, int)

    def total(v):
        return heat(v, rate)[0], heat(v, rate)[2]

    by_value, by_array = func.jacrev(total)(x)
    close(tangent, (by_value * x.cos()).sum())
    close(of_array, by_array @ x.cos())


def test_written_arguments_have_tangents():
    x, out = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    direction = tensor([1.0, 0.5])
    with forward_ad.dual_level():
        written = forward_ad.make_dual(out.clone(), tensor([10.0, 20.0]))
        total, product, count, ones = several(forward_ad.make_dual(x, direction), written, 2)
        tangents = [forward_ad.unpack_dual(t).tangent for t in (written, total, product, ones)]
    assert count == 3
    now = out + x * x
    change = tensor([10.0, 20.0]) + 2 * x * direction
    close(tangents[0], change)
    close(tangents[1], direction.sum())
    close(tangents[2], direction * now + x * change)
    close(tangents[3], tensor([0.0, 0.0]))

    def later(v):
        kept = v * 3.0
        several(v, kept, 2)
        return kept

    close(func.jacfwd(later)(x), func.jacrev(later)(x))
    with pytest.raises(RuntimeError, match="mutate a captured Tensor"):
        func.jvp(lambda v: several(v, out, 2)[0], (x,), (direction,))


def test_forward_mode_in_vmap_and_around_it():
    rows = tensor([X, X[::-1]])
    rate = tensor(0.6)

    def slope(x):
        return func.jvp(lambda v: smooth(v, rate), (x,), (x.cos(),))[1]

    close(func.vmap(slope)(rows), adjit.stack([slope(x) for x in rows]))
    batched = func.jvp(func.vmap(lambda v: smooth(v, rate)), (rows,), (rows.cos(),))[1]
    close(batched, func.vmap(slope)(rows))


def test_a_gradient_along_a_direction_of_its_seed():
    x, rate = arguments(smooth)
    _, back = func.vjp(smooth, x, rate)
    g = tensor([1.0, -2.0, 0.5, 3.0])
    value, along = func.jvp(lambda g: back(g)[0], (g,), (g.sin(),))
    close(value, back(g)[0])
    close(along, back(g.sin())[0])
