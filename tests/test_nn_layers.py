"""Every layer, activation and loss beside PyTorch's: the same state, inputs and settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import adjit

torch = pytest.importorskip("torch")

RTOL = {"float32": 3e-5, "float64": 1e-11}
ATOL = {"float32": 3e-6, "float64": 1e-12}


class Case(NamedTuple):
    """A module's name and settings, and how its inputs are drawn."""

    name: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012
    inputs: Callable[[np.random.Generator], tuple[Any, ...]] = lambda rng: (
        rng.normal(size=(3, 4)),
    )

    def build(self, library: Any) -> Any:
        def local(value: Any) -> Any:
            return library.tensor(value) if isinstance(value, np.ndarray) else value

        options = {name: local(value) for name, value in self.options.items()}
        return getattr(library.nn, self.name)(*map(local, self.args), **options)

    def __str__(self) -> str:
        settings = [
            *(str(arg) for arg in self.args),
            *(
                f"{name}={'array' if isinstance(value, np.ndarray) else value}"
                for name, value in self.options.items()
            ),
        ]
        return f"{self.name}({','.join(settings)})"


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: tuple(rng.normal(size=shape) for shape in shapes)


def wide(rng: np.random.Generator) -> tuple[Any, ...]:
    """Values on both sides of every bend, the extremes and zero among them."""
    return (np.concatenate([rng.normal(size=29) * 4, [0.0, 30.0, -30.0]]).reshape(4, 8),)


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 2, size=shape) * 2.0 - 1.0


def classes(rng: np.random.Generator, shape: tuple[int, ...], ignored: int) -> np.ndarray:
    """Class indices for logits of `shape`, one of them to be ignored."""
    drawn = rng.integers(0, shape[1], size=(shape[0], *shape[2:]))
    drawn.flat[1] = ignored
    return drawn


def with_classes(
    *shape: int, ignored: int = -100
) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: (rng.normal(size=shape), classes(rng, shape, ignored))


def several_classes(rng: np.random.Generator) -> tuple[Any, ...]:
    targets = [[3, 0, -1, 1], [-1, 0, 0, 0], [1, 1, 2, 0], [0, 1, 2, 3]]
    return rng.normal(size=(4, 4)), np.array(targets)


def with_probabilities(rng: np.random.Generator) -> tuple[Any, ...]:
    return rng.normal(size=(5, 4)), rng.dirichlet(np.ones(4), size=5)


def log_and_plain_probabilities(rng: np.random.Generator) -> tuple[Any, ...]:
    return np.log(rng.dirichlet(np.ones(4), size=5)), rng.dirichlet(np.ones(4), size=5)


def two_probabilities(rng: np.random.Generator) -> tuple[Any, ...]:
    return rng.uniform(0.05, 0.95, size=(3, 4)), rng.uniform(size=(3, 4))


WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])

LAYERS = [
    Case("Identity", (1, 2), {"a": 3}),
    Case("Linear", (4, 5)),
    Case("Linear", (4, 5), {"bias": False}, normal((2, 3, 4))),
    Case("Linear", (4, 1), {}, normal((4,))),
    Case("Bilinear", (4, 3, 5), {}, normal((6, 4), (6, 3))),
    Case("Bilinear", (4, 3, 2), {"bias": False}, normal((2, 6, 4), (2, 6, 3))),
    Case("Flatten", (), {}, normal((2, 3, 4))),
    Case("Flatten", (0, 1), {}, normal((2, 3, 4))),
    Case("Unflatten", (1, (2, 2))),
    Case("Unflatten", (0, [3, -1])),
    Case("Dropout", (0.0,)),
    Case("Dropout2d", (0.0,), {}, normal((2, 3, 4, 1))),
    Case("AlphaDropout", (0.0,)),
    Case("LayerNorm", (4,)),
    Case("LayerNorm", ((3, 4),), {"eps": 1e-3, "bias": False}, normal((2, 3, 4))),
    Case("LayerNorm", ([4],), {"elementwise_affine": False}),
    Case("RMSNorm", (4,)),
    Case("RMSNorm", ((3, 4),), {"eps": 1e-3}, normal((2, 3, 4))),
    Case("RMSNorm", (4,), {"elementwise_affine": False}),
    Case("Embedding", (6, 3), {}, lambda rng: (rng.integers(0, 6, size=(2, 5)),)),
    Case("Embedding", (6, 3), {"padding_idx": -2}, lambda rng: (np.array([4, 4, 0, 1, 0]),)),
    Case(
        "Embedding",
        (6, 3),
        {"max_norm": 1.0, "norm_type": 1.0, "scale_grad_by_freq": True, "sparse": False},
        lambda rng: (np.array([4, 4, 0, 1, 0, 0]),),
    ),
    Case("CosineSimilarity", (), {}, normal((3, 4), (3, 4))),
    Case("CosineSimilarity", (-1, 1e-3), {}, normal((2, 3, 4), (2, 3, 4))),
    Case("PairwiseDistance", (), {}, normal((3, 4), (3, 4))),
    Case("PairwiseDistance", (1.0,), {"keepdim": True}, normal((3, 4), (3, 4))),
]

ACTIVATIONS = [
    Case(name, args, options, wide)
    for name, args, options in [
        ("ReLU", (), {}),
        ("ReLU6", (), {}),
        ("LeakyReLU", (), {}),
        ("LeakyReLU", (0.2,), {}),
        ("RReLU", (0.2, 0.2), {}),
        ("PReLU", (), {}),
        ("PReLU", (8,), {"init": 0.1}),
        ("ELU", (), {}),
        ("ELU", (0.5,), {}),
        ("CELU", (), {}),
        ("CELU", (0.5,), {}),
        ("SELU", (), {}),
        ("GELU", (), {}),
        ("GELU", ("tanh",), {}),
        ("SiLU", (), {}),
        ("Mish", (), {}),
        ("Sigmoid", (), {}),
        ("LogSigmoid", (), {}),
        ("Tanh", (), {}),
        ("Tanhshrink", (), {}),
        ("Softplus", (), {}),
        ("Softplus", (2.0, 5.0), {}),
        ("Softsign", (), {}),
        ("Softshrink", (), {}),
        ("Softshrink", (1.5,), {}),
        ("Hardshrink", (), {}),
        ("Hardtanh", (), {}),
        ("Hardtanh", (-2.0, 0.5), {}),
        ("Hardsigmoid", (), {}),
        ("Hardswish", (), {}),
        ("Threshold", (0.5, -3.0), {}),
        ("GLU", (), {}),
        ("GLU", (0,), {}),
        ("Softmax", (1,), {}),
        ("Softmin", (0,), {}),
        ("LogSoftmax", (-1,), {}),
    ]
]

LOSSES = [
    Case(name, args, {**options, **reduction}, inputs)
    for reduction in ({}, {"reduction": "sum"}, {"reduction": "none"})
    for name, args, options, inputs in [
        ("L1Loss", (), {}, normal((3, 4), (3, 4))),
        ("MSELoss", (), {}, normal((3, 4), (3, 4))),
        ("SmoothL1Loss", (), {"beta": 0.7}, normal((3, 4), (3, 4))),
        ("SmoothL1Loss", (), {"beta": 0.0}, normal((3, 4), (3, 4))),
        ("HuberLoss", (), {"delta": 0.7}, normal((3, 4), (3, 4))),
        ("CrossEntropyLoss", (), {}, with_classes(5, 4)),
        (
            "CrossEntropyLoss",
            (),
            {"weight": WEIGHT, "ignore_index": 2},
            with_classes(5, 4, ignored=2),
        ),
        ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, with_classes(2, 4, 3)),
        ("CrossEntropyLoss", (), {"weight": WEIGHT}, with_probabilities),
        ("NLLLoss", (), {"weight": WEIGHT}, with_classes(5, 4)),
        ("NLLLoss", (), {}, with_classes(2, 4, 3)),
        ("BCELoss", (), {"weight": WEIGHT}, two_probabilities),
        (
            "BCEWithLogitsLoss",
            (),
            {"weight": WEIGHT, "pos_weight": WEIGHT + 1},
            lambda rng: (rng.normal(size=(3, 4)), rng.uniform(size=(3, 4))),
        ),
        ("BCEWithLogitsLoss", (), {}, two_probabilities),
        ("PoissonNLLLoss", (), {"full": True}, lambda rng: (
            rng.normal(size=(3, 4)), rng.poisson(2.0, size=(3, 4)) + 0.5)),
        ("PoissonNLLLoss", (False,), {}, two_probabilities),
        ("GaussianNLLLoss", (), {"full": True}, lambda rng: (
            rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.uniform(size=(3, 1)) + 0.1)),
        ("HingeEmbeddingLoss", (0.5,), {}, lambda rng: (rng.normal(size=7), signs(rng, 7))),
        ("SoftMarginLoss", (), {}, lambda rng: (rng.normal(size=7) * 9, signs(rng, 7))),
        ("MultiLabelSoftMarginLoss", (), {"weight": WEIGHT}, two_probabilities),
        ("CosineEmbeddingLoss", (0.1,), {}, lambda rng: (
            rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), signs(rng, 5))),
        ("MarginRankingLoss", (0.1,), {}, lambda rng: (
            rng.normal(size=5), rng.normal(size=5), signs(rng, 5))),
        ("TripletMarginLoss", (), {"swap": True}, normal((5, 3), (5, 3), (5, 3))),
        ("TripletMarginLoss", (0.5, 1.0), {}, normal((5, 3), (5, 3), (5, 3))),
        ("TripletMarginWithDistanceLoss", (), {}, normal((5, 3), (5, 3), (5, 3))),
    ]
]  # fmt: skip
LOSSES += [
    Case("KLDivLoss", (), {"reduction": reduction}, log_and_plain_probabilities)
    for reduction in ("batchmean", "sum", "none")
] + [
    Case("KLDivLoss", (), {"reduction": "sum", "log_target": True}, normal((3, 4), (3, 4))),
    *[
        Case(name, args, {**options, "reduction": reduction}, inputs)
        for reduction in ("mean", "sum", "none")
        for name, args, options, inputs in [
            ("MultiMarginLoss", (), {}, with_classes(3, 4, ignored=1)),
            (
                "MultiMarginLoss",
                (2, 0.5),
                {"weight": np.arange(4.0)},
                with_classes(3, 4, ignored=1),
            ),
            ("MultiMarginLoss", (), {}, lambda rng: (rng.normal(size=4), np.array(2))),
            ("MultiMarginLoss", (), {}, lambda rng: (rng.normal(size=4), np.array([2]))),
            ("MultiLabelMarginLoss", (), {}, several_classes),
            (
                "MultiLabelMarginLoss",
                (),
                {},
                lambda rng: (rng.normal(size=3), np.array([2, 0, -1])),
            ),
        ]
    ],
    Case("Softmax2d", (), {}, normal((2, 3, 2, 2))),
    Case("Softmax2d", (), {}, normal((3, 2, 2))),
    Case("CosineEmbeddingLoss", (), {}, lambda rng: (*normal((3,), (3,))(rng), np.array(-1.0))),
    Case("CrossEntropyLoss", (), {}, lambda rng: (rng.normal(size=4), np.array(2))),
]

ALL = LAYERS + ACTIVATIONS + LOSSES


def run(
    library: Any, module: Any, inputs: tuple[Any, ...], dtype: str
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """The output, and the gradients of a weighted sum of it for parameters and inputs."""
    kind = getattr(library, dtype)
    module.to(kind)
    leaves = []
    for i, value in enumerate(inputs):
        tensor = library.tensor(value)
        if tensor.is_floating_point():
            tensor = tensor.to(kind).requires_grad_(i == 0 or "Loss" not in type(module).__name__)
        leaves.append(tensor)
    out = module(*leaves)
    if out.requires_grad:
        factors = np.cos(np.arange(out.numel())).reshape(tuple(out.shape))
        (out * library.tensor(factors).to(kind)).sum().backward()
    grads = [tensor.grad for tensor in [*leaves, *module.parameters()]]
    return (
        out.detach().numpy(),
        [None if grad is None else grad.numpy() for grad in grads],
    )


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_gradients(case: Case, dtype: str) -> None:
    inputs = case.inputs(np.random.default_rng(len(case.name)))
    mine, theirs = case.build(adjit), case.build(torch)
    mine.load_state_dict(
        {name: adjit.tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    )
    out, grads = run(adjit, mine, inputs, dtype)
    expected, expected_grads = run(torch, theirs, inputs, dtype)
    # PyTorch's derivative of hardsigmoid holds 1/6 in single precision, also for float64.
    rtol = 1e-7 if case.name == "Hardsigmoid" else 0
    tolerance = {"rtol": max(rtol, RTOL[dtype]), "atol": ATOL[dtype]}
    assert out.dtype == expected.dtype
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, **tolerance)
    assert len(grads) == len(expected_grads)
    for grad, other in zip(grads, expected_grads, strict=True):
        assert (grad is None) == (other is None)
        if grad is not None:
            np.testing.assert_allclose(grad, other, **tolerance)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_repr_and_state(case: Case) -> None:
    mine, theirs = case.build(adjit), case.build(torch)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [tuple(p.shape) for p in mine.parameters()] == [
        tuple(p.shape) for p in theirs.parameters()
    ]


@pytest.mark.parametrize(
    "name",
    ["ReLU", "ReLU6", "LeakyReLU", "ELU", "CELU", "SELU", "SiLU", "Mish", "Hardtanh", "Hardswish",
     "Hardsigmoid"],
)  # fmt: skip
def test_inplace_activations(name: str) -> None:
    (values,) = wide(np.random.default_rng(0))

    def run_inplace(library: Any) -> tuple[Any, ...]:
        module = getattr(library.nn, name)(inplace=True)
        leaf = library.tensor(values, requires_grad=True)
        hidden = leaf * 1.5
        out = module(hidden)
        assert out is hidden
        out.sum().backward()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            module(leaf)
        return repr(module), out.detach().numpy(), leaf.grad.numpy()

    mine, theirs = run_inplace(adjit), run_inplace(torch)
    assert mine[0] == theirs[0]
    np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(mine[2], theirs[2], rtol=1e-7, atol=1e-12)


def test_threshold_in_place() -> None:
    x = adjit.tensor([0.0, 2.0])
    assert adjit.nn.Threshold(1.0, -1.0, inplace=True)(x) is x
    assert x.tolist() == [-1.0, 2.0]
    assert repr(adjit.nn.Threshold(1.0, -1.0, True)) == (
        "Threshold(threshold=1.0, value=-1.0, inplace=True)"
    )


def test_every_public_layer_of_torch_is_here_or_named_as_missing() -> None:
    for name, value in vars(torch.nn).items():
        if not (isinstance(value, type) and name[0].isupper()) or hasattr(adjit.nn, name):
            continue
        with pytest.raises(AttributeError, match=rf"nn\.{name} is not supported by adjit yet"):
            getattr(adjit.nn, name)
    with pytest.raises(AttributeError, match=r"module 'adjit\.nn' has no attribute 'Liner'"):
        _ = adjit.nn.Liner


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("NLLLoss2d", "nn.NLLLoss"),
        ("CrossMapLRN2d", "nn.LocalResponseNorm"),
    ],
)
def test_a_missing_layer_says_what_to_use_instead(name: str, instead: str) -> None:
    text = f"nn.{name} is not supported by adjit yet; use {instead}"
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(adjit.nn, name)
    used = re.match(r"nn\.(\w+)", instead)
    assert used
    assert used[1] in adjit.nn.__all__


def message(library: Any, call: Callable[[Any], Any]) -> tuple[str, str]:
    """The type and text of the error that `call` raises, without the library's own name."""
    try:
        call(library)
    except Exception as error:
        return type(error).__name__, str(error).replace("adjit", "torch")
    return "nothing", ""


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.nn.Dropout(1.5),
        lambda T: T.nn.functional.dropout(T.ones(1), p=-0.1),
        lambda T: T.nn.functional.alpha_dropout(T.ones(1), p=2),
        lambda T: T.nn.Hardtanh(1.0, 1.0),
        lambda T: T.nn.functional.hardtanh(T.ones(1), 2.0, 1.0),
        lambda T: T.nn.Unflatten(1, 3),
        lambda T: T.nn.Unflatten(1, (2, "a")),
        lambda T: T.nn.HuberLoss(delta="a"),
        lambda T: T.nn.TripletMarginLoss(margin=0),
        lambda T: T.nn.TripletMarginWithDistanceLoss(margin=-1.0),
        lambda T: T.nn.Bilinear(0, 1, 1),
        lambda T: T.nn.Embedding(3, 2, padding_idx=3),
        lambda T: T.nn.Embedding.from_pretrained(T.ones(3)),
        lambda T: T.nn.Embedding(3, 2, _weight=T.ones(2, 2)),
        lambda T: T.nn.GLU()(T.tensor(1.0)),
        lambda T: T.nn.GLU()(T.ones(3)),
        lambda T: T.nn.Softshrink(-1.0)(T.ones(3)),
        lambda T: T.nn.Bilinear(2, 2, 2)(T.ones(3, 2), T.ones(4, 2)),
        lambda T: T.nn.Bilinear(2, 2, 2)(T.ones(3, 2), T.ones(3, 3)),
        lambda T: T.nn.Bilinear(2, 2, 2)(T.ones(3, 2), T.ones(2)),
        lambda T: T.nn.MSELoss(reduction="avg")(T.ones(2), T.ones(2)),
        lambda T: T.nn.SoftMarginLoss(reduction="avg")(T.ones(2), T.ones(2)),
        lambda T: T.nn.BCELoss()(T.ones(2), T.ones(3)),
        lambda T: T.nn.BCEWithLogitsLoss()(T.ones(2), T.ones(3)),
        lambda T: T.nn.MarginRankingLoss()(T.ones(2), T.ones(2), T.ones(2, 1)),
        lambda T: T.nn.GaussianNLLLoss()(T.ones(2), T.ones(2), -1.0),
        lambda T: T.nn.GaussianNLLLoss()(T.ones(2), T.ones(2), T.ones(3)),
        lambda T: T.nn.GaussianNLLLoss(reduction="x")(T.ones(2), T.ones(2), T.ones(2)),
        lambda T: T.nn.functional.triplet_margin_loss(T.ones(2), T.ones(2), T.ones(2), margin=0),
        lambda T: T.nn.TripletMarginLoss()(T.ones(2), T.ones(1, 2), T.ones(2)),
        lambda T: T.nn.CosineEmbeddingLoss()(T.ones(2, 2), T.ones(2, 2), T.ones(2, 1)),
        lambda T: T.nn.functional.mse_loss(T.ones(2), T.ones(2), weight=T.ones(3)),
        lambda T: T.nn.functional.mse_loss(T.ones(2), T.ones(2), weight=T.ones(2), reduction="x"),
        lambda T: T.nn.RMSNorm([])(T.ones(2)),
        lambda T: T.nn.RMSNorm(3)(T.ones(2, 2)),
    ],
)  # fmt: skip
def test_errors_are_those_of_torch(call: Callable[[Any], Any]) -> None:
    expected = message(torch, call)
    assert expected[0] != "nothing"
    assert message(adjit, call) == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda T: T.nn.Softmax()(T.ones(2)),
        lambda T: T.nn.functional.log_softmax(T.ones(2, 2)),
        lambda T: T.nn.Hardtanh(min_value=-2.0),
        lambda T: T.nn.MSELoss()(T.ones(2, 1), T.ones(2)),
        lambda T: T.nn.L1Loss(size_average=False)(T.ones(2), T.zeros(2)),
        lambda T: T.nn.functional.l1_loss(T.ones(2), T.zeros(2), reduce=False),
        lambda T: T.nn.KLDivLoss()(T.ones(2), T.ones(2)),
    ],
)  # fmt: skip
def test_warnings_are_those_of_torch(call: Callable[[Any], Any]) -> None:
    def warned(library: Any) -> list[tuple[type, str, str]]:
        with pytest.warns() as caught:
            result = call(library)
        values = repr(result.tolist()) if hasattr(result, "tolist") else repr(result)
        return [
            (one.category, str(one.message).replace("adjit", "torch"), values) for one in caught
        ]

    mine = warned(adjit)
    assert mine == warned(torch)


def test_warnings_point_at_the_call() -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice") as by_function:
        adjit.nn.functional.softmax(adjit.ones(2))
    with pytest.warns(UserWarning, match="Implicit dimension choice") as by_layer:
        adjit.nn.Softmax()(adjit.ones(2))
    with pytest.warns(UserWarning, match="Using a target size") as by_loss:
        adjit.nn.functional.mse_loss(adjit.ones(2), adjit.ones(1))
    assert {one.filename for one in [*by_function, *by_layer, *by_loss]} == {__file__}


def test_weighted_elementwise_losses() -> None:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(2, 3, 4)), rng.uniform(size=(3, 4))

    def losses(library: Any) -> list[float]:
        F = library.nn.functional
        (x, y), w = library.tensor(arrays[0]), library.tensor(arrays[1])
        return [
            loss(x, y, weight=w, reduction=reduction).sum().item()
            for loss in (F.mse_loss, F.l1_loss, F.huber_loss)
            for reduction in ("mean", "sum", "none")
        ]

    np.testing.assert_allclose(losses(adjit), losses(torch), rtol=1e-12)


def test_embedding_from_pretrained() -> None:
    table = adjit.tensor([[1.0, 2.0], [3.0, 4.0]])
    frozen = adjit.nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad
    table[0, 0] = 9.0
    assert frozen(adjit.tensor([0])).tolist() == [[9.0, 2.0]]
    assert adjit.nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_dropout_in_training_and_evaluation() -> None:
    adjit.manual_seed(0)
    x = adjit.ones(20_000)
    layer = adjit.nn.Dropout(0.25)
    out = layer(x).numpy()
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.02
    assert (layer.eval()(x) == x).all()
    assert (adjit.nn.Dropout(1.0)(x) == 0).all()


def test_dropout_backward_uses_the_mask_of_the_forward() -> None:
    x = adjit.ones(100, requires_grad=True)
    out = adjit.nn.Dropout(0.5)(x)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())


@pytest.mark.parametrize("given", ["plain", "turned", "expanded", "a part"])
@pytest.mark.parametrize("sent", ["plain", "turned", "one number"])
@pytest.mark.parametrize("twice", [False, True])
def test_the_mask_in_backward_is_that_of_forward_however_gradients_lie(given, sent, twice) -> None:
    x = {
        "plain": adjit.ones(30, 20), "turned": adjit.ones(20, 30).t(),
        "expanded": adjit.ones(20).expand(30, 20),
        "a part": adjit.ones(40, 60)[5:35, 1:41:2],
    }[given].requires_grad_()  # fmt: skip
    g = {
        "plain": adjit.arange(600.0).view(30, 20) + 1, "turned": adjit.arange(600.0).view(20, 30).t() + 1,
        "one number": adjit.tensor(2.0).expand(30, 20),
    }[sent]  # fmt: skip
    for _ in range(3):
        y = adjit.nn.functional.dropout(x, 0.5)
        (found,) = adjit.autograd.grad(y, x, g, create_graph=twice)
        np.testing.assert_array_equal(found.detach().numpy(), (y.detach() * g).numpy())
        assert 200 < (found != 0).sum() < 400


def test_feature_alpha_dropout_takes_whole_channels() -> None:
    x = adjit.randn(300, 200, 3)
    layer = adjit.nn.FeatureAlphaDropout(0.3)
    out = layer(x).numpy()
    assert repr(layer) == repr(torch.nn.FeatureAlphaDropout(0.3))
    dropped = np.ptp(out, axis=2) == 0
    assert abs(dropped.mean() - 0.3) < 0.01
    assert abs(out.mean()) < 0.02
    assert abs(out.std() - 1) < 0.02
    assert (layer.eval()(x) == x).all()
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        adjit.nn.FeatureAlphaDropout(0.3)(adjit.ones(3))


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    adjit.manual_seed(0)
    x = adjit.randn(100_000)
    out = adjit.nn.AlphaDropout(0.3)(x).numpy()
    assert abs(out.mean()) < 0.03
    assert abs(out.var() - 1) < 0.03
    assert (adjit.nn.AlphaDropout(0.3).eval()(x) == x).all()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_channel_dropout_keeps_or_drops_whole_channels(axes: int) -> None:
    adjit.manual_seed(0)
    layer = getattr(adjit.nn, f"Dropout{axes}d")(0.5)
    x = adjit.ones(8, 50, *[3] * axes)
    out = layer(x).numpy().reshape(400, -1)
    assert (out == out[:, :1]).all()
    assert set(np.unique(out)) == {np.float32(0), np.float32(2)}
    assert abs((out[:, 0] == 0).mean() - 0.5) < 0.1
    assert (layer.eval()(x) == x).all()


def test_gumbel_softmax() -> None:
    adjit.manual_seed(0)
    logits = adjit.tensor([0.0, 1.0, 2.0]).repeat(4000, 1).requires_grad_()
    soft = adjit.nn.functional.gumbel_softmax(logits, tau=0.5)
    np.testing.assert_allclose(soft.sum(-1).detach().numpy(), 1.0, rtol=1e-5)
    hard = adjit.nn.functional.gumbel_softmax(logits, hard=True)
    drawn = hard.detach().numpy()
    np.testing.assert_allclose(drawn.max(-1), 1.0, rtol=1e-6)
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    np.testing.assert_allclose(drawn.mean(0), expected, atol=0.03)
    (hard * adjit.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad.abs().sum() > 0


def standardized(T: Any) -> Any:
    class Standardized(T.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return self._conv_forward(x, weight, None)

    return Standardized(2, 3, 3, padding=1, padding_mode="reflect")


def transposed_or_not(transposed: bool) -> Callable[[Any], Any]:
    def make(T: Any) -> Any:
        class Bare(T.nn.modules.conv._ConvNd):
            def forward(self, x: Any) -> Any:
                convolution = T.conv_transpose2d if self.transposed else T.conv2d
                return convolution(x, self.weight, self.bias, self.stride, self.padding)

        return Bare(
            2, 3, (3, 2), (1, 2), (1, 0), (1, 1), transposed, (0, 0), 1, True, "zeros"
        )  # fmt: skip

    return make


def of_any_dimensions(base: str) -> Callable[[Any], Any]:
    def make(T: Any) -> Any:
        class AnyDimensions(getattr(T.nn.modules.batchnorm, base)):
            def _check_input_dim(self, input: Any) -> None:
                assert input.dim() == 4

        return AnyDimensions(2)

    return make


@pytest.mark.parametrize(
    "make",
    [
        standardized, transposed_or_not(False), transposed_or_not(True),
        of_any_dimensions("_BatchNorm"), of_any_dimensions("BatchNorm1d"),
    ],
)  # fmt: skip
def test_layers_that_programs_derive(make: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 2, 5, 6)).astype(np.float32)
    theirs, ours = make(torch), make(adjit)
    ours.load_state_dict({k: adjit.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert repr(ours) == repr(theirs)
    expected, found = theirs(torch.tensor(x)), ours(adjit.tensor(x))
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_an_instance_norm_with_a_check_of_its_own() -> None:
    for T in (torch, adjit):

        class Checked(T.nn.InstanceNorm1d):
            def _check_input_dim(self, input: Any) -> None:
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            Checked(2)(T.ones(1, 2, 3))
