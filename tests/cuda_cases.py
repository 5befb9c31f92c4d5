"""What device kernels are tried on: programs for the simulator, whose kernels are compiled as well."""

from __future__ import annotations

import math

import numpy as np

import adjit
from adjit.nn import functional as F
from adjit.ops import incomplete_gamma, sampling
from adjit.ops.recurrent import KINDS, recurrent_layer

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return adjit.tensor(rng.standard_normal(shape).astype(dtype))


def positive(*shape):
    """Positive-definite matrices."""
    x = normal(*shape, shape[-1])
    return x @ x.mT + adjit.eye(shape[-1])


def whole(*values):
    return adjit.tensor([*values])


def special(count):
    """NaN, infinities, both zeros and ones in turn."""
    values = [float("nan"), 0.0, -0.0, 1.0, float("inf"), -float("inf"), -1.0]
    return adjit.tensor([values[k * 5 % 7] for k in range(count)])


# What follows computes in the CPU's order, so that the bits are the same.
CASES = {
    "sum of rows": lambda: normal(3, 70).sum(1),
    "sum of columns": lambda: normal(9, 37).sum(0),
    "sum of all": lambda: normal(5, 211).sum(),
    "sum in float64": lambda: normal(3, 40, dtype=np.float64).sum(1),
    "product of rows": lambda: normal(3, 40).prod(1),
    "largest of rows": lambda: normal(3, 70).amax(1),
    "place of the smallest": lambda: normal(3, 70).argmin(1),
    "variance": lambda: normal(3, 70).var(1),
    "deviation of what is large": lambda: (normal(3, 70) * 1e30).std(1),
    "deviation of what is small in float64": lambda: (normal(3, 70, dtype=np.float64) * 1e-200).std(1),
    "softmax": lambda: adjit.softmax(normal(3, 70), 1),
    "log softmax": lambda: adjit.log_softmax(normal(3, 70), 1),
    "softmax of columns": lambda: adjit.softmax(normal(7, 5), 0),
    "logsumexp": lambda: normal(3, 70).logsumexp(1),
    "cross-entropy": lambda: F.cross_entropy(normal(5, 7), whole(1, 0, 6, 2, 2)),
    "layer norm": lambda: F.layer_norm(normal(3, 70), (70,)),
    "layer norm of what is large": lambda: F.layer_norm(normal(3, 70) * 1e30, (70,)),
    "distances": lambda: adjit.cdist(normal(2, 5, 7), normal(34, 7)),
    "distances of rows that are longer than a sum": lambda: adjit.cdist(normal(1, 260), normal(2, 260), 1),
    "largest differences": lambda: adjit.cdist(normal(3, 7), normal(4, 7), math.inf),
    "unequal elements": lambda: adjit.cdist(normal(3, 7), normal(4, 7), 0),
    "running sum of whole numbers": lambda: adjit.arange(2 * 1100).view(2, 1100).cumsum(1),
    "running sum of columns": lambda: normal(5, 300).cumsum(0),
    "sort": lambda: normal(3, 17).sort(1),
    "top k": lambda: normal(3, 17).topk(4, 1),
    "sort of a warp, downwards": lambda: adjit.randint(0, 9, (7, 32)).sort(1, descending=True),
    "sort of a tile": lambda: normal(3, 45, dtype=np.float64).sort(1),
    "sort of equals": lambda: adjit.randint(0, 50, (2, 1100)).sort(1),
    "sort of long rows, downwards": lambda: normal(1, 2049).sort(1, descending=True),
    "sort of longer rows": lambda: adjit.randint(0, 300, (1, 5000)).sort(1),
    "sort of nothing but NaN and zeros": lambda: special(70).sort(),
    "sort of bytes": lambda: adjit.randint(0, 250, (2, 90)).to(adjit.uint8).sort(1),
    "places of a sort": lambda: normal(40, 3).argsort(0),
    "top k of equals": lambda: adjit.randint(0, 9, (2, 700)).topk(9, 1, largest=False),
    "top k with equals at the limit": lambda: adjit.randint(0, 200, (2, 700)).topk(9, 1),
    "many of the top with equals at the limit": lambda: adjit.randint(0, 9, (2, 700)).topk(100, 1),
    "many of the top": lambda: normal(2, 700).topk(40, 1),
    "all of the top": lambda: special(50).topk(50, sorted=False),
    "k-th of long rows": lambda: adjit.randint(0, 9, (3, 700)).kthvalue(300, 1),
    "median": lambda: normal(3, 300).median(1),
    "median with NaN": lambda: special(300).median(0),
    "median but for NaN": lambda: special(300).nanmedian(0),
    "most common of long rows": lambda: adjit.randint(0, 90, (2, 700)).mode(1),
    "most common of long rows with NaNs": lambda: (adjit.randint(0, 90, (2, 700)) - 45.0).sqrt().mode(1),
    "gather": lambda: normal(3, 7).gather(1, whole([0, 3], [1, 2], [6, 5])),
    "chosen rows": lambda: normal(5, 7).index_select(0, whole(4, 0, 2)),
    "embedding": lambda: F.embedding(whole([4, 0], [2, 4]), normal(5, 7)),
    "scatter add": lambda: normal(3, 7).scatter_add(1, whole([0, 3], [1, 1], [6, 5]), normal(3, 2)),
    "joined": lambda: adjit.cat([normal(3, 4), normal(3, 2)], 1),
    "flipped": lambda: normal(3, 4).flip(1),
    "triangle": lambda: normal(5, 5).tril(),
    "padded": lambda: F.pad(normal(2, 3), (1, 1)),
    "unfolded": lambda: F.unfold(normal(1, 2, 5, 5), 3),
    "largest in windows": lambda: F.max_pool2d(normal(1, 2, 6, 6), 2),
    "largest in windows of padding": lambda: F.max_pool1d(normal(1, 2, 2), 2, 1, 1, 3, return_indices=True),
    "mean of windows": lambda: F.avg_pool2d(normal(1, 2, 6, 6), 2),
    "resized": lambda: F.interpolate(normal(1, 2, 4, 4), scale_factor=2),
    "uniform numbers": lambda: adjit.rand(300),
    "normal numbers": lambda: adjit.randn(70),
    "whole numbers": lambda: adjit.randint(0, 9, (70,)),
    "dropout": lambda: F.dropout(normal(300), 0.3),
    "length of a vector": lambda: normal(3, 70).norm(),
    "dot product": lambda: adjit.dot(normal(70), normal(70)),
    "class chosen": lambda: F.nll_loss(adjit.log_softmax(normal(3, 7), 1), whole(1, 0, 6)),
    "binary cross-entropy": lambda: F.binary_cross_entropy(
        adjit.sigmoid(normal(9)), adjit.sigmoid(normal(9))
    ),
    "running product of columns": lambda: normal(2, 5, 3).cumprod(1),
    "running largest": lambda: normal(3, 17).cummax(1),
    "running smallest": lambda: normal(3, 17).cummin(1),
    "running largest of equals": lambda: adjit.randint(0, 9, (2, 1100)).cummax(1),
    "running smallest with NaN": lambda: adjit.tensor([2.0, 1, float("nan"), 0, 3]).repeat(9).cummin(0),
    "running largest of columns": lambda: normal(5, 300).cummax(0),
    "running logsumexp": lambda: normal(3, 17).logcumsumexp(1),
    "product of columns": lambda: normal(9, 37).prod(0),
    "largest of columns": lambda: normal(9, 37).amax(0),
    "smallest of columns": lambda: normal(9, 37).amin(0),
    "smallest of rows": lambda: normal(3, 37).amin(1),
    "place of the largest of columns": lambda: normal(9, 37).argmax(0),
    "place of the smallest of columns": lambda: normal(9, 37).argmin(0),
    "k-th": lambda: normal(3, 17).kthvalue(3, 1),
    "most common": lambda: adjit.randint(0, 4, (3, 17)).mode(1),
    "places in order": lambda: adjit.searchsorted(adjit.arange(9.0), normal(3)),
    "chosen by a mask": lambda: normal(9)[whole(*[True, False, True] * 3)],
    "places of few": lambda: (normal(3, 7) > 0).nonzero(),
    "chosen of many": lambda: normal(5000)[normal(5000).abs() > 2],
    "put by a mask": lambda: normal(9).masked_scatter(whole(*[True, False, True] * 3), normal(9)),
    "rows added": lambda: normal(5, 7).index_add(0, whole(4, 0, 2), normal(3, 7)),
    "scattered": lambda: normal(3, 7).scatter(1, whole([0, 3], [1, 2], [6, 5]), normal(3, 2)),
    "largest scattered": lambda: normal(3, 7).scatter_reduce(
        1, whole([0, 3], [1, 2], [6, 5]), normal(3, 2), "amax"
    ),
    "largest in areas": lambda: F.adaptive_max_pool2d(normal(1, 2, 7, 7), 3),
    "mean of areas": lambda: F.adaptive_avg_pool2d(normal(1, 2, 7, 7), 3),
    "folded": lambda: F.fold(normal(1, 18, 9), (5, 5), 3),
    "resized by lines": lambda: F.interpolate(normal(1, 2, 4, 4), size=(7, 7), mode="bilinear"),
    "reflected": lambda: F.pad(normal(1, 2, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "channels to pixels": lambda: F.pixel_shuffle(normal(1, 8, 3, 3), 2),
    "pixels to channels": lambda: F.pixel_unshuffle(normal(1, 2, 4, 4), 2),
    "joined of three": lambda: adjit.cat([normal(3, k) for k in (4, 2, 1)], 1),
    "joined of four": lambda: adjit.cat([normal(3, k) for k in (4, 2, 1, 2)], 1),
    "joined of six": lambda: adjit.cat([normal(3, k + 1) for k in range(6)], 1),
    "joined of twelve": lambda: adjit.cat([normal(3, k + 1) for k in range(12)], 1),
    "spaced": lambda: adjit.linspace(0, 1, 9) * 1,
    "identity": lambda: adjit.eye(4) * 1,
    "places of triangles": lambda: [adjit.tril_indices(4, 5, 1), adjit.triu_indices(4, 5, -1)],
    "bits": lambda: [normal(3, 4).view(adjit.int32), normal(3, 4).view(adjit.float64)],
    "constant": lambda: adjit.full((4,), 3) * 1,
    "counted": lambda: adjit.arange(9) * 1,
    "uniform numbers in float64": lambda: adjit.rand(70, dtype=adjit.float64),
    "normal numbers in float64": lambda: adjit.randn(70, dtype=adjit.float64),
    "running sum of infinities": lambda: whole(1.0, math.inf, 2.0, -math.inf, 1.0).cumsum(0),
    "running product of infinities": lambda: whole(2.0, math.inf, -2.0, 0.0, 1.0).cumprod(0),
    "running sums that overflow": lambda: adjit.full((4,), 3e38).cumsum(0),
    "counted in float64": lambda: adjit.arange(0, 3, 0.3, dtype=adjit.float64) * 1,
    "spaced in float64": lambda: adjit.linspace(0, 1, 9, dtype=adjit.float64) * 1,
    "counted in small steps": lambda: adjit.arange(-3, 9, 0.1) * 1,
    "spaced unevenly": lambda: adjit.linspace(-1e3, 1 / 7, 70) * 1,
    "place of the largest": lambda: normal(3, 70).argmax(1),
    "variance of long rows": lambda: normal(1, 17000).var(1),
    "deviation of long rows": lambda: (normal(1, 17000, dtype=np.float64) * 1e200).std(1),
    "an order": lambda: adjit.randperm(17) * 1,
    "trials": lambda: adjit.bernoulli(adjit.sigmoid(normal(70))),
    "choices": lambda: adjit.multinomial(adjit.sigmoid(normal(3, 7)), 5, replacement=True),
    "factors": lambda: adjit.linalg.cholesky(positive(2, 5)),
    "triangular systems": lambda: adjit.linalg.solve_triangular(positive(2, 5), normal(2, 5, 70), upper=True),
    "put at places": lambda: F.max_unpool2d(*F.max_pool2d(normal(1, 2, 6, 6), 2, return_indices=True), 2),
    "classes as rows": lambda: F.one_hot(whole([4, 0], [2, 4]), 7) * 1,
    "rows written": lambda: adjit.index_put(normal(5, 7), (whole(4, 0),), normal(2, 7)),
    "resized without gaps": lambda: F.interpolate(
        normal(1, 2, 9, 9), size=(4, 4), mode="bicubic", antialias=True
    ),
    "product of whole numbers": lambda: adjit.ones(5, 9).long() @ adjit.ones(9, 4).long(),
}  # fmt: skip


def batch_norm_gradient():
    """Those of the input and the weight."""
    leaves = [normal(4, 3, 5, 5).requires_grad_(), normal(3).requires_grad_()]
    out = F.batch_norm(leaves[0], None, None, leaves[1], None, training=True)
    return adjit.autograd.grad(out, leaves, normal(4, 3, 5, 5))


def product_gradient():
    """The gradient of a running product, which is a linear recurrence."""
    x = normal(4, 9, 3).requires_grad_()
    return adjit.autograd.grad(x.cumprod(1), x, normal(4, 9, 3))


# What computes in an order of its own, or in float32 what the CPU has in float64.
NEARLY = {
    "batch norm": lambda: F.batch_norm(normal(4, 3, 5, 5), None, None, training=True),
    "batch norm, channels last": lambda: F.batch_norm(
        normal(4, 5, 5, 3).permute(0, 3, 1, 2), None, None, training=True
    ),
    "slopes of gamma numbers": lambda: incomplete_gamma.gamma_slopes(
        adjit.tensor([0.3, 0.9, 1.0, 2.5, 40.0]), adjit.tensor([-2.0, 0.5, -0.5, 1.5, 3.6])
    ),
    "incomplete gamma functions": lambda: [
        share(
            adjit.tensor([0.3, 0.9, 2.5, 140.0, 0.0, 2.0, 1e-20, 1e38]),
            adjit.tensor([0.1, 1.5, 4.5, 150.0, 1.0, 0.0, 0.5, 1e38]),
        )
        for share in (adjit.special.gammainc, adjit.special.gammaincc)
    ],
    "distances of another order": lambda: adjit.cdist(normal(3, 7), normal(4, 7), 1.5),
    "running sum of rows": lambda: [normal(2, 1100).cumsum(1), normal(3, 17).cumsum(1)],
    "running product": lambda: (1 + normal(2, 70, dtype=np.float64) / 9).cumprod(1),
    "a matrix by a vector": lambda: normal(5, 9) @ normal(9),
    "a turned matrix by a vector": lambda: normal(9, 5).T @ normal(9),
    "batch norm of long channels": lambda: F.batch_norm(
        normal(1, 1, 70, 70) + adjit.arange(70), None, None, training=True
    ),
    "batch norm, channels last, in parts": lambda: F.batch_norm(
        (normal(72, 128) + adjit.arange(72.0)[:, None]).view(2, 6, 6, 128).permute(0, 3, 1, 2),
        None, None, training=True,
    ),
    "gradients of batch norm": batch_norm_gradient,
    "gradient of a running product": product_gradient,
    "gamma numbers": lambda: sampling.log_gamma_numbers(adjit.linspace(0.1, 30, 70)),
    "Poisson numbers": lambda: adjit.poisson(adjit.linspace(0.1, 30, 70)),
    "binomial numbers": lambda: adjit.binomial(adjit.linspace(1, 70, 70).floor(), adjit.tensor(0.4)),
    "von Mises numbers": lambda: sampling.von_mises_numbers(adjit.linspace(0.1, 30, 70)),
    "powers, spaced": lambda: adjit.logspace(-30, 31.7, 40, base=2.3) * 1,
}  # fmt: skip

# As in NEARLY; the gradients too.
SAMPLED = {
    "sampled": lambda x, places: F.grid_sample(x, places, align_corners=False),
    "sampled, channels last": lambda x, places: F.grid_sample(
        x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), places, align_corners=True
    ),
    "sampled, nearest": lambda x, places: F.grid_sample(
        x, places, "nearest", "reflection", align_corners=False
    ),
    "sampled, cubic": lambda x, places: F.grid_sample(
        x, places, "bicubic", "border", align_corners=False
    ),
}

PRODUCTS = {
    "matrices": lambda: normal(5, 9) @ normal(9, 7),
    "transposed ones": lambda: normal(9, 5).T @ normal(7, 9).T,
    "batches": lambda: normal(2, 5, 9) @ normal(2, 9, 7),
    "several tiles": lambda: normal(66, 3) @ normal(3, 67),
    "a long sum": lambda: normal(2, 260) @ normal(260, 3),
    "a linear layer": lambda: F.linear(normal(5, 9), normal(7, 9), normal(7)),
    "float64": lambda: normal(5, 9, dtype=np.float64) @ normal(9, 7, dtype=np.float64),
}

GRADIENTS = {
    "softmax": lambda x: adjit.softmax(x, 1),
    "softmax of columns": lambda x: adjit.softmax(x, 0),
    "log softmax": lambda x: adjit.log_softmax(x, 1),
    "log softmax of columns": lambda x: adjit.log_softmax(x, 0),
    "cross-entropy": lambda x: F.cross_entropy(x, whole(1, 0, 6)),
    "labels in time": lambda x: F.ctc_loss(
        x.log_softmax(1).unsqueeze(1), whole([1, 2]), (3,), (2,), reduction="sum"
    ),
    "layer norm": lambda x: F.layer_norm(x, (7,)),
    "distances": lambda x: adjit.cdist(x, x + 1),
    "distances of order 1": lambda x: adjit.cdist(x, normal(34, 7), 1),
    "distances of order 3": lambda x: adjit.cdist(x, normal(34, 7), 3),
    "distances of long rows": lambda x: adjit.cdist(x.repeat(1, 3), normal(4, 21)),
    "largest differences of long rows": lambda x: adjit.cdist(
        x.repeat(1, 3), normal(4, 21), math.inf
    ),
    "distances of long rows of order 3": lambda x: adjit.cdist(x.repeat(1, 3), normal(4, 21), 3),
    "chosen rows": lambda x: x.index_select(0, whole(2, 0, 2)),
    "embedding": lambda x: F.embedding(whole([2, 0], [2, 1]), x),
    "bags of rows": lambda x: F.embedding_bag(whole([2, 0], [2, 1]), x, padding_idx=1),
    "largest of bags": lambda x: F.embedding_bag(whole(2, 0, 1), x, whole(0, 2, 2), mode="max"),
    "overlapping views": lambda x: x.unfold(1, 3, 2),
    "running sum": lambda x: x.cumsum(0),
    "largest in windows": lambda x: F.max_pool2d(x[None], 2),
    "mean of windows": lambda x: F.avg_pool2d(x[None], 3, 1),
    "used three times": lambda x: x * 2 + x.sin() - x,
    "class chosen": lambda x: F.nll_loss(x, whole(1, 0, 6)),
    "put at places": lambda x: F.max_unpool1d(
        x[None], whole(*[[1, 3, 5, 7, 9, 11, 13]] * 3)[None], 2
    ),
    "reflected": lambda x: F.pad(x[None], (2, 3), mode="reflect"),
    "reflected columns": lambda x: F.pad(x[None, None], (1, 1, 2, 2), mode="reflect"),
    "replicated": lambda x: F.pad(x[None], (2, 3), mode="replicate"),
    "circular": lambda x: F.pad(x[None, None], (1, 1, 2, 2), mode="circular"),
    "resized to the nearest": lambda x: F.interpolate(x[None, None], size=(7, 5)),
    "resized by curves": lambda x: F.interpolate(x[None, None], size=(5, 9), mode="bicubic"),
    "resized without gaps": lambda x: F.interpolate(
        x[None, None], size=(2, 4), mode="bilinear", antialias=True
    ),
    "resized by lines": lambda x: F.interpolate(x[None, None], size=(5, 9), mode="bilinear"),
}

CONVOLUTIONS = {
    "few pixels": lambda x, w: F.conv2d(x[:1], w),
    "few pixels in groups": lambda x, w: F.conv2d(x[:1], w[:, :1].contiguous(), groups=2),
    "padded": lambda x, w: F.conv2d(x, w, padding=1),
    "strided and dilated": lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2),
    "grouped": lambda x, w: F.conv2d(x, w[:, :1], groups=2),
    "grouped, one result of each": lambda x, w: F.conv2d(x.repeat(1, 2, 1, 1), w[:2], groups=2),
    "depthwise": lambda x, w: F.conv2d(x, w[:2, :1], padding=1, groups=2),
    "transposed in groups": lambda x, w: F.conv_transpose2d(x, w[:2], stride=2, groups=2),
    "transposed": lambda x, w: F.conv_transpose2d(x, w[:2], stride=2),
}


def gradient(name):
    """The gradient of one of GRADIENTS."""
    x, g = normal(3, 7), adjit.tensor(0.7)

    def program():
        leaf = x.clone().requires_grad_()
        out = GRADIENTS[name](leaf)
        return adjit.autograd.grad(out, leaf, g.expand(out.shape).contiguous())

    return program


def sampled(name):
    """One of SAMPLED and its gradients."""
    channels = 17 if "last" in name else 3
    x, places = normal(2, channels, 5, 4), normal(2, 3, 2, 2) / 2

    def program():
        leaves = [x.clone().requires_grad_(), places.clone().requires_grad_()]
        out = SAMPLED[name](*leaves)
        return [out.detach(), *adjit.autograd.grad(out, leaves, normal(*out.shape))]

    return program


def convolution(name):
    """One of CONVOLUTIONS and its gradients."""
    x, w = normal(2, 2, 5, 4), normal(4, 2, 3, 3)

    def program():
        image, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
        out = CONVOLUTIONS[name](image, weight)
        grads = adjit.autograd.grad(out, (image, weight), normal(*out.shape))
        return [out.detach(), *grads]

    return program


def step_of(make, **options):
    """A step of an optimiser."""
    parameters = [adjit.nn.Parameter(normal(5, 4)), adjit.nn.Parameter(normal(3))]
    optimizer = make(parameters, lr=0.1, **options)

    def program():
        for p in parameters:
            p.grad = normal(*p.shape)
        optimizer.step()
        return parameters

    return program


STEPS = {
    "sgd": step_of(adjit.optim.SGD),
    "momentum": step_of(adjit.optim.SGD, momentum=0.9),
    "adam": step_of(adjit.optim.Adam),
    "adamax": step_of(adjit.optim.Adamax),
    "nadam": step_of(adjit.optim.NAdam),
    "radam": step_of(adjit.optim.RAdam, betas=(0.5, 0.9)),
    "asgd": step_of(adjit.optim.ASGD),
    "adadelta": step_of(adjit.optim.Adadelta),
    "rprop": step_of(adjit.optim.Rprop),
    "adagrad": step_of(adjit.optim.Adagrad),
    "rmsprop": step_of(adjit.optim.RMSprop, momentum=0.9, centered=True),
}


def recurrent(kind, sizes=(3, 2, 2, 1), reverse=False, dtype=np.float32, last=False):
    """A recurrent layer over packed sequences, its results, and gradients of all that it reads."""

    def run():
        rows, hidden, steps = KINDS[kind].gates * 20, 20, len(sizes)
        shapes = [
            (sum(sizes), 3),
            (rows, 3),
            (rows, hidden),
            (rows,),
            (hidden,),
            (3, hidden),
            (3, hidden),
        ]
        absent = {4: kind != "gru", 6: kind != "lstm"}
        operands = [
            None if absent.get(k) else normal(*shape, dtype=dtype).requires_grad_()
            for k, shape in enumerate(shapes)
        ]
        packed = None if len(set(sizes)) == 1 else whole(*sizes)
        made = recurrent_layer(*operands, packed, kind, steps, reverse, True)
        made = made[: 3 if kind == "lstm" else 2]
        with adjit.no_grad():
            quick = recurrent_layer(*operands, packed, kind, steps, reverse, False)[0]
        loss = sum((t * t).sum() for t in (made[1:] if last else made))
        grads = adjit.autograd.grad(loss, [t for t in operands if t is not None])
        return [quick, *(t.detach() for t in made), *grads]

    return run


RECURRENT = {
    "tanh": recurrent("rnn_tanh"),
    "relu, the other way": recurrent("rnn_relu", reverse=True),
    "lstm": recurrent("lstm"),
    "lstm, the other way, in float64": recurrent("lstm", reverse=True, dtype=np.float64),
    "lstm of one length, its last state": recurrent("lstm", sizes=(3, 3), last=True),
    "gru": recurrent("gru"),
    "gru of one length, the other way": recurrent("gru", sizes=(3, 3), reverse=True),
}


def programs():
    """All of them."""
    yield from (CASES | NEARLY | PRODUCTS | STEPS).values()
    yield from map(gradient, GRADIENTS)
    yield from map(sampled, SAMPLED)
    yield from map(convolution, CONVOLUTIONS)
    yield from RECURRENT.values()
