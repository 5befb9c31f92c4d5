"""Products with Jacobians and Hessians, and gradient checks: closed forms and PyTorch's texts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library import T, adjit_only, array, leaf, plain, quiet

F = T.autograd.functional
RNG = np.random.default_rng(0)


def double(values: Any, **options: Any) -> Any:
    return T.tensor(values, dtype=T.float64, **options)


def close(tensor: Any, expected: Any, rtol: float = 1e-12) -> None:
    assert tuple(tensor.shape) == np.shape(expected)
    np.testing.assert_allclose(array(tensor), expected, rtol=rtol, atol=1e-12)


# ---------------------------------------------------------------- closed forms

# f(x) = sum of a_i x_i^3 / 3 + (b·x)^2 / 2 has the gradient a x^2 + b (b·x) and the Hessian
# diag(2 a x) + b bᵀ.
A, B, X, V = RNG.normal(size=(4, 5))
GRADIENT = A * X**2 + B * (B @ X)
HESSIAN = np.diag(2 * A * X) + np.outer(B, B)


def cubic(x: Any) -> Any:
    return (double(A) * x**3).sum() / 3 + (double(B) * x).sum() ** 2 / 2


def test_products_with_the_jacobian():
    matrix = RNG.normal(size=(3, 5))

    def func(x):
        return (double(matrix) * x).sum(1) ** 2

    jacobian = 2 * (matrix @ X)[:, None] * matrix
    u = RNG.normal(size=3)
    value, product = F.vjp(func, double(X), double(u))
    close(value, (matrix @ X) ** 2)
    close(product, u @ jacobian)
    value, product = F.jvp(func, double(X), double(V))
    close(value, (matrix @ X) ** 2)
    close(product, jacobian @ V)
    close(F.jacobian(func, double(X)), jacobian)


def test_products_with_the_hessian():
    for product in (F.vhp, F.hvp):
        value, result = product(cubic, double(X), double(V))
        close(value, cubic(double(X)).item())
        close(result, HESSIAN @ V)
        assert not result.requires_grad
        assert not value.requires_grad
    close(F.hessian(cubic, double(X)), HESSIAN)


def test_scalars_need_no_vector():
    def func(x):
        return x**3

    x = double(2.0)
    for product, expected in ((F.vjp, 12), (F.jvp, 12), (F.vhp, 12), (F.hvp, 12)):
        value, result = product(func, x)
        close(value, 8.0)
        close(result, float(expected))


def test_many_inputs_and_outputs():
    def func(x, y):
        return x * y.sum(), (x**2).sum() + y

    x, y = RNG.normal(size=2), RNG.normal(size=3)
    (a, b), (c, d) = F.jacobian(func, (double(x), double(y)))
    close(a, y.sum() * np.eye(2))
    close(b, np.outer(x, np.ones(3)))
    close(c, np.outer(np.ones(3), 2 * x))
    close(d, np.eye(3))
    u, v = RNG.normal(size=2), RNG.normal(size=3)
    _, (first, second) = F.vjp(func, (double(x), double(y)), (double(u), double(v)))
    close(first, u * y.sum() + 2 * x * v.sum())
    close(second, np.full(3, u @ x) + v)
    _, (first, second) = F.jvp(func, (double(x), double(y)), (double(u), double(v)))
    close(first, u * y.sum() + x * v.sum())
    close(second, np.full(3, 2 * x @ u) + v)


def test_hessian_of_many_inputs():
    def func(x, y):
        return (x**2).sum() * y.sum()

    x, y = RNG.normal(size=2), RNG.normal(size=3)
    (xx, xy), (yx, yy) = F.hessian(func, (double(x), double(y)))
    close(xx, 2 * y.sum() * np.eye(2))
    close(xy, np.outer(2 * x, np.ones(3)))
    close(yx, np.outer(np.ones(3), 2 * x))
    close(yy, np.zeros((3, 3)))
    close(F.hessian(func, (double(x), double(y)), vectorize=True)[0][1], array(xy))


def test_shapes_are_those_of_output_and_input():
    result = F.jacobian(lambda x: x[:, None] * T.ones(2, 4), T.ones(2))
    assert tuple(result.shape) == (2, 4, 2)
    assert tuple(F.jacobian(lambda x: x.sum(), T.ones(2, 3)).shape) == (2, 3)


@adjit_only
def test_empty_output():
    assert tuple(F.jacobian(lambda x: x[:0], T.ones(2)).shape) == (0, 2)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_jacobian_agrees_with_the_products(seed):
    rng = np.random.default_rng(seed)
    matrix, x, u, v = (double(rng.normal(size=s)) for s in ((3, 4), 4, 3, 4))

    def func(x):
        return (matrix * x).sum(1).tanh()

    jacobian = array(F.jacobian(func, x))
    close(F.vjp(func, x, u)[1], array(u) @ jacobian)
    close(F.jvp(func, x, v)[1], jacobian @ array(v))


def test_results_can_be_differentiated():
    x = double(X, requires_grad=True)
    _, product = F.vjp(lambda x: x**3, x, T.ones(5, dtype=T.float64), create_graph=True)
    product.sum().backward()
    close(x.grad, 6 * X)

    x = double(X, requires_grad=True)
    value, product = F.hvp(lambda x: (x**4).sum(), x, double(V), create_graph=True)
    assert value.requires_grad
    product.sum().backward()
    close(x.grad, 24 * X * V)

    x = double(X, requires_grad=True)
    F.hessian(lambda x: (x**3).sum(), x, create_graph=True).sum().backward()
    close(x.grad, np.full(5, 6.0))

    x = double(X, requires_grad=True)
    _, product = F.jvp(lambda x: x**3, x, double(V), create_graph=True)
    product.sum().backward()
    close(x.grad, 6 * X * V)


def test_inputs_are_left_alone():
    x = leaf(X, dtype=T.float64)
    F.jacobian(lambda x: x**2, x)
    F.hessian(cubic, x)
    assert x.grad is None
    with T.no_grad():
        close(F.vjp(cubic, x)[1], GRADIENT)
        close(F.hvp(cubic, x, double(V))[1], HESSIAN @ V)


def test_independence_gives_zeros():
    one = double(1.0)
    x = double([1.0, 2.0])
    close(F.vjp(lambda x: one, x)[1], np.zeros(2))
    close(F.jvp(lambda x: one, x, x)[1], 0.0)
    close(F.jacobian(lambda x: one, x), np.zeros(2))
    close(F.vhp(lambda x: x.sum(), x, x)[1], np.zeros(2))
    close(F.hvp(lambda x: x.sum(), x, x)[1], np.zeros(2))
    close(F.hessian(lambda x: x.sum(), x), np.zeros((2, 2)))


# ---------------------------------------------------------------- PyTorch's errors

ERRORS: list[Callable[[Any, Any, Any], Any]] = [
    lambda L, f, x: f.vjp(lambda x: x, 1.0),
    lambda L, f, x: f.vjp(lambda x: x, [x]),
    lambda L, f, x: f.vjp(lambda x: x, (x, 1.0)),
    lambda L, f, x: f.vjp(lambda x: 1.0, x),
    lambda L, f, x: f.vjp(lambda x: (x, "a"), x),
    lambda L, f, x: f.vjp(lambda x: x, x),
    lambda L, f, x: f.vjp(lambda x: x, x, L.ones(3)),
    lambda L, f, x: f.vjp(lambda x: x, x, "v"),
    lambda L, f, x: f.vjp(lambda x: x, x, (x, x)),
    lambda L, f, x: f.vjp(lambda x: (x, x), x, x),
    lambda L, f, x: f.vjp(lambda x: (x, x), x, (x, L.ones(3))),
    lambda L, f, x: f.jvp(lambda x: x, x),
    lambda L, f, x: f.jvp(lambda x, y: x, (x, x), x),
    lambda L, f, x: f.jvp(lambda x: x, x, L.ones(3)),
    lambda L, f, x: f.vhp(lambda x: x, x, x),
    lambda L, f, x: f.vhp(lambda x: (x.sum(),), x, x),
    lambda L, f, x: f.vhp(lambda x: x.sum(), x),
    lambda L, f, x: f.hvp(lambda x: x, x, x),
    lambda L, f, x: f.hvp(lambda x: (x.sum(),), x, x),
    lambda L, f, x: f.hessian(lambda x: x, x),
    lambda L, f, x: f.hessian(lambda x: (x.sum(),), x),
    lambda L, f, x: f.jacobian(lambda x: 1.0, x),
    # strict mode
    lambda L, f, x: f.vjp(lambda x: L.ones(1), x, strict=True),
    lambda L, f, x: f.vjp(lambda x, y: x.sum(), (x, x), strict=True),
    lambda L, f, x: f.vjp(
        lambda x: 2 * x.sum(), x.requires_grad_(), strict=True, create_graph=True
    ),
    lambda L, f, x: f.jvp(lambda x: L.ones(1), x, x, strict=True),
    lambda L, f, x: f.jvp(lambda x, y: x, (x, x), (x, x), strict=True),
    lambda L, f, x: f.jacobian(lambda x: L.ones(1), x, strict=True),
    lambda L, f, x: f.jacobian(lambda x, y: x, (x, x), strict=True),
    lambda L, f, x: f.jacobian(lambda x: 2 * x, x.requires_grad_(), strict=True, create_graph=True),
    lambda L, f, x: f.vhp(lambda x: x.sum(), x, x, strict=True),
    lambda L, f, x: f.hvp(lambda x: x.sum(), x, x, strict=True),
    lambda L, f, x: f.hessian(lambda x: x.sum(), x, strict=True),
    lambda L, f, x: f.hessian(lambda x: L.ones(1), x, strict=True),
    lambda L, f, x: f.jacobian(lambda x: x, x, strict=True, vectorize=True),
]


@pytest.mark.parametrize("action", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_those_of_torch(action):
    torch = pytest.importorskip("torch")
    outcomes = []
    for lib in (T, torch):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            action(lib, lib.autograd.functional, lib.tensor([1.0, 2.0]))
        text = plain(caught.value).replace("<class 'adjit.", "<class 'torch.")
        outcomes.append((caught.type, text))
    assert outcomes[0] == outcomes[1]


@adjit_only
def test_forward_mode_is_refused():
    for call in (
        lambda: F.jacobian(lambda x: x, T.ones(2), strategy="forward-mode"),
        lambda: F.hessian(lambda x: x.sum(), T.ones(2), outer_jacobian_strategy="forward-mode"),
    ):
        with pytest.raises(NotImplementedError, match="only implemented for `vectorize=True`"):
            call()
    with pytest.raises(NotImplementedError, match="`create_graph=True` and"):
        F.jacobian(lambda x: x, T.ones(2), True, strategy="forward-mode")
    with pytest.raises(RuntimeError, match="`strict=True` and"):
        F.jacobian(lambda x: x, T.ones(2), strict=True, strategy="forward-mode")
    with pytest.raises(AssertionError, match="Expected strategy to be either"):
        F.jacobian(lambda x: x, T.ones(2), strategy="sideways")


# ---------------------------------------------------------------- gradient checks

gradcheck, gradgradcheck = T.autograd.gradcheck, T.autograd.gradgradcheck
GradcheckError = importlib.import_module(f"{T.__name__}.autograd.gradcheck").GradcheckError

modes = pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])


class Twice(T.autograd.Function):
    """Twice the input, with a gradient that can be made wrong."""

    @staticmethod
    def forward(ctx, x, spoil=lambda g: 2 * g):
        ctx.spoil = spoil
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return ctx.spoil(g), None


def point(*shape: int, seed: int = 0, dtype: Any = T.float64) -> Any:
    rng = np.random.default_rng(seed)
    return T.tensor(rng.uniform(0.5, 1.5, shape), dtype=dtype, requires_grad=True)


RIGHT: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "one": (lambda x: x.sin(), [(3,)]),
    "scalar": (lambda x: x.exp(), [()]),
    "two in": (lambda x, y: x / y, [(2, 3), (3,)]),
    "two out": (lambda x: (x**3, x.sum()), [(2, 2)]),
    "unused": (lambda x, y: x * x, [(2,), (2,)]),
    "empty": (lambda x, y: (x.sum() * y, y), [(0,), (2,)]),
    "matrices": (lambda x, y: (x @ y).tanh(), [(2, 3), (3, 2)]),
}


@modes
@pytest.mark.parametrize(("func", "shapes"), RIGHT.values(), ids=RIGHT.keys())
def test_right_gradients_pass(func, shapes, fast_mode):
    inputs = tuple(point(*shape, seed=i) for i, shape in enumerate(shapes))
    before = [array(x).copy() for x in inputs]
    assert gradcheck(func, inputs, fast_mode=fast_mode)
    assert gradgradcheck(func, inputs, fast_mode=fast_mode)
    for x, values in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array(x), values)
        assert x.grad is None


@modes
def test_layouts_and_other_arguments(fast_mode):
    x = point(4, 3).detach().t()[::2].requires_grad_()
    assert gradcheck(lambda x, n, y: x**n + y, (x, 3, double(1.0)), fast_mode=fast_mode)
    assert gradgradcheck(lambda x: x**3, x, gen_non_contig_grad_outputs=True, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: x**3, x, double(np.ones((2, 4))), fast_mode=fast_mode)


@modes
def test_wrong_gradients_fail(fast_mode):
    x = point(3)

    def func(x):
        return x * 1.0, Twice.apply(x, lambda g: 3 * g)

    with pytest.raises(GradcheckError) as caught:
        gradcheck(func, x, fast_mode=fast_mode)
    text = plain(caught.value)
    assert text.startswith("Jacobian mismatch for output 1 with respect to input 0,\nnumerical:")
    assert "analytical:tensor([[3., 0., 0.]," in text.replace("Analytical:\n", "analytical:")
    assert not gradcheck(func, x, fast_mode=fast_mode, raise_exception=False)


@modes
def test_wrong_second_gradients_fail(fast_mode):
    class Cube(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x.detach() ** 2

    x = point(3)
    assert gradcheck(Cube.apply, x, fast_mode=fast_mode)
    assert not gradgradcheck(Cube.apply, x, raise_exception=False, fast_mode=fast_mode)


def test_error_text_is_that_of_torch():
    torch = pytest.importorskip("torch")
    texts = []
    for lib in (T, torch):

        class Wrong(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 3

        x = lib.tensor([1.0, 2.0], dtype=lib.float64, requires_grad=True)
        with pytest.raises(RuntimeError) as caught:
            lib.autograd.gradcheck(Wrong.apply, x)
        texts.append(plain(caught.value))
    assert texts[0] == texts[1]


def test_backward_that_differs_each_time():
    noise = iter(range(1000))
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(lambda x: Twice.apply(x, lambda g: g * (2 + 1e-7 * next(noise))), point(2))
    assert gradcheck(
        lambda x: Twice.apply(x, lambda g: g * (2 + 1e-9 * next(noise))), point(2), nondet_tol=1e-6
    )


def test_backward_that_ignores_its_gradient():
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(lambda x: Twice.apply(x, lambda g: g * 0 + 2 + 0 * g), point())


def test_gradient_of_zeros_for_no_gradient():
    class Startled(T.autograd.Function):
        """Right, but where the first output has no gradient and the second one of zeros."""

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            if g is None:
                return None if h is None else h * 3 + (h == 0)
            return g * 2 if h is None else g * 2 + h * 3

    assert gradcheck(Startled.apply, point(1), check_undefined_grad=False)
    with quiet(), pytest.raises(GradcheckError, match="Expected all input grads to be undefined"):
        gradcheck(Startled.apply, point(1))


def test_outputs_without_gradients():
    assert gradcheck(lambda x: x.detach() * 0, point(2))
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, point(2))
    assert gradcheck(lambda x: (x * 2, x.argmax()), point(3))


def test_inputs_that_cannot_be_checked():
    with pytest.raises(ValueError, match="gradcheck expects at least one input tensor to require"):
        gradcheck(lambda x: x, T.ones(2, dtype=T.float64))
    stretched = double([1.0]).expand(3).requires_grad_()
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, stretched)
    with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double"):
        gradcheck(lambda x, y: x + y, (point(1), point(1, dtype=T.float32)), eps=1e-3, atol=1e-2)


def test_output_that_changes_its_shape():
    with pytest.raises(AssertionError, match="outputs with the same shape when inputs are"):
        gradcheck(lambda x: x[: 1 + int(x.sum() > 2.0)], double([1.0, 1.0], requires_grad=True))


@adjit_only
def test_checks_of_what_there_is_not_are_refused():
    with pytest.raises(
        NotImplementedError, match="check_batched_forward_grad=True is not supported"
    ):
        gradcheck(lambda x: x, point(1), check_forward_ad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_gradients_of_several_vectors_at_once_are_checked(check):
    def several(x, y):
        return (x @ y).sin(), x * 2, y.detach()

    assert check(several, (point(3, 3), point(3, 3)), check_batched_grad=True)
    assert check(lambda x: x.exp(), point(4), check_batched_grad=True, fast_mode=True)


@adjit_only  # which vmap looks at a batch is a matter of the library
def test_gradients_of_several_vectors_at_once_that_are_not_those_of_each():
    class Looking(T.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(ctx, x, look):
            ctx.look = look
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.look(g), None

    def looks_at_values(g):
        return 2.0 if g.sum().item() else 2

    def looks_at_batches(g):
        return 3.0 if T._C._functorch.is_batchedtensor(g) else 2.0

    for look, said in (
        (looks_at_values, "While computing batched gradients, got"),
        (looks_at_batches, "Expected:"),
    ):
        function = lambda x, look=look: Looking.apply(x, look)  # noqa: E731
        assert gradcheck(function, point(3))
        assert not gradcheck(function, point(3), check_batched_grad=True, raise_exception=False)
        with pytest.raises(GradcheckError, match=said):
            gradcheck(function, point(3), check_batched_grad=True)


def test_contradictions_are_those_of_torch():
    for options, text in (
        ({"check_backward_ad": False}, "Expected at least one of check_forward_ad or"),
        ({"check_batched_forward_grad": True}, "requires check_forward_ad to be True"),
    ):
        with pytest.raises(AssertionError, match=text):
            gradcheck(lambda x: x, point(1), **options)
    for options, text in (
        ({"check_rev_over_rev": False}, "Expected at least one of check_fwd_over_rev or"),
        (
            {"check_rev_over_rev": False, "check_fwd_over_rev": True},
            "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
        ),
    ):
        with pytest.raises(AssertionError, match=text):
            gradgradcheck(lambda x: x, point(1), **options)


# ---------------------------------------------------------------- PyTorch's names for the parts


def copied_jacobian(library: Any, func: Any, inputs: Any, create_graph: bool) -> Any:
    """As programs have it from PyTorch's own `jacobian`."""
    parts = library.autograd.functional
    was_tuple, inputs = parts._as_tuple(inputs, "inputs", "jacobian")
    inputs = parts._grad_preprocess(inputs, create_graph=create_graph, need_graph=True)
    outputs = func(*inputs)
    outputs_tuple, outputs = parts._as_tuple(outputs, "outputs", "jacobian")
    parts._check_requires_grad(outputs, "outputs", strict=True)
    counts = tuple(t.numel() for t in outputs)
    basis = parts._construct_standard_basis_for(outputs, counts)
    found = parts._autograd_grad(
        tuple(t.reshape(-1) for t in outputs), inputs, basis, create_graph=create_graph,
        is_grads_batched=True,
    )  # fmt: skip
    found = parts._fill_in_zeros(found, inputs, False, create_graph, "back")
    rows = tuple(
        tuple(part.view(out.shape + x.shape) for part, x in zip(pieces, inputs, strict=True))
        for out, *pieces in zip(outputs, *(g.split(counts, dim=0) for g in found), strict=True)
    )
    return parts._tuple_postprocess(
        parts._grad_postprocess(rows, create_graph), (outputs_tuple, was_tuple)
    )


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("as_tuples", [False, True])
def test_programs_copy_jacobian(as_tuples, create_graph):
    torch = pytest.importorskip("torch")
    made = []
    for library in (T, torch):
        x = library.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=library.float64, requires_grad=True)
        y = library.tensor([3.0, 4.0], dtype=library.float64, requires_grad=True)
        func = (lambda x, y: (x @ y, y.square().sum())) if as_tuples else lambda x: x.sin() @ x
        found = copied_jacobian(library, func, (x, y) if as_tuples else x, create_graph)
        flat = [t for row in found for t in row] if as_tuples else [found]
        assert all(t.requires_grad == create_graph for t in flat) or as_tuples
        made.append([t.detach().numpy() for t in flat])
    for mine, theirs in zip(*made, strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_parts_of_jacobian_refuse_as_pytorchs():
    torch = pytest.importorskip("torch")
    for library in (T, torch):
        parts = library.autograd.functional
        x = library.ones(2)
        assert parts._as_tuple(x, "inputs", "jacobian") == (False, (x,))
        assert parts._as_tuple((x,), "inputs", "jacobian") == (True, (x,))
        assert parts._as_tuple(3) == parts._as_tuple([3]) == (3,)
        assert parts._tuple_postprocess((x,), False) is x
        with pytest.raises(RuntimeError, match="Invalid stage argument 'front' to _fill_in_zeros"):
            parts._fill_in_zeros((None,), (x,), False, False, "front")
        with pytest.raises(RuntimeError, match="This is not allowed in strict mode"):
            parts._fill_in_zeros((None,), (x,), True, False, "double_back_trick")
        with pytest.raises(RuntimeError, match="v has invalid size"):
            parts._validate_v((x,), (library.ones(3),), True)
