"""Operations that are not elementwise: sums, products, layers, losses, on small tensors of either float."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .elementwise import FLOATS, made, run, torch

F: Any = torch.nn.functional


def drawn(*shape: int, kind: Any = torch.float32) -> Any:
    """A tensor of random numbers that needs a gradient."""
    return torch.randn(shape, dtype=kind, requires_grad=True)


def factories(kind: Any) -> None:
    """New tensors, random numbers, and conversions."""
    shape = (4, 6)
    new: Any
    for new in (torch.zeros, torch.ones, torch.rand, torch.randn, torch.empty):
        new(shape, dtype=kind).tolist()
    torch.arange(5, dtype=kind).tolist()
    torch.linspace(0, 1, 5, dtype=kind).tolist()
    torch.eye(4, dtype=kind).tolist()
    torch.full(shape, 2.0, dtype=kind).uniform_(-1, 1).tolist()
    torch.empty(shape, dtype=kind).normal_(0, 0.1).tolist()
    torch.bernoulli(torch.full(shape, 0.5, dtype=kind)).tolist()
    torch.randn_like(torch.zeros(shape, dtype=kind)).tolist()
    x = made(shape, kind)
    for other in (*FLOATS, torch.int64, torch.bool):
        run(lambda x, other=other: x.to(other), x)
        torch.ones(shape, dtype=other).to(kind).tolist()


def whole_numbers() -> None:
    """What labels, places and counts go through."""
    torch.randint(0, 9, (4, 6)).tolist()
    torch.randperm(7).tolist()
    places = torch.arange(6)
    for found in (places.sum(), places.max(), places.argmax(), places.cumsum(0)):
        found.tolist()
    (places % 2 == 0).sum().tolist()
    (places > 2).any().tolist()
    (places > 2).all().tolist()
    F.one_hot(places, 6).tolist()
    torch.cat([places, places]).tolist()
    torch.stack([places, places]).tolist()
    places[places > 2].tolist()
    torch.zeros(4, 6, dtype=torch.bool).masked_fill(torch.ones(4, 6).tril() == 0, True).tolist()


def reductions(kind: Any) -> None:
    """Sums and their like, over all, rows, columns and axes in between."""
    for shape in ((4, 6), (3, 4, 6)):
        for dims in (None, (0,), (1,), (-1,), (0, 1)):
            for name in ("sum", "mean", "var", "std", "amax", "amin", "norm", "logsumexp"):
                if dims is None and name == "logsumexp":
                    continue
                x = drawn(*shape, kind=kind)
                arguments = {} if dims is None else {"dim": dims if name != "norm" else dims[0]}
                run(lambda x, name=name, a=arguments: getattr(x, name)(**a), x)
        for dim in (0, 1, -1):
            for name in ("max", "min", "median", "sort", "topk"):
                count = (2,) if name == "topk" else ()
                x = drawn(*shape, kind=kind)
                run(lambda x, name=name, dim=dim, c=count: getattr(x, name)(*c, dim=dim)[0], x)
            for name in ("cumsum", "cumprod", "softmax", "log_softmax", "prod"):
                run(
                    lambda x, name=name, dim=dim: getattr(x, name)(dim=dim),
                    drawn(*shape, kind=kind),
                )
            drawn(*shape, kind=kind).argmax(dim).tolist()
            drawn(*shape, kind=kind).argsort(dim).tolist()
    x = drawn(4, 6, kind=kind)
    for name in ("max", "min", "prod", "argmax", "argmin"):
        run(lambda x, name=name: getattr(x, name)(), x)


def rows_and_columns(kind: Any) -> None:
    """Many short rows, and few columns: kernels are compiled for how many vectors they take (`W`)."""
    for length in (3, 8, 10, 16, 30, 100):
        x, classes = drawn(16, length, kind=kind), torch.arange(16) % length
        for dim in (0, 1):
            for name in ("sum", "mean", "amax", "amin", "prod", "softmax", "log_softmax"):
                run(lambda x, name=name, dim=dim: getattr(x, name)(dim=dim), x)
            run(lambda x, dim=dim: x.logsumexp(dim), x)
            run(lambda x, dim=dim: x.norm(dim=dim), x)
        for rows in (x, x.detach()[:4].requires_grad_()):
            run(lambda x, y=classes: F.cross_entropy(x, y[: len(x)]), rows)


def products(kind: Any) -> None:
    """Products of matrices, vectors and batches, and what linear algebra has."""
    a, b, v, w = (drawn(*s, kind=kind) for s in ((4, 6), (6, 5), (6,), (4,)))
    batch, other = drawn(3, 4, 6, kind=kind), drawn(3, 6, 5, kind=kind)
    run(torch.matmul, a, b)
    run(torch.matmul, a, v)
    run(torch.matmul, w, a)
    run(torch.matmul, v, v)
    run(torch.matmul, batch, other)
    run(torch.matmul, batch, b)
    run(lambda a: a @ a.t(), a)
    run(lambda a: a.t() @ a, a)
    run(lambda x: x @ x.transpose(1, 2), batch)
    run(torch.outer, v, w)
    run(partial(torch.einsum, "bij,bjk->bik"), batch, other)
    for bias in (drawn(5, kind=kind), None):
        for x in (a, batch):
            run(F.linear, x, drawn(5, 6, kind=kind), *(() if bias is None else (bias,)))
    run(torch.addmm, drawn(5, kind=kind), a, b)
    run(torch.cdist, a, drawn(5, 6, kind=kind))
    run(torch.tril, a)
    run(torch.triu, a)
    run(torch.diagonal, drawn(5, 5, kind=kind))
    run(torch.diag_embed, v)
    square = drawn(5, 5, kind=kind)
    positive = square @ square.t() + torch.eye(5, dtype=kind)
    run(torch.linalg.cholesky, positive.detach().requires_grad_())


def moves(kind: Any) -> None:
    """Joining, choosing, putting and turning."""
    x, y = drawn(4, 6, kind=kind), drawn(4, 6, kind=kind)
    places, mask = torch.tensor([0, 2, 1]), torch.ones(4, 6).tril() == 1
    run(lambda x, y: torch.cat([x, y]), x, y)
    run(lambda x, y: torch.cat([x, y], 1), x, y)
    run(lambda x, y: torch.cat([x, y, x]), x, y)
    for count in (4, 8, 16):
        run(lambda x, count=count: torch.cat([x] * count), x)
    run(lambda x, y: torch.stack([x, y]), x, y)
    run(lambda x, y: torch.stack([x, y, y], -1), x, y)
    run(lambda x: x.t().contiguous(), x)
    run(lambda x: x.t().reshape(-1), x)
    run(lambda x: x.view(2, 2, 6).permute(2, 0, 1).contiguous(), x)
    run(lambda x: x.view(2, 2, 2, 3).transpose(1, 2).contiguous(), x)
    for part in (0, (0, 1), slice(1, 3), (slice(None), slice(0, 3)), (slice(None), 0)):
        run(lambda x, part=part: x[part] * 1, x)
    run(lambda x: torch.stack([row.sum() for row in x]), x)
    run(lambda x: x[places], x)
    run(lambda x: x[:, places], x)
    run(lambda x: x[places, places], x)
    run(lambda x: x[mask], x)
    run(lambda x: x.masked_fill(mask, 0.0), x)
    run(lambda x, y: torch.where(mask, x, y), x, y)
    run(lambda x: x.gather(1, torch.zeros(4, 2, dtype=torch.int64)), x)
    run(lambda x: x.index_select(0, places), x)
    run(lambda x, y: x.scatter_add(0, torch.zeros(4, 6, dtype=torch.int64), y), x, y)
    run(lambda x, y: x.index_add(0, torch.tensor([0, 1, 1, 2]), y), x, y)
    for change in (
        lambda x: x.flip(0),
        lambda x: x.roll(1, 0),
        lambda x: x.repeat(2, 2),
        lambda x: F.pad(x, (1, 1)),
    ):
        run(change, x)
    run(lambda x: x.expand(3, 4, 6).clone(), x)
    written = torch.zeros(4, 6, dtype=kind)
    written[0] = 1.0
    written[:, 1] = y.detach()[:, 2]
    written[1:3, 2:4] += 1
    written[mask] = 2.0
    written[places] = y.detach()[:3]
    written.tolist()


def lookups() -> None:
    """Rows of tables."""
    for padding in (None, 0):
        run(partial(F.embedding, torch.tensor([[1, 2], [0, 1]]), padding_idx=padding), drawn(5, 6))


def losses(kind: Any) -> None:
    """Means and sums of errors."""
    x, y = drawn(4, 6, kind=kind), torch.rand(4, 6, dtype=kind)
    classes = torch.tensor([0, 1, 2, 3])
    for way in ("mean", "sum"):
        for loss in (
            F.mse_loss,
            F.l1_loss,
            F.smooth_l1_loss,
            F.huber_loss,
            F.binary_cross_entropy_with_logits,
        ):
            run(lambda x, loss=loss, way=way: loss(x, y, reduction=way), x)
        run(lambda x, way=way: F.binary_cross_entropy(x.sigmoid(), y, reduction=way), x)
        run(lambda x, way=way: F.cross_entropy(x, classes, reduction=way), x)
        run(lambda x, way=way: F.nll_loss(x.log_softmax(1), classes, reduction=way), x)
    run(lambda x: F.kl_div(x.log_softmax(1), y, reduction="batchmean"), x)
    run(lambda x: F.cross_entropy(x, y), x)
    run(lambda x: F.cross_entropy(x, classes, label_smoothing=0.1), x)
    run(lambda x: F.cosine_similarity(x, y).sum(), x)


def normalising() -> None:
    """Norms, in training and evaluation."""
    x, image = drawn(4, 6), drawn(4, 6, 5, 5)
    run(F.layer_norm, x, [6], drawn(6), drawn(6))
    run(F.layer_norm, x, [6])
    run(F.rms_norm, x, [6], drawn(6))
    run(lambda x: F.group_norm(x, 2, drawn(6), drawn(6)), image)
    run(F.instance_norm, image)
    run(F.normalize, x)
    for layer, data in ((torch.nn.BatchNorm1d(6), x), (torch.nn.BatchNorm2d(6), image)):
        run(layer, data)
        run(layer.eval(), data)
    run(lambda x: F.dropout(x, 0.5), x)
    run(lambda x: F.dropout(x, 0.5), image)


def convolutions() -> None:
    """Convolutions of signals and images, with their gradients, and what goes with them."""
    for channels, columns, size, kernel, options in (
        (3, 8, 12, 3, {"padding": 1}), (8, 16, 12, 3, {}), (16, 16, 12, 3, {"padding": 1, "bias": False}),
        (16, 32, 12, 3, {"padding": 1, "stride": 2}), (16, 32, 12, 1, {}),
        (16, 32, 12, 1, {"stride": 2, "bias": False}), (1, 6, 28, 5, {}),
        (3, 64, 32, 7, {"padding": 3, "stride": 2, "bias": False}), (3, 16, 16, 4, {"stride": 4}),
        (16, 16, 12, 3, {"padding": 1, "groups": 16}),
        (16, 16, 12, 3, {"padding": 2, "dilation": 2}), (64, 64, 8, 3, {"padding": 1, "bias": False}),
    ):  # fmt: skip
        layer: Any = torch.nn.Conv2d(channels, columns, kernel, **options)
        for count in (1, 4):
            run(
                lambda x, *_, layer=layer: layer(x),
                drawn(count, channels, size, size),
                *layer.parameters(),
            )
    run(lambda x, w, b: F.conv1d(x, w, b, padding=1), drawn(2, 3, 12), drawn(4, 3, 3), drawn(4))
    for options in ({"stride": 2}, {"stride": 2, "padding": 1}, {}):
        run(
            lambda x, w, o=options: F.conv_transpose2d(x, w, **o),
            drawn(2, 8, 6, 6),
            drawn(8, 4, 4, 4),
        )
    image = drawn(2, 4, 12, 12)
    run(lambda x: F.max_pool2d(x, 2), image)
    run(lambda x: F.max_pool2d(x, 3, 2, 1), image)
    run(lambda x: F.avg_pool2d(x, 2), image)
    run(lambda x: F.adaptive_avg_pool2d(x, 1), image)
    run(lambda x: F.interpolate(x, scale_factor=2), image)
    run(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image)
    run(lambda x: F.pixel_shuffle(x, 2), image)


def sequences() -> None:
    """Recurrent layers and attention."""
    x = drawn(5, 3, 8)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        for batch_first in (False, True):
            layer = kind(8, 16, batch_first=batch_first)
            run(lambda x, *_, layer=layer: layer(x)[0], x, *layer.parameters())
    cell = torch.nn.LSTMCell(8, 16)
    run(lambda x, *_: cell(x[0])[0], x, *cell.parameters())
    gru = torch.nn.GRUCell(8, 16)
    run(lambda x, *_: gru(x[0]), x, *gru.parameters())
    q = drawn(2, 4, 16, 8)
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.ones(16, 16).tril() == 1}):
        run(lambda q, o=options: F.scaled_dot_product_attention(q, q, q, **o), q)


PROGRAMS: list[Callable[[], None]] = [
    *(partial(of, kind) for kind in FLOATS for of in (
        factories, reductions, rows_and_columns, products, moves, losses)),
    whole_numbers, lookups, normalising, convolutions, sequences,
]  # fmt: skip
