"""Parts of programs beside PyTorch: functions, distances, losses, short rows, bags, Gram matrices and more.

    python bench/parts.py [--threads 1,2] [--rows PATTERN] [--seconds 0.15] [--turns 3]

The same lines run in both libraries, which take turns; the shortest sample counts. In brackets PyTorch's time
divided by adjit's: above 1, adjit is ahead. Results are compared first, but for draws. A full run is written
to bench/results/, a run of chosen rows is only printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
from libraries import CALLS_TO_WARM_UP
from side_by_side import Time, run
from timing import time_calls

PASSES = ("forward", "with gradients")


class Part(NamedTuple):
    """What both libraries compute: `call(library, *leaves, *others)`, a tensor or a number."""

    call: Callable[..., Any]
    leaves: list[np.ndarray]
    others: Sequence[np.ndarray] = ()
    draws: bool = False
    is_epoch: bool = False


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def between(low: float, high: float, *shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(low, high, shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, high, shape)


def functions() -> dict[str, Part]:
    """Of numbers that stay in a core's second cache."""
    arguments = between(0.1, 3, 131_072)
    names = (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sigmoid", "sin", "cos", "tan", "atan", "erf",
        "sqrt",
    )  # fmt: skip
    return {
        f"{name}, 131,072 of {kind}": Part(
            lambda L, x, name=name: getattr(L, name)(x), [arguments.astype(kind)]
        )
        for kind in ("float32", "float64")
        for name in names
    }


def distances() -> dict[str, Part]:
    found = {}
    for rows, depth in ((10, 3), (100, 64), (1000, 3), (1000, 64)):
        for p in (1.0, 2.0, inf, 3.0):
            found[f"cdist, {rows} by {rows} of {depth}, order {p:g}"] = Part(
                lambda L, x, y, p=p: L.cdist(x, y, p),
                [normal(rows, depth), normal(rows, depth) + 1],
            )
    found["cdist, 8 batches of 128 by 128 of 16"] = Part(
        lambda L, x, y: L.cdist(x, y), [normal(8, 128, 16), normal(8, 128, 16) + 1]
    )
    found["cdist, 500 by 500 of 512"] = Part(
        lambda L, x, y: L.cdist(x, y), [normal(500, 512), normal(500, 512) + 1]
    )
    found["cdist, 1 by 5000 of 64"] = Part(
        lambda L, x, y: L.cdist(x, y), [normal(1, 64), normal(5000, 64) + 1]
    )
    return found


def distributions() -> dict[str, Part]:
    found = {}
    positive = between(0.5, 3, 100_000)
    laws: dict[str, Callable[[Any, Any], Any]] = {
        "Gamma": lambda D, a: D.Gamma(a, a),
        "Beta": lambda D, a: D.Beta(a, a + 1),
        "Dirichlet": lambda D, a: D.Dirichlet(a.view(-1, 10)),
        "StudentT": lambda D, a: D.StudentT(a),
        "Normal": lambda D, a: D.Normal(a, a),
        "Exponential": lambda D, a: D.Exponential(a),
        "Laplace": lambda D, a: D.Laplace(a, a),
    }
    for name, law in laws.items():
        found[f"{name}, 100,000 draws"] = Part(
            lambda L, a, law=law: law(L.distributions, a).rsample(), [positive], draws=True
        )
        found[f"{name}, log_prob of 100,000"] = Part(
            lambda L, a, x, law=law: law(L.distributions, a).log_prob(
                x.view(-1, 10) / x.view(-1, 10).sum(1, keepdim=True) if law is laws["Dirichlet"] else x
            ),
            [positive], [between(0.1, 0.9, 100_000)],
        )  # fmt: skip
    found["Categorical, log_prob of 10,000 of 100 classes"] = Part(
        lambda L, x, k: L.distributions.Categorical(logits=x).log_prob(k),
        [normal(10_000, 100)], [whole(100, 10_000)],
    )  # fmt: skip
    found["Poisson, 100,000 draws"] = Part(
        lambda L, a: L.distributions.Poisson(a).sample(), [positive * 10], draws=True
    )
    return found


def losses() -> dict[str, Part]:
    labels = {
        f"ctc_loss, {steps} steps of {batch}, targets of {length}": Part(
            lambda L, x, y, n=(steps, batch, length): L.nn.functional.ctc_loss(
                x.log_softmax(2), y, [n[0]] * n[1], [n[2]] * n[1]
            ),
            [normal(steps, batch, classes)],
            [whole(classes - 1, batch, length) + 1],
        )
        for steps, batch, classes, length in (
            (50, 16, 20, 10),
            (100, 16, 40, 20),
            (500, 64, 100, 50),
        )
    }
    return labels | {
        "cosine_embedding_loss, 4096 of 128": Part(
            lambda L, x, y, s: L.nn.functional.cosine_embedding_loss(x, y, s),
            [normal(4096, 128), normal(4096, 128) + 1], [2 * whole(2, 4096) - 1],
        ),
        "triplet_margin_loss, 4096 of 128": Part(
            lambda L, x, y, z: L.nn.functional.triplet_margin_loss(x, y, z),
            [normal(4096, 128), normal(4096, 128) + 1, normal(4096, 128) - 1],
        ),
        "cross_entropy, 512 of 10,000": Part(
            lambda L, x, y: L.nn.functional.cross_entropy(x, y), [normal(512, 10_000)],
            [whole(10_000, 512)],
        ),
        "multi_margin_loss, 4096 of 100": Part(
            lambda L, x, y: L.nn.functional.multi_margin_loss(x, y), [normal(4096, 100)],
            [whole(100, 4096)],
        ),
        "kl_div, 1000 by 1000": Part(
            lambda L, x, y: L.nn.functional.kl_div(x, y, reduction="batchmean"), [normal(1000, 1000)],
            [between(0, 1, 1000, 1000)],
        ),
        "smooth_l1_loss, 1000 by 1000": Part(
            lambda L, x, y: L.nn.functional.smooth_l1_loss(x, y), [normal(1000, 1000)],
            [normal(1000, 1000) + 1],
        ),
    }  # fmt: skip


def narrow() -> dict[str, Part]:
    """Matrices of many rows and few columns, as data for ten classes are."""
    tall = normal(65_536, 10)
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "sum of rows": lambda L, x: x.sum(1),
        "sum of columns": lambda L, x: x.sum(0),
        "amax of rows": lambda L, x: x.amax(1),
        "softmax": lambda L, x: x.softmax(1),
        "log_softmax": lambda L, x: x.log_softmax(1),
    }
    found = {f"{name}, 65,536 by 10": Part(call, [tall]) for name, call in calls.items()}
    for width in (3, 10, 31, 64):
        each = normal(30_000 // width, width)
        found[f"rows of {width}, over their sum"] = Part(
            lambda L, x: x / x.square().sum(1, keepdim=True), [each]
        )
        found[f"rows of {width}, tanh of each less its mean"] = Part(
            lambda L, x: (x - x.mean(1, keepdim=True)).tanh(), [each]
        )
        found[f"rows of {width}, sum of products"] = Part(
            lambda L, x, y: (x * y).sum(1), [each, each + 1]
        )
        found[f"rows of {width}, logsumexp"] = Part(lambda L, x: x.logsumexp(1), [each])
    along: dict[str, Callable[[Any, Any], Any]] = {
        "sum": lambda L, x: x.sum(1),
        "prod": lambda L, x: x.prod(1),
        "amax": lambda L, x: x.amax(1),
        "norm": lambda L, x: x.norm(dim=1),
        "less their mean": lambda L, x: x - x.mean(1, keepdim=True),
        "less their largest": lambda L, x: x - x.amax(1, keepdim=True),
        "over their norm": lambda L, x: x / x.norm(dim=1, keepdim=True),
        "over the root of their mean square": lambda L, x: (
            x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        ),
    }
    for size in (30_000, 600_000):
        for width in (33, 64, 100, 256, 512):
            for name, call in along.items():
                found[f"{name}, rows of {width}, {size:,} elements"] = Part(
                    call, [normal(size // width, width)]
                )
    for rows in (512, 65_536):
        found[f"cross_entropy, {rows:,} of 10"] = Part(
            lambda L, x, y: L.nn.functional.cross_entropy(x, y), [normal(rows, 10)],
            [whole(10, rows)],
        )  # fmt: skip
    return found


OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(-1)[0], "median": lambda x: x.median(-1)[0],
    "kthvalue": lambda x: x.kthvalue(2, -1)[0], "mode": lambda x: x.round().mode(-1)[0],
    "quantile": lambda x: x.quantile(0.3, -1), "max": lambda x: x.max(-1)[0],
    "cumsum": lambda x: x.cumsum(-1), "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: x.cummax(-1)[0], "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "softmax": lambda x: x.softmax(-1), "norm": lambda x: x.norm(dim=-1), "flip": lambda x: x.flip(0),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
}  # fmt: skip


def short_rows() -> dict[str, Part]:
    """Functions of many rows, and products of many matrices, that have few elements."""
    found = {
        f"{name} of {rows:,} rows of {length}": Part(
            lambda L, x, of=of: of(x), [normal(rows, length)]
        )
        for name, of in OF_ROWS.items()
        for rows, length in ((8000, 3), (4000, 9), (1000, 33))
    }
    for length in (3, 9, 33):
        found[f"einsum ij,ij->i, 8,000 by {length}"] = Part(
            lambda L, x, y: L.einsum("ij,ij->i", x, y), [normal(8000, length), normal(8000, length)]
        )
    for sizes in ((2, 2, 2), (3, 3, 1), (3, 3, 3), (3, 1, 3), (4, 4, 4)):
        rows, depth, columns = sizes
        found[f"5,000 products of {rows} x {depth} by {depth} x {columns}"] = Part(
            lambda L, x, y: x @ y, [normal(5000, rows, depth), normal(5000, depth, columns)]
        )
    return found


def bags() -> dict[str, Part]:
    table, rows = normal(10_000, 64), whole(10_000, 1024, 20)
    found = {
        f"embedding_bag, {mode}, 1024 bags of 20 of 64": Part(
            lambda L, w, k, mode=mode: L.nn.functional.embedding_bag(k, w, mode=mode),
            [table],
            [rows],
        )
        for mode in ("sum", "mean", "max")
    }
    starts = np.sort(whole(20_480, 1024))
    starts[0] = 0
    for mode in ("sum", "mean", "max"):
        found[f"embedding_bag, {mode}, 1024 bags by offsets of 64"] = Part(
            lambda L, w, k, starts, mode=mode: L.nn.functional.embedding_bag(k, w, starts, mode=mode),
            [table], [rows.reshape(-1), starts],
        )  # fmt: skip
    found["embedding_bag, weighted, 1024 bags of 20 of 64"] = Part(
        lambda L, w, f, k: L.nn.functional.embedding_bag(k, w, mode="sum", per_sample_weights=f),
        [table, normal(1024, 20)], [rows],
    )  # fmt: skip
    return found


def symmetric() -> dict[str, Part]:
    """Gram matrices and covariances."""
    shapes = (
        (64, 256), (128, 128), (128, 1000), (512, 1024), (1024, 1024), (2000, 100), (16, 128, 1024),
    )  # fmt: skip
    return {
        f"x @ x.mT, {' by '.join(map(str, shape))}": Part(lambda L, x: x @ x.mT, [normal(*shape)])
        for shape in shapes
    }


def epochs() -> dict[str, Part]:
    def epoch(L: Any, x: Any, y: Any, **options: Any) -> int:
        data = L.utils.data
        loader = data.DataLoader(data.TensorDataset(x, y), batch_size=64, **options)
        return sum(len(a) for a, _ in loader)

    given = [normal(10_000, 20), whole(10, 10_000)]
    return {
        "an epoch of 10,000 rows, in order": Part(epoch, [], given, is_epoch=True),
        "an epoch of 10,000 rows, shuffled": Part(
            lambda L, x, y: epoch(L, x, y, shuffle=True), [], given, is_epoch=True
        ),
    }


def parts() -> dict[str, Part]:
    return {
        **functions(), **distances(), **distributions(), **losses(), **narrow(), **short_rows(), **bags(),
        **symmetric(), **epochs(),
    }  # fmt: skip


def calls_of(library: Any, part: Part) -> dict[str, Callable[[], Any]]:
    """A part in one library: alone, and with the gradients of its leaves."""
    others = [library.tensor(a) for a in part.others]
    plain = [library.tensor(a) for a in part.leaves]
    leaves = [library.tensor(a, requires_grad=True) for a in part.leaves]

    def forward() -> Any:
        made = part.call(library, *plain, *others)
        return made if part.is_epoch else [made.numpy()]

    def with_gradients() -> Any:
        out = part.call(library, *leaves, *others)
        return [g.numpy() for g in library.autograd.grad((out * out).sum(), leaves)]

    if part.is_epoch or (part.draws and not part.call(library, *leaves).requires_grad):
        return {"forward": forward}
    return {"forward": forward, "with gradients": with_gradients}


def timed_parts() -> Iterator[tuple[str, Time]]:
    for name, part in parts().items():
        yield name, partial(time_part, name, part)


def time_part(name: str, part: Part, seconds: float, turns: int) -> dict[str, Any]:
    """Seconds of a part in each library, after checking that they agree."""
    import torch

    import adjit
    from adjit.schedule import plan_cache

    ours, theirs = calls_of(adjit, part), calls_of(torch, part)
    passes = {}
    for which in ours:
        if not part.draws and not part.is_epoch:
            for a, b in zip(ours[which](), theirs[which](), strict=True):
                assert np.abs(a - b).max() < 2e-3 * max(np.abs(b).max(), 1), name
        for _ in range(CALLS_TO_WARM_UP):
            ours[which]()
            plan_cache.wait()
        both = {"adjit": ours[which], "PyTorch": theirs[which]}
        passes[which] = time_calls(both, seconds, turns)
    return {"passes": passes}


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| part | threads | " + " | ".join(f"{n}, us | PyTorch" for n in PASSES) + " |",
        "|---|---" + "|--:" * 4 + "|",
    ]
    for row in found:
        cells = []
        for which in PASSES:
            times = row["passes"].get(which)
            if times is None:
                cells += ["", ""]
                continue
            ours, theirs = times["adjit"], times["PyTorch"]
            cells += [f"{ours * 1e6:.0f}", f"{theirs * 1e6:.0f} ({theirs / ours:.2f})"]
        lines.append(f"| {row['name']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(__file__, __doc__, timed_parts, table, seconds=0.15)
