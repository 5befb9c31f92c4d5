"""Attention with scores that a function changes, as `torch.nn.attention.flex_attention`.

A function of one score and its indices is batched over all of them, as by `vmap`; tensors that it closes over
get gradients. With a `score_mod` the whole matrix of scores is in memory; without one attention goes by tiles.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypedDict

from ... import dtypes
from ...ops.creation import arange, zeros
from ...tensor import Tensor
from ...tracers.batched import BatchLevel
from .. import functional as F

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask",
    "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

Modifier = Callable[..., Any]
_DEFAULT_SPARSE_BLOCK_SIZE = 128
_SLICED = (
    "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute "
    "is reset. You must set it from the original BlockMask's mask_mod."
)


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's kernels, which are accepted and change nothing here.

    Example:
        >>> adjit.nn.attention.flex_attention.FlexKernelOptions(BLOCK_M=64)
        {'BLOCK_M': 64}
    """

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BACKEND: str


class AuxRequest(NamedTuple):
    """Request what `flex_attention` gives besides its result.

    Example:
        >>> adjit.nn.attention.flex_attention.AuxRequest(lse=True)
        AuxRequest(lse=True, max_scores=False)
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Hold what `flex_attention` gives besides its result, None for what nobody asked for.

    Example:
        >>> adjit.nn.attention.flex_attention.AuxOutput()
        AuxOutput(lse=None, max_scores=None)
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


# ----- functions of indices -----


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask of every score: True.

    Example:
        >>> adjit.nn.attention.flex_attention.noop_mask(*adjit.zeros(4))
        tensor(True)
    """
    return batch.new_ones((), dtype=dtypes.bool)


def and_masks(*mask_mods: Modifier) -> Modifier:
    """Join masks: True where all are.

    Raises:
        RuntimeError: if one cannot be called.

    Example:
        >>> from adjit.nn.attention.flex_attention import and_masks, create_mask
        >>> near = and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2)
        >>> create_mask(near, None, None, 3, 3)[0, 0]
        tensor([[ True, False, False],
                [ True,  True, False],
                [False,  True,  True]])
    """
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made: Tensor = b.new_ones((), dtype=dtypes.bool)
        for mask in mask_mods:
            made = made & mask(b, h, q_idx, kv_idx)
        return made

    return and_mask


def or_masks(*mask_mods: Modifier) -> Modifier:
    """Join masks: True where one is.

    Raises:
        RuntimeError: if one cannot be called.

    Example:
        >>> from adjit.nn.attention.flex_attention import create_mask, or_masks
        >>> either = or_masks(lambda b, h, q, k: q == k, lambda b, h, q, k: k == 0)
        >>> create_mask(either, None, None, 2, 3)[0, 0]
        tensor([[ True, False, False],
                [ True,  True, False]])
    """
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made: Tensor = b.new_zeros((), dtype=dtypes.bool)
        for mask in mask_mods:
            made = made | mask(b, h, q_idx, kv_idx)
        return made

    return or_mask


def _check_callable(mask_mods: Sequence[Any]) -> None:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {tuple(mask_mods)}")


def _is_score_mod(function: Modifier) -> bool:
    """Whether a function takes a score before the four indices."""
    parameters = inspect.signature(function).parameters.values()
    needed = sum(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in parameters
    )
    return needed == 5


def _over_all(
    function: Modifier, scores: Tensor | None, sizes: Sequence[int], place: Any
) -> Tensor:
    """A function of indices, and perhaps of a score in front, at all of them."""
    front = () if scores is None else (scores,)
    ranges = [arange(size, device=place) for size in sizes]
    for axis in reversed(range(4)):
        is_batched = (True,) * len(front) + tuple(k == axis for k in range(4))
        function = _of_examples(function, sizes[axis], is_batched)
    made: Tensor = function(*front, *ranges)
    return made


def _of_examples(function: Modifier, size: int, is_batched: Sequence[bool]) -> Modifier:
    """A function of one example as one of many, which lie along the first axis of some of its arguments."""

    def of_many(*args: Any) -> Tensor:
        level = BatchLevel(size)
        given = [
            level.wrapped(t) if batched else t for t, batched in zip(args, is_batched, strict=True)
        ]
        with level.active():
            made = function(*given)
            if not isinstance(made, Tensor):
                raise ValueError(
                    f"vmap({getattr(function, '__name__', function)}, ...): must only return Tensors, got "
                    f"type {type(made)}."
                )
            full: Tensor = level.full(made)
            return full

    return of_many


def create_mask(
    mod_fn: Modifier, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """Make the boolean tensor (B, H, Q_LEN, KV_LEN) of a mask function, or of where a score function leaves
    more than minus infinity.

    Args:
        mod_fn: of `(b, h, q_idx, kv_idx)`, or of these with a score in front.
        B: how many examples; None for 1.
        H: how many heads of queries; None for 1.
        Q_LEN: the length of the queries.
        KV_LEN: the length of keys and values.
        device: where to make it; the CPU if it is left out.

    Example:
        >>> from adjit.nn.attention.flex_attention import create_mask
        >>> create_mask(lambda b, h, q, k: q >= k, None, None, 2, 3)
        tensor([[[[ True, False, False],
                  [ True,  True, False]]]])
    """
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    if _is_score_mod(mod_fn):
        scores = _over_all(mod_fn, zeros(sizes, device=device), sizes, device)
        made: Tensor = ~scores.isneginf()
        return made
    return _over_all(mod_fn, None, sizes, device)


# ----- blocks -----


class BlockMask:
    """Which blocks of the matrix of scores are computed, and the mask inside of them.

    Made by `create_block_mask`, or `from_kv_blocks`. For each row of blocks: how many blocks of keys there are,
    and which; `full_...` are those where every score counts, `q_...` the same by columns.

    Example:
        >>> from adjit.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256)
        >>> mask.shape, mask.sparsity()
        ((1, 1, 256, 256), 25.0)
    """

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None, q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None, full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: Modifier = noop_mask,
    ) -> None:  # fmt: skip
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        for of, numbers, indices in (
            ("kv", full_kv_num_blocks, full_kv_indices), ("q", full_q_num_blocks, full_q_indices),
        ):  # fmt: skip
            if (numbers is None) != (indices is None):
                raise AssertionError(
                    f"full_{of}_num_blocks and full_{of}_indices must be both provided or omitted"
                )
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Modifier | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> Self:  # fmt: skip
        """Make one of the blocks of each row.

        Args:
            kv_num_blocks: int tensor (B, H, rows): how many.
            kv_indices: int tensor (B, H, rows, columns): which, those that count in front.
            full_kv_num_blocks: the same of blocks without a mask inside; or none of both.
            full_kv_indices: which.
            BLOCK_SIZE: of queries and keys.
            mask_mod: the mask inside of the other blocks; none leaves them whole.
            seq_lengths: of queries and keys; all blocks if it is left out.
            compute_q_blocks: whether to make what says the same by columns.

        Raises:
            RuntimeError: if `kv_indices` has less than two axes.
            AssertionError: if one of the two for full blocks is missing.

        Example:
            >>> from adjit.nn.attention.flex_attention import BlockMask
            >>> one = adjit.ones(1, 1, 2, dtype=adjit.int32)
            >>> BlockMask.from_kv_blocks(one, adjit.zeros(1, 1, 2, 2, dtype=adjit.int32)).to_dense()[0, 0]
            tensor([[1, 0],
                    [1, 0]], dtype=adjit.int32)
        """
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        by_columns: list[tuple[Any, Any]] = [
            (None, None) if numbers is None or not compute_q_blocks else _turned(numbers, indices)
            for numbers, indices in (
                (kv_num_blocks, kv_indices), (full_kv_num_blocks, full_kv_indices),
            )
        ]  # fmt: skip
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            *by_columns[0], *by_columns[1], size, noop_mask if mask_mod is None else mask_mod,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes in front, and the lengths of queries and keys.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, 2, None, 8, 9).shape
            (2, 1, 8, 9)
        """
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Count the scores, computed or not.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, 2, None, 8, 9).numel()
            144
        """
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Tell how many percent of the scores are in blocks that are left out.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 512, 512).sparsity()
            37.5
        """
        blocks = int(self.kv_num_blocks.sum().item())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum().item())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """Make the int tensor of blocks: 1 for those that are computed.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256).to_dense()[0, 0]
            tensor([[1, 0],
                    [1, 1]], dtype=adjit.int32)
        """
        made = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            made = made | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return made

    def to(self, device: Any) -> BlockMask:
        """Give one whose tensors are on a device.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8).to("cpu").shape
            (1, 1, 8, 8)
        """
        make: Any = BlockMask
        moved: BlockMask = make(
            self.seq_lengths, *[None if t is None else t.to(device) for t in self._tensors()],
            self.BLOCK_SIZE, self.mask_mod,
        )  # fmt: skip
        return moved

    def _tensors(self) -> tuple[Any, ...]:
        return (
            self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices,
            self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices,
        )  # fmt: skip

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Give all that it is made of: the lengths, the tensors, the sizes of blocks and the function.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 9).as_tuple()[:2]
            (8, 9)
        """
        if flatten:
            return (*self.seq_lengths, *self._tensors(), *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *self._tensors(), self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        padded = (*(index if isinstance(index, tuple) else (index,)), *[slice(None)] * 3)[:3]
        chosen = tuple(
            slice(i, i + 1 if i != -1 else None) if isinstance(i, int) else i for i in padded
        )
        tensors = [None if t is None else t[chosen] for t in self._tensors()[:4]]
        make: Any = BlockMask.from_kv_blocks
        made: BlockMask = make(
            *tensors, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced,
            seq_lengths=self.seq_lengths, compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip
        return made

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part, of other lengths."""
        rows, columns = (
            -(-n // size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE, strict=True)
        )

        def cut(numbers: Tensor | None, indices: Tensor | None) -> tuple[Any, Any]:
            if numbers is None or indices is None:
                return None, None
            return _ordered(_dense(numbers, indices)[..., :rows, :columns])

        make: Any = BlockMask.from_kv_blocks
        made: BlockMask = make(
            *cut(self.kv_num_blocks, self.kv_indices),
            *cut(self.full_kv_num_blocks, self.full_kv_indices),
            BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, seq_lengths=(new_q_len, new_kv_len),
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip
        return made

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Draw the blocks: full, in part, or left out.

        Args:
            grid_size: at most so many rows and columns; -1 for all.
            limit: how many of the axes in front are drawn.

        Example:
            >>> from adjit.nn.attention.flex_attention import create_block_mask
            >>> print(create_block_mask(lambda b, h, q, k: q <= k, None, None, 256, 256).to_string())
            (0, 0)
            ████
              ██
            <BLANKLINE>
        """
        dense = self.to_dense()
        *front, rows, columns = dense.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        if grid_size == -1:
            most = (rows, columns)
        steps = [max(1, -(-n // m)) for n, m in zip((rows, columns), most, strict=True)]
        drawn = []
        for count, place in enumerate(itertools.product(*map(range, front))):
            if count == limit:
                drawn += [
                    "...", "To print out more, set BlockMask.to_string(limit=N)",
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
                ]  # fmt: skip
                break
            values = dense[place].numpy()
            lines = [f"{place}"]
            for r in range(0, rows, steps[0]):
                means = [
                    values[r : r + steps[0], c : c + steps[1]].mean()
                    for c in range(0, columns, steps[1])
                ]
                lines.append("".join("██" if m == 1 else "  " if m == 0 else "░░" for m in means))
            drawn.append("\n".join(lines) + "\n")
        return "\n".join(drawn)

    def __str__(self) -> str:
        head = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
        return f"{head}{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        names = (
            "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks",
            "q_indices", "full_q_num_blocks", "full_q_indices",
        )  # fmt: skip
        parts = [
            f"{name}={None if t is None else t.shape}"
            for name, t in zip(names, self._tensors(), strict=True)
        ]
        parts += [f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}"]
        parts.append(f"sparsity={self.sparsity():.2f}%")
        parts.append(f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}")
        return (
            "BlockMask(\n"
            + "".join(f"    {part},\n" for part in parts[:-1])
            + f"    {parts[-1]}\n)"
        )


def _sliced(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> NoReturn:
    raise RuntimeError(_SLICED)


def _dense(numbers: Tensor, indices: Tensor) -> Tensor:
    """1 where a block is among the first ones of its row."""
    columns = indices.shape[-1]
    counts = arange(columns, device=indices.device) < numbers[..., None]
    made: Tensor = zeros(
        (*indices.shape[:-1], columns + 1), dtype=dtypes.int32, device=indices.device
    )
    places = indices.long().where(counts, columns)  # the others write outside
    return made.scatter(-1, places, 1)[..., :columns].contiguous()


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are computed, and which, these in front."""
    dense = dense.to(dtypes.int32)
    order = dense.argsort(dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(dtypes.int32), order.to(dtypes.int32)


def _turned(numbers: Tensor, indices: Any) -> tuple[Tensor, Tensor]:
    """The same by columns."""
    return _ordered(_dense(numbers, indices).transpose(-2, -1))


def create_block_mask(
    mask_mod: Modifier, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:  # fmt: skip
    """Find which blocks of the matrix of scores a mask leaves out, and which it leaves whole.

    Args:
        mask_mod: of `(b, h, q_idx, kv_idx)`, integer tensors without axes; gives a boolean one.
        B: how many examples; None for all the same.
        H: how many heads of queries; None for all the same.
        Q_LEN: the length of the queries.
        KV_LEN: the length of keys and values.
        device: where the tensors are; the CPU if it is left out.
        BLOCK_SIZE: of queries and keys, or one number for both.
        _compile: changes nothing here.
        separate_full_blocks: whether blocks in which every score counts are listed apart.

    Raises:
        AssertionError: if the function does not take four indices.

    Example:
        >>> from adjit.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 512, 512).kv_num_blocks
        tensor([[[1, 1, 1, 1]]], dtype=adjit.int32)
    """
    if _is_score_mod(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = F.pad(mask, (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    b, h, rows, columns = mask.shape
    blocks = mask.view(b, h, rows // size[0], size[0], columns // size[1], size[1])
    counted = blocks.sum(dim=(3, 5))
    full = (counted == size[0] * size[1]) & separate_full_blocks
    make: Any = BlockMask.from_kv_blocks
    found: BlockMask = make(
        *_ordered((counted > 0) & ~full),
        *(_ordered(full) if separate_full_blocks else (None, None)),
        BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN),
    )  # fmt: skip
    return found


# ----- attention -----


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Modifier | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: FlexKernelOptions | None = None, *,
    return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """Attention whose scores a function changes: `softmax(score_mod(scale * query @ key.T)) @ value`.

    Differentiable, in tensors that `score_mod` closes over too. Rows of which all scores are masked give 0.

    Args:
        query: (batch, heads, queries, size).
        key: (batch, heads, keys, size).
        value: (batch, heads, keys, size of values).
        score_mod: of `(score, b, h, q_idx, kv_idx)`, tensors without axes; gives the new score. It may look up
            other tensors by the indices; control flow by them is `where`.
        block_mask: which scores count: those of its blocks for which its function is True.
        scale: `1 / sqrt(size)` if it is left out.
        enable_gqa: whether there may be fewer heads of keys and values, each for as many of the queries.
        return_lse: whether to give the logarithms of the sums of exponentials too; the old way.
        kernel_options: accepted, and without effect.
        return_aux: what to give besides: `lse`, `max_scores`, both of shape (batch, heads, queries).

    Returns:
        A tensor (batch, heads, queries, size of values); with `return_aux` it and an `AuxOutput`, with
        `return_lse` it and the logarithms.

    Raises:
        ValueError: if shapes do not fit, with PyTorch's texts.
        NotImplementedError: if there are not four axes.

    Example:
        >>> from adjit.nn.attention.flex_attention import flex_attention
        >>> q, k, v = (adjit.ones(1, 2, 3, 4) for _ in range(3))
        >>> near = flex_attention(q, k, v.cumsum(2), lambda score, b, h, i, j: score - 100 * (i - j).abs())
        >>> near[0, 0, :, 0]
        tensor([1., 2., 3.])
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead."
        )
    if return_lse:
        _warn_of_lse()
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    batch, heads, queries, _ = query.shape
    key, value = (t.expand(batch, *t.shape[1:]) for t in (key, value))
    mask = None if block_mask is None else _mask_of(block_mask, (batch, heads), query.device)
    wants = return_aux or AuxRequest(lse=return_lse)
    if score_mod is None and mask is None and not any(wants) and return_aux is None:
        made: Tensor = F.scaled_dot_product_attention(
            query, key, value, scale=scale, enable_gqa=enable_gqa
        )
        return made
    if key.shape[1] != heads:
        key, value = (t.repeat_interleave(heads // t.shape[1], dim=1) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * scale
    if score_mod is not None:
        scores = _over_all(score_mod, scores, (batch, heads, queries, key.shape[2]), query.device)
        scores = scores.to(query.dtype)
    if mask is not None:
        scores = scores.where(mask, -math.inf)
    is_masked = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(is_masked, 0.0).softmax(-1).masked_fill(is_masked, 0.0)
    out = weights @ value
    if not any(wants):
        return out if return_aux is None else (out, AuxOutput())
    lse = scores.masked_fill(is_masked, 0.0).logsumexp(-1).masked_fill(is_masked[..., 0], -math.inf)
    if return_aux is None:
        return out, lse
    most = scores.detach().amax(-1) if wants.max_scores else None
    return out, AuxOutput(lse if wants.lse else None, most)


@functools.cache
def _warn_of_lse() -> None:
    """Tell once that an argument is old."""
    warnings.warn(
        "return_lse is deprecated and will be removed in v2.10. Please use return_aux=AuxRequest(lse=True) "
        "instead.",
        FutureWarning,
        stacklevel=3,
    )


def _mask_of(block_mask: BlockMask, front: tuple[int, int], place: Any) -> Tensor:
    """Which scores count."""
    if block_mask.mask_mod is _sliced:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    blocks = block_mask.to_dense().bool()
    for axis, size in zip((-2, -1), block_mask.BLOCK_SIZE, strict=True):
        blocks = blocks.repeat_interleave(size, dim=axis)
    rows, columns = block_mask.seq_lengths
    blocks = blocks[..., :rows, :columns]
    sizes = tuple(n if blocks.shape[k] == 1 else blocks.shape[k] for k, n in enumerate(front))
    return blocks & _over_all(block_mask.mask_mod, None, (*sizes, rows, columns), place)


def _check(
    query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool
) -> None:
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise ValueError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.dim()}, key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    many, few = query.shape[1], key.shape[1]
    if not enable_gqa and many != few:
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={many} and Hkv={few}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and many % few:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={many} and Hkv={few}."
        )
    if query.shape[0] != key.shape[0]:
        if block_mask is None:
            raise ValueError(
                "Expect query and key/value to have the same batch size, or non-none block_mask, but got "
                f"block_mask=None, Bq={query.shape[0]}, and Bkv={key.shape[0]}."
            )
        if block_mask.kv_num_blocks.shape[0] != query.shape[0]:
            raise ValueError(
                "Expect query and key/value to have the same batch size, or block_mask and query to have "
                f"the same batch size, but got Bq={query.shape[0]}, Bkv={key.shape[0]}, "
                f"B_block_mask={block_mask.kv_num_blocks.shape[0]}."
            )
    if block_mask is not None:
        lengths, shape = (query.shape[2], key.shape[2]), block_mask.shape
        told = (
            f"block_mask was created for block_mask.shape={shape} but got q_len={lengths[0]} and "
            f"kv_len={lengths[1]}. As the block mask was created for a "
        )
        if lengths[0] > shape[-2] or lengths[1] > shape[-1]:
            raise ValueError(
                f"{told}smaller length than you're using it for, you likely need to create a new block mask."
            )
        if lengths != shape[-2:]:
            raise ValueError(
                f"{told}larger length than you're using it for, you can either 1. create a new block mask "
                "with the correct length, or 2. 'adjust' the existing block mask to the correct length by "
                "calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the "
                "upper left corner, which does not work for all mask_mods!"
            )
