"""Models as ONNX graphs: what graphs give is what the models gave."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import adjit
from adjit import nn
from adjit.onnx import OnnxExporterError, TrainingMode, errors, export
from adjit.onnx.sizes import Dimension, DynamicSize, explained
from adjit.ops.softmax import softmax as below  # which asks nobody

onnx = pytest.importorskip("onnx")
F = adjit.nn.functional


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.call = function

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def flat(made: Any) -> list[Any]:
    if isinstance(made, adjit.Tensor):
        return [made]
    return [t for part in (made.values() if isinstance(made, dict) else made) for t in flat(part)]


def runs_as_the_model(program: Any, model: nn.Module, *args: Any) -> None:
    """Both the reference evaluator and, where it is installed, ONNX Runtime give what the model gives."""
    was_training = model.training
    with adjit.no_grad():
        expected = flat(model.eval()(*[a.clone() for a in args]))
    model.train(was_training)
    for found in (program.call_reference(*args), by_runtime(program, *args)):
        if found is None:
            continue
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            adjit.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def by_runtime(program: Any, *args: Any) -> list[Any] | None:
    """The outputs by ONNX Runtime, None without it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)
    given = zip(session.get_inputs(), args, strict=True)
    return [adjit.tensor(a) for a in session.run(None, {i.name: t.numpy() for i, t in given})]


def exported(model: nn.Module, *args: Any, **ways: Any) -> Any:
    program = export(model, args, **ways)
    onnx.checker.check_model(program.model_proto, full_check=True)
    runs_as_the_model(program, model, *args)
    return program


def ops(program: Any) -> list[str]:
    return [node.op_type for node in program.model_proto.graph.node]


# ----- every rule -----


def x(*shape: int) -> Any:
    return adjit.randn(*shape, generator=adjit.Generator().manual_seed(len(shape)))


def positive(*shape: int) -> Any:
    return x(*shape).abs() + 0.1


def whole(*shape: int) -> Any:
    return (x(*shape) * 10).long()


def inside(*shape: int) -> Any:
    return x(*shape).tanh()


def index(*shape: int, below: int = 3) -> Any:
    return whole(*shape) % below


UNARY = {
    x: "abs neg exp sin cos tan asinh atan sinh cosh tanh erf erfc ceil floor sign sigmoid reciprocal "
    "square expm1 exp2 round trunc frac isnan isinf isfinite logical_not nan_to_num float double long "
    "int bool short byte char "
    "clone contiguous detach positive relu",
    positive: "log sqrt log2 log10 log1p rsqrt",
    inside: "asin acos atanh",
    whole: "abs neg sign float sqrt exp sin ceil floor round trunc bitwise_not square",
}
ACTIVATIONS = (
    "relu relu6 hardtanh leaky_relu elu selu celu silu mish hardswish hardsigmoid softplus logsigmoid softsign "
    "tanhshrink hardshrink softshrink gelu sigmoid tanh softmin"
)
BINARY = "add sub mul div maximum minimum atan2 fmod remainder floor_divide lt le gt ge eq ne"
LOGIC = "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"
REDUCTIONS = "sum mean prod amax amin max min argmax argmin any all std var norm"

CASES: dict[str, tuple[Any, ...]] = {}
for _make, _names in UNARY.items():
    for _name in _names.split():
        CASES[f"{_name} of {_make.__name__}"] = (
            lambda t, n=_name: getattr(t, n)(),
            _make(3, 4) if _make is not whole else whole(3, 4),
        )
for _name in ACTIVATIONS.split():
    CASES[f"F.{_name}"] = (
        lambda t, n=_name: getattr(F, n)(*((t, -1) if n == "softmin" else (t,))),
        x(3, 4) * 30,
    )
for _name in BINARY.split():
    CASES[f"{_name}"] = (lambda a, b, n=_name: getattr(adjit, n)(a, b), x(3, 4), positive(4))
    CASES[f"{_name} of whole"] = (
        lambda a, b, n=_name: getattr(adjit, n)(a, b),
        whole(3, 4),
        index(4) + 1,
    )
    CASES[f"{_name} of two dtypes"] = (
        lambda a, b, n=_name: getattr(adjit, n)(a, b),
        whole(3, 4),
        positive(4),
    )
    CASES[f"{_name} by a number"] = (
        lambda a, n=_name: getattr(a, n)(3) if n not in ("maximum", "minimum", "atan2") else a,
        x(3, 4),
    )
    CASES[f"{_name} by a fraction"] = (
        lambda a, n=_name: getattr(a, n)(2.5) if n not in ("maximum", "minimum", "atan2") else a,
        whole(3, 4),
    )
for _name in LOGIC.split():
    CASES[f"{_name}"] = (lambda a, b, n=_name: getattr(adjit, n)(a, b), x(3, 4) > 0, x(4) > 0)
    CASES[f"{_name} of whole"] = (
        lambda a, b, n=_name: getattr(adjit, n)(a, b),
        index(3, 4),
        index(4),
    )
for _name in REDUCTIONS.split():
    CASES[f"{_name} of all"] = (lambda t, n=_name: getattr(t, n)(), x(2, 3, 4))
    if _name not in ("max", "min"):
        CASES[f"{_name} along one"] = (lambda t, n=_name: getattr(t, n)(dim=1), x(2, 3, 4))
    CASES[f"{_name} kept"] = (lambda t, n=_name: getattr(t, n)(dim=-1, keepdim=True), x(2, 3, 4))
    if _name not in ("prod", "max", "min", "argmax", "argmin"):
        CASES[f"{_name} along two"] = (lambda t, n=_name: getattr(t, n)(dim=(0, 2)), x(2, 3, 4))
CASES |= {
    # operators
    "operators": (
        lambda a, b: (a + b, a - b, a * b, a / b, a @ b, -a, a**2, a // b, a % b),
        x(3, 3),
        positive(3, 3),
    ),
    "reflected": (lambda a: (1 + a, 1 - a, 2 * a, 1 / a, 2**a, 3 // a, 5 % a), positive(3, 3)),
    "comparisons": (lambda a, b: (a < b, a <= 0, a > b, a >= 1, a == b, a != b), x(3, 3), x(3)),
    "bits": (lambda a: (a & 3, a | 4, a ^ 1, ~a, 6 & a), index(3, 3, below=8)),
    "truth": (lambda a, b: (a & b, a | b, a ^ b, ~a, a == b, a < b), x(3, 3) > 0, x(3) > 0),
    "alpha": (lambda a, b: (a.add(b, alpha=2), a.sub(b, alpha=3), adjit.rsub(a, b)), x(3, 3), x(3)),
    "div modes": (
        lambda a, b: [adjit.div(a, b, rounding_mode=m) for m in ("floor", "trunc", None)],
        x(3, 3),
        positive(3),
    ),
    "div modes of whole": (
        lambda a, b: [adjit.div(a, b, rounding_mode=m) for m in ("floor", "trunc")],
        whole(3, 3),
        index(3) - 5,
    ),
    "addcmul": (
        lambda a, b: (
            adjit.addcmul(a, a, b, value=2),
            adjit.addcdiv(a, a, b),
            adjit.lerp(a, b, 0.3),
        ),
        x(3, 3),
        positive(3, 3),
    ),
    "sum of truth": (
        lambda a: ((a > 0).sum(), (a > 0).sum(1), a.sum(dtype=adjit.float64)),
        x(3, 3),
    ),
    "sums of whole": (lambda a: (a.sum(), a.int().sum(0), a.cumsum(0), a.prod()), whole(3, 3)),
    "where": (
        lambda a, b: (adjit.where(a > 0, a, b), adjit.where(a > 0, a, 0.0), a.where(a > 0, -1)),
        x(3, 3),
        x(3),
    ),
    "clamp": (
        lambda a, b: (
            a.clamp(-1, 1),
            a.clamp(min=0),
            a.clamp(max=b),
            a.clamp_min(0.5),
            a.clip(0, None),
        ),
        x(3, 3),
        x(3),
    ),
    "clamp whole": (lambda a: (a.clamp(-1, 1), a.clamp(0.5)), whole(3, 3)),
    "masked_fill": (lambda a: (a.masked_fill(a > 0, -math.inf), a.masked_fill(a > 0, 3)), x(3, 3)),
    "casts": (
        lambda a: (
            a.to(adjit.float64),
            a.to(a.dtype),
            a.type_as(a.long()),
            a.to("cpu", adjit.int32),
        ),
        x(3, 3),
    ),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), x(3, 3)),
    "settings": (
        lambda a: (
            F.leaky_relu(a, 0.2),
            F.elu(a, 0.5),
            F.hardtanh(a, -2, 3),
            F.softplus(a, 2, 3),
            F.celu(a, 0.7),
            F.threshold(a, 0.1, 20),
            F.softshrink(a, 0.2),
            F.hardshrink(a, 0.2),
        ),
        x(3, 3) * 5,
    ),
    "prelu": (lambda a, w: (F.prelu(a, w), F.prelu(a[0].T, w)), x(2, 3, 4), positive(3)),
    "glu": (lambda a: (F.glu(a), F.glu(a, 0)), x(2, 4)),
    "softmax": (
        lambda a: (
            a.softmax(-1),
            F.softmax(a, 1),
            a.log_softmax(0),
            F.log_softmax(a, -1),
            a.softmax(0, dtype=adjit.float64),
        ),
        x(2, 3, 4),
    ),
    # reductions
    "max along": (
        lambda a: (*a.max(1), *a.min(-1, keepdim=True), adjit.max(a, a * 2), *a.aminmax()),
        x(2, 3, 4),
    ),
    "cosine_similarity": (
        lambda a, b: (
            F.cosine_similarity(a, b),
            F.cosine_similarity(a, b * 0, 0),
            F.cosine_similarity(a, b[0], -1),
        ),
        x(2, 3, 4),
        x(2, 3, 4),
    ),
    "logsumexp": (
        lambda a: (a.logsumexp(1), a.logsumexp((0, 2), keepdim=True), (a * 1000).logsumexp(0)),
        x(2, 3, 4),
    ),
    "var": (
        lambda a: (
            a.var(1, correction=0),
            a.std(unbiased=False),
            adjit.var(a, dim=(0, 1), keepdim=True),
            *adjit.var_mean(a, 1),
            *adjit.std_mean(a, 1),
        ),
        x(2, 3, 4),
    ),
    "norms": (
        lambda a: (
            a.norm(1, 1),
            a.norm(3, 1),
            a.norm(math.inf, 1),
            adjit.linalg.vector_norm(a, dim=1),
            F.normalize(a),
        ),
        x(2, 3),
    ),
    "cumsum": (lambda a: (a.cumsum(1), a.cumsum(-1)), x(2, 3, 4)),
    "topk": (lambda a: (*a.topk(2), *a.topk(1, dim=0, largest=False)), x(3, 4)),
    "sort": (lambda a: (*a.sort(), *a.sort(0, descending=True), a.argsort(1)), x(3, 4)),
    # products
    "products": (
        lambda a, b: (
            adjit.mm(a, b),
            a.matmul(b),
            a @ b[:, 0],
            adjit.mv(a, b[:, 0]),
            adjit.outer(a[0], b[0]),
            a[0].dot(b[:, 0]),
        ),
        x(3, 4),
        x(4, 3),
    ),
    "batches": (
        lambda a, b: (adjit.bmm(a, b), a @ b, adjit.baddbmm(a, a, b, beta=0.5, alpha=2)),
        x(2, 3, 3),
        x(2, 3, 3),
    ),
    "addmm": (
        lambda a, b: (
            adjit.addmm(a, a, b),
            adjit.addmm(a, a, b, beta=0, alpha=3),
            adjit.addmv(a[0], a, b[0]),
        ),
        x(3, 3),
        x(3, 3),
    ),
    "linear": (
        lambda a, w, b: (
            F.linear(a, w, b),
            F.linear(a[0], w, b),
            F.linear(a[0, 0], w),
            F.linear(a, w),
        ),
        x(2, 3, 4),
        x(5, 4),
        x(5),
    ),
    "einsum": (
        lambda a, b: (
            adjit.einsum("bij,bjk->bik", a, b),
            adjit.einsum("b i j, b j k -> b", [a, b]),
        ),
        x(2, 3, 4),
        x(2, 4, 5),
    ),
    "attention": (
        lambda q, m: (
            F.scaled_dot_product_attention(q, q, q),
            F.scaled_dot_product_attention(q, q, q, is_causal=True),
            F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            F.scaled_dot_product_attention(q, q, q, attn_mask=m > 0.3, scale=0.2),
        ),
        x(2, 2, 5, 4),
        x(5, 5),
    ),
    # shapes
    "view": (
        lambda a: (
            a.view(6, 4),
            a.view(-1, 2),
            a.reshape((4, 6)),
            a.flatten(),
            a.flatten(1),
            a.unflatten(2, (2, -1)),
            a.ravel(),
            a.view_as(a),
        ),
        x(2, 3, 4),
    ),
    "turned": (
        lambda a: (
            a.transpose(0, 2),
            a.permute(2, 0, 1),
            a.permute((1, 0, 2)),
            a.mT,
            a[0].T,
            a[0].t(),
            a.movedim(0, 2),
            a.swapaxes(0, 1),
            a.movedim((0, 1), (-1, 0)),
        ),
        x(2, 3, 4),
    ),
    "squeeze": (
        lambda a: (
            a.squeeze(),
            a.squeeze(1),
            a.squeeze((1, 3)),
            a.unsqueeze(0),
            a.unsqueeze(-1),
            a.squeeze(0),
        ),
        x(2, 1, 3, 1),
    ),
    "expand": (
        lambda a: (
            a.expand(2, 3),
            a.expand(4, -1, 3),
            a.expand_as(adjit.zeros(5, 3)),
            a.broadcast_to((2, 3)),
        ),
        x(1, 3),
    ),
    "repeat": (
        lambda a: (
            a.repeat(2, 1),
            a.repeat(2, 1, 3),
            a.tile((2,)),
            a.repeat_interleave(2, 1),
            a.repeat_interleave(3),
        ),
        x(2, 3),
    ),
    "joined": (
        lambda a, b: (
            adjit.cat([a, b]),
            adjit.cat((a, b), 1),
            adjit.stack([a, b], -1),
            adjit.stack((a, b)),
            adjit.cat([a, a.long()]),
        ),
        x(2, 3),
        x(2, 3),
    ),
    "parts": (
        lambda a: (
            *a.chunk(2),
            *a.split(2),
            *a.split([1, 3], 0),
            *a.unbind(1),
            *a.tensor_split(3),
            *a.chunk(1),
        ),
        x(4, 3),
    ),
    "narrow": (lambda a: (a.narrow(0, 1, 2), a.select(1, 2), a.select(0, -1)), x(4, 3)),
    "indices": (
        lambda a: (
            a[0],
            a[1:],
            a[:, -1],
            a[..., 0],
            a[None],
            a[:, None, 1:3],
            a[-1, ..., ::2],
            a[1, 2, 3],
            a[:-1, 1],
            a[...],
        ),
        x(2, 3, 4),
    ),
    "index tensors": (
        lambda a, i: (
            a[i],
            a[:, i],
            a[i, 0],
            a[i, i],
            a[:, i, i + 1],
            a[i, :, i],
            a[[1, 0]],
            a[:, [-1], :],
            a[i[:, None], i],
        ),
        x(4, 3, 4),
        index(2, below=2),
    ),
    "gathered": (
        lambda a, i: (a[:2].gather(1, i), a.index_select(0, i[0]), F.embedding(i, a)),
        x(4, 3),
        index(2, 3),
    ),
    "triangles": (lambda a: (a.tril(), a.triu(1), adjit.tril(a, -1), (a > 0).tril()), x(4, 4)),
    "pad": (
        lambda a: (
            F.pad(a, (1, 2)),
            F.pad(a, (1, 0, 2, 1), value=3.0),
            F.pad(a, (1, 1), mode="reflect"),
            F.pad(a, (2, 1), mode="replicate"),
        ),
        x(2, 3, 4),
    ),
    "flip": (lambda a: (a.flip(0), a.flip((1, 2)), a.flip(-1)), x(2, 3, 4)),
    "roll": (lambda a: (a.roll(1, 0), a.roll((1, -1), (1, 2)), a.roll(2)), x(2, 3, 4)),
    "hstack": (
        lambda a, b: (adjit.hstack([a, a]), adjit.hstack([b, b]), adjit.hstack([b[0], b[1]])),
        x(2, 3),
        x(4),
    ),
    "vstack": (lambda a, b: (adjit.vstack([a, b, a]), adjit.row_stack([b, b])), x(2, 3), x(3)),
    "dstack": (lambda a, b: (adjit.dstack([a, a]), adjit.dstack([b, b])), x(2, 3), x(4)),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), x(2, 8, 3, 3)),
    "one_hot": (lambda i: F.one_hot(i, 4), index(2, 3)),
    "scatter": (
        lambda a, i: (a.scatter(1, i, a[:2] * 2), a.scatter(0, i, 7.0)),
        x(3, 3),
        adjit.tensor([[0, 2, 1], [1, 0, 2]]),
    ),
    "likes": (
        lambda a: (
            adjit.zeros_like(a) + a,
            adjit.ones_like(a) * a,
            adjit.full_like(a, 3) + a,
            a.new_zeros(3) + a,
            a.new_full((3,), 2.0) + a,
        ),
        x(2, 3),
    ),
    "makers": (
        lambda a: (
            a + adjit.arange(3),
            a * adjit.tensor([1.0, 2.0, 3.0]),
            a + adjit.eye(3)[:2],
            a + adjit.linspace(0, 1, 3),
        ),
        x(2, 3),
    ),
    # layers
    "interpolate": (
        lambda a: (
            F.interpolate(a, scale_factor=2),
            F.interpolate(a, size=(7, 5)),
            F.interpolate(a, (6, 6), mode="bilinear"),
            F.interpolate(a, scale_factor=2, mode="bilinear", align_corners=True),
        ),
        x(1, 2, 3, 4),
    ),
    "pools": (
        lambda a: (
            F.max_pool2d(a, 2),
            F.max_pool2d(a, 3, 1, 1),
            F.avg_pool2d(a, 2),
            F.avg_pool2d(a, 3, 1, 1, count_include_pad=False),
            F.avg_pool2d(a, (2, 1), padding=(1, 0)),
            F.max_pool2d(a, 2, dilation=2),
            F.max_pool2d(a[0], 2),
        ),
        x(2, 3, 6, 6),
    ),
    "adaptive": (
        lambda a: (
            F.adaptive_avg_pool2d(a, 1),
            F.adaptive_max_pool2d(a, 1),
            F.adaptive_avg_pool2d(a, (3, 2)),
            F.adaptive_max_pool2d(a, 2),
            F.adaptive_avg_pool2d(a, (None, 3)),
        ),
        x(2, 3, 6, 6),
    ),
    "pools of others": (
        lambda a, b: (
            F.max_pool1d(a, 2),
            F.avg_pool1d(a, 2),
            F.adaptive_avg_pool1d(a, 2),
            F.max_pool3d(b, 2),
            F.avg_pool3d(b, 2),
        ),
        x(2, 3, 6),
        x(1, 2, 4, 4, 4),
    ),
    "conv1d": (
        lambda a, w: (
            F.conv1d(a, w),
            F.conv1d(a, w, stride=2, padding=1),
            F.conv1d(a, w, padding="same", dilation=2),
            F.conv1d(a[0], w),
        ),
        x(2, 4, 9),
        x(5, 4, 3),
    ),
    "conv2d": (
        lambda a, w, b: (
            F.conv2d(a, w, b, groups=2),
            F.conv2d(a, w, stride=(2, 1), padding=(1, 0), groups=2),
            F.conv2d(a, w, padding="same", groups=2),
        ),
        x(2, 4, 6, 6),
        x(4, 2, 3, 3),
        x(4),
    ),
    "conv3d": (lambda a, w: F.conv3d(a, w, padding=1), x(1, 2, 4, 4, 4), x(3, 2, 3, 3, 3)),
    "transposed": (
        lambda a, w: (
            F.conv_transpose2d(a, w),
            F.conv_transpose2d(a, w, stride=2, padding=1, output_padding=1),
        ),
        x(2, 4, 5, 5),
        x(4, 3, 3, 3),
    ),
    "norm layers": (
        lambda a, w: (
            F.layer_norm(a, (4,)),
            F.layer_norm(a, (3, 4)),
            F.rms_norm(a, (4,)),
            F.rms_norm(a, (4,), w, 1e-5),
            F.layer_norm(a, (4,), w, w),
        ),
        x(2, 3, 4),
        x(4),
    ),
    "group_norm": (
        lambda a, w: (
            F.group_norm(a, 2, w, w),
            F.group_norm(a, 4),
            F.instance_norm(a),
            F.instance_norm(a, weight=w, bias=w),
        ),
        x(2, 4, 3, 3),
        x(4),
    ),
}

CASES |= {
    "other names": (
        lambda a, b: (
            a.absolute(), a.negative(), adjit.arcsin(a), adjit.arccos(a), a.arctan(), adjit.arctan2(a, b),
            a.arcsinh(), a.arctanh(), adjit.subtract(a, b), a.multiply(b), a.divide(b), a.true_divide(b),
            a.less(b), a.less_equal(b), a.greater(b), a.greater_equal(b), a.not_equal(b), a.fix(), a.sgn(),
            adjit.special.expit(a), a.clamp_max(0.5), adjit.concat([a, b]), adjit.concatenate([a, b], axis=1),
            adjit.ger(a[0], b[0]), adjit.vdot(a[0], b[0]), a.swapdims(0, 1), a.moveaxis(0, 1), a.adjoint(),
            a.H, a.mH, a.fliplr(), a.flipud(), a.reshape_as(b.T), a.split_with_sizes([1, 2]),
            a.type(adjit.float64),
        ),
        inside(3, 3), inside(3, 3).abs() + 0.1,
    ),
    "beyond one": (lambda a: (adjit.acosh(a), adjit.arccosh(a)), positive(3) + 1),
    "reflected products": (lambda a: a.__rmatmul__(a), x(3, 3)),
    "truth both ways": (lambda a: (True & a, False | a, True ^ a), x(3) > 0),
    "properties": (lambda a: (a.data + 1, a.mT, a.T), x(3, 3)),
    "made of inputs": (lambda a: (adjit.broadcast_tensors(a, adjit.zeros(2, 1, 3))), x(2, 3)),
    "further layers": (
        lambda a, b, w: (
            F.adaptive_avg_pool3d(b, 1), F.adaptive_max_pool3d(b, 2), F.adaptive_max_pool1d(a, 3),
            F.conv_transpose3d(b, w), F.interpolate(a, 12),
        ),
        x(2, 3, 6), x(1, 2, 4, 4, 4), x(2, 3, 2, 2, 2),
    ),
    "results twice": (lambda a: [(b, b, a, adjit.ones(2)) for b in (a * 2,)], x(2)),
    "written rows": (
        lambda a, i: (
            a.scatter_add(1, i, a), (a * 1).index_put_((i[0], i[1]), adjit.tensor(5.0)),
            a.index_put((a > 0,), adjit.tensor(0.0)), adjit.take_along_dim(a, i, 1), a.index_fill(1, i[0], 2.0),
        ),
        x(3, 3), adjit.tensor([[0, 2, 1], [1, 0, 2], [2, 2, 0]]),
    ),
    "axis": (lambda a: (a.sum(axis=1), a.mean(axis=0, keepdims=True), adjit.stack([a, a], axis=1)), x(2, 3)),
}  # fmt: skip


@pytest.mark.in_turn(6)
@pytest.mark.parametrize("name", CASES)
def test_graph_gives_what_the_function_gives(name):
    function, *inputs = CASES[name]
    exported(Of(function), *inputs)


# ----- writes in place -----


def add_in_place(a: Any) -> Any:
    a = a * 1
    a += 1
    a.mul_(2).relu_()
    a[:, 0] = 5
    a[a > 3] = 0.5
    a[0, 1:] = a[1, 1:]
    F.relu(a, inplace=True)
    a.clamp_(max=3).masked_fill_(a > 2.5, 9)
    b = adjit.empty(2, 3)
    b.copy_(a)
    return b.zero_() + a, b


IN_PLACE = {
    "in place": (add_in_place, x(2, 3)),
    "out": (lambda a: adjit.add(a, 1, out=adjit.zeros(2, 3)), x(2, 3)),
    "an input": (lambda a: a.add_(1) * 2, x(2, 3)),
    "integers": (lambda a: a.add_(2).__iand__(6), index(2, 3)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_writes_in_place_are_new_values(name):
    function, *inputs = IN_PLACE[name]
    exported(Of(function), *inputs)


def write_view(a: Any) -> Any:
    a = a * 2
    row = a[0]
    row.add_(1)
    return a


def read_view(a: Any) -> Any:
    a = a * 2
    row = a[0]
    a.add_(1)
    return row


def write_data(a: Any) -> Any:
    b = a * 2
    b.data.add_(1)
    return b


def read_data(a: Any) -> Any:
    a = a * 2
    seen = a.data
    a.add_(1)
    return seen


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (write_view, "after another one with the same memory"),
        (read_view, "after another one with the same memory"),
        (write_data, "that `.data` was taken of, or gave"),
        (read_data, "that `.data` was taken of, or gave"),
    ],
)
def test_writes_through_shared_memory_are_refused(function, told):
    with pytest.raises(OnnxExporterError, match=told):
        export(Of(function), (x(2, 3),))


# ----- networks -----


class Residual(nn.Module):
    """A block of ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.down = nn.Sequential(
            nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.down(x)
        return self.relu(y)


class Block(nn.Module):
    """A block of a small GPT, as programs write it."""

    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer(
            "mask", adjit.tril(adjit.ones(longest, longest)).view(1, 1, longest, longest)
        )

    def forward(self, x: Any) -> Any:
        b, t, c = x.size()
        q, k, v = self.attend(self.ln(x)).split(c, dim=2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return x + self.drop(self.project(y.transpose(1, 2).contiguous().view(b, t, c)))


class GPT(nn.Module):
    """Tokens to logits, with positions and weights that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.places = nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Block(8, 2, 32), Block(8, 4, 32)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx: Any) -> Any:
        b, t = idx.shape
        x = self.tokens(idx) + self.places(adjit.arange(t, device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, [-1], :]), x.view(b * t, -1)


class Recurrent(nn.Module):
    """Recurrent layers and what they end with."""

    def __init__(self, kind: Any, **ways: Any) -> None:
        super().__init__()
        self.layers = kind(4, 3, **ways)

    def forward(self, x: Any) -> Any:
        y, state = self.layers(x)
        return y, *flat([state])


adjit.manual_seed(0)
lstm, gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4)
tanh, relu = nn.RNNCell(3, 4), nn.RNNCell(3, 4, nonlinearity="relu")
NETWORKS = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 2)),
        x(3, 4),
    ),
    "cnn": lambda: (
        nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 2),
            nn.LogSoftmax(-1),
        ),
        x(2, 1, 8, 8),
    ),
    "resnet": lambda: (
        nn.Sequential(Residual(3), Residual(3), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()),
        x(2, 3, 6, 6),
    ),
    "resnet18": lambda: (adjit.models.resnet18(num_classes=3), x(1, 3, 33, 32)),
    "encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        x(2, 5, 8),
    ),
    "prenorm": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True),
        x(5, 2, 8),
    ),
    "decoder": lambda: (
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        x(2, 5, 8),
        x(2, 4, 8),
    ),
    "gpt": lambda: (GPT(), index(2, 6, below=11)),
    "groups": lambda: (
        nn.Sequential(
            nn.Conv1d(4, 4, 3),
            nn.GroupNorm(2, 4),
            nn.SiLU(),
            nn.ConvTranspose1d(4, 2, 3),
            nn.InstanceNorm1d(2, affine=True),
        ),
        x(2, 4, 9),
    ),
    "upsampling": lambda: (
        nn.Sequential(
            nn.Upsample(scale_factor=2), nn.PixelShuffle(2), nn.ReflectionPad2d(1), nn.PReLU()
        ),
        x(1, 4, 3, 3),
    ),
    "lstm": lambda: (Recurrent(nn.LSTM, batch_first=True, num_layers=2), x(2, 5, 4)),
    "bidirectional": lambda: (Recurrent(nn.LSTM, bidirectional=True, num_layers=2), x(5, 2, 4)),
    "gru": lambda: (Recurrent(nn.GRU, batch_first=True, num_layers=2), x(2, 5, 4)),
    "rnn": lambda: (Recurrent(nn.RNN, bias=False), x(5, 2, 4)),
    "cells": lambda: (Of(lambda a: (lstm(a), gru(a), tanh(a), relu(a), gru(a[0]))), x(2, 3)),
    "multihead": lambda: (
        Of(nn.MultiheadAttention(8, 2, batch_first=True)),
        x(2, 5, 8),
        x(2, 5, 8),
        x(2, 5, 8),
    ),
}


def network(name: str) -> Any:
    adjit.manual_seed(0)
    model, *inputs = NETWORKS[name]()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):  # as training leaves it
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    return model, *inputs


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    model, *inputs = network(name)
    program = exported(model, *inputs)
    state = dict(model.state_dict())
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in program.model_proto.graph.initializer}
    named = weights.keys() & state.keys()
    parameters = {name for name, _ in model.named_parameters() if name in state}
    assert parameters <= named
    assert all(np.array_equal(weights[name], state[name].numpy()) for name in named)


# By the name of a network its dynamic dimensions, and sizes of inputs that the graph has to take.
DYNAMIC = {
    "mlp": ({0: "batch"}, [(1, 4), (7, 4)]),
    "cnn": ({0: "batch"}, [(1, 1, 8, 8), (5, 1, 8, 8)]),
    "resnet": ({0: "batch", 2: "height", 3: "width"}, [(1, 3, 9, 5), (4, 3, 4, 4)]),
    "resnet18": ({0: "batch", 2: "height"}, [(2, 3, 40, 32)]),
    "encoder": ({0: "batch", 1: "time"}, [(1, 3, 8), (3, 9, 8)]),
    "prenorm": ({0: "time", 1: "batch"}, [(3, 1, 8), (9, 3, 8)]),
    "gpt": ({0: "batch", 1: "time"}, [(1, 3), (3, 20)]),
    "groups": ({0: "batch", 2: "length"}, [(1, 4, 7), (5, 4, 12)]),
    "lstm": ({0: "batch", 1: "time"}, [(1, 3, 4), (4, 8, 4)]),
    "gru": ({0: "batch"}, [(1, 5, 4), (4, 5, 4)]),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_dimensions(name):
    model, given = network(name)
    axes, shapes = DYNAMIC[name]
    program = exported(model, given, input_names=["given"], dynamic_axes={"given": axes})
    told = program.model_proto.graph.input[0].type.tensor_type.shape.dim
    assert {k: d.dim_param for k, d in enumerate(told) if d.dim_param} == axes
    for shape in shapes:
        other = x(*shape) if given.is_floating_point() else index(*shape, below=11)
        runs_as_the_model(program, model, other)


FOLLOWS = {
    "view": (lambda a: a.view(a.size(0), -1), [(1, 2, 3), (5, 2, 4)]),
    "view of three": (lambda a: a.view(a.size(0), a.size(1), a.size(2), 1), [(1, 2, 3), (5, 2, 4)]),
    "product": (lambda a: a.view(a.size(0) * a.size(2), 2), [(1, 2, 3), (5, 2, 4)]),
    "mean": (lambda a: a.sum() / a.size(0), [(1, 2, 3), (5, 2, 4)]),
    "variance": (
        lambda a: (a - a.mean(0)).square().sum(0) / (a.size(0) + 1),
        [(1, 2, 3), (5, 2, 4)],
    ),
    "std": (lambda a: a.std(0), [(3, 2, 3), (5, 2, 4)]),
    "arange": (lambda a: a + adjit.arange(a.shape[-1]) * 2, [(1, 2, 3), (5, 2, 6)]),
    "zeros": (
        lambda a: adjit.cat([adjit.zeros(a.shape[0], 1, a.shape[2]), a], 1),
        [(1, 2, 3), (5, 2, 6)],
    ),
    "likes": (lambda a: adjit.ones_like(a).cumsum(0) + a, [(1, 2, 3), (5, 2, 6)]),
    "expand": (
        lambda a: adjit.tensor([[[1.0], [2.0]]]).expand(a.shape[0], -1, a.shape[2]) * a,
        [(1, 2, 3), (5, 2, 6)],
    ),
    "mask": (
        lambda a: (a.mT @ a).masked_fill(adjit.ones(a.size(2), a.size(2)).tril() == 0, -1.0),
        [(1, 2, 3), (5, 2, 6)],
    ),
    "slices": (
        lambda a: (a[1:, :, : a.size(2) - 1], a[a.size(0) - 1], a.narrow(2, 1, a.size(2) - 1)),
        [(2, 2, 3), (5, 2, 6)],
    ),
    "split": (lambda a: a.split([1, a.size(0) - 1]), [(3, 2, 3), (5, 2, 6)]),
    "topk": (lambda a: (a.sort(0)[0], a.flip(0), a.argmax(0)), [(3, 2, 3), (5, 2, 6)]),
    "write": (lambda a: (a * 1).index_fill_(0, adjit.tensor([0]), 2.0), [(3, 2, 3), (5, 2, 6)]),
    "attention": (lambda a: F.scaled_dot_product_attention(a, a, a, is_causal=True), None),
    "interpolate": (lambda a: F.interpolate(a, size=a.shape[-1] * 2), [(3, 2, 3), (5, 2, 6)]),
    "repeat": (lambda a: (a.repeat(2, 1, 1), a.tile(a.size(0), 1, 1)), [(3, 2, 3), (5, 2, 6)]),
    "filled": (
        lambda a: (
            adjit.full((a.size(0), 2), 3.0) + a.new_ones(a.size(0), 1),
            a.new_full((a.size(2),), a.size(0)),
            adjit.tensor([a.size(0), 1, a.size(2)]),
            adjit.as_tensor(a.size(0)) + a,
            adjit.asarray([a.size(2)]),
            adjit.scalar_tensor(a.size(0)),
            adjit.empty(a.size(0)).fill_(2),
            a.new_empty(a.size(2)).zero_() + 1,
            adjit.empty_like(a).copy_(a),
            adjit.nn.functional.pad(a, (1, 2)),
            adjit.stack([a, a * 2]).sum(0),
        ),
        [(3, 2, 3), (5, 2, 6)],
    ),
    "of another tensor": (
        lambda a: a[..., ::2].reshape(-1, a[..., ::2].size(2)),
        [(3, 2, 3), (5, 2, 6)],
    ),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_numbers_follow_dynamic_sizes(name):
    function, shapes = FOLLOWS[name]
    axes = {0: "n", 2: "m"} if shapes else {0: "n"}
    program = exported(Of(function), x(4, 2, 5), input_names=["a"], dynamic_axes={"a": axes})
    for shape in shapes or [(1, 2, 5), (7, 2, 5)]:
        runs_as_the_model(program, Of(function), x(*shape))


def test_exact_numbers_are_explained_and_others_are_not():
    n, m = Dimension("n", "x", 0, (4, 5, 7)), Dimension("m", "x", 1, (6, 8, 14))
    told = {
        (4, 5, 7): ("n", 1, 0), (8, 10, 14): ("n", 2, 0), (6, 7, 9): ("n", 1, 2), (3, 4, 7 - 1): ("n", 1, -1),
        (24, 40, 98): ("nm", 1, 0), (16, 25, 49): ("nn", 1, 0), (3, 4, 7): ("m", 0.5, 0),
        (6, 5, 3): ("n", -1, 10),
    }  # fmt: skip
    for numbers, (names, factor, rest) in told.items():
        found = explained(DynamicSize(numbers), [n, m])
        assert found is not None
        assert ("".join(d.name for d in found.dimensions), found.factor, found.rest) == (
            names,
            factor,
            rest,
        )
    assert explained(DynamicSize((2, 2, 3)), [n, m]) is None  # rounded halves
    even = Dimension("n", "x", 0, (4, 6, 8))
    assert explained(DynamicSize((2, 3, 4)), [even]) is not None
    assert explained(DynamicSize((3, 4, 5)), [even]) is None  # may be a half, rounded up
    assert explained(DynamicSize((2, 3, 5)), [n]) is not None
    assert explained(DynamicSize((4, 5, 9)), [n]) is None


# ----- programs that are no graphs -----


class Cube(adjit.autograd.Function):
    """A function of the user's."""

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        return given**3


class Counts(nn.Module):
    """Does something else each time."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, given: Any) -> Any:
        self.count += 1
        return given + self.count


class Keeps(nn.Module):
    """Has the function of the library in a container."""

    def __init__(self) -> None:
        super().__init__()
        self.functions = {"relu": adjit.nn.functional.relu}

    def forward(self, given: Any) -> Any:
        return self.functions["relu"](given)


class Remembers(nn.Module):
    """Writes into a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = adjit.zeros(2)

    def forward(self, given: Any) -> Any:
        self.kept.add_(1)
        return given + self.kept


class Caches(nn.Module):
    """Makes a constant at its first run, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None

    def forward(self, given: Any) -> Any:
        if self.kept is None:
            self.kept = adjit.arange(3.0) * 2
        return given + self.kept


class Given:
    """An argument that hides a tensor."""

    def __init__(self) -> None:
        self.tensor = adjit.ones(2)


REFUSED = [
    (Of(lambda a: a if a.sum() > 0 else -a), "looks at values that depend on its inputs"),
    (Of(lambda a: a * a.max().item()), "by 'item'"),
    (Of(lambda a: a * float(a.sum())), "looks at values"),
    (Of(lambda a: adjit.tensor(a.tolist())), "by 'tolist'"),
    (Of(lambda a: adjit.from_numpy(a.numpy() * 2)), "by 'numpy'"),
    (Of(lambda a: a[a > 0]), "indexing by a mask"),
    (Of(lambda a: a.median()), "no rule writes 'median' as ONNX"),
    (Of(lambda a: a + adjit.rand(2)), "no rule writes 'rand' as ONNX"),
    (Of(lambda a: a + adjit.empty(2).uniform_()), "no rule writes 'uniform_' as ONNX"),
    (Of(lambda a: F.dropout(a)), "'dropout' in training draws"),
    (Counts(), "does something else each time it runs.* was called with"),
    (Of(lambda a: (a, 3)), "the model returns int"),
    (Of(lambda a: below(a, 0) * 2), "in a way that cannot be recorded"),
    (Of(lambda a: (adjit.manual_seed(0), a + adjit.rand(2))[1]), "no rule writes 'rand' as ONNX"),
    (Remembers(), "in a way that cannot be recorded"),
    (Of(lambda a: a[a.long().abs().min() :]), "slices from or to values"),
    (Of(lambda a: F.one_hot(a.abs().long())), "depends on values"),
    (Of(lambda a: F.adaptive_avg_pool1d(a.expand(1, 1, 2), 3)), "windows of several sizes"),
    (Of(lambda a: F.interpolate(a[None, None], 4, mode="area")), "no rule"),
]


@pytest.mark.parametrize(("model", "told"), REFUSED)
def test_programs_that_are_no_graphs_are_refused(model, told):
    with pytest.raises(OnnxExporterError, match=told):
        export(model, (adjit.tensor([1.0, -2.0]),))
    assert not adjit.onnx.is_in_onnx_export()


def test_constants_may_be_made_at_the_first_run():
    assert ops(exported(Caches(), x(3))) == ["Add"]


# Functions of the library without a rule that call others, which do not see all of what they do.
ENTERED = {
    "pixel_unshuffle": (lambda a: F.pixel_unshuffle(a, 2), x(1, 2, 4, 4)),
    "channel_shuffle": (lambda a: F.channel_shuffle(a, 2), x(1, 4, 2, 2)),
    "lp_pool2d": (lambda a: F.lp_pool2d(a, 2, 2), x(1, 2, 4, 4)),
    "slice_scatter": (lambda a: a.slice_scatter(a[:1] * 2, 0, 0, 1), x(3, 3)),
}


@pytest.mark.parametrize("name", ENTERED)
def test_a_function_that_is_seen_in_part_is_named(name):
    function, given = ENTERED[name]
    for _ in range(3):
        with pytest.raises(errors.UnsupportedOperatorError, match=f"no rule writes '{name}'"):
            export(Of(function), (given,))


def test_functions_of_users_are_looked_into():
    assert ops(exported(Of(Cube.apply), x(3))) == ["Pow"]


def test_what_is_refused_before_a_graph_may_be_seen_all_the_same():
    """Functions that are kept in containers were taken before they ask: never a silent constant."""
    try:
        exported(Keeps(), x(3))
    except OnnxExporterError as error:
        assert "keeps in a container" in str(error)  # noqa: PT017


SIZE_MATTERS = [
    (lambda a: a * 2 if a.size(0) > 3 else a, "call 0 was|it made"),
    (lambda a: a.sum() / math.sqrt(a.size(0)), "'div' was called with"),
    (lambda a: a[: a.size(0) // 2], "in a way that the graph cannot compute"),
    (lambda a: sum(row for row in a), "unbound along a dynamic dimension|it made"),
    (
        lambda a: a.sum() * len({*range(a.size(0))} - {1, 2}) ** 7,
        "in a way that the graph cannot compute",
    ),
    (lambda a: a.view(3, 1), "does not run with other sizes of n"),
]


@pytest.mark.parametrize(("function", "told"), SIZE_MATTERS)
def test_programs_that_depend_on_a_dynamic_size_are_refused(function, told):
    with pytest.raises(OnnxExporterError, match=told):
        export(Of(function), (x(3, 1),), input_names=["a"], dynamic_axes={"a": {0: "n"}})


def test_even_sizes_are_kept_even():
    def halves(a: Any) -> Any:
        if a.size(0) % 2:
            raise ValueError("odd")
        return a.view(2, a.size(0) // 2)

    program = exported(Of(halves), x(4), input_names=["a"], dynamic_axes={"a": [0]})
    runs_as_the_model(program, Of(halves), x(10))


def test_every_rule_is_run(monkeypatch):
    """By the functions and networks above; that they give what the model gives is tested there."""
    from adjit.onnx import rules

    run = set()

    def noting(name: str, rule: Any) -> Any:
        def write(*args: Any, **kwargs: Any) -> Any:
            run.add(name)
            return rule(*args, **kwargs)

        return write

    for name, rule in rules.RULES.items():
        monkeypatch.setitem(rules.RULES, name, noting(name, rule))
    for function, *inputs in (CASES | IN_PLACE).values():
        export(Of(function), tuple(inputs))
    for name in NETWORKS:
        model, *inputs = network(name)
        export(model, tuple(inputs))
    for function, shapes in FOLLOWS.values():
        axes = {"a": [0, 2] if shapes else [0]}
        export(Of(function), (x(4, 2, 5),), input_names=["a"], dynamic_axes=axes)
    assert rules.RULES.keys() - run == NOT_RUN


# These give the tensor that they are given, which needs no node, or `dropout` refuses.
NOT_RUN = {"cpu", "dropout"}


# ----- arguments of export -----


class Several(nn.Module):
    """Takes and returns structures."""

    def forward(self, a: Any, pair: Any, scale: float = 2.0, *, named: Any = None) -> Any:
        return {"sum": a + pair[0]["left"], "rest": [pair[1] * scale, None, named]}


def test_structures_of_arguments_and_results():
    model, (a, b, c, d) = Several(), x(4, 2)
    program = export(
        model, (a, ({"left": b}, c)), kwargs={"named": d, "scale": 3.0}, output_names=["first"]
    )
    graph = program.model_proto.graph
    assert [i.name for i in graph.input] == ["a", "pair_0", "pair_1", "named"]
    assert [o.name for o in graph.output] == ["first", "output_1", "output_2"]
    for found, other in zip(program.call_reference(a, b, c, d), (a + b, c * 3, d), strict=True):
        assert adjit.equal(found, other)
    assert adjit.equal(program.call_reference(a, b, c, named=d * 2)[2], d * 2)


@pytest.mark.parametrize(
    "shapes", [{"given": {0: "batch"}}, ({0: "batch"},), [["batch", None]], {"given": ("batch", 4)}]
)
def test_dynamic_shapes_name_dimensions_as_dynamic_axes_do(shapes):
    model = nn.Sequential()
    model.forward = lambda given: given.flatten() * given.size(0)
    program = export(model, (x(3, 4),), dynamic_shapes=shapes)
    told = program.model_proto.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in told] == ["batch", 4]
    assert program.call_reference(x(7, 4))[0].shape == (28,)


def test_outputs_say_their_dynamic_dimensions():
    def function(a: Any) -> Any:
        return a * 2, a.view(-1), a.mean(0)

    axes = {"a": {0: "n"}, "y": {0: "product"}, "z": [0]}
    names = {"input_names": ["a"], "output_names": ["x", "y", "z"]}
    program = export(Of(function), (x(3, 4),), dynamic_axes=axes, **names)
    shapes = [o.type.tensor_type.shape.dim for o in program.model_proto.graph.output]
    told = [[d.dim_param or d.dim_value for d in dims] for dims in shapes]
    assert told == [["n", 4], ["product"], ["z_dynamic_axes_1"]]


@pytest.mark.parametrize("opset", range(18, 24))
def test_every_opset(opset):
    for name in ("gpt", "cnn", "resnet", "gru"):
        model, given = network(name)
        program = exported(model, given, opset_version=opset)
        assert program.model_proto.opset_import[0].version == opset


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(3, eps=0.5), nn.LayerNorm(3, eps=0.5)], ids=["batch", "layer"]
)
def test_what_norms_add_to_a_variance(layer):
    exported(layer.eval(), x(4, 3))


def test_a_quotient_that_may_have_been_rounded_is_no_explanation():
    """(n - 1) // 2 of even numbers is n / 2 - 1, of odd ones it is not."""
    n = Dimension("n", "x", 0, (2, 4, 6))
    assert explained(DynamicSize((0, 1, 2)), [n]) is None
    half = explained(DynamicSize((1, 2, 3)), [n])
    assert half is not None
    assert (half.factor, half.rest) == (Fraction(1, 2), 0)


@pytest.mark.parametrize("opset", [13, 17])
def test_graphs_are_converted_to_older_opsets(opset):
    program = exported(nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)), x(2, 4), opset_version=opset)
    assert program.model_proto.opset_import[0].version == opset


def test_graphs_that_cannot_be_converted_stay():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with pytest.warns(UserWarning, match="stays at opset 18: ONNX does not convert it to opset 11"):
        program = exported(model, x(1, 3, 8, 8), opset_version=11)
    assert program.model_proto.opset_import[0].version == 18


@pytest.mark.parametrize("opset", [6, 99])
def test_other_opsets_are_refused(opset):
    with pytest.raises(
        OnnxExporterError, match=f"opset_version={opset} is not written; 7 to 23 are"
    ):
        export(nn.ReLU(), (x(2),), opset_version=opset)


@pytest.mark.parametrize("external_data", [True, False])
def test_files(tmp_path, external_data):
    model = nn.Linear(40, 40)
    file = tmp_path / "model.onnx"
    for _ in range(2):  # over the files of before
        export(model, (x(1, 40),), file, external_data=external_data)
    assert (tmp_path / "model.onnx.data").exists() == external_data
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 2 * 4 * 40 * 41
    read = adjit.onnx.ONNXProgram(onnx.load(file))
    runs_as_the_model(read, model, x(1, 40))


def test_what_comes_back_and_is_written(tmp_path, capsys):
    import io

    model, written = nn.Linear(2, 2), io.BytesIO()
    assert export(model, x(1, 2), written, dynamo=False, verbose=True) is None
    assert "Gemm" in capsys.readouterr().out
    runs_as_the_model(
        adjit.onnx.ONNXProgram(onnx.load_from_string(written.getvalue())), model, x(1, 2)
    )
    for ways, inputs, weights in (
        ({"export_params": False}, ["input", "weight", "bias"], []),
        ({"keep_initializers_as_inputs": True}, ["input", "weight", "bias"], ["weight", "bias"]),
    ):
        export(model, (x(1, 2),), str(tmp_path / "m.onnx"), **ways)
        graph = onnx.load(tmp_path / "m.onnx").graph
        assert [i.name for i in graph.input] == inputs
        assert [w.name for w in graph.initializer] == weights


def test_modes_and_state_are_as_before():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    model[1].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert ops(export(model, (x(4, 3),))) == ["BatchNormalization"]
    for training in (TrainingMode.TRAINING, TrainingMode.PRESERVE):
        with pytest.raises(errors.UnsupportedOperatorError, match="'batch_norm' in training"):
            export(model, (x(4, 3),), training=training)
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    assert all(adjit.equal(value, before[name]) for name, value in model.state_dict().items())
    seen = []
    export(Of(lambda a: seen.append(adjit.onnx.is_in_onnx_export()) or a), (x(1),))
    assert set(seen) == {True}
    assert not adjit.onnx.is_in_onnx_export()


def test_buffers_that_a_model_writes_are_left_as_they_were():
    class Moving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", adjit.zeros(3))

        def forward(self, given: Any) -> Any:
            self.mean.mul_(0.9).add_(given.mean(0))
            return given - self.mean

    model = Moving()
    program = export(model, (x(4, 3),))
    assert adjit.equal(model.mean, adjit.zeros(3))
    adjit.testing.assert_close(program.call_reference(x(4, 3))[0], model(x(4, 3)))


def test_arguments_that_cannot_be_met():
    linear = nn.Linear(2, 2)
    wrong = {
        "two inputs|as another input": {
            "args": (x(2), x(2)),
            "model": Of(lambda a, b: a),
            "input_names": ["a", "a"],
        },
        "as another parameter": {"input_names": ["weight"]},
        "input_names has 'b' for more tensors than the 1 given": {"input_names": ["a", "b"]},
        "2 output_names for 1 outputs": {"output_names": ["a", "b"]},
        "an output is named 'input'": {"output_names": ["input"]},
        "has no dimension 2": {"dynamic_axes": {"input": {2: "n"}}},
        "has the sizes": {"dynamic_axes": {"input": {0: "n", 1: "n"}}},
        "'args_0', which has several tensors": {
            "model": Of(max),
            "args": ([x(2), x(2)],),
            "dynamic_shapes": [[{0: "n"}, {0: "n"}]],
        },
        "dynamic_shapes names 'q'": {"dynamic_shapes": {"q": {0: "n"}}},
        "with tensors; give tensors": {"model": Of(lambda a: a), "args": (Given(),)},
    }
    for told, ways in wrong.items():
        given = {"model": linear, "args": (x(1, 2),)} | ways
        with pytest.raises(OnnxExporterError, match=told):
            export(**given)
    for name in ("report", "profile", "dump_exported_program", "export_modules_as_functions"):
        with pytest.raises(NotImplementedError, match=f"export has no {name}"):
            export(linear, (x(1, 2),), **{name: True})
    with pytest.raises(TypeError, match="export needs a Module, not function"):
        export(lambda a: a, (x(2),))


def test_verify_compares(monkeypatch):
    from adjit.onnx import rules

    export(nn.ReLU(), (x(3),), verify=True)
    monkeypatch.setitem(rules.RULES, "relu", lambda g, input, inplace=False: g.node("Neg", input))
    with pytest.raises(OnnxExporterError, match="other values than the model"):
        export(nn.ReLU(), (x(3),), verify=True)


def test_names_of_nodes_are_free():
    class Clashes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.constant = nn.Parameter(x(2))
            self.add = nn.Parameter(x(2))

        def forward(self, relu: Any) -> Any:
            return F.relu(relu + self.constant) * 3.0 + self.add

    exported(Clashes(), x(2), output_names=["mul"])


def test_an_activation_that_only_the_runtime_knows():
    pytest.importorskip("onnxruntime")
    model = Recurrent(nn.RNN, nonlinearity="relu", bidirectional=True)
    program = export(model, (x(5, 2, 4),))
    for one, other in zip(by_runtime(program, x(5, 2, 4)) or (), model(x(5, 2, 4)), strict=True):
        adjit.testing.assert_close(one, other.detach())


def test_functions_kept_by_modules_are_put_back():
    model = nn.TransformerEncoderLayer(8, 2, 16, activation=F.gelu)
    before = model.activation
    export(model, (x(5, 2, 8),))
    assert model.activation is before


def test_without_the_package_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['onnx'] = None; import adjit; "
        "adjit.onnx.export(adjit.nn.ReLU(), (adjit.ones(2),))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: adjit.onnx.export writes files by the package onnx" in made.stderr
    assert "pip install onnx" in made.stderr


def test_signature_is_pytorchs():
    import inspect

    torch = pytest.importorskip("torch")
    theirs = inspect.signature(torch.onnx.export).parameters
    assert list(inspect.signature(export).parameters) == list(theirs)
    for name, parameter in inspect.signature(export).parameters.items():
        if not isinstance(parameter.default, TrainingMode) and name != "operator_export_type":
            assert (parameter.kind, parameter.default) == (theirs[name].kind, theirs[name].default)
