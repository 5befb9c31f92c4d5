"""`adjit.elementwise`: users' functions of numbers as ops, beside themselves as plain Python."""

import math
import sys
import types

import fuzz_elementwise
import numpy as np
import pytest
from numba import njit, prange

import adjit
from adjit.user_kernels import NotDifferentiable, scalar_reverse
from adjit.user_kernels.scalar_programs import ScalarParameter, read_program

RNG = np.random.default_rng(26)


def by_python(f, *operands, **settings):
    """The function itself, element by element."""
    arrays = [
        a.detach().numpy() if isinstance(a, adjit.Tensor) else np.asarray(a) for a in operands
    ]
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    wide = [np.broadcast_to(a, shape) for a in arrays]
    found = [f.py_func(*[a[at].item() for a in wide], **settings) for at in np.ndindex(*shape)]
    several = [np.array(part) for part in zip(*found, strict=True)] if isinstance(found[0], tuple) else (
        [np.array(found)]
    )  # fmt: skip
    return [part.reshape(shape) for part in several]


def assert_right(f, *operands, second=False, **settings):
    """Values beside plain Python, first and second derivatives beside differences, in float64."""
    made = f(*operands, **settings)
    several = made if isinstance(made, tuple) else (made,)
    for found, wanted in zip(several, by_python(f, *operands, **settings), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12, atol=1e-14)
    given = [
        a.detach().clone().requires_grad_()
        if isinstance(a, adjit.Tensor) and a.is_floating_point()
        else a
        for a in operands
    ]

    def call(*tensors):
        return f(*tensors, **settings)

    assert adjit.autograd.gradcheck(call, given)
    if second:
        assert adjit.autograd.gradgradcheck(call, given)


def floats(low, high, *shape):
    return adjit.tensor(RNG.uniform(low, high, shape or (5,)))


# ----- statements -----


def test_branches():
    @adjit.elementwise
    def f(x, d):
        if x > d:
            y = d * (x - 0.5 * d)
        elif x < -d:
            y = -d * (x + 0.5 * d)
        else:
            y = 0.5 * x * x
        return y

    assert_right(f, floats(-3, 3, 9), floats(0.5, 1.5, 9))


def test_early_return():
    @adjit.elementwise
    def f(x):
        if x < 0.0:
            return math.exp(x)
        if x < 1.0:
            return 1.0 + math.sin(x)
        return x * x

    assert_right(f, floats(-2, 2, 9))


def test_while_with_break_and_continue():
    @adjit.elementwise
    def f(x):
        total, k = 0.0, 0
        while True:
            k += 1
            if k == 2:
                continue
            total += x**k / k
            if k > 6 or total > 3.0:
                break
        return total

    assert_right(f, floats(0.1, 1.4, 7))


def test_while_with_a_test():
    @adjit.elementwise
    def f(x):
        y = x
        while y > 1.0:
            y = 0.7 * y - 0.01 * x
        return y * x

    assert_right(f, floats(0.5, 9, 7))


def test_nested_loops_that_are_left():
    @adjit.elementwise
    def f(x, limit):
        s = x
        for i in range(1, 5):
            for j in range(i):
                s += math.cos(x * j) * s / i
                if s > limit:
                    return s * x
            if s < -limit:
                break
        return s + x

    assert_right(f, floats(0.2, 2, 8), floats(2, 4, 8))


def test_several_results_from_within_a_loop():
    @adjit.elementwise
    def f(x):
        for k in range(4):
            x = x * 0.8
            if x < 0.3:
                return x, k
        return x * x, 9

    assert f(adjit.tensor([1.0, 0.4]))[1].tolist() == [9, 1]
    x = adjit.tensor([1.0, 0.4], requires_grad=True)
    f(x)[0].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2 * 0.8**8, 0.8**2], rtol=1e-6)


def test_ranges_with_steps():
    @adjit.elementwise
    def f(x):
        s = 0.0
        for k in range(5, 0, -2):
            s = s * x + k
        return s

    assert_right(f, floats(-1, 1))


def test_a_local_that_changes_type():
    @adjit.elementwise
    def f(x):
        y = 1
        if x > 0.0:
            y = y * x
        z = 0
        for k in range(3):
            z = z + y * k
        return z

    assert_right(f, floats(-1, 1, 6))


def test_conditions_without_branches():
    @adjit.elementwise
    def f(x, y):
        a = x if x > y and not y < -0.5 else y * y
        return a if 0.0 < a <= 0.8 or x < -0.9 else math.sqrt(2.0 + a)

    assert_right(f, floats(-1, 1, 9), floats(-1, 1, 9))


def test_several_results():
    @adjit.elementwise
    def f(r, t):
        return r * math.cos(t), r * math.sin(t)

    r, t = floats(1, 2), floats(0, 3)
    assert_right(f, r, t)
    x, y = f(r, t)
    assert isinstance(f(r, t), tuple)
    np.testing.assert_allclose(np.hypot(x.numpy(), y.numpy()), r.numpy())


def test_a_tuple_of_one_result_stays_a_tuple():
    @adjit.elementwise
    def f(x):
        return (x * x,)

    (y,) = f(adjit.tensor([3.0]))
    assert y.item() == 9.0


def poly(x, a):
    s = 0.0
    for k in range(3):
        s = s * x + a * k
    return s


compiled = njit(poly)


def test_calls_of_other_functions():
    @adjit.elementwise
    def inner(x):
        return x * x if x > 0.0 else -x

    @adjit.elementwise
    def f(x, a):
        return compiled(x, a) + poly(a, x) * inner(x) + inner(x=a)

    assert_right(f, floats(-1, 1, 7), floats(-1, 1, 7))


def test_defaults_and_keywords():
    @adjit.elementwise
    def f(x, a=2.0, *, scale=3.0):
        return scale * x**a

    x = adjit.tensor([1.0, 2.0])
    assert f(x).tolist() == [3.0, 12.0]
    assert f(x, scale=1.0).tolist() == [1.0, 4.0]
    assert f(a=x, x=x).tolist() == [3.0, 12.0]


def test_functions_of_math():
    @adjit.elementwise
    def f(x):
        y = (
            math.exp(x)
            + 2 * math.expm1(x)
            - 3 * math.log(x)
            + 4 * math.log1p(x)
            - math.log2(x)
            + math.log10(x)
        )
        y += (
            math.sin(x)
            - 2 * math.cos(x)
            + 3 * math.tan(x)
            + math.sinh(x)
            - 2 * math.cosh(x)
            + 3 * math.tanh(x)
        )
        y += (
            math.asin(x)
            + 2 * math.acos(x)
            - 3 * math.atan(x)
            + math.asinh(x)
            - 2 * math.acosh(x + 1.5)
        )
        y += (
            math.atanh(x)
            + math.sqrt(x)
            - math.erf(x)
            + 2 * math.erfc(x)
            + math.lgamma(x)
            + math.fabs(x - 0.6)
        )
        return y * x

    assert_right(f, floats(0.5, 0.8, 3))


def test_functions_of_two_numbers():
    @adjit.elementwise
    def f(x, y):
        return (
            math.atan2(x, y) + math.hypot(x, y) + math.copysign(x, y) + math.pow(x, y)
            + np.arctan2(y, x) + max(x, y, 0.5) + min(x, y) + np.maximum(x, y) * np.minimum(x, 0.9)
        )  # fmt: skip

    assert_right(f, floats(0.4, 2), floats(0.4, 2), second=True)


def test_operators():
    @adjit.elementwise
    def f(x, y):
        return (x % y) * (x // y + 2.0) + x**y - (-x) / y + +y + x**2 + y**-1 + abs(x - y) + x**3

    assert_right(f, floats(1, 5, 7), floats(1, 2, 7), second=True)


def test_functions_of_numpy():
    @adjit.elementwise
    def f(x):
        a = np.where(x > 0.0, np.exp(-x), np.square(x)) + np.clip(x, -0.5, 0.5)
        return a + np.sin(x) * np.sqrt(np.abs(x) + 1.0) + np.power(x, 2) + np.sign(x) * np.floor(x)

    assert_right(f, floats(-2, 2, 9))


def test_functions_that_are_constant_between_jumps_have_a_gradient_of_zero():
    @adjit.elementwise
    def f(x):
        return math.floor(x) + int(x) + np.ceil(x) + round(x) + x // 2.0 + np.trunc(x)

    x = adjit.tensor([-1.3, 0.2, 2.7], dtype=adjit.float64, requires_grad=True)
    assert f(x).tolist() == [f.py_func(v) for v in x.tolist()]
    f(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_what_a_branch_did_not_take_contributes_nothing():
    @adjit.elementwise
    def f(x):
        return math.sqrt(x) if x > 0.0 else 0.0

    @adjit.elementwise
    def g(x, y):
        return x * math.log(y) if y > 0.0 else x

    x = adjit.tensor([0.0, 4.0, -1.0], requires_grad=True)
    f(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25, 0.0]
    y = adjit.tensor([0.0, 1.0, -1.0], requires_grad=True)
    x.grad = None
    g(x, y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0, 0.0, 1.0], [0.0, 4.0, 0.0])


def test_division_by_zero_is_infinity():
    @adjit.elementwise
    def f(x, y):
        return x / y

    assert f(adjit.tensor([1.0, -1.0, 0.0]), 0.0).tolist()[:2] == [math.inf, -math.inf]


# ----- kinds of numbers -----


def test_whole_numbers_stay_whole():
    @adjit.elementwise
    def collatz(n):
        k = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            k += 1
        return k

    n = adjit.arange(1, 30)
    steps = collatz(n)
    assert steps.dtype is adjit.int64
    assert steps.tolist() == [collatz.py_func(k) for k in range(1, 30)]
    assert collatz(n.to(adjit.uint8)).tolist() == steps.tolist()
    big = adjit.tensor([2**53 + 1])

    @adjit.elementwise
    def next_one(n):
        return n + 1

    assert next_one(big).tolist() == [2**53 + 2]


def test_whole_numbers_beside_floats():
    @adjit.elementwise
    def power(x, n):
        y = 1.0
        for _ in range(n):
            y *= x
        return y

    x = floats(0.5, 1.5, 4)
    assert_right(power, x, adjit.tensor([0, 1, 2, 5]))
    assert_right(power, x, 3)
    n = adjit.tensor([2**24 + 1])

    @adjit.elementwise
    def last_digits(x, n):
        return x * (n % 100)

    assert last_digits(adjit.tensor([1.0]), n).tolist() == [float((2**24 + 1) % 100)]
    assert last_digits(adjit.tensor([1.0]), 2**60 + 3).tolist() == [float((2**60 + 3) % 100)]


def test_arithmetic_of_whole_numbers():
    @adjit.elementwise
    def f(a, b):
        return a // b * 1000 + a % b + (a & b) + (a | b) - (a ^ b) + (a << 2) + (a >> 1) + ~a + a**2 + (
            abs(a) + min(a, b) - max(a, b, 3) + (a > b) + (-a)
        )  # fmt: skip

    a, b = adjit.tensor([7, -7, 9, 0, 12]), adjit.tensor([3, 3, -4, 5, 12])
    assert f(a, b).tolist() == by_python(f, a, b)[0].tolist()
    assert f(a, b).dtype is adjit.int64

    @adjit.elementwise
    def of_zero(a, b):
        return a // b, a % b, a / b

    quotient, rest, ratio = of_zero(a, 0)
    assert (quotient.tolist(), rest.tolist()) == ([0] * 5, [0] * 5)
    assert ratio.dtype is adjit.float32


def test_truth_values():
    @adjit.elementwise
    def inside(x, y, closed):
        r = x * x + y * y
        return r <= 1.0 if closed else r < 1.0

    x = adjit.tensor([0.0, 1.0, 1.0])
    assert inside(x, 0.0, True).tolist() == [True, True, True]
    assert inside(x, 0.0, adjit.tensor([True, True, False])).tolist() == [True, True, False]
    assert inside(x, 0.0, False).dtype is adjit.bool

    @adjit.elementwise
    def chosen(flag, x):
        return x * x if flag else x * (not flag) + (flag & True)

    assert_right(chosen, adjit.tensor([True, False]), floats(-1, 1, 2))


@pytest.mark.parametrize("dtype", [adjit.float32, adjit.float64], ids=repr)
def test_every_float_dtype(dtype):
    @adjit.elementwise
    def f(x, y):
        a = 2.5 * x
        for k in range(3):
            a = a / 3 + y * k
            if a > 1.5:
                return a - 0.1
        return a * a

    x, y = floats(-2, 2, 6).to(dtype).requires_grad_(), floats(-1, 1, 6).to(dtype)
    made = f(x, y)
    assert made.dtype is dtype
    exact = f(x.detach().double().requires_grad_(), y.double())
    few = 4 * adjit.finfo(dtype).eps
    np.testing.assert_allclose(
        made.double().detach().numpy(), exact.detach().numpy(), rtol=few, atol=few
    )
    (g,) = adjit.autograd.grad(made.sum(), x)
    assert g.dtype is dtype
    # In float32 all is float32: no number of the text makes a float64 of it.
    if dtype is adjit.float32:
        text = f(x, y).kernels()
        assert "float64" not in str(text)


def test_promotion():
    @adjit.elementwise
    def f(x, y):
        return x + 0.5 * y

    for a, b in [(adjit.float32, adjit.float64), (adjit.int64, adjit.float64), (adjit.int32, adjit.float32),
                 (adjit.int64, adjit.int32), (adjit.bool, adjit.int8)]:  # fmt: skip
        x, y = adjit.ones(3, dtype=a), adjit.ones(3, dtype=b)
        assert f(x, y).dtype is (x + 0.5 * y).dtype
    assert f(adjit.ones(3), adjit.ones((), dtype=adjit.float64)).dtype is adjit.float32
    assert f(adjit.ones(3), 2.0).dtype is adjit.float32


# ----- as any op -----


@adjit.elementwise
def bend(x, d):
    if x > d:
        return d * (x - 0.5 * d) + math.sin(x)
    for k in range(3):
        if x < -d * k:
            x = x * 0.9 + 0.1 * d
    return 0.5 * x * x


def test_broadcasting_and_layouts():
    x, d = adjit.tensor(RNG.standard_normal((4, 6))), adjit.tensor(RNG.random((4, 6)) + 0.2)
    wanted = bend(x, d)
    np.testing.assert_allclose(wanted.numpy(), by_python(bend, x, d)[0], rtol=1e-14)
    layouts = {
        "transposed": (x.t().contiguous().t(), d.t().contiguous().t()),
        "one transposed": (x.t().contiguous().t(), d),
        "strided": (adjit.stack([x, x], 2)[:, :, 1], adjit.stack([d, d], 2)[:, :, 0]),
        "shifted": (adjit.cat([x, x])[4:], d),
    }
    for name, (a, b) in layouts.items():
        assert bend(a, b).tolist() == wanted.tolist(), name
    assert bend(x[:, :1], d[0]).tolist() == bend(x[:, :1].expand(4, 6), d[:1].expand(4, 6)).tolist()
    assert bend(x, d[0, 0]).tolist() == bend(x, d[0, 0].item()).tolist()
    assert bend(x[:0], d[:0]).shape == (0, 6)
    assert bend(x[0, 0], 0.5).shape == ()
    with pytest.raises(RuntimeError, match="must match the size"):
        bend(x, d[:, :4])
    narrow = d[:, :1].clone().requires_grad_()
    bend(x, narrow).sum().backward()
    assert narrow.grad.shape == (4, 1)


def steps_of_a_program(x, y):
    a, b = rotated(x, bend(y, 0.7))
    z = (bend(a, 0.3) * 2).exp() + adjit.sin(b)
    return z, z.sum()


@adjit.elementwise
def rotated(x, y):
    c = math.cos(x * y)
    return c * x - y, c * y + x if y > 0.0 else y


@pytest.mark.parametrize("dtype", [adjit.float32, adjit.float64], ids=repr)
def test_fused_and_unfused_have_the_same_bits(dtype):
    x = adjit.tensor(RNG.standard_normal(3000)).to(dtype)
    y = adjit.tensor(RNG.standard_normal(3000)).to(dtype)

    def run():
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        z, total = steps_of_a_program(a, b)
        total.backward()
        return [z.detach().numpy(), a.grad.numpy(), b.grad.numpy()]

    first = run()
    for _ in range(3):  # from the second on it is planned, fused
        for one, other in zip(first, run(), strict=True):
            np.testing.assert_array_equal(one, other)
    text = str(steps_of_a_program(x, y)[0].kernels())
    assert "bend_f" in text
    assert "fused" in text


@adjit.elementwise
def larger(x, y):
    return np.maximum(x, y)


@adjit.elementwise
def smaller(x, y):
    return np.minimum(x, y)


@adjit.elementwise
def length(x, y):
    return np.hypot(x, y)


@adjit.elementwise
def direction(x, y):
    return np.sign(x) + 0.0 * (y == y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [larger, smaller, length, direction])
def test_numpys_functions_at_special_points(function, dtype):
    large = np.finfo(dtype).max / 4
    points = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, large, 1 / large], dtype)
    x, y = (np.tile(a.ravel(), 8) for a in np.meshgrid(points, points))
    found = function(adjit.tensor(x), adjit.tensor(y)).numpy()
    with np.errstate(all="ignore"):
        wanted = function.py_func(x, y)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps, atol=0)


def test_kernels_shows_the_function():
    x = adjit.ones(4000)
    text = str((bend(x, 1.0) + x).kernels())
    assert "fused user_bend, add" in text


def test_out():
    x, out = adjit.tensor([-1.0, 2.0]), adjit.empty(2)
    assert bend(x, 1.0, out=out) is out
    assert out.tolist() == bend(x, 1.0).tolist()
    a, b = adjit.empty(2), adjit.empty(2)
    rotated(x, x, out=(a, b))
    assert [a.tolist(), b.tolist()] == [t.tolist() for t in rotated(x, x)]
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        bend(x.clone().requires_grad_(), 1.0, out=out)


def test_numbers_alone_run_the_function_itself():
    assert bend(2.0, 1.0) == bend.py_func(2.0, 1.0)
    assert rotated(0.5, y=1.0) == rotated.py_func(0.5, 1.0)


def test_vmap_and_forward_mode():
    x, d = adjit.tensor(RNG.standard_normal((3, 4))), adjit.tensor(RNG.random(4) + 0.2)
    mapped = adjit.vmap(bend, in_dims=(0, None))(x, d)
    assert mapped.tolist() == bend(x, d).tolist()
    assert adjit.vmap(bend, in_dims=(None, 0))(x[0, 0], d).tolist() == bend(x[0, 0], d).tolist()
    a, b = adjit.vmap(rotated)(x, x)
    assert [a.tolist(), b.tolist()] == [t.tolist() for t in rotated(x, x)]
    along = adjit.tensor(RNG.standard_normal((3, 4)))
    _, tangent = adjit.func.jvp(lambda x: bend(x, d), (x,), (along,))
    slope = adjit.func.grad(lambda x: bend(x, d).sum())(x)
    np.testing.assert_allclose(tangent.numpy(), (slope * along).numpy(), rtol=1e-12)
    by_example = adjit.vmap(adjit.func.grad(lambda x, d: bend(x, d).sum()))(x, d.expand(3, 4))
    np.testing.assert_allclose(by_example.numpy(), slope.numpy(), rtol=1e-12)
    assert adjit.autograd.gradcheck(
        lambda x: bend(x, d),
        x.clone().requires_grad_(),
        check_forward_ad=True,
    )


def test_gradients_of_any_order():
    @adjit.elementwise
    def f(x, n):
        y = 1.0
        for _ in range(n):
            y *= x
        return y + math.exp(2.0 * x) + math.lgamma(x)

    x = adjit.tensor([0.7, 1.3], dtype=adjit.float64, requires_grad=True)
    y, found = f(x, 5), []
    for _ in range(4):
        (y,) = adjit.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.detach().numpy())
    from scipy.special import polygamma

    v = x.detach().numpy()
    factors = [5, 20, 60, 120]
    for k, derivative in enumerate(found, 1):
        wanted = factors[k - 1] * v ** (5 - k) + 2**k * np.exp(2 * v) + polygamma(k - 1, v)
        np.testing.assert_allclose(derivative, wanted, rtol=1e-11)


SCALE = 2.0


@adjit.elementwise
def scaled(x):
    return SCALE * x


def test_constants_are_guards():
    global SCALE
    x = adjit.tensor([1.0, 2.0])
    try:
        assert scaled(x).tolist() == [2.0, 4.0]
        SCALE = 3.0
        assert scaled(x).tolist() == [3.0, 6.0]
        program = adjit.compile(lambda x: scaled(x) + 1.0)
        for _ in range(4):
            assert program(x).tolist() == [4.0, 7.0]
        SCALE = 5.0
        for _ in range(4):
            assert program(x).tolist() == [6.0, 11.0]
    finally:
        SCALE = 2.0


def test_closures_are_guards():
    def with_power(n):
        def inner(x):
            return x**n

        def change(to):
            nonlocal n
            n = to

        @adjit.elementwise
        def f(x):
            return inner(x) + n

        return f, change

    f, change = with_power(2)
    g, _ = with_power(3)
    x = adjit.tensor([2.0])
    assert (f(x).item(), g(x).item()) == (6.0, 11.0)
    change(4)
    assert (f(x).item(), g(x).item()) == (20.0, 11.0)


def test_settings():
    @adjit.elementwise
    def newton(a, *, rounds=3, start=1.0, is_inverse=False):
        y = start
        for _ in range(rounds):
            y = 0.5 * (y + a / y)
        return 1.0 / y if is_inverse else y

    a = floats(0.5, 2)
    assert_right(newton, a)
    assert_right(newton, a, rounds=5, start=0.5, is_inverse=True)
    before = len(newton._programs)
    for rounds in [*range(6)] * 4:  # machine code records from some call on
        wanted = newton.py_func(2.0, rounds=rounds)
        assert newton(adjit.tensor([2.0], dtype=adjit.float64), rounds=rounds).item() == wanted
    assert len(newton._programs) == before  # no setting is compiled in
    with pytest.raises(TypeError, match="the setting 'rounds' must be a number, not Tensor"):
        newton(a, rounds=adjit.tensor(3))


def test_compile():
    def program(x, d):
        a, b = rotated(x, d)
        return (bend(a, d) * b).sum()

    fast = adjit.compile(program)
    x, d = adjit.tensor(RNG.standard_normal(2000)), adjit.tensor(RNG.random(2000))
    for _ in range(4):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        fast(a, d).backward()
        program(b, d).backward()
        np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_any_name_of_a_parameter():
    @adjit.elementwise
    def f(g, out, g_x, x, T, i, p, result_0, args):
        in_0 = g + out * g_x
        for start in range(2):
            in_0 = in_0 * x + T - start
        stop = in_0 * i * p + result_0 / args
        return stop, g

    operands = [floats(0.5, 1.5, 2) for _ in range(9)]
    assert_right(f, *operands)
    x = [adjit.ones(2000, requires_grad=True) for _ in range(9)]
    total = f(*x)[0] + f(*x)[1]
    total.sum().backward()


def of_many(a, b, c, d, e, h, flag):
    x = a * b + math.sin(c)
    y = max(x, d) if flag else d / e
    if x > 0.2:
        z = x * y * h
        if z < b:
            z = z * z + math.exp(-h * a)
            w = c
        else:
            w = math.sqrt(abs(a) + 1.0) * x
    else:
        if e > h:
            return a * c - math.atan2(d, e) ** 2
        z = y - h
        w = b * b * b
        x, y = y, x
    u = z if w > 0.1 else z * w
    return u * x - y * w + np.clip(c, -0.3, h)


def of_rounds(a, b, c, d, e, h, flag):
    """A loop in a loop, each of which hands on one number with a slope, and ends early."""
    x = a * b
    rounds = 0
    while abs(x) < 3.0 and rounds < 6:
        y = x * c + d
        for _ in range(3):
            if y > 1.5:
                break
            y = y * 0.5 * e + math.sin(h) if flag else y - 0.25 * e * y
        x = x + math.cos(y) * h if y < 0.7 else x * 1.25 + e * math.sqrt(y)
        rounds += 1
    return x * a - c


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("of_many", [of_many, of_rounds])
def test_many_gradients_come_of_the_way_back(monkeypatch, of_many):
    """Beside forward mode, and to second order, as plain Python."""
    kinds = [ScalarParameter(name, "f") for name in "abcdeh"] + [ScalarParameter("flag", "b")]
    several = tuple(range(6))
    way_back = read_program(of_many, kinds).pullback(0, several)
    back = fuzz_elementwise.as_python(way_back, "float64")
    second = fuzz_elementwise.as_python(way_back.pullback(2, tuple(range(7))), "float64")
    monkeypatch.setattr(scalar_reverse, "MOST_TANGENTS", 6)
    forward_mode = read_program(of_many, kinds).pullback(0, several)
    forward = fuzz_elementwise.as_python(forward_mode, "float64")
    assert "back " in way_back._text()
    assert "back " not in forward_mode._text()
    for k in range(100):
        x = [*RNG.standard_normal(6)]
        found = np.array(back(1.3, *x, k % 2 == 0))
        np.testing.assert_allclose(found, forward(1.3, *x, k % 2 == 0), rtol=1e-10, atol=1e-13)
        slopes = second(1.0, 1.0, *x, k % 2 == 0)
        assert slopes[0] * 1.3 == pytest.approx(found[2], rel=1e-10, abs=1e-13)
        moved = [
            [v + s * 1e-6 * (j == i) for i, v in enumerate(x)] for j in range(6) for s in (1, -1)
        ]
        values = [back(1.0, *m, k % 2 == 0)[2] for m in moved]
        wanted = (np.array(values[::2]) - values[1::2]) / 2e-6
        np.testing.assert_allclose(slopes[1:], wanted, atol=1e-3 * (1 + np.abs(wanted).max()))


@pytest.mark.in_turn(3)
def test_random_functions_as_plain_python():
    assert fuzz_elementwise.main(12, 700, seconds=40)
    assert fuzz_elementwise.Program(1).source() == fuzz_elementwise.Program(1).source()


def test_a_function_with_the_name_of_an_op_is_not_that_op():
    """Products and convolutions compute the library's `relu` and `mul` at their ends."""

    @adjit.elementwise
    def relu(x):
        return x if x > 0.0 else 0.5 * x

    @adjit.elementwise
    def mul(x, y):
        return x - y

    @adjit.compile
    def of_product(x, weight, bias):
        return relu(adjit.nn.functional.linear(x, weight, bias))

    @adjit.compile
    def of_convolution(x, weight, row):
        return relu(mul(adjit.nn.functional.conv1d(x, weight), row))

    x, weight, bias = floats(-1, 1, 16, 8), floats(-1, 1, 12, 8), floats(-1, 1, 12)
    signal, taps = floats(-1, 1, 2, 3, 20), floats(-1, 1, 4, 3, 5)
    row = floats(-1, 1, 4, 1)
    product = x.numpy() @ weight.numpy().T + bias.numpy()
    convolved = adjit.nn.functional.conv1d(signal, taps).numpy() - row.numpy()
    for _ in range(3):
        found = of_product(x, weight, bias).numpy(), of_convolution(signal, taps, row).numpy()
        for y, before in zip(found, (product, convolved), strict=True):
            np.testing.assert_allclose(y, np.where(before > 0, before, 0.5 * before), atol=1e-12)


def test_prange_is_range():
    @adjit.elementwise
    def f(x):
        total = 0.0
        for k in prange(4):
            total += x**k / (k + 1)
        return total

    assert_right(f, floats(0.5, 2, 5))


# ----- derivatives of one's own -----


def newton_for_kepler(M, e, *, tol=1e-13):
    E = M
    for _ in range(50):
        step = (E - e * math.sin(E) - M) / (1.0 - e * math.cos(E))
        E -= step
        if abs(step) < tol:
            break
    return E


def test_keplers_equation_with_its_implicit_derivative():
    kepler = adjit.elementwise(newton_for_kepler)
    by_vjp = adjit.elementwise(newton_for_kepler)
    by_jvp = adjit.elementwise(newton_for_kepler)

    @by_vjp.vjp
    def _(g, e, out):
        slope = g / (1.0 - e * math.cos(out))
        return slope, slope * math.sin(out)

    @by_jvp.jvp
    def _(t_M, t_e, out, e):
        return (t_M + math.sin(out) * t_e) / (1.0 - e * math.cos(out))

    M = adjit.linspace(0.1, 3.0, 5, dtype=adjit.float64).requires_grad_()
    e = adjit.tensor(0.3, dtype=adjit.float64, requires_grad=True)
    found = []
    for f in (kepler, by_vjp, by_jvp):
        E = f(M, e)
        first = adjit.autograd.grad(E.sum(), (M, e), create_graph=True)
        second = adjit.autograd.grad(first[0].sum() + first[1], (M, e))
        tangent = adjit.func.jvp(
            f, (M.detach(), e.detach()), (adjit.ones(5).double(), adjit.ones(()).double())
        )[1]
        found.append([t.detach().numpy() for t in (E, *first, *second, tangent)])
    wanted = 1 / (1 - 0.3 * np.cos(found[0][0]))
    for parts in found:
        np.testing.assert_allclose(parts[1], wanted, rtol=1e-13)
        for one, other in zip(parts, found[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_rule_for_several_results():
    @adjit.elementwise
    def f(x, y):
        return x * y, x + y

    @f.jvp
    def _(x, y, t_x, t_y):
        return 10.0 * (t_x * y + t_y * x), t_x - t_y

    x, y = adjit.tensor([2.0], requires_grad=True), adjit.tensor([3.0], requires_grad=True)
    a, b = f(x, y)
    assert [t.item() for t in adjit.autograd.grad(a.sum(), (x, y))] == [30.0, 20.0]
    assert [t.item() for t in adjit.autograd.grad(b.sum(), (x, y))] == [1.0, -1.0]


def test_rules_of_other_names_are_refused():
    f = adjit.elementwise(poly)
    with pytest.raises(
        TypeError, match=r"poly.vjp: expected the parameters g and any of \['a', 'out', 'x'\]"
    ):
        f.vjp(lambda x, a: (x, a))
    with pytest.raises(TypeError, match=r"poly.jvp: expected the parameters t_x, t_a and any of"):
        f.jvp(lambda t_x, b: t_x)

    @f.vjp
    def _(g):
        return g

    with pytest.raises(TypeError, match=r"poly.vjp: expected 2 results, one for each of"):
        f(adjit.ones(2, requires_grad=True), 1.0)

    h = adjit.elementwise(rotated.py_func)

    @h.vjp
    def _(g):
        return g, g

    with pytest.raises(
        TypeError, match=r"rotated has several results; give their tangents by rotated\.jvp"
    ):
        h(adjit.ones(2), 1.0)


def test_a_function_with_a_rule_is_not_read_in_place():
    f = adjit.elementwise(poly)

    @f.jvp
    def _(t_x, t_a):
        return t_x + t_a

    @adjit.elementwise
    def outer(x):
        return f(x, x) * 2.0

    def of_an_array(x):
        return f(x[0], x[1]) * 2.0

    with pytest.raises(NotDifferentiable, match="`poly`, which has a derivative of its own"):
        outer(adjit.ones(2))
    with pytest.raises(NotDifferentiable, match="`poly`, which has a derivative of its own"):
        adjit.value_and_grad(of_an_array)(np.ones(2))


def test_a_function_of_an_array_may_call_one_without_a_rule():
    f = adjit.elementwise(poly)

    def of_an_array(x):
        return f(x[0], x[1]) * 2.0

    x = np.array([0.5, 1.5])
    value, (gradient,) = adjit.value_and_grad(of_an_array)(x)
    assert value == of_an_array(x)
    moved = [of_an_array(x + h) for h in (1e-6 * np.eye(2))]
    np.testing.assert_allclose(gradient, (np.array(moved) - value) / 1e-6, rtol=1e-4)


# ----- refusals -----


def test_attributes_of_objects_may_change():
    options = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(shift=3.0))

    @adjit.elementwise
    def f(x):
        return x * options.scale + options.inner.shift

    def of_an_array(x):
        return x[0] * options.scale + options.inner.shift

    both = adjit.value_and_grad(of_an_array)
    assert (f(adjit.ones(1)).item(), both(np.ones(1))[0]) == (5.0, 5.0)
    options.scale = 4.0
    assert (f(adjit.ones(1)).item(), both(np.ones(1))[0]) == (7.0, 7.0)
    options.inner.shift = 5.0
    assert (f(adjit.ones(1)).item(), both(np.ones(1))[0]) == (9.0, 9.0)
    options.inner = types.SimpleNamespace(shift=6.0)
    assert (f(adjit.ones(1)).item(), both(np.ones(1))[0]) == (10.0, 10.0)
    options = types.SimpleNamespace(scale=1.0, inner=options.inner)
    assert (f(adjit.ones(1)).item(), both(np.ones(1))[0]) == (7.0, 7.0)


def test_a_name_of_a_list_is_refused():
    weights = [1.0, 2.0]

    @adjit.elementwise
    def f(x):
        return weights[0] * x

    with pytest.raises(NotDifferentiable, match="cannot be part of an elementwise function"):
        f(adjit.ones(2))


def test_what_is_refused_says_where_and_what_to_write():
    @adjit.elementwise
    def with_array(x):
        y = np.zeros(3)
        return y[0] + x

    @adjit.elementwise
    def with_error(x):
        if x < 0.0:
            raise ValueError("negative")
        return x

    @adjit.elementwise
    def with_list(x):
        return [x][0]

    @adjit.elementwise
    def with_float32(x):
        return np.float32(x) * 2.0

    @adjit.elementwise  # noqa: RET503
    def sometimes(x):
        while x < 9.0:
            if x > 0.0:
                return x
            x += 1.0

    @adjit.elementwise
    def nothing(x):
        x + 1.0

    x = adjit.ones(2)
    cases = {
        with_array: (
            "an array cannot be part of an elementwise function",
            r"y = np.zeros\(3\)",
            "use numbers",
        ),
        with_error: ("raising an error cannot be part", "raise ValueError", "Return math.nan"),
        with_list: (r"an expression of this kind \(List\)", r"return \[x\]\[0\]", ""),
        with_float32: ("np.float32 cannot be part", "np.float32", "write float"),
        sometimes: ("returns a value only on some ways", "def sometimes", "End it with a return"),
        nothing: ("returns nothing", "", ""),
    }
    for f, parts in cases.items():
        for part in parts:
            with pytest.raises(NotDifferentiable, match=f"(?i){part}"):
                f(x)
        with pytest.raises(NotDifferentiable, match=r"test_elementwise_functions\.py:"):
            f(x)


def test_what_cannot_be_decorated():
    with pytest.raises(
        NotDifferentiable, match=r"a function with \*args or \*\*kwargs cannot be elementwise"
    ):

        @adjit.elementwise
        def f(*x):
            return x

    with pytest.raises(NotDifferentiable, match="has a parameter that is a tensor"):

        @adjit.elementwise
        def g(*, x):
            return x

    with pytest.raises(NotDifferentiable, match="is no Python function"):
        adjit.elementwise(math.sin)


def test_bad_arguments():
    x = adjit.ones(2)
    for call, message in {
        lambda: bend(x): r"bend\(\) missing a required argument: 'd'",
        lambda: bend(x, x, x): r"bend\(\) takes 2 positional arguments but 3 were given",
        lambda: bend(x, x, d=1.0): r"bend\(\) got multiple values for argument 'd'",
        lambda: bend(x, 1.0, e=1.0): r"bend\(\) got an unexpected keyword argument 'e'",
        lambda: bend(x, "a"): r"bend\(\): argument 'd' must be Tensor or a number, not str",
        lambda: bend(
            x, np.ones(2)
        ): r"bend\(\): argument 'd' must be Tensor or a number, not ndarray",
    }.items():
        with pytest.raises(TypeError, match=message):
            call()
    assert repr(bend) == "<elementwise bend>"
    with pytest.raises(OverflowError):
        bend(x, 2**70)


def test_a_loop_that_hands_on_many_numbers_has_tangents():
    """A way back for each of them would cost more."""

    def fibonacci(a, b, c, d, e):
        x, y = a, b
        for _ in range(3):
            x, y = y * c, x * d + e
        return x + y

    one = read_program(
        of_rounds,
        [ScalarParameter(name, "f") for name in "abcdeh"] + [ScalarParameter("flag", "b")],
    )
    two = read_program(fibonacci, [ScalarParameter(name, "f") for name in "abcde"])
    assert scalar_reverse.pays(one.procedure, one.procedure.params[:6])
    assert not scalar_reverse.pays(one.procedure, one.procedure.params[:4])
    assert not scalar_reverse.pays(two.procedure, two.procedure.params)


def test_a_rule_that_is_given_later_is_noticed():
    """By the function itself, by captures, and by functions that have read it in place."""

    @adjit.elementwise
    def square(x):
        return x * x

    @adjit.elementwise
    def above(x):
        return square(x) + 1.0

    @adjit.kernel
    def total(x):
        s = 0.0
        for v in x:
            s += square(v)
        return s

    captured = adjit.compile(lambda x: square(x) * 2.0)
    x = adjit.ones(3, requires_grad=True)
    for _ in range(4):
        x.grad = None
        captured(x).sum().backward()
    assert x.grad.tolist() == [4.0] * 3
    assert above(x).tolist() == [2.0] * 3
    assert total(x).item() == 3.0

    @square.vjp
    def _(g, x):
        return 100.0 * g

    x.grad = None
    captured(x).sum().backward()
    assert x.grad.tolist() == [200.0] * 3
    for f in (above, total):
        with pytest.raises(NotDifferentiable, match="which has a derivative of its own"):
            f(x)


RATE = 2.0


def test_a_capture_of_a_kernel_notices_what_it_reads(monkeypatch):
    @adjit.kernel
    def scaled(x):
        return x[0] * RATE

    captured = adjit.compile(lambda x: scaled(x) * 1.0)
    x = adjit.ones(3)
    assert [captured(x).item() for _ in range(4)] == [2.0] * 4
    monkeypatch.setattr(sys.modules[__name__], "RATE", 5.0)
    assert captured(x).item() == 5.0
