"""How near a GPU's limits the libraries come: bytes and multiplications a second.

A row of bytes is judged by the copy, which is measured like the others; its bytes are those that
any program has to move.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rows import Arrays, Call, Row, uniform

N = 1 << 27
BYTES, PRODUCTS = "bytes a second", "operations a second"
COPY = "copy, 128M float32"
SIDE = 4096


def data(count: int, *shape: int) -> Arrays:
    return tuple(uniform(shape, (-1, 1), seed=seed) for seed in range(count))


def eager(function: Any, torch: Any, *arrays: Any) -> Call:
    return partial(function, torch, *map(torch.tensor, arrays))


def jitted(function: Any, jax: Any, *arrays: Any) -> Call:
    return partial(jax.jit(partial(function, jax.numpy)), *map(jax.numpy.asarray, arrays))


def copy_torch(_: Any, x: Any) -> Any:
    return x.clone()


def copy_jax(numpy: Any, x: Any) -> Any:
    return numpy.copy(x)


def add(_: Any, x: Any, y: Any) -> Any:
    return x + y


def chain(module: Any, x: Any, y: Any) -> Any:
    return module.tanh(x * y + 0.5) * x - y


def total(_: Any, x: Any) -> Any:
    return x.sum()


def products(precision: str, torch: Any, a: Any, b: Any) -> Call:
    """Products of partial(data, 2, SIDE, SIDE), with or without TF32."""
    left, right = torch.tensor(a), torch.tensor(b)

    def call() -> Any:
        torch.set_float32_matmul_precision(precision)
        try:
            return left @ right
        finally:
            torch.set_float32_matmul_precision("highest")

    return call


def products_jax(precision: str, jax: Any, a: Any, b: Any) -> Call:
    multiply = jax.jit(partial(jax.numpy.matmul, precision=precision))
    return partial(multiply, jax.numpy.asarray(a), jax.numpy.asarray(b))


RATES: tuple[Row, ...] = (
    Row(BYTES, COPY, partial(data, 1, N),
        {"torch": partial(eager, copy_torch), "jax": partial(jitted, copy_jax)}, moves=8 * N),
    Row(BYTES, "x + y, 128M float32", partial(data, 2, N),
        {"torch": partial(eager, add), "jax": partial(jitted, add)}, moves=12 * N),
    Row(BYTES, "tanh(x * y + 0.5) * x - y, 128M float32", partial(data, 2, N),
        {"torch": partial(eager, chain), "jax": partial(jitted, chain)}, moves=12 * N),
    Row(BYTES, "sum, 128M float32", partial(data, 1, N),
        {"torch": partial(eager, total), "jax": partial(jitted, total)},
        rtol=1e-3, atol=20.0, moves=4 * N),
    Row(PRODUCTS, f"product, {SIDE}x{SIDE} float32", partial(data, 2, SIDE, SIDE),
        {"torch": partial(products, "highest"), "jax": partial(products_jax, "float32")},
        rtol=1e-3, atol=1e-2, moves=2 * SIDE**3),
    Row(PRODUCTS, f"product, {SIDE}x{SIDE} float32, TF32 allowed", partial(data, 2, SIDE, SIDE),
        {"torch": partial(products, "high"), "jax": partial(products_jax, "tensorfloat32")},
        rtol=1e-1, atol=1.0, moves=2 * SIDE**3),
)  # fmt: skip
