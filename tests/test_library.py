"""`adjit.library.custom_op`: operators by name, beside PyTorch's."""

# ruff: noqa: UP006, UP045 (programs have the old spellings of types)
from __future__ import annotations

import itertools
from typing import List, Optional, Sequence, Tuple  # noqa: UP035

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

_numbers = itertools.count()


def fresh() -> str:
    """A name that no operator has."""
    return f"tested{next(_numbers)}::f"


def annotated(library, **types):
    """A function of one statement with these annotations."""

    def f(x, y=1):
        return x * y

    f.__annotations__ = types
    return f


KINDS = [
    lambda L: L.Tensor, lambda L: Optional[L.Tensor], lambda L: List[L.Tensor], lambda L: list[L.Tensor],
    lambda L: Sequence[L.Tensor], lambda L: list[Optional[L.Tensor]], lambda L: int, lambda L: float,
    lambda L: bool, lambda L: str, lambda L: L.types.Number, lambda L: L.dtype, lambda L: L.device,
    lambda L: Optional[int], lambda L: list[int], lambda L: Optional[Sequence[float]], lambda L: List[bool],
]  # fmt: skip
RETURNED = [
    lambda L: L.Tensor, lambda L: None, lambda L: Tuple[L.Tensor, L.Tensor], lambda L: tuple[L.Tensor],
    lambda L: list[L.Tensor], lambda L: int, lambda L: tuple[L.Tensor, float], lambda L: bool,
]  # fmt: skip


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_schemas_of_parameters(kind):
    texts = [
        library.library.infer_schema(
            annotated(library, x=KINDS[kind](library), y=int, **{"return": library.Tensor}),
            mutates_args=(),
        )
        for library in (torch, adjit)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", range(len(RETURNED)))
def test_schemas_of_results(kind):
    texts = []
    for library in (torch, adjit):
        f = annotated(library, x=library.Tensor, y=float, **{"return": RETURNED[kind](library)})
        texts.append([
            library.library.infer_schema(f, mutates_args=args, op_name="named")
            for args in ((), {"x"}, "unknown")
        ])  # fmt: skip
    assert texts[0] == texts[1]


def wrong(library, kind):
    tensor, made = library.Tensor, {"return": library.Tensor}
    if kind == "no annotation":
        return annotated(library, y=int, **made), ()
    if kind == "no result":
        return annotated(library, x=tensor, y=int), ()
    if kind == "tuple":
        return annotated(library, x=dict, y=int, **made), ()
    if kind == "result":
        return annotated(library, x=tensor, y=int, **{"return": str}), ()
    if kind == "unknown name":
        return annotated(library, x=tensor, y=int, **made), {"z"}
    if kind == "written number":
        return annotated(library, x=tensor, y=int, **made), {"y"}
    if kind == "stars":
        return (lambda *x: x), ()
    assert kind == "a text"
    return annotated(library, x=tensor, y=int, **made), "x"


@pytest.mark.parametrize(
    "kind",
    ["no annotation", "no result", "tuple", "result", "unknown name", "written number", "stars", "a text"],
)  # fmt: skip
def test_what_no_schema_can_be_read_of(kind):
    texts = []
    for library in (torch, adjit):
        function, written = wrong(library, kind)
        with pytest.raises(ValueError, match=r".") as caught:
            library.library.infer_schema(function, mutates_args=written)
        texts.append(str(caught.value).partition("The valid types")[0].replace("torch", "adjit"))
    assert texts[0].replace("torch.Tensor", "") == texts[1].replace(
        "adjit.tensor.Tensor", "adjit.Tensor"
    )


def scaled(library, name, backward=True):
    """An operator that goes through NumPy."""

    def f(x, by):
        return library.from_numpy(x.numpy(force=True) * by)

    f.__annotations__ = {"x": library.Tensor, "by": float, "return": library.Tensor}
    op = library.library.custom_op(name, mutates_args=())(f)
    if backward:

        def save(ctx, inputs, output):
            ctx.by = inputs[1]
            ctx.seen = output.shape

        op.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=save)
    return op


def test_values_gradients_and_names():
    for library in (torch, adjit):
        name = fresh()
        op = scaled(library, name)
        assert repr(op) == f"<CustomOpDef({name})>"
        x = library.arange(3.0, requires_grad=True)
        y = op(x, 2.5)
        assert y.tolist() == [0, 2.5, 5]
        assert y.grad_fn.name() == f"GeneratedBackwardFor_{name.replace('::', '_')}_defaultBackward"
        (y * y).sum().backward()
        np.testing.assert_allclose(x.grad.tolist(), 2 * 2.5**2 * np.arange(3))
        there = getattr(getattr(library.ops, name.partition("::")[0]), "f")  # noqa: B009
        assert there(x, by=1).tolist() == there.default(x, 1.0).tolist() == [0, 1, 2]
        with library.no_grad():
            assert not op(x, 2.0).requires_grad
        with pytest.raises(AttributeError, match="object has no attribute 'missing'"):
            getattr(library.ops, name.partition("::")[0]).missing  # noqa: B018


def test_gradcheck_of_an_operator():
    op = scaled(adjit, fresh())
    x = adjit.tensor([0.3, -1.2], dtype=adjit.float64, requires_grad=True)
    assert adjit.autograd.gradcheck(lambda x: op(x.sin(), 1.5), x)


def test_without_a_formula():
    for library in (torch, adjit):
        name = fresh()
        y = scaled(library, name, backward=False)(library.ones(2, requires_grad=True), 2.0)
        told = f"Trying to backward through {name.replace('::', '.')}.default but no autograd formula was reg"
        with pytest.raises(RuntimeError, match=told):
            y.sum().backward()


def test_lists_of_tensors_in_and_out():
    found = []
    for library in (torch, adjit):

        def f(xs, by):
            return [x * by for x in xs]

        f.__annotations__ = {
            "xs": list[library.Tensor],
            "by": float,
            "return": list[library.Tensor],
        }
        op = library.library.custom_op(fresh(), mutates_args=())(f)
        seen = []

        def save(ctx, inputs, output, seen=seen):
            seen.append((len(inputs), type(inputs[0]), type(output)))
            ctx.by = inputs[1]

        def back(ctx, grads, seen=seen):
            seen.append((type(grads), ctx.needs_input_grad))
            return [g * ctx.by for g in grads], None

        op.register_autograd(back, setup_context=save)
        a, b = library.ones(2, requires_grad=True), library.ones(3)
        made = op([a, b], 3.0)
        (made[0].sum() + made[1].sum()).backward()
        found.append((type(made), [t.tolist() for t in made], a.grad.tolist(), seen[0], seen[1][0]))
    assert found[0] == found[1]


def test_several_results_and_arguments_by_name():
    found = []
    for library in (torch, adjit):

        def f(x, *, up=True):
            return (x + 1 if up else x - 1), x * 2

        f.__annotations__ = {
            "x": library.Tensor, "up": bool, "return": tuple[library.Tensor, library.Tensor],
        }  # fmt: skip
        op = library.library.custom_op(fresh(), mutates_args=())(f)

        def save(ctx, inputs, keyword_only_inputs, output):
            ctx.up = keyword_only_inputs["up"]

        op.register_autograd(
            lambda ctx, g, h: g * (1 if ctx.up else 10) + 2 * h, setup_context=save
        )
        x = library.ones(2, requires_grad=True)
        a, b = op(x, up=False)
        (a * 3 + b).sum().backward()
        found.append((a.tolist(), b.tolist(), x.grad.tolist()))
    assert found[0] == found[1] == ([0, 0], [2, 2], [32, 32])


def test_an_operator_that_writes():
    for library in (torch, adjit):

        def f(x):
            x.sin_()

        f.__annotations__ = {"x": library.Tensor, "return": None}
        op = library.library.custom_op(fresh(), mutates_args={"x"})(f)
        x = library.ones(2)
        before = x._version
        assert op(x) is None
        np.testing.assert_allclose(x.tolist(), np.sin([1, 1]), rtol=1e-6)
        assert x._version > before
        with pytest.raises(
            RuntimeError, match="Cannot register autograd formula for non-functional oper"
        ):
            op.register_autograd(lambda ctx, g: g)


def test_results_that_are_arguments():
    for library in (torch, adjit):

        def f(x):
            return x.view(-1)

        f.__annotations__ = {"x": library.Tensor, "return": library.Tensor}
        op = library.library.custom_op(fresh(), mutates_args=())(f)
        with pytest.raises(
            RuntimeError, match=r"The output of this custom operator \(1\) must not also be"
        ):
            op(library.ones(2))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2.0), {}), (("x", "a"), {}), (("x", 1.0, 3), {}), (("x",), {"z": 1})],
)  # fmt: skip
def test_wrong_arguments(args, kwargs):
    texts = []
    for library in (torch, adjit):
        op = scaled(library, "tested_wrong::f")
        given = [library.ones(2) if a == "x" else a for a in args]
        with pytest.raises(RuntimeError, match=r".") as caught:
            op(*given, **kwargs)
        texts.append(str(caught.value).partition("\nCast")[0].partition("Declaration")[0].rstrip())
    assert texts[0] == texts[1]


def test_kernels_of_devices():
    for library in (torch, adjit):
        name = fresh()

        def f(x):
            return x * 2

        f.__annotations__ = {"x": library.Tensor, "return": library.Tensor}
        op = library.library.custom_op(name, mutates_args=(), device_types="cuda")(f)
        with pytest.raises(
            NotImplementedError, match=f"Could not run '{name}' with arguments from the 'CPU'"
        ):
            op(library.ones(2))
        library.library.register_kernel(name, "cpu")(lambda x: x * 3)
        assert op(library.ones(2)).tolist() == [3, 3]
        with op.set_kernel_enabled("cpu", False):
            assert op(library.ones(2)).tolist() == [2, 2]
        assert op(library.ones(2)).tolist() == [3, 3]
        library.library.register_fake(name)(library.empty_like)
        with pytest.raises((AttributeError, RuntimeError)):
            library.library.register_autograd("nowhere::nothing", lambda ctx, g: g)


def test_batched():
    for library in (torch, adjit):
        op = scaled(library, name := fresh())
        seen = []

        def rule(info, in_dims, x, by, op=op, seen=seen):
            seen.append((info.batch_size, in_dims[1]))
            return op(x, by), in_dims[0]

        library.library.register_vmap(name, rule)
        made = library.vmap(op, in_dims=(1, None))(library.arange(6.0).view(2, 3), 2.0)
        assert made.tolist() == [[0, 6], [2, 8], [4, 10]]
        assert seen == [(3, None)]


def test_what_is_refused():
    with pytest.raises(
        AttributeError, match=r"triton_op'. Ops of one's own by PyTorch's registries and"
    ):
        adjit.library.triton_op  # noqa: B018
    with pytest.raises(AttributeError, match="Library'"):
        adjit.library.Library  # noqa: B018
    with pytest.raises(ValueError, match="is not that of the annotations"):
        adjit.library.custom_op(
            fresh(), annotated(adjit, x=adjit.Tensor, y=int, **{"return": adjit.Tensor}), mutates_args=(),
            schema="(Tensor z) -> Tensor",
        )  # fmt: skip
