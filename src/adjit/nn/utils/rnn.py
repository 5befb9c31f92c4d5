"""Sequences of several lengths as one tensor: padded, or packed step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from ... import dtypes
from ...ops import creation, joining
from ...tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


_Fields.__name__ = "PackedSequence_"


class PackedSequence(_Fields):
    """Sequences of several lengths, step by step: of the longest one first.

    The functions of this room make them, and recurrent layers take them.

    Attributes:
        data: (rows, *), the elements of all sequences at the first step, then those at the next one.
        batch_sizes: (steps,), int64 on the CPU: how many sequences there are at each step.
        sorted_indices: which of the original sequences each one is, None if they are in order.
        unsorted_indices: where each of the original sequences is.

    Raises:
        ValueError: if `batch_sizes` is not on the CPU.

    Example:
        >>> nn.utils.rnn.pack_sequence([adjit.tensor([1, 2, 3]), adjit.tensor([4])])
        PackedSequence(data=tensor([1, 4, 2, 3]), batch_sizes=tensor([2, 1, 1]), sorted_indices=None, unsorted_indices=None)
    """  # noqa: E501

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                "manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor, move: Callable[[Tensor], Tensor]) -> Self:
        places = [None if t is None else move(t) for t in self[2:]]
        return type(self)(data, self.batch_sizes, *places)

    def pin_memory(self) -> Self:
        """Copy to memory that a GPU copies from directly.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.pin_memory().is_pinned()
            True
        """
        return self._with(self.data.pin_memory(), lambda t: t.pin_memory())

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """With the data as another dtype or on another device, as `Tensor.to`; itself if nothing changes.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.to(adjit.float64).data
            tensor([1., 2.], dtype=adjit.float64)
        """
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with(data, lambda t: t.to(data.device))

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """With the data on a GPU.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.cuda().is_cuda
            True
        """
        data = self.data.cuda(*args, **kwargs)
        return self if data is self.data else self._with(data, lambda t: t.to(data.device))

    def cpu(self) -> Self:
        """With the data on the CPU.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.cpu().data
            tensor([1, 2])
        """
        return self.to("cpu")

    def double(self) -> Self:
        """With the data as float64.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.double().data.dtype
            adjit.float64
        """
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """With the data as float32.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.float().data.dtype
            adjit.float32
        """
        return self.to(dtypes.float32)

    def long(self) -> Self:
        """With the data as int64.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.long().data.dtype
            adjit.int64
        """
        return self.to(dtypes.int64)

    def int(self) -> Self:
        """With the data as int32.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.int().data.dtype
            adjit.int32
        """
        return self.to(dtypes.int32)

    def short(self) -> Self:
        """With the data as int16.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.short().data.dtype
            adjit.int16
        """
        return self.to(dtypes.int16)

    def char(self) -> Self:
        """With the data as int8.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.char().data.dtype
            adjit.int8
        """
        return self.to(dtypes.int8)

    def byte(self) -> Self:
        """With the data as uint8.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.byte().data.dtype
            adjit.uint8
        """
        return self.to(dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        """True if the data is on a GPU.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.is_cuda
            False
        """
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """True if the data is in memory that a GPU copies from directly.

        Example:
            >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2])])
            >>> packed.is_pinned()
            False
        """
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The place of each number of a permutation; None for None.

    Args:
        permutation: 1-d, int64.

    Example:
        >>> nn.utils.rnn.invert_permutation(adjit.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    numbers = creation.arange(permutation.numel(), device=permutation.device)
    made: Tensor = creation.empty_like(numbers).scatter(0, permutation, numbers)
    return made


def present(lengths: Tensor, steps: int, device: Any) -> tuple[Tensor, Tensor]:
    """Which rows of (steps, batch) sequences of such lengths have, and how many each step has."""
    is_there = creation.arange(steps).unsqueeze(1) < lengths
    return is_there.flatten().nonzero().squeeze(1).to(device), is_there.sum(1)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack a batch of padded sequences: their elements step by step, without the padding.

    Args:
        input: (steps, batch, *), or (batch, steps, *) if `batch_first`; any dtype. Differentiable.
        lengths: of each sequence, on the CPU.
        enforce_sorted: the longest sequence has to come first, and so on. Otherwise they are sorted.

    Raises:
        RuntimeError: if lengths do not fit.

    Example:
        >>> x = adjit.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
        >>> packed = nn.utils.rnn.pack_padded_sequence(x, [2, 1, 3], True, enforce_sorted=False)
        >>> packed.data, packed.batch_sizes, packed.sorted_indices
        (tensor([4, 1, 3, 5, 2, 6]), tensor([3, 2, 1]), tensor([2, 0, 1]))
    """
    each = creation.as_tensor(lengths, dtype=dtypes.int64)
    places = None
    if not enforce_sorted:
        each, places = each.sort(descending=True)
        places = places.to(input.device)
        input = input.index_select(0 if batch_first else 1, places)
    x = input.transpose(0, 1) if batch_first else input
    counts = check_lengths(x, each)
    steps, batch = counts[0], len(counts)
    rows, sizes = present(each, steps, input.device)
    data = x[:steps].reshape(steps * batch, *x.shape[2:]).index_select(0, rows)
    return PackedSequence(data, sizes, places, None)


def check_lengths(x: Tensor, lengths: Tensor) -> list[int]:
    """The lengths of sequences in (steps, batch, *).

    Raises:
        RuntimeError: if they do not fit.
    """
    if not x.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if lengths.ndim != 1 or lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.ndim}D "
            f"{lengths.device} Long tensor"
        )
    counts: list[int] = lengths.tolist()
    steps, batch = x.shape[:2]
    if len(counts) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={batch})"
        )
    if counts != sorted(counts, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement "
            "if you do not need ONNX exportability."
        )
    if counts[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if counts[0] > steps:
        raise RuntimeError(
            f"Expected `lengths` of at most the {steps} steps of the input, but got {counts[0]}"
        )
    return counts


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Packed sequences as a padded batch in the original order, and their lengths.

    Args:
        sequence: what `pack_padded_sequence` gave, or a layer for it. Differentiable in its data.
        batch_first: whether to give (batch, steps, *) instead of (steps, batch, *).
        padding_value: what stands behind the end of a sequence.
        total_length: how many steps to give, at least those of the longest sequence.

    Raises:
        ValueError: if `total_length` is too small.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2, 3]), adjit.tensor([4])])
        >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1, 2, 3],
                [4, 0, 0]]), tensor([3, 1]))
    """
    data, sizes, _, places = sequence
    most = steps = sizes.shape[0]
    if total_length is not None:
        if total_length < most:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {most}"
            )
        steps = total_length
    batch = int(sizes[0])
    lengths = (creation.arange(batch).unsqueeze(1) < sizes).sum(1)
    rows, _ = present(lengths, most, data.device)
    shape = data.shape[1:]
    padded = data.new_full((steps * batch, *shape), padding_value).index_copy(0, rows, data)
    padded = padded.view(steps, batch, *shape)
    padded = padded.transpose(0, 1) if batch_first else padded
    if places is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, places), lengths[places.cpu()]


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of several lengths as a batch, filled up to the length of the longest one.

    Args:
        sequences: (length, *) each, of one dtype. Differentiable.
        batch_first: whether to give (batch, steps, *) instead of (steps, batch, *).
        padding_value: what to fill up with.
        padding_side: "right" or "left", which is the end or the beginning.

    Raises:
        RuntimeError: if there are none, or something that is none, or their other axes differ.

    Example:
        >>> nn.utils.rnn.pad_sequence([adjit.tensor([1, 2]), adjit.tensor([3])], batch_first=True)
        tensor([[1, 2],
                [3, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    listed = list(sequences)
    if not listed:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    longest = max(t.shape[0] for t in listed)
    padded = []
    for t in listed:
        parts = [t, t.new_full((longest - t.shape[0], *t.shape[1:]), padding_value)]
        if t.shape[0] < longest:
            t = joining.cat(parts if padding_side == "right" else parts[::-1])
        padded.append(t)
    return joining.stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch.

    Args:
        padded_sequences: (steps, batch, *), or (batch, steps, *) if `batch_first`. Differentiable.
        lengths: (batch,), of each sequence.

    Example:
        >>> padded = nn.utils.rnn.pad_sequence([adjit.tensor([1, 2]), adjit.tensor([3])])
        >>> nn.utils.rnn.unpad_sequence(padded, adjit.tensor([2, 1]))
        [tensor([1, 2]), tensor([3])]
    """
    each = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [t[:length] for t, length in zip(each, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of several lengths: `pad_sequence`, then `pack_padded_sequence`.

    Args:
        sequences: (length, *) each. Differentiable.
        enforce_sorted: the longest sequence has to come first, and so on. Otherwise they are sorted.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2]), adjit.tensor([3])])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 3, 2]), tensor([2, 1]))
    """
    lengths = [t.shape[0] for t in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in their original order.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([adjit.tensor([1, 2]), adjit.tensor([3])])
        >>> nn.utils.rnn.unpack_sequence(packed)
        [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
