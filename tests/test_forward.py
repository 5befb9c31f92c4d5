"""Forward mode: rules of all ops beside differences and their transposes, dual tensors beside PyTorch's."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from test_elementwise_laws import SMOOTH_OPS, named, sample

import adjit
import adjit.autograd.forward_ad as fwAD
from adjit.autograd.dual import DualLevel, transposed
from adjit.func import jacfwd, jvp
from adjit.graph import factories, other_sizes
from adjit.schedule.jit import native

F = adjit.nn.functional


def randn(*shape: int) -> Any:
    return adjit.randn(*shape, dtype=adjit.float64)


def close(found: Any, wanted: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    found, wanted = (t.detach().numpy() if hasattr(t, "detach") else t for t in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def difference(f: Any, args: list[Any], tangents: list[Any], eps: float = 1e-6) -> Any:
    """The central difference of a function along tangents."""
    with adjit.no_grad():
        ends = [
            f(*[a if t is None else a + s * eps * t for a, t in zip(args, tangents, strict=True)])
            for s in (1, -1)
        ]
    return (ends[0] - ends[1]) / (2 * eps)


# ------------------------------------------------------------------ laws


@named(SMOOTH_OPS)
def test_tangents_of_elementwise_ops(op: Any) -> None:
    """They are finite differences, also where an operand is broadcast."""
    arrays = sample(op, adjit.float64, (4, 3))
    operands = [adjit.tensor(a) for a in arrays]
    operands[0] = operands[0][:1]
    tangents = [
        adjit.tensor(np.random.default_rng(k).standard_normal(t.shape)) if t.dtype.is_floating_point else None
        for k, t in enumerate(operands)
    ]  # fmt: skip
    if op.name == "zeta":
        tangents[0] = None  # its derivative in the first operand is not implemented
    level = DualLevel()
    duals = [t if v is None else level.dual(t, v) for t, v in zip(operands, tangents, strict=True)]
    out = op(*duals)
    found = level.tangent(out)
    assert found.shape == out.shape
    assert found.dtype is out.dtype
    wanted = difference(op, operands, tangents)
    close(found, wanted, rtol=1e-5, atol=1e-6)


def opinfo_names() -> list[str]:
    try:
        import opinfo
    except pytest.skip.Exception:
        return []
    return [
        name
        for name, info in opinfo.OPS.items()
        if opinfo.exists(info)
        and info.supports_autograd
        and opinfo.torch.float64 in info.supported_dtypes("cpu")
        and name not in UNSURE.split()
    ]


# Whose values are drawn, or have no meaning.
UNSURE = """
    bernoulli cauchy exponential geometric log_normal multinomial uniform normal normal_in_place
    normal_number_mean rand_like randint randint_like randn randn_like nn_functional_alpha_dropout
    nn_functional_dropout nn_functional_dropout2d nn_functional_dropout3d
    nn_functional_feature_alpha_dropout_with_train nn_functional_fractional_max_pool2d
    nn_functional_fractional_max_pool3d nn_functional_multi_head_attention_forward nn_functional_rrelu
    nn_functional_max_unpool2d empty empty_like empty_strided new_empty new_empty_strided
"""
# Whose vjp is no transpose of the Jacobian: it leaves out padding, or which of equal places is written is not
# defined; it is for symmetric matrices; it has no derivative.
NOT_TRANSPOSED = {"look_up", "unpool", "cholesky_factor", "label_losses", "picked"}
# PyTorch's own tangent is zero, or inexact: finite differences are as here.
WRONG_THERE = {"scatter_reduce_prod", "logcumsumexp"}
SYMMETRIC = {"linalg_cholesky"}  # tangents that are not have no meaning
UNTESTED = """
    bfloat16 half norm_nuc linalg_matrix_norm to nn_functional_linear_cross_entropy_chunked
    nn_functional_linear_cross_entropy_chunked_none
"""  # which are refused
REFUSED = "singular values|not supported yet|options of chunks|reaches beyond|elements outside of the tensor"
NOT_SUPPORTED_THERE = "does not support it because it has not been implemented yet"


@pytest.mark.in_turn(4)
@pytest.mark.filterwarnings("ignore")  # PyTorch's
@pytest.mark.parametrize("name", opinfo_names())
def test_tangents_are_pytorchs(name: str, monkeypatch: Any) -> None:
    """Of PyTorch's samples; each rule that they come to is the vjp's transpose too."""
    import opinfo
    import torch
    import torch.autograd.forward_ad as theirs

    info = opinfo.OPS[name]
    pushed = DualLevel.pushed

    def checked(self: Any, op: Any, given: Any, tangents: Any, outs: Any, targets: Any) -> Any:
        found = pushed(self, op, given, tangents, outs, targets)
        if op.rules.push is not None and op.back is not None and op.name not in NOT_TRANSPOSED:
            for k, t in zip(targets, transposed(op, given, tangents, outs, targets), strict=True):
                wanted = np.zeros(found[k].shape) if t is None else t
                close(found[k], wanted, 1e-6, 1e-9)
        return found

    monkeypatch.setattr(DualLevel, "pushed", checked)

    class Duals(opinfo.Arguments):
        def __init__(self, library: Any, dual: Any) -> None:
            super().__init__(library, False)
            self.dual = dual

        def _tensor(self, given: Any) -> Any:
            made = super()._tensor(given)
            if not given.requires_grad:
                return made
            values = np.random.default_rng(made.ndim).standard_normal(tuple(made.shape))
            return self.dual(made, self.library.tensor(values).to(made.dtype))

    every = list(itertools.islice(info.sample_inputs("cpu", torch.float64, requires_grad=True), 60))
    ran = 0
    for k in sorted({round(k) for k in np.linspace(0, len(every) - 1, min(5, len(every)))}):
        call = every[k].input, every[k].args, every[k].kwargs
        level = DualLevel()
        try:
            args = Duals(adjit, level.made_of).of(call)
            function = opinfo.translated(info.op)
        except (opinfo.Lacking, NotImplementedError):
            continue
        if args[2].get("dropout_p"):
            continue
        with theirs.dual_level():
            their_args = Duals(torch, theirs.make_dual).of(call)
            wanted = opinfo.attempt(lambda a=their_args: info.op(a[0], *a[1], **a[2]))
            if isinstance(wanted, opinfo.Raised):
                if NOT_SUPPORTED_THERE in str(wanted.error):
                    function(args[0], *args[1], **args[2])
                    ran += 1
                continue
            wanted = [
                theirs.unpack_dual(t) for t in opinfo.parts(wanted) if isinstance(t, torch.Tensor)
            ]
        found = opinfo.attempt(lambda a=args, f=function: f(a[0], *a[1], **a[2]))
        if isinstance(found, opinfo.Raised):
            assert re.search(REFUSED, str(found.error)), found.error
            continue
        found = [t for t in opinfo.parts(found) if opinfo.is_tensor(t)]
        for ours, (value, tangent) in zip(found, wanted, strict=True):
            close(level.value(ours), value.numpy(force=True), 1e-7, 1e-9)
            own = level.tangent(ours)
            given = np.zeros(value.shape) if tangent is None else tangent.numpy(force=True)
            if own is None:
                assert not given.any()
            elif name not in WRONG_THERE | SYMMETRIC:
                size = max(1.0, np.abs(given[np.isfinite(given)]).max(initial=0))
                close(own, given, 1e-6, 1e-8 * size)
                assert own.dtype is ours.dtype
        ran += 1
    assert ran or name in UNTESTED.split()


# ------------------------------------------------------------------ nesting

FUNCTIONS = {
    "elementwise": lambda x: (x.sin() * x.exp()).sum(),
    "product": lambda x: (x.view(2, 3) @ x.view(3, 2)).pow(2).sum(),
    "softmax": lambda x: (x.view(2, 3).log_softmax(1) * x.view(2, 3)).sum(),
    "norm": lambda x: F.layer_norm(x.view(2, 3), (3,)).pow(3).sum() + x.var(),
    "written": lambda x: written(x).prod(),
    "linalg": lambda x: adjit.linalg.cholesky(matrix(x)).sin().sum(),
    "scan": lambda x: x.cumprod(0).logsumexp(0) + x.cummax(0)[0].square().sum(),
    "conv": lambda x: F.conv1d(x.view(1, 2, 3), x.view(1, 2, 3)[:, :, 1:]).tanh().sum(),
}


def written(x: Any) -> Any:
    y = x * 2
    y[1:4] = x[:3].exp()
    y[::2].mul_(x[1::2])
    z = adjit.zeros_like(x)
    z[3:] = y[3:]
    return z + y


def matrix(x: Any) -> Any:
    a = x.view(2, 3)
    return a @ a.t() + 0.5 * adjit.eye(2, dtype=x.dtype)


def gradient(f: Any, create_graph: bool = False) -> Any:
    """A function that gives the gradient in reverse mode."""

    def at(x: Any) -> Any:
        with adjit.enable_grad():
            leaf = x._like(leaf_of(x._value)) if hasattr(x, "_level") else leaf_of(x)
            return adjit.autograd.grad(f(leaf), leaf, create_graph=create_graph)[0]

    return at


def leaf_of(x: Any) -> Any:
    if hasattr(x, "_level"):
        return x._like(leaf_of(x._value))
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_agree_in_every_order(name: str) -> None:
    f, x, u, v = FUNCTIONS[name], randn(6) + 0.3, randn(6), randn(6)
    push = lambda g, at, along: jvp(g, (at,), (along,))[1]  # noqa: E731
    twice = gradient(lambda x: (gradient(f, True)(x) * u).sum())(x)  # reverse over reverse
    close((twice * v).sum(), push(lambda x: push(f, x, u), x, v), 1e-7, 1e-9)
    close(push(gradient(f), x, u), twice, 1e-7, 1e-9)  # forward over reverse
    close(gradient(lambda x: push(f, x, u))(x), twice, 1e-7, 1e-9)  # reverse over forward
    third = push(lambda x: push(gradient(f), x, u), x, v)
    wanted = difference(lambda x: gradient(lambda x: (gradient(f, True)(x) * u).sum())(x), [x], [v])
    close(third, wanted, 1e-4, 1e-4 * float(wanted.abs().max()))


def test_perturbations_are_not_confused() -> None:
    one, x = adjit.tensor(1.0), adjit.tensor(3.0)
    inner = lambda x: jvp(lambda y: x + y, (one,), (one,))[1]  # noqa: E731
    assert jvp(lambda x: x * inner(x), (x,), (one,))[1].item() == 1
    inner = lambda x: jvp(lambda y: x * y, (one,), (one,))[1]  # noqa: E731
    assert jvp(lambda x: x * inner(x), (x,), (one,))[1].item() == 6
    inner = lambda x: gradient(lambda y: x * y * y)(adjit.tensor(2.0))  # noqa: E731
    assert jvp(lambda x: x * inner(x), (x,), (one,))[1].item() == 24
    leaf = adjit.tensor(3.0, requires_grad=True)
    pushed = jvp(lambda y: leaf * y * y, (adjit.tensor(2.0),), (one,))[1]
    assert adjit.autograd.grad(leaf * pushed, leaf)[0].item() == 24


def test_gradients_of_what_has_no_tangent_have_one() -> None:
    """`d/dx d/dy x y²` with `y` outside of the level."""
    y = adjit.tensor(2.0, requires_grad=True)

    def slope(x: Any) -> Any:
        return adjit.autograd.grad(x * y * y, y)[0]

    value, tangent = jvp(slope, (adjit.tensor(3.0),), (adjit.tensor(1.0),))
    assert (value.item(), tangent.item()) == (12, 4)


# ------------------------------------------------------------------ memory


def test_writes_reach_all_views_of_values_and_tangents() -> None:
    x, t = randn(6), randn(6)

    def f(x: Any) -> Any:
        y = x * 1
        rows = y.view(2, 3)
        first, second = rows.unbind(0)
        column = rows[:, 1]
        column.mul_(column)
        y[0] = first.sum() * second[2]
        return adjit.cat([y, column, rows.t().reshape(-1)])

    value, tangent = jvp(f, (x,), (t,))
    close(tangent, difference(f, [x], [t]), 1e-6, 1e-8)
    close(value, f(x))


def test_a_write_leaves_what_an_op_passed_on() -> None:
    """The tangent of `x + 1` is that of `x`, the same tensor."""

    def f(x: Any) -> Any:
        y = x + 1
        z = y + 1
        y[0] = 5
        y.mul_(2)
        return z

    assert jvp(f, (adjit.ones(3),), (adjit.ones(3),))[1].tolist() == [1, 1, 1]


def test_layouts_of_tangents_do_not_matter() -> None:
    whole = randn(6, 4)
    for x in (whole[::2, 1:3], whole.t(), whole[0].expand(3, 4), whole[:, :1].expand(6, 3)):
        t = randn(*x.shape)
        f = lambda x: adjit.cat([(x[1:] * x[:-1]).reshape(-1), x.t().reshape(-1)])  # noqa: E731
        close(jvp(f, (x,), (t,))[1], difference(f, [x], [t]), 1e-6, 1e-8)


def test_a_captured_tensor_is_not_written() -> None:
    buffer = adjit.zeros(2)

    def f(x: Any) -> Any:
        buffer[0] = x[0]
        return buffer.sum()

    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        jvp(f, (adjit.ones(2),), (adjit.ones(2),))
    assert buffer.tolist() == [0, 0]


# ------------------------------------------------------------------ dual tensors


BUFFERS = {
    "zeros": lambda L, x: L.zeros(3, dtype=L.float64),
    "zeros of another's shape": lambda L, x: L.zeros(size=x.shape, dtype=x.dtype),
    "ones": lambda L, x: L.ones(3, dtype=L.float64),
    "empty": lambda L, x: L.empty(3, dtype=L.float64),
    "full": lambda L, x: L.full((3,), 2.5, dtype=L.float64),
    "new_zeros": lambda L, x: x.new_zeros(3),
    "new_full": lambda L, x: x.new_full((3,), 2.5),
    "zeros_like": lambda L, x: L.zeros_like(x),
    "empty_like": lambda L, x: L.empty_like(x),
    "like one without a tangent": lambda L, x: L.full_like(L.ones(3, dtype=L.float64), 2.5),
}
FORWARD = {
    "jvp": lambda L, f: lambda x: L.func.jvp(f, (x,), (L.ones_like(x),))[1],
    "jacfwd": lambda L, f: L.func.jacfwd(f),
    "jacfwd of jacfwd": lambda L, f: L.func.jacfwd(L.func.jacfwd(f)),
    "jacfwd of jacrev": lambda L, f: L.func.jacfwd(L.func.jacrev(f)),
    "jacrev of jacfwd": lambda L, f: L.func.jacrev(L.func.jacfwd(f)),
    "hessian": lambda L, f: L.func.hessian(lambda x: f(x).sum()),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's first make_dual
@pytest.mark.parametrize("transform", FORWARD)
@pytest.mark.parametrize("buffer", BUFFERS)
def test_a_tensor_made_inside_is_filled(buffer: str, transform: str) -> None:
    torch = pytest.importorskip("torch")

    def program(L: Any) -> Any:
        def f(x: Any) -> Any:
            made = BUFFERS[buffer](L, x)
            made[0] = x[0] * x[1]
            made[1:] = x[1:].sin()
            made[2].mul_(x[0])
            return made * x

        x = L.tensor([0.3, -0.7, 1.1], dtype=L.float64)
        for _ in range(3):  # calls are known from the third on
            FORWARD[transform](L, f)(x)
        return FORWARD[transform](L, f)(x)

    close(program(adjit), program(torch).detach())


def test_what_is_made_beside_dual_tensors_has_memory() -> None:
    with adjit.autograd.forward_ad.dual_level():
        made = adjit.zeros(3)
        parameter = adjit.nn.Parameter(made)
        assert made.numpy().tolist() == [0.0] * 3
    assert type(made) is adjit.Tensor
    assert pickle.loads(pickle.dumps(parameter)).tolist() == [0.0] * 3


def test_a_tensor_made_inside_of_examples_is_filled() -> None:
    x, direction = randn(4, 3), randn(4, 3)

    def f(x: Any) -> Any:
        made = adjit.zeros(2, dtype=adjit.float64)
        made[0] = x.prod()
        made[1] = (x * x).sum()
        return made

    found = adjit.func.vmap(lambda x, t: jvp(f, (x,), (t,))[1])(x, direction)
    close(found, adjit.stack([jvp(f, (a,), (t,))[1] for a, t in zip(x, direction, strict=True)]))
    close(found[:, 1], 2 * (x * direction).sum(1))


def levels_of(t: Any) -> list[Any]:
    """The levels whose tracer a tensor is, from the last one on."""
    return [t._level, *levels_of(t._value)] if type(t) is not adjit.Tensor else []


class Filled(adjit.autograd.Function):
    """Twice a tensor, by tensors that its functions make and fill."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:  # type: ignore[override]
        made = adjit.zeros(3, dtype=adjit.float64)
        assert levels_of(made) == levels_of(x)
        made[:] = 2 * x
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:  # type: ignore[override]
        made = adjit.empty(3, dtype=adjit.float64)
        assert levels_of(made) == levels_of(t)
        made[:] = 2 * t
        return made


def test_functions_of_the_users_make_tensors_of_what_they_are_given() -> None:
    x, other = randn(3), randn(3)
    wanted = 2 * adjit.eye(3, dtype=adjit.float64)
    close(jvp(Filled.apply, (x,), (x,))[1], 2 * x)
    close(jvp(lambda x: x * Filled.apply(other), (x,), (x,))[1], 2 * x * other)
    close(jvp(lambda y: jvp(Filled.apply, (y * y,), (y,))[1], (x,), (x,))[1], 2 * x)
    made = adjit.stack([jvp(Filled.apply, (x,), (row,))[1] for row in wanted])
    close(made, 2 * wanted)


def test_a_compiled_function_is_run_as_it_is() -> None:
    """What it makes may take tangents, and is not remembered for calls outside."""

    @adjit.compile
    def f(x: Any) -> Any:
        made = adjit.zeros(3)
        made[0] = x.sum()
        return made * x

    x = adjit.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        assert jvp(lambda t: t * f(x), (x,), (x,))[1].tolist() == [6, 0, 0]
        assert jvp(f, (x,), (x,))[1].tolist() == [12, 0, 0]
    for _ in range(3):
        found = f(x)
        assert type(found) is adjit.Tensor
        assert found.tolist() == [6, 0, 0]


def what_factories_know():
    """Calls of factories that users call, and templates of others."""
    return [(m.calls.copy(), m.sizes.families.copy()) for m in factories._by_users]


def test_what_is_made_outside_is_no_dual_tensor() -> None:
    """Neither before nor after, nor what holds no floats, nor in another function that failed."""

    def f(x: Any) -> Any:
        assert type(adjit.zeros(3)).__name__ == "Dual"
        assert type(adjit.zeros(3, dtype=adjit.int64)) is adjit.Tensor
        assert type(adjit.zeros(3, requires_grad=True)) is adjit.Tensor
        raise KeyError

    for _ in range(4):
        assert type(adjit.zeros(3)) is adjit.Tensor
        known = what_factories_know()
        with pytest.raises(KeyError):
            jvp(f, (randn(3),), (randn(3),))
        assert known == what_factories_know()
    assert any(calls for calls, _ in known)
    assert type(adjit.zeros(3)) is adjit.Tensor


def test_what_is_made_of_other_sizes_takes_tangents() -> None:
    """Templates, of which machine code asks, are put aside as calls that are known."""
    for family in native.families:
        assert family.load(compiling=True)
    for n in range(40, 40 + 3 * other_sizes.ENOUGH):
        adjit.zeros(n, dtype=adjit.float64)

    def f(x: Any) -> Any:
        y = adjit.zeros(int(x.shape[0]), dtype=adjit.float64)
        y[1:] = x[1:] * 2
        return y

    for n in (201, 202):
        x, v = randn(n), randn(n)
        assert jvp(f, (x,), (v,))[1].tolist() == [0.0, *(v[1:] * 2).tolist()]


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's first make_dual
def test_dual_tensors_look_like_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    import torch.autograd.forward_ad as theirs

    for lib, ad in ((adjit, fwAD), (torch, theirs)):
        with ad.dual_level():
            x = ad.make_dual(lib.tensor([1.0, 2.0]), lib.tensor([1.0, 1.0]))
            shown = [repr(x), repr(x.sum()), repr(ad.unpack_dual(x * x)), repr(x > 1)]
            shown.append(repr(ad.unpack_dual(x.detach())))
            shown.append(repr(ad.unpack_dual(x.floor())))
            shown.append(repr(ad.unpack_dual(lib.ones(1))))
        shown.append(repr(ad.unpack_dual(x)))
        if lib is adjit:
            ours = shown
    assert ours == shown


def test_dual_tensors_share_memory_with_the_primal() -> None:
    x = adjit.ones(2)
    with fwAD.dual_level():
        d = fwAD.make_dual(x, adjit.ones(2))
        d.mul_(3)
        assert x.tolist() == [3, 3]
        assert fwAD.unpack_dual(d).tangent.tolist() == [3, 3]


def errors(lib: Any, ad: Any) -> list[str]:
    """What goes wrong, in the words of one library."""
    x, t = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 1.0])
    found = []

    def attempt(call: Any) -> None:
        try:
            call()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("none")

    attempt(lambda: ad.make_dual(x, t))
    attempt(lambda: ad.exit_dual_level())
    with ad.dual_level():
        attempt(ad.enter_dual_level)
        attempt(lambda: ad.make_dual(x, lib.ones(3)))
        attempt(lambda: ad.make_dual(lib.tensor([1, 2]), t))
        attempt(lambda: ad.make_dual(x, lib.tensor([1, 2])))
        attempt(lambda: ad.make_dual(ad.make_dual(x, t), t))
        attempt(lambda: ad.make_dual(x, ad.make_dual(t, t)))
        attempt(lambda: ad.unpack_dual(3))
        attempt(lambda: ad.make_dual(x, t, level=3))
        attempt(lambda: ad.unpack_dual(x, level=3))
        attempt(lambda: ad.exit_dual_level(level=3))
    product = lib.func.jvp if lib is not adjit else jvp
    attempt(lambda: product(lambda x: x, x, t))
    attempt(lambda: product(lambda x: x, (x,), (lib.ones(3),)))
    attempt(lambda: product(lambda x: 3, (x,), (t,)))
    attempt(lambda: product(lambda x: x, (x,), (t,), has_aux=True))
    attempt(lambda: product(lambda x: x, (), ()))
    attempt(lambda: product(lambda x: x, (3,), (t,)))
    attempt(lambda: product(lambda x: lib.ones(2), (x,), (t,), strict=True))
    attempt(lambda: product(lambda x: (), (x,), (t,)))
    attempt(lambda: product(lambda x: None, (x,), (t,)))
    return found


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's first make_dual
def test_errors_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    import torch.autograd.forward_ad as theirs

    assert errors(adjit, fwAD) == errors(torch, theirs)


# ------------------------------------------------------------------ functions of the user


def custom(lib: Any, ad: Any) -> list[str]:
    """What functions with a jvp of their own give, in one library."""
    shown: list[str] = []
    functions: dict[str, Any] = {}

    def define(forward: Any, push: Any, setup: Any = None) -> Any:
        members = {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, g: g)}
        if push is not None:
            members["jvp"] = staticmethod(push)
        if setup is not None:
            members["setup_context"] = staticmethod(setup)
        return type("Own", (lib.autograd.Function,), members)

    def product(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x, y)
        shown.append(repr(ad.unpack_dual(x).tangent))
        return x * y

    def product_push(ctx: Any, a: Any, b: Any) -> Any:
        x, y = ctx.saved_tensors
        shown.append(repr((a, b, ctx.needs_input_grad)))
        return a * y + x * b

    def unfilled(ctx: Any, x: Any, y: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2

    def dirty(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    def with_places(ctx: Any, x: Any) -> Any:
        places = x.long()
        ctx.mark_non_differentiable(places)
        return x * 2, places

    functions["product"] = define(product, product_push)
    functions["none"] = define(lambda ctx, x: x * 2, None)
    functions["number"] = define(lambda ctx, x: (x * 2, x * 3), lambda ctx, a: a)
    functions["shape"] = define(lambda ctx, x: x * 2, lambda ctx, a: lib.ones(3))
    functions["kind"] = define(lambda ctx, x: x * 2, lambda ctx, a: 3)
    functions["unfilled"] = define(unfilled, lambda ctx, a, b: shown.append(repr((a, b))) or a)
    functions["setup"] = define(
        lambda x: x * 2, lambda ctx, a: a * ctx.saved_tensors[1],
        lambda ctx, inputs, output: ctx.save_for_forward(inputs[0], output),
    )  # fmt: skip
    functions["dirty"] = define(dirty, lambda ctx, a: a.mul_(2))
    functions["not in place"] = define(dirty, lambda ctx, a: a * 2)
    functions["places"] = define(with_places, lambda ctx, a: (a * 2, None))
    functions["nothing in place"] = define(dirty, lambda ctx, a: a)
    functions["places with a tangent"] = define(with_places, lambda ctx, a: (a * 2, a))
    as_it_is, part = lambda ctx, x: x, lambda ctx, x: x[1:]
    functions["as it is"] = define(as_it_is, lambda ctx, a: a.view_as(a))
    functions["as it is, no view"] = define(as_it_is, lambda ctx, a: a)
    functions["part"] = define(part, lambda ctx, a: a[1:])
    functions["part, no view"] = define(part, lambda ctx, a: a[1:] * 2)
    functions["part of another"] = define(part, lambda ctx, a: a.clone()[1:])
    functions["save"] = define(lambda ctx, x: ctx.save_for_forward(3), lambda ctx, a: a)
    x, t = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 3.0])
    for name, function in functions.items():
        with ad.dual_level():
            d = ad.make_dual(x.clone(), t.clone())
            try:
                made = (
                    function.apply(d, x) if name in ("product", "unfilled") else function.apply(d)
                )
                shown.append(repr((made, made is d, d)))
            except (RuntimeError, NotImplementedError, AssertionError) as error:
                text = str(error).partition(" is not ")[
                    0
                ]  # PyTorch's end differs from case to case
                shown.append(f"{name} {type(error).__name__}: {text}")
    return shown


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's first make_dual
def test_functions_of_the_user_push_as_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    import torch.autograd.forward_ad as theirs

    assert custom(adjit, fwAD) == custom(torch, theirs)


# ------------------------------------------------------------------ jvp and jacfwd


def test_masks_and_places_of_dual_tensors() -> None:
    """Shapes that depend on values are known, other than inside of `vmap`."""
    x, t = adjit.tensor([1.0, -2.0, 3.0]), adjit.tensor([1.0, 10.0, 100.0])
    for function, wanted in [
        (lambda x: x[x > 0], [1.0, 100.0]),
        (lambda x: x[x.nonzero()[1:, 0]], [10.0, 100.0]),
        (lambda x: x[adjit.where(x > 0)], [1.0, 100.0]),
        (lambda x: x.clone().index_put((x > 0,), x[x < 0]), [10.0, 10.0, 10.0]),
    ]:
        assert jvp(function, (x,), (t,))[1].tolist() == wanted
        with fwAD.dual_level():
            pushed = function(fwAD.make_dual(x, t))
            assert fwAD.unpack_dual(pushed).tangent.tolist() == wanted
    with pytest.raises(RuntimeError, match=r"^vmap: We do not support"):
        adjit.func.vmap(lambda x: jvp(lambda x: x[x > 0], (x,), (x,))[1])(x.expand(2, 3))
    with pytest.raises(NotImplementedError, match="Trying to use forward AD with _unique2"):
        jvp(lambda x: x.unique(), (x,), (t,))


def test_jvp_takes_and_gives_containers() -> None:
    x, t = randn(3), randn(3)
    out, pushed, aux = jvp(
        lambda d, y: ({"a": d["x"] * y, "b": [y]}, d["x"]),
        ({"x": x}, x),
        ({"x": t}, t),
        has_aux=True,
    )
    close(pushed["a"], 2 * x * t)
    close(pushed["b"][0], t)
    close(out["a"], x * x)
    assert type(aux) is adjit.Tensor


def test_jacfwd_is_the_jacobian() -> None:
    x, y = randn(4), randn(4)

    def f(x: Any, y: Any) -> Any:
        return (x * y).sin()[1:] * x[0], {"a": y.view(2, 2).t().exp()}

    blocks, rest = jacfwd(f, argnums=(0, 1))(x, y)
    wanted = adjit.autograd.functional.jacobian(lambda x, y: f(x, y)[0], (x, y))
    for found, block in zip(blocks, wanted, strict=True):
        close(found, block)
    wanted = adjit.autograd.functional.jacobian(lambda x, y: f(x, y)[1]["a"], (x, y))
    for found, block in zip(rest["a"], wanted, strict=True):
        close(found, block)
    twice = jacfwd(jacfwd(lambda x: x.pow(3) * x[0]))(x)
    wanted = jacfwd(jacfwd(lambda x: x * x * x * x[0]))(x)
    close(twice, wanted)
    assert jacfwd(lambda x: adjit.ones(2))(x).tolist() == [[0] * 4] * 2
    value, aux = jacfwd(lambda x: (x * 2, x), has_aux=True)(x)
    close(aux, x)
    close(value, 2 * np.eye(4))
    with pytest.raises(RuntimeError, match="Got argnum=3"):
        jacfwd(f, argnums=3)(x, y)


@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck_in_forward_mode(fast: bool) -> None:
    x, y = randn(3).requires_grad_(), randn(2, 3).requires_grad_()
    f = lambda x, y: ((x * y).sin(), y.softmax(1) @ x)  # noqa: E731
    check, twice = adjit.autograd.gradcheck, adjit.autograd.gradgradcheck
    assert check(f, (x, y), check_forward_ad=True, fast_mode=fast)
    assert check(f, (x, y), check_forward_ad=True, check_backward_ad=False, fast_mode=fast)
    assert twice(f, (x, y), check_fwd_over_rev=True, fast_mode=fast)

    class Wrong(adjit.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 3

    assert check(Wrong.apply, x, fast_mode=fast)
    with pytest.raises(
        adjit.autograd.gradcheck.__globals__["GradcheckError"],
        match="forward mode mismatch for output 0",
    ):
        check(Wrong.apply, x, check_forward_ad=True, fast_mode=fast)
