"""What the five tutorials of the seeds show: their programs, and every statement in them."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest
from library import (
    AGAINST_TORCH,
    FREED,
    LEAF_VIEW_WRITE,
    LEAF_WRITE,
    NO_GRAD_FN,
    NON_LEAF_FLAG,
    NON_LEAF_GRAD,
    T,
    adjit_only,
    array,
    leaf,
    plain,
    quiet,
    raises,
    raises_modified,
    same,
    warns,
)

NEEDS_SCALAR = "grad can be implicitly created only for scalar outputs"


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return plain(capsys.readouterr().out.rstrip("\n"))


# ---------------------------------------------------------------- seed 000: backward and in-place


def test_backward_of_a_scalar(capsys):
    x = T.tensor(1.0, requires_grad=True)
    y = 2 * x
    y.backward()
    print(x.grad.item())
    assert printed(capsys) == "2.0"


def test_backward_of_a_matrix_needs_a_gradient(capsys):
    x = T.ones(2, 4, requires_grad=True)
    y = 2 * x
    with raises(RuntimeError, NEEDS_SCALAR):
        y.backward()
    assert x.grad is None
    y.backward(gradient=T.ones_like(x))
    print(x.grad)
    assert printed(capsys) == "tensor([[2., 2., 2., 2.],\n        [2., 2., 2., 2.]])"


def test_backward_of_a_product_row_by_row(capsys):
    x = T.tensor([2.0, 1.0], requires_grad=True).view(1, 2)
    y = T.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)

    z = T.mm(x, y)
    print(f"z:{z}")
    jacobian = T.zeros((2, 2))
    x.retain_grad()
    z.backward(T.tensor([[1.0, 0.0]]), retain_graph=True)
    jacobian[:, 0] = x.grad.data
    print(f"y.grad:{y.grad}")
    x.grad.zero_()
    z.backward(T.tensor([[0.0, 1.0]]))
    jacobian[:, 1] = x.grad.data
    print(f"J:{jacobian}")
    assert printed(capsys) == (
        "z:tensor([[5., 8.]], grad_fn=<MmBackward0>)\n"
        "y.grad:tensor([[2., 0.],\n        [1., 0.]])\n"
        "J:tensor([[1., 2.],\n        [3., 4.]])"
    )


@pytest.mark.parametrize("weights", [[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]], [[0.25, -2.0]]])
def test_gradient_argument_weighs_the_rows(weights):
    x = leaf([[2.0, 1.0]])
    y = leaf([[1.0, 2.0], [3.0, 4.0]])
    T.mm(x, y).backward(T.tensor(weights), retain_graph=True)
    same(y.grad, [[2 * w for w in weights[0]], weights[0]])
    same(x.grad, np.array(weights) @ np.array([[1.0, 3.0], [2.0, 4.0]]))


def test_integers_become_floats_before_they_need_gradients(capsys):
    T.manual_seed(0)
    x = T.randint(1, 5, (2, 3))
    drawn = array(x).copy()
    print(f"Int type x: \n{x}\n")
    x = x.type_as(T.FloatTensor(x.shape))
    x.requires_grad_(True)
    print(f"Float type x: \n{x}\n")
    y = x**2
    y.backward(T.ones_like(x))
    print(f"x.grad: \n{x.grad}\n")

    def rows(values, mark):
        lines = ["[" + ", ".join(f"{value}{mark}" for value in row) + "]" for row in values]
        return "tensor([" + ",\n        ".join(lines) + "]"

    assert printed(capsys) == (
        f"Int type x: \n{rows(drawn, '')})\n\n"
        f"Float type x: \n{rows(drawn, '.')}, requires_grad=True)\n\n"
        f"x.grad: \n{rows(2 * drawn, '.')})\n"
    ).rstrip("\n")
    assert ((drawn >= 1) & (drawn < 5)).all()


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.type_as(T.FloatTensor(x.shape)),
        lambda x: x.float(),
        lambda x: x.to(T.float32),
        lambda x: x.double(),
        lambda x: x.to(T.float64),
    ],
    ids=["type_as", "float", "to-float32", "double", "to-float64"],
)
def test_conversions_of_integers(convert):
    x = T.tensor([[1, 2, 3], [4, 3, 2]])
    y = convert(x).requires_grad_(True)
    assert y.is_leaf
    assert y.dtype in (T.float32, T.float64)
    (y**2).backward(T.ones_like(y))
    same(y.grad, [[2.0, 4.0, 6.0], [8.0, 6.0, 4.0]])


def test_tracking_follows_no_grad(capsys):
    a = T.tensor(2.0, requires_grad=True)
    b = T.tensor(3.0)
    c = a * b
    with T.no_grad():
        d = a * b
    print(c.requires_grad, c.is_leaf, c.grad_fn is None, c)
    print(d.requires_grad, d.is_leaf, d.grad_fn is None, d)
    assert printed(capsys) == (
        "True False False tensor(6., grad_fn=<MulBackward0>)\nFalse True True tensor(6.)"
    )


def test_write_to_a_leaf():
    w = T.FloatTensor(10)
    w.requires_grad = True
    with raises(RuntimeError, LEAF_WRITE):
        w.normal_()
    w = T.zeros(10, requires_grad=True)
    with raises(RuntimeError, LEAF_WRITE):
        w += 1
    same(w, np.zeros(10))


def test_weights_are_initialised_after_creation():
    w = T.FloatTensor(1000)
    w.requires_grad = True
    T.manual_seed(0)
    w.data.normal_()
    first = array(w).copy()
    assert 0.8 < first.std() < 1.2
    with T.no_grad():
        w.normal_(mean=3.0, std=0.5)
    assert w.is_leaf
    assert w.requires_grad
    assert abs(array(w).mean() - 3) < 0.1
    (w * w).sum().backward()
    same(w.grad, 2 * array(w))


def multiply_five_by_five():
    x = T.ones(5, 5)
    w = T.ones(5, 2, requires_grad=True)
    return x, w, T.mm(x, w)


def test_write_to_a_plain_operand_raises():
    x, _, d = multiply_five_by_five()
    x -= 1
    with raises_modified("FloatTensor", [5, 5], 1, 0):
        d.sum().backward()


def test_without_the_write_the_gradient_is_five():
    _, w, d = multiply_five_by_five()
    d.sum().backward()
    same(w.grad, np.full((5, 2), 5.0))


def test_write_through_data_changes_the_gradient_silently(capsys):
    x, w, d = multiply_five_by_five()
    x_ = x.data
    x_ -= 1
    d.sum().backward()
    print(f"x = \n{x}")
    print(f"w.grad = \n{w.grad}")
    zeros = "tensor([" + ",\n        ".join(["[0., 0., 0., 0., 0.]"] * 5) + "])"
    wrong = "tensor([" + ",\n        ".join(["[0., 0.]"] * 5) + "])"
    assert printed(capsys) == f"x = \n{zeros}\nw.grad = \n{wrong}"
    assert x._version == 0


def test_write_through_detach_raises():
    x, _, d = multiply_five_by_five()
    x_ = x.detach()
    x_ -= 1
    assert x._version == x_._version == 1
    with raises_modified("FloatTensor", [5, 5], 1, 0):
        d.sum().backward()


@adjit_only
def test_the_error_names_file_and_line_of_the_write():
    x, _, d = multiply_five_by_five()
    x -= 1
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(RuntimeError) as caught:
        d.sum().backward()
    assert re.search(rf"{re.escape(__file__)}\D+{line}\b", str(caught.value))


@adjit_only
@pytest.mark.parametrize(
    "write",
    [
        lambda b: b[0].zero_(),
        lambda b: b.__setitem__((0, 0), 100.0),
        lambda b: b.detach().add_(1),
        lambda b: b.copy_(T.zeros(1, 2)),
        lambda b: b.exp_(),
    ],
    ids=["view", "setitem", "detached", "copy", "exp"],
)
def test_the_error_names_the_line_for_every_kind_of_write(write):
    b = leaf([[2.0, 1.0]]) ** 3
    c = b**2
    write(b)
    with pytest.raises(RuntimeError) as caught:
        c.sum().backward()
    line = write.__code__.co_firstlineno
    assert re.search(rf"{re.escape(__file__)}\D+{line}\b", str(caught.value))


def test_data_and_detach_share_memory_and_forget_history():
    x = leaf([1.0, 2.0]) * 1
    for other in (x.data, x.detach()):
        assert other.data_ptr() == x.data_ptr()
        assert not other.requires_grad
        assert other.is_leaf
        assert other.grad_fn is None
        other[0] += 10
    same(x, [21.0, 2.0])


def test_sine_without_cosine():
    x = T.linspace(-5, 5, 100)
    x.requires_grad_(True)
    y = T.sin(x)
    y.backward(T.ones_like(x))
    same(x.grad, np.cos(np.linspace(-5, 5, 100)), atol=1e-6)


def test_sine_and_its_derivative_as_a_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = T.linspace(-5, 5, 100)
    x.requires_grad_(True)
    y = T.sin(x)
    y.sum().backward()
    figure, axes = pyplot.subplots()
    try:
        axes.plot(x.detach(), y.detach(), label="y=sin(x)")
        axes.plot(x.detach(), x.grad, label="dy/dx")
        sine, slope = axes.get_lines()
        grid = np.linspace(-5, 5, 100)
        np.testing.assert_allclose(sine.get_xydata(), np.c_[grid, np.sin(grid)], atol=1e-5)
        np.testing.assert_allclose(slope.get_xydata(), np.c_[grid, np.cos(grid)], atol=1e-5)
        figure.canvas.draw()
    finally:
        pyplot.close(figure)


# ---------------------------------------------------------------- seed 001: the legacy program


def test_legacy_program_accumulates(capsys):
    Variable = T.autograd.Variable

    w1 = Variable(T.Tensor([1.0, 2.0, 3.0]), requires_grad=True)
    w2 = Variable(T.Tensor([1.0, 2.0, 3.0]), requires_grad=True)
    print(w1.grad)
    print(w2.grad)
    d = T.mean(w1)
    d.backward()
    print(w1.grad)
    d.backward()
    print(w1.grad)
    w1.grad.data.zero_()
    print(w1.grad)
    learning_rate = 0.1
    d.backward()
    w1.data.sub_(learning_rate * w1.grad.data)
    print(w1)
    assert printed(capsys) == (
        "None\nNone\n"
        "tensor([0.3333, 0.3333, 0.3333])\n"
        "tensor([0.6667, 0.6667, 0.6667])\n"
        "tensor([0., 0., 0.])\n"
        "tensor([0.9667, 1.9667, 2.9667], requires_grad=True)"
    )


def test_legacy_second_backward():
    w1 = T.autograd.Variable(T.Tensor([1.0, 2.0, 3.0]), requires_grad=True)
    w2 = T.autograd.Variable(T.Tensor([1.0, 2.0, 3.0]), requires_grad=True)
    z = w1 * w2 + w1
    res = T.mean(z)
    res.backward()
    with raises(RuntimeError, FREED):
        res.backward()

    w1.grad = w2.grad = None
    res = T.mean(w1 * w2 + w1)
    res.backward(retain_graph=True)
    res.backward()
    same(w1.grad, [4 / 3, 2.0, 8 / 3])
    same(w2.grad, [2 / 3, 4 / 3, 2.0])


@adjit_only
def test_retain_variables_is_the_old_name():
    w = leaf([1.0, 2.0])
    res = (w * w).sum()
    with quiet():
        res.backward(retain_variables=True)
        T.autograd.backward(res, retain_variables=True)
    res.backward()
    same(w.grad, [6.0, 12.0])


def test_gradient_of_one_row():
    w1 = T.autograd.Variable(T.FloatTensor(2, 3), requires_grad=True)
    res = T.mean(w1[1])
    res.backward()
    same(w1.grad, [[0.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.gpu
def test_gradient_of_one_row_on_the_gpu():
    if not T.cuda.is_available():
        pytest.skip("needs a CUDA device")
    w1 = T.autograd.Variable(T.cuda.FloatTensor(2, 3), requires_grad=True)
    assert w1.is_cuda
    T.mean(w1[1]).backward()
    same(w1.grad.cpu(), [[0.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])


def test_legacy_constructors():
    assert T.FloatTensor(2, 3).shape == (2, 3)
    assert T.FloatTensor(2, 3).dtype == T.float32
    same(T.FloatTensor([1, 2]), [1.0, 2.0])
    same(T.Tensor([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]])
    assert T.Tensor(2, 3).shape == (2, 3)
    assert T.Tensor().shape == (0,)
    assert T.FloatTensor(T.Size([4, 5])).shape == (4, 5)
    assert T.DoubleTensor([1]).dtype == T.float64
    assert T.LongTensor([1]).dtype == T.int64


# ---------------------------------------------------------------- seed 002: leaves


def leaf_network():
    a = T.tensor([[2.0, 1.0]], requires_grad=True)
    b = T.tensor([[1.0, 1.0]], requires_grad=True)
    c = a * 3
    d = b + 4
    e = c + d
    f = T.mean(e)
    return a, b, c, d, e, f


def test_leaves_are_what_the_user_made(capsys):
    for tensor in leaf_network():
        print(tensor.is_leaf)
    assert printed(capsys) == "True\nTrue\nFalse\nFalse\nFalse\nFalse"


def test_only_leaves_keep_their_gradient(capsys):
    a, b, *inner = leaf_network()
    inner[-1].backward()
    print(a.grad, b.grad)
    assert printed(capsys) == "tensor([[1.5000, 1.5000]]) tensor([[0.5000, 0.5000]])"
    for tensor in inner:
        with warns(UserWarning, NON_LEAF_GRAD):
            assert tensor.grad is None


def test_retain_grad_keeps_it(capsys):
    network = leaf_network()
    for tensor in network[2:]:
        tensor.retain_grad()
    network[-1].backward()
    for tensor in network:
        print(tensor.grad)
    half = "tensor([[0.5000, 0.5000]])"
    assert printed(capsys) == "\n".join(
        ["tensor([[1.5000, 1.5000]])", half, half, half, half, "tensor(1.)"]
    )


def test_write_to_a_view_of_a_leaf():
    a, *_, f = leaf_network()
    with raises(RuntimeError, LEAF_VIEW_WRITE):
        a[0] = 100
    same(a, [[2.0, 1.0]])
    f.backward()
    same(a.grad, [[1.5, 1.5]])


def test_write_to_a_value_that_backward_needs():
    a = T.tensor([[2.0, 1.0]], requires_grad=True)
    b = a**3
    c = b**2
    d = T.mean(c)
    b[0][0] = 100.0
    with raises_modified("FloatTensor", [1, 2], 1, 0, "torch::autograd::CopySlices"):
        d.backward()


def test_the_written_value_is_named_after_its_producer():
    y = leaf([1.0, 2.0]) * 1
    y.exp_().add_(1)
    with raises_modified("FloatTensor", [2], 2, 1, "Exp"):
        y.sum().backward()


def test_write_to_a_value_that_backward_does_not_need():
    a = leaf([[2.0, 1.0]])
    b = a * 3
    c = b + 1
    b[0][0] = 100.0
    c.sum().backward()
    same(a.grad, [[3.0, 3.0]])


# ---------------------------------------------------------------- seed 003: the gentle introduction


def quadratic_and_cubic():
    a = T.tensor([2.0, 3.0], requires_grad=True)
    b = T.tensor([6.0, 4.0], requires_grad=True)
    return a, b, 3 * a**3 - b**2


def test_gentle_introduction(capsys):
    a, b, Q = quadratic_and_cubic()
    external_grad = T.tensor([1.0, 1.0])
    Q.backward(gradient=external_grad)
    print(9 * a**2 == a.grad)
    print(-2 * b == b.grad)
    assert printed(capsys) == "tensor([True, True])\ntensor([True, True])"


def test_summing_is_the_same_as_a_gradient_of_ones():
    a, b, Q = quadratic_and_cubic()
    Q.sum().backward()
    assert bool((9 * a**2 == a.grad).all())
    assert bool((-2 * b == b.grad).all())


def backward_functions(tensor):
    seen, todo = [], [tensor.grad_fn]
    while todo:
        node = todo.pop()
        seen.append(node)
        todo += [parent for parent, _ in node.next_functions if parent is not None]
    return seen


def test_the_graph_of_the_introduction():
    a, b, Q = quadratic_and_cubic()
    nodes = backward_functions(Q)
    assert sorted(plain(node.name()) for node in nodes) == [
        "MulBackward0",
        "PowBackward0",
        "PowBackward0",
        "SubBackward0",
        "T::autograd::AccumulateGrad",
        "T::autograd::AccumulateGrad",
    ]
    leaves = [node.variable for node in nodes if hasattr(node, "variable")]
    assert {id(one) for one in leaves} == {id(a), id(b)}


@adjit_only
def test_the_picture_of_the_graph():
    a, b, Q = quadratic_and_cubic()
    picture = T.autograd.draw(Q, {"a": a, "b": b})
    for text in (picture.svg, picture.dot):
        for name in ("SubBackward0", "MulBackward0", "PowBackward0"):
            assert name in text
        assert "AccumulateGrad" not in text
    assert picture.svg.count("PowBackward0") == 2
    assert re.search(r">\s*a\s*<", picture.svg)
    assert re.search(r">\s*b\s*<", picture.svg)


def test_requires_grad_of_a_sum(capsys):
    x = T.rand(5, 5)
    y = T.rand(5, 5)
    z = T.rand((5, 5), requires_grad=True)
    a = x + y
    print(f"Does `a` require gradients?: {a.requires_grad}")
    b = x + z
    print(f"Does `b` require gradients?: {b.requires_grad}")
    assert printed(capsys) == (
        "Does `a` require gradients?: False\nDoes `b` require gradients?: True"
    )


def test_the_graph_is_built_anew_each_time():
    x = leaf([1.0, 2.0, 3.0])
    for step in range(1, 5):
        y = x
        for _ in range(step):
            y = y * 2 if step % 2 else y.sin()
        x.grad = None
        y[: step % 3 + 1].sum().backward()
        expected = np.zeros(3)
        if step % 2:
            expected[: step % 3 + 1] = 2**step
        else:
            value, slope = array(x).astype(float), 1.0
            for _ in range(step):
                slope = slope * np.cos(value)
                value = np.sin(value)
            expected[: step % 3 + 1] = slope[: step % 3 + 1]
        same(x.grad, expected, rtol=1e-5)


# ---------------------------------------------------------------- seed 004: a simple network


def ones_times(factor):
    return T.from_numpy(factor * np.ones((2, 2), dtype=np.float32))


def simple_network():
    x1 = ones_times(2).requires_grad_(True)
    w1 = ones_times(5).requires_grad_(True)
    w2 = ones_times(6).requires_grad_(True)
    x2 = x1 * w1
    y = x2 * w2
    return x1, w1, w2, x2, y, ones_times(10)


def test_simple_network_prints(capsys):
    x1 = T.from_numpy(2 * np.ones((2, 2), dtype=np.float32))
    x1.requires_grad_(True)
    w1 = T.from_numpy(5 * np.ones((2, 2), dtype=np.float32))
    w1.requires_grad_(True)
    print("x1 =", x1)
    print("w1 =", w1)

    x2 = x1 * w1
    w2 = T.from_numpy(6 * np.ones((2, 2), dtype=np.float32))
    w2.requires_grad_(True)
    print("x2 =", x2)
    print("w2 =", w2)

    y = x2 * w2
    Y = T.from_numpy(10 * np.ones((2, 2), dtype=np.float32))
    print("y =", y)
    print("Y =", Y)

    L = Y - y
    L.backward(T.ones(2, 2, dtype=T.float))
    print(x1.grad)
    print(w1.grad)
    print(w2.grad)

    def square(value, flags=""):
        return f"tensor([[{value}., {value}.],\n        [{value}., {value}.]]{flags})"

    assert printed(capsys) == "\n".join(
        [
            "x1 = " + square(2, ", requires_grad=True"),
            "w1 = " + square(5, ", requires_grad=True"),
            "x2 = " + square(10, ", grad_fn=<MulBackward0>"),
            "w2 = " + square(6, ", requires_grad=True"),
            "y = " + square(60, ", grad_fn=<MulBackward0>"),
            "Y = " + square(10),
            square(-30),
            square(-12),
            square(-10),
        ]
    )


def test_backward_from_the_middle():
    x1, w1, w2, _, y, _ = simple_network()
    y.backward(-1 * T.ones(2, 2, dtype=T.float))
    same(x1.grad, np.full((2, 2), -30.0))
    same(w1.grad, np.full((2, 2), -12.0))
    same(w2.grad, np.full((2, 2), -10.0))


def test_two_outputs_add_up_in_one_leaf(capsys):
    x1, _, _, _, y, Y = simple_network()
    L = Y - y
    L.backward(T.ones(2, 2, dtype=T.float))
    for _ in range(2):
        L2 = x1 * x1
        L2.backward(T.ones(2, 2, dtype=T.float))
        print("x1.grad =", x1.grad)
    assert printed(capsys) == (
        "x1.grad = tensor([[-26., -26.],\n        [-26., -26.]])\n"
        "x1.grad = tensor([[-22., -22.],\n        [-22., -22.]])"
    )


def test_each_output_has_one_backward():
    _, _, _, _, y, Y = simple_network()
    L = Y - y
    L.backward(T.ones(2, 2))
    with raises(RuntimeError, FREED):
        L.backward(T.ones(2, 2))


def test_a_computed_tensor_is_no_leaf():
    x1 = 2 * T.ones(2, 2, requires_grad=True, dtype=T.float)
    w1 = ones_times(5).requires_grad_(True)
    assert not x1.is_leaf
    (x1 * w1).backward(T.ones(2, 2))
    with warns(UserWarning, NON_LEAF_GRAD):
        assert x1.grad is None
    same(w1.grad, np.full((2, 2), 2.0))


def test_a_scalar_needs_no_gradient_argument():
    x1, *_, y, _ = simple_network()
    y.sum().backward()
    expected = array(x1.grad).copy()
    x1, *_, y, _ = simple_network()
    y.sum().backward(T.tensor(1.0))
    same(x1.grad, expected)


# ---------------------------------------------------------------- leaves, flags, printing


def test_leaves():
    x = T.ones(2)
    assert x.is_leaf
    assert (x * 2).is_leaf
    assert (x * 2).grad_fn is None
    y = T.ones(2, requires_grad=True) * 2
    assert not y.is_leaf
    assert y.detach().is_leaf
    assert y.detach().grad_fn is None
    assert not y.detach().requires_grad
    with T.no_grad():
        assert (y * 2).is_leaf


def test_flags_of_leaves_can_change():
    x = T.ones(2)
    assert x.requires_grad is False
    assert x.requires_grad_(True) is x
    assert x.requires_grad is True
    x.requires_grad_(False)
    assert x.requires_grad is False
    x.requires_grad = True
    assert x.requires_grad_().requires_grad
    assert T.zeros(2, requires_grad=True).requires_grad
    assert T.tensor([1.0], requires_grad=True).requires_grad


def test_flags_of_computed_tensors_cannot():
    y = leaf([1.0]) * 2
    with raises(RuntimeError, NON_LEAF_FLAG):
        y.requires_grad = False
    with raises(RuntimeError, NON_LEAF_FLAG):
        y.requires_grad_(False)
    with raises(RuntimeError, "you can only change requires_grad flags of leaf variables."):
        y.requires_grad = True
    assert y.requires_grad_(True) is y
    assert y.requires_grad


def test_one_input_is_enough():
    plain_one, tracked = T.rand(5, 5), T.rand(5, 5, requires_grad=True)
    assert (plain_one + tracked).requires_grad
    assert T.mm(plain_one, tracked).requires_grad
    assert not (plain_one + plain_one).requires_grad


@pytest.mark.parametrize("dtype", [T.int64, T.int32, T.int8, T.uint8, T.bool], ids=str)
def test_only_floats_need_gradients(dtype):
    x = T.randint(0, 2, (2, 3)).to(dtype)
    with raises(RuntimeError, "only Tensors of floating point dtype can require gradients"):
        x.requires_grad_(True)
    text = "only Tensors of floating point and complex dtype can require gradients"
    with raises(RuntimeError, text):
        x.requires_grad = True
    with raises(RuntimeError, text.replace("only", "Only")):
        T.tensor([1, 0], dtype=dtype, requires_grad=True)
    x.requires_grad_(False)
    assert not x.requires_grad


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: T.full((2, 2), 2.0, requires_grad=True),
            "tensor([[2., 2.],\n        [2., 2.]], requires_grad=True)",
        ),
        (lambda: leaf([1.0, 1.0]) * 2, "tensor([2., 2.], grad_fn=<MulBackward0>)"),
        (lambda: leaf([1.0, 1.0]).mean(), "tensor(1., grad_fn=<MeanBackward0>)"),
        (
            lambda: T.mm(leaf([[2.0, 1.0]]), T.tensor([[1.0, 2.0], [3.0, 4.0]])),
            "tensor([[5., 8.]], grad_fn=<MmBackward0>)",
        ),
        (lambda: T.tensor(1.5), "tensor(1.5000)"),
        (lambda: T.tensor([0, 1, 2]), "tensor([0, 1, 2])"),
        (lambda: T.tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
        (lambda: T.tensor([]), "tensor([])"),
        (lambda: T.tensor([1.0], dtype=T.float64), "tensor([1.], dtype=torch.float64)"),
        (lambda: T.tensor([True, False]), "tensor([ True, False])"),
        (lambda: T.tensor([1.0, float("nan"), float("inf")]), "tensor([1., nan, inf])"),
        (lambda: T.tensor([[0.5, -1.25]]), "tensor([[ 0.5000, -1.2500]])"),
        (lambda: T.zeros(2, 0), "tensor([], size=(2, 0))"),
        (
            lambda: leaf([1.0], dtype=T.float64),
            "tensor([1.], dtype=torch.float64, requires_grad=True)",
        ),
        (
            lambda: leaf([1.0], dtype=T.float64) - 1,
            "tensor([0.], dtype=torch.float64, grad_fn=<SubBackward0>)",
        ),
        (lambda: T.tensor([1], dtype=T.int32), "tensor([1], dtype=torch.int32)"),
    ],
)
def test_printing(make, text):
    assert plain(repr(make())) == plain(text)
    assert plain(str(make())) == plain(text)


def test_backward_functions_are_linked():
    w = leaf([1.0, 2.0])
    x = T.ones(2)
    y = w * x
    z = y.sum()
    assert w.grad_fn is None
    assert z.grad_fn.name() == "SumBackward0"
    ((multiply, output_number),) = z.grad_fn.next_functions
    assert multiply is y.grad_fn
    assert output_number == 0
    (accumulate, _), nothing = multiply.next_functions
    assert nothing == (None, 0)
    assert plain(accumulate.name()) == "T::autograd::AccumulateGrad"
    assert type(accumulate).__name__ == "AccumulateGrad"
    assert accumulate.variable is w
    assert accumulate.next_functions == ()
    assert re.fullmatch(r"<MulBackward0 object at 0x[0-9a-f]+>", repr(y.grad_fn))


# ---------------------------------------------------------------- backward


def test_gradient_of_a_wrong_shape():
    y = leaf([1.0, 2.0]) * 2
    with raises(
        RuntimeError,
        "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a "
        "shape of torch.Size([2]).",
    ):
        y.backward(T.ones(3))


def test_backward_without_any_gradient():
    with raises(RuntimeError, NO_GRAD_FN):
        T.ones(1).sum().backward()
    with T.no_grad():
        y = leaf([1.0]) * 2
    with raises(RuntimeError, NO_GRAD_FN):
        y.backward()


def test_autograd_backward_with_every_argument():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    product, square = a * b, a * a
    T.autograd.backward(
        [product, square],
        grad_tensors=[T.tensor([1.0, 0.0]), T.tensor([0.0, 1.0])],
        retain_graph=True,
        create_graph=False,
        inputs=[a],
    )
    same(a.grad, [3.0, 4.0])
    assert b.grad is None
    T.autograd.backward(product.sum(), inputs=b)
    same(b.grad, [1.0, 2.0])


def test_create_graph_makes_gradients_differentiable():
    a = leaf([1.0, 2.0])
    with quiet():
        (a**3).sum().backward(create_graph=True)
    first = a.grad
    assert first.requires_grad
    a.grad = None
    first.sum().backward()
    same(a.grad, [6.0, 12.0])


def test_gradients_start_as_none_and_accumulate():
    w = leaf([1.0, 2.0, 3.0])
    assert w.grad is None
    for turn in (1, 2, 3):
        T.mean(w).backward()
        same(w.grad, np.full(3, turn / 3))
    w.grad.zero_()
    same(w.grad, np.zeros(3))
    T.mean(w).backward()
    same(w.grad, np.full(3, 1 / 3))
    w.grad = None
    T.mean(w).backward()
    same(w.grad, np.full(3, 1 / 3))


def test_zero_grad_of_optimisers_and_modules():
    model = T.nn.Linear(3, 2)
    optimiser = T.optim.SGD(model.parameters(), lr=0.1)
    for zero_grad in (optimiser.zero_grad, model.zero_grad):
        model(T.ones(1, 3)).sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        zero_grad()
        assert all(p.grad is None for p in model.parameters())
        model(T.ones(1, 3)).sum().backward()
        zero_grad(set_to_none=False)
        for p in model.parameters():
            same(p.grad, np.zeros(tuple(p.shape)))
        zero_grad()


def test_where_nothing_was_saved_a_second_backward_works():
    w = leaf([1.0, 2.0])
    d = (w + 1).mean()
    d.backward()
    d.backward()
    same(w.grad, [1.0, 1.0])


def test_retain_graph_allows_a_second_backward():
    w = leaf([1.0, 2.0])
    d = (w * w).sum()
    d.backward(retain_graph=True)
    d.backward()
    same(w.grad, [4.0, 8.0])
    with raises(RuntimeError, FREED):
        d.backward()


# ---------------------------------------------------------------- in-place writes, modes


def test_writes_under_no_grad_and_through_data():
    a = leaf([[2.0, 1.0]])
    with T.no_grad():
        a[0] = 100
        a += 1
    same(a, [[101.0, 101.0]])
    a.data[0][1] = 5
    a.data.mul_(2)
    same(a, [[202.0, 10.0]])
    assert a.is_leaf
    assert a.requires_grad
    (a * a).sum().backward()
    same(a.grad, [[404.0, 20.0]])


def test_the_modes():
    x = leaf([1.0])
    with T.no_grad():
        assert not (x * 2).requires_grad
        with T.enable_grad():
            assert (x * 2).requires_grad
        assert not T.is_grad_enabled()
    with T.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    T.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    T.set_grad_enabled(True)
    with T.inference_mode():
        y = x * 2
        assert T.is_inference_mode_enabled()
    assert y.is_inference()
    assert not y.requires_grad

    @T.no_grad()
    def doubler(x):
        return x * 2

    @T.enable_grad()
    def tracked(x):
        return x * 2

    @T.inference_mode()
    def inferred(x):
        return x * 2

    assert not doubler(x).requires_grad
    assert inferred(x).is_inference()
    with T.no_grad():
        assert tracked(x).requires_grad
    assert T.is_grad_enabled()


def nan_from_a_root(x):
    return T.sqrt(x) * 0


MAY_BE_SLOW = (
    "Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
    "enabled for debugging."
)


@pytest.mark.parametrize("switch", ["detect_anomaly", "set_detect_anomaly"])
def test_anomaly_detection(switch):
    x = leaf([0.0, 1.0])
    nan_from_a_root(x).sum().backward()
    assert np.isnan(array(x.grad)[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with (
            T.autograd.detect_anomaly()
            if switch == "detect_anomaly"
            else (T.autograd.set_detect_anomaly(True))
        ):
            assert T.is_anomaly_enabled()
            y = nan_from_a_root(x)
            with raises(
                RuntimeError, "Function 'SqrtBackward0' returned nan values in its 0th output."
            ):
                y.sum().backward()
    assert not T.is_anomaly_enabled()
    *announced, trace = [plain(one.message) for one in caught]
    assert announced == ([MAY_BE_SLOW] if switch == "detect_anomaly" else [])
    assert trace.startswith(
        "Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n"
    )
    line = nan_from_a_root.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in nan_from_a_root' in trace
    assert trace.rstrip().endswith("return T.sqrt(x) * 0")


# ---------------------------------------------------------------- NumPy


def test_from_numpy_shares_memory():
    values = np.ones((2, 2), dtype=np.float32)
    x = T.from_numpy(values)
    y = x + 1
    values[0, 0] = 7
    same(x, [[7.0, 1.0], [1.0, 1.0]])
    same(y, [[2.0, 2.0], [2.0, 2.0]])
    x[1, 1] = 9
    x.mul_(2)
    np.testing.assert_array_equal(values, [[14.0, 2.0], [2.0, 18.0]])
    exported = x.numpy()
    exported[0, 1] = -1
    same(x, [[14.0, -1.0], [2.0, 18.0]])
    assert np.shares_memory(values, exported)


def test_numpy_of_a_tensor_that_needs_gradients():
    text = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
    x = leaf([1.0, 2.0])
    for tensor in (x, x * 2):
        with raises(RuntimeError, text):
            tensor.numpy()
        assert tensor.detach().numpy().dtype == np.float32
    with T.no_grad():
        np.testing.assert_array_equal((x * 2).numpy(), [2.0, 4.0])


# ---------------------------------------------------------------- training


def network(inputs=8, hidden=16, outputs=4):
    T.manual_seed(0)
    return T.nn.Sequential(T.nn.Linear(inputs, hidden), T.nn.ReLU(), T.nn.Linear(hidden, outputs))


def test_one_step_of_the_tutorial():
    model = network()
    data, labels = T.rand(1, 8), T.rand(1, 4)
    prediction = model(data)
    loss = (prediction - labels).sum()
    loss.backward()
    optim = T.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    before = [array(p).copy() for p in model.parameters()]
    slopes = [array(p.grad).copy() for p in model.parameters()]
    optim.step()
    for p, old, slope in zip(model.parameters(), before, slopes, strict=True):
        same(p, old - 0.01 * slope)
        assert np.abs(slope).max() > 0


def test_the_classic_loop_learns():
    net = network()
    criterion = T.nn.MSELoss()
    optimizer = T.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    input, target = T.rand(16, 8), T.rand(16, 4)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        output = net(input)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


def test_momentum_follows_its_recurrence():
    w = leaf([1.0, -2.0])
    optimizer = T.optim.SGD([w], lr=0.1, momentum=0.9)
    value, velocity = np.array([1.0, -2.0]), 0.0
    for _ in range(5):
        optimizer.zero_grad()
        (w**2).sum().backward()
        optimizer.step()
        velocity = 0.9 * velocity + 2 * value
        value = value - 0.1 * velocity
        same(w, value, rtol=1e-5)


def classifier():
    """A body and a replaceable head, as in the models of the tutorial."""

    class Classifier(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = T.nn.Sequential(T.nn.Linear(8, 16), T.nn.ReLU())
            self.fc = T.nn.Linear(16, 4)

        def forward(self, x):
            return self.fc(self.body(x))

    return Classifier()


def test_freezing_leaves_only_the_head_moving():
    T.manual_seed(0)
    model = classifier()
    for param in model.parameters():
        param.requires_grad = False
    model.fc = T.nn.Linear(16, 10)
    optimizer = T.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    before = {name: array(p).copy() for name, p in model.named_parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        (model(T.rand(1, 8)) - T.rand(1, 10)).sum().backward()
        optimizer.step()
    for name, p in model.named_parameters():
        head = name.startswith("fc.")
        assert p.requires_grad is head
        assert (p.grad is not None) is head
        assert np.array_equal(array(p), before[name]) is not head


def test_an_exported_prediction_plots_as_numpy():
    prediction = network()(T.rand(3, 8)).detach()
    assert np.asarray(prediction).shape == (3, 4)
    np.testing.assert_array_equal(np.asarray(prediction), prediction.numpy())


def test_the_switch_selects_the_library():
    assert T.__name__ == ("torch" if AGAINST_TORCH else "adjit")
