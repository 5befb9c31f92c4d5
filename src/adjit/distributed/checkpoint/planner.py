"""Plans of what to write and read, and what a planner has to do: every rank plans, the coordinator decides."""

from __future__ import annotations

import abc
import io
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...shapes import Size
from ...tensor import Tensor
from .metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)

__all__ = [
    "BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner",
    "TensorWriteData", "WriteItem", "WriteItemType",
]  # fmt: skip


class WriteItemType(Enum):
    """The kinds of what is written.

    Example:
        >>> from adjit.distributed.checkpoint.planner import WriteItemType
        >>> [kind.name for kind in WriteItemType]
        ['TENSOR', 'SHARD', 'BYTE_IO']
    """

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """The kinds of what is read.

    Example:
        >>> from adjit.distributed.checkpoint.planner import LoadItemType
        >>> [kind.name for kind in LoadItemType]
        ['TENSOR', 'BYTE_IO']
    """

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """The number of bytes of a value that is no tensor.

    Example:
        >>> from adjit.distributed.checkpoint.planner import BytesIOWriteData
        >>> BytesIOWriteData(8).nbytes
        8
    """

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """The part of a tensor that is written, and what the tensor is like.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> planner = dcp.DefaultSavePlanner()
        >>> planner.set_up_planner({"a": adjit.ones(2)})
        >>> planner.create_local_plan().items[0].tensor_data.size
        adjit.Size([2])
    """

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """A value to write.

    Example:
        >>> from adjit.distributed.checkpoint.metadata import MetadataIndex
        >>> from adjit.distributed.checkpoint.planner import WriteItem, WriteItemType
        >>> WriteItem(MetadataIndex("epoch"), WriteItemType.BYTE_IO).tensor_data is None
        True
    """

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Count the bytes of a tensor; None for other values.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": adjit.ones(2)})
            >>> planner.create_local_plan().items[0].tensor_storage_size()
            8
        """
        data = self.tensor_data
        return None if data is None else math.prod(data.size) * data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """A value to read: which one, and where it goes.

    Example:
        >>> from adjit.distributed.checkpoint.planner import ReadItem
        >>> list(ReadItem.__dataclass_fields__)
        ['type', 'dest_index', 'dest_offsets', 'storage_index', 'storage_offsets', 'lengths']
    """

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """The values that a rank writes, and what planner and storage add.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> dcp.SavePlan([]).items
        []
    """

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """The values that a rank reads, and what planner and storage add.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> dcp.LoadPlan([]).items
        []
    """

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """A base for planners of a save, whose methods are called in the order that they have here.

    Programs usually override a method of `DefaultSavePlanner`.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> class Doubling(dcp.DefaultSavePlanner):
        ...     def transform_object(self, write_item, object):
        ...         doubled = object * 2 if adjit.is_tensor(object) else object
        ...         return super().transform_object(write_item, doubled)
        >>> _ = dcp.save({"a": adjit.ones(2)}, checkpoint_id="doubled", planner=Doubling())
        >>> state = {"a": adjit.zeros(2)}
        >>> dcp.load(state, checkpoint_id="doubled")
        >>> state["a"]
        tensor([2., 2.])
    """

    @abc.abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take over what is saved, on every rank.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.DefaultSavePlanner().set_up_planner({"a": {"b": 1}})
        """

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """Plan what this rank could write.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": {"b": 1}})
            >>> [item.index.fqn for item in planner.create_local_plan().items]
            ['a.b']
        """

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Decide, on the coordinator, what each rank writes.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": adjit.ones(2), "b": adjit.ones(2)})
            >>> plans, metadata = planner.create_global_plan([planner.create_local_plan()] * 2)
            >>> [[item.index.fqn for item in plan.items] for plan in plans]
            [['a'], ['b']]
        """

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Take the plan of this rank as it was decided.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.DefaultSavePlanner().finish_plan(dcp.SavePlan([])).items
            []
        """

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """Give the tensor of an item, or the bytes of another value.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": adjit.ones(2)})
            >>> planner.resolve_data(planner.create_local_plan().items[0])
            tensor([1., 1.])
        """


class LoadPlanner(abc.ABC):
    """A base for planners of a load, whose methods are called in the order that they have here.

    Programs usually override a method of `DefaultLoadPlanner`.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> issubclass(dcp.DefaultLoadPlanner, dcp.LoadPlanner)
        True
    """

    @abc.abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take over what is filled, and what the checkpoint has, on every rank.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.DefaultLoadPlanner().set_up_planner({"a": 1}, dcp.Metadata({}))
        """

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """Plan what this rank reads.

        Raises:
            RuntimeError: if the checkpoint lacks a value.
            ValueError: if a tensor has another size.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultLoadPlanner()
            >>> planner.set_up_planner({"a": 1}, dcp.Metadata({"a": dcp.BytesStorageMetadata()}))
            >>> [item.dest_index.fqn for item in planner.create_local_plan().items]
            ['a']
        """

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Decide, on the coordinator, what each rank reads.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> len(dcp.DefaultLoadPlanner().create_global_plan([dcp.LoadPlan([])]))
            1
        """

    @abc.abstractmethod
    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        """Take the plan of this rank as it was decided.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.DefaultLoadPlanner().finish_plan(dcp.LoadPlan([])).items
            []
        """

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put the bytes of a value that is no tensor in its place.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> class Telling(dcp.DefaultLoadPlanner):
            ...     def load_bytes(self, read_item, value):
            ...         print(read_item.dest_index.fqn)
            ...         super().load_bytes(read_item, value)
            >>> _ = dcp.save({"epoch": 3}, checkpoint_id="checkpoint")
            >>> dcp.load({"epoch": 0}, checkpoint_id="checkpoint", planner=Telling())
            epoch
        """

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Give a buffer for the bytes of a value; no reader of the library asks for one.

        Raises:
            NotImplementedError: unless a subclass overrides it.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.DefaultLoadPlanner().resolve_bytes(None)
            Traceback (most recent call last):
                ...
            NotImplementedError: LoadPlanner.resolve_bytes is not implemented
        """
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Give the tensor that is overwritten.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultLoadPlanner()
            >>> metadata = dcp.save({"a": adjit.ones(2)}, checkpoint_id="checkpoint")
            >>> planner.set_up_planner({"a": adjit.zeros(2)}, metadata)
            >>> planner.resolve_tensor(planner.create_local_plan().items[0])
            tensor([0., 0.])
        """

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Take note that a tensor of `resolve_tensor` has its values.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> class Telling(dcp.DefaultLoadPlanner):
            ...     def commit_tensor(self, read_item, tensor):
            ...         print(read_item.dest_index.fqn, tensor)
            >>> _ = dcp.save({"a": adjit.ones(2)}, checkpoint_id="checkpoint")
            >>> dcp.load({"a": adjit.zeros(2)}, checkpoint_id="checkpoint", planner=Telling())
            a tensor([1., 1.])
        """
