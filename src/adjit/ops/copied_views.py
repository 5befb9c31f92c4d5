"""The forms of view ops that copy: `view_copy`, `t_copy`, …, whose results have memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import dtype
from ..formats import contiguous_format
from ..graph import inplace
from ..graph.export import export, methods
from ..shapes import listed, numpy_names
from ..tensor import Tensor
from . import slicing, view  # noqa: F401 (they give the methods)
from .conversions import clone

# What they are called with in the examples, and what that gives.
COPIED = {
    "as_strided": ("(2,), (1,)", "tensor([1., 2.])"),
    "detach": ("", "tensor([1., 2.])"),
    "diagonal": ("", "tensor([1.])"),
    "expand": ("(1, 2)", "tensor([[1., 2.]])"),
    "narrow": ("0, 1, 1", "tensor([2.])"),
    "permute": ("(0,)", "tensor([1., 2.])"),
    "select": ("0, 1", "tensor(2.)"),
    "squeeze": ("", "tensor([1., 2.])"),
    "t": ("", "tensor([1., 2.])"),
    "transpose": ("0, 0", "tensor([1., 2.])"),
    "unfold": ("0, 2, 1", "tensor([[1., 2.]])"),
    "unsqueeze": ("0", "tensor([[1., 2.]])"),
    "view": ("(2, 1)", "tensor([[1.],\n                [2.]])"),
}


@listed("size", "dtype", after=1)
def _viewed(input: Tensor, *shape: Any) -> Tensor:
    """What `view` gives; in another shape also where only a copy has it."""
    to_dtype = len(shape) == 1 and isinstance(shape[0], dtype)
    return input.view(*shape) if to_dtype else input.reshape(*shape)


def _copying(name: str, arguments: str, shown: str) -> Any:
    op = _viewed if name == "view" else methods.get(name) or getattr(Tensor, name)

    def copying(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return clone(op(input, *args, **kwargs), memory_format=contiguous_format)

    copying.__name__ = copying.__qualname__ = f"{name}_copy"
    data = "[[1.]]" if name == "diagonal" else "[1., 2.]"
    given = ", ".join(filter(None, (f"adjit.tensor({data})", arguments)))
    copying.__doc__ = f"""Give what `{name}` gives, in memory of its own. Differentiable.

    Example:
        >>> adjit.{name}_copy({given})
        {shown}
    """
    return copying


for _name, (_arguments, _shown) in COPIED.items():
    export(name=f"{_name}_copy", out=True, method=_name == "narrow")(
        _copying(_name, _arguments, _shown)
    )


@export
@numpy_names
def split_copy(
    input: Tensor, split_size: int, dim: int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...] | None:
    """Give what `split` gives, each part in memory of its own; or write the parts into tensors.

    Differentiable.

    Example:
        >>> adjit.split_copy(adjit.tensor([1., 2., 3.]), 2)
        (tensor([1., 2.]), tensor([3.]))
    """
    return _parts("split_copy_Tensor_out()", slicing.split(input, split_size, dim), out)


@export
@numpy_names
def split_with_sizes_copy(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...] | None:
    """Give what `split_with_sizes` gives, each part in memory of its own; or write the parts into tensors.

    Differentiable.

    Example:
        >>> adjit.split_with_sizes_copy(adjit.tensor([1., 2., 3.]), [1, 2])
        (tensor([1.]), tensor([2., 3.]))
    """
    parts = slicing.split_with_sizes(input, split_sizes, dim)
    return _parts("split_with_sizes_copy_out", parts, out)


@export
@numpy_names
def unbind_copy(
    input: Tensor, dim: int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...] | None:
    """Give what `unbind` gives, each part in memory of its own; or write the parts into tensors.

    Differentiable.

    Example:
        >>> adjit.unbind_copy(adjit.tensor([[1., 2.], [3., 4.]]))
        (tensor([1., 2.]), tensor([3., 4.]))
    """
    return _parts("unbind_copy_int_out", slicing.unbind(input, dim), out)


def _parts(
    name: str, parts: Sequence[Tensor], out: Sequence[Tensor] | None
) -> tuple[Tensor, ...] | None:
    if out is None:
        return tuple(clone(part, memory_format=contiguous_format) for part in parts)
    if len(out) != len(parts):
        raise RuntimeError(
            f"{name} expected an out= argument of size {len(parts)}, got size {len(out)}"
        )
    for written, part in zip(out, parts, strict=True):
        inplace.write_out(name, written, part)
    return None


@export(method=True)
@numpy_names
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Give what `split` gives, each part in memory of its own, to be written into.

    Differentiable.

    Example:
        >>> adjit.unsafe_split(adjit.tensor([1., 2., 3.]), 2)
        (tensor([1., 2.]), tensor([3.]))
    """
    return tuple([clone(part) for part in slicing.split(input, split_size, dim)])


@export(method=True)
@numpy_names
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Give what `chunk` gives, each part in memory of its own, to be written into.

    Differentiable.

    Example:
        >>> adjit.unsafe_chunk(adjit.tensor([1., 2., 3.]), 2)
        (tensor([1., 2.]), tensor([3.]))
    """
    return tuple([clone(part) for part in slicing.chunk(input, chunks, dim)])


@export(method=True)
@numpy_names
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Give what `split_with_sizes` gives, each part in memory of its own, to be written into.

    Differentiable.

    Example:
        >>> adjit.unsafe_split_with_sizes(adjit.tensor([1., 2., 3.]), [2, 1])
        (tensor([1., 2.]), tensor([3.]))
    """
    return tuple([clone(part) for part in slicing.split_with_sizes(input, split_sizes, dim)])
