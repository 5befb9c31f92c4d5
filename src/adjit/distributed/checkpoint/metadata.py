"""What a checkpoint has, beside the bytes: the entries, how they were nested, where they lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import dtypes, formats
from ...shapes import Size
from ...tensor import Tensor

__all__ = [
    "STATE_DICT_TYPE", "STORAGE_TYPES", "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata",
    "MetadataIndex", "StorageMeta", "TensorProperties", "TensorStorageMetadata",
]  # fmt: skip

STATE_DICT_TYPE = dict[str, Any]


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: where it begins, and its size. Here it is the whole.

    Example:
        >>> from adjit.distributed.checkpoint import ChunkStorageMetadata
        >>> ChunkStorageMetadata(adjit.Size([0]), adjit.Size([3])).sizes
        adjit.Size([3])
    """

    offsets: Size
    sizes: Size


@dataclass
class TensorProperties:
    """Properties of a tensor that was saved; its dtype counts.

    Example:
        >>> from adjit.distributed.checkpoint.metadata import TensorProperties
        >>> TensorProperties.create_from_tensor(adjit.arange(3)).dtype
        adjit.int64
    """

    dtype: dtypes.dtype = field(default_factory=dtypes.get_default_dtype)
    layout: formats.layout = formats.strided
    requires_grad: bool = False
    memory_format: formats.memory_format = formats.contiguous_format
    pin_memory: bool = False

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """Read them off a tensor.

        Example:
            >>> from adjit.distributed.checkpoint.metadata import TensorProperties
            >>> TensorProperties.create_from_tensor(adjit.ones(2)).requires_grad
            False
        """
        return TensorProperties(
            tensor.dtype, requires_grad=tensor.requires_grad, pin_memory=tensor.is_pinned()
        )


@dataclass
class TensorStorageMetadata:
    """A tensor of a checkpoint.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> metadata = dcp.save({"a": adjit.ones(2)}, checkpoint_id="checkpoint")
        >>> metadata.state_dict_metadata["a"].size
        adjit.Size([2])
    """

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value of a checkpoint that is no tensor.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> dcp.save({"epoch": 3}, checkpoint_id="checkpoint").state_dict_metadata
        {'epoch': BytesStorageMetadata()}
    """


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata


@dataclass
class StorageMeta:
    """The names of a checkpoint, of its save and of its load.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> dcp.FileSystemWriter("checkpoint").storage_meta().checkpoint_id.name
        'checkpoint'
    """

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The contents of a checkpoint: `state_dict_metadata` by name, and what planner and storage add.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> saved = dcp.save({"a": {"b": 1}}, checkpoint_id="checkpoint")
        >>> list(saved.state_dict_metadata), saved.planner_data
        (['a.b'], {'a.b': ('a', 'b')})
    """

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """The name of an entry, and for a tensor where a part of it begins.

    Example:
        >>> from adjit.distributed.checkpoint.metadata import MetadataIndex
        >>> MetadataIndex("weight", [0, 0]) == MetadataIndex("weight", [0, 0], index=1)
        True
    """

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(
        self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None
    ) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
