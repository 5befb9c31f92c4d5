"""The usual planners: nested dicts are flattened, and what several ranks have is written by one."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Collection
from typing import Any

from ... import serialization
from ...graph import record
from ...ops import creation
from ...shapes import Size
from ...tensor import Tensor
from . import nesting
from .metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]


class DefaultSavePlanner(SavePlanner):
    """Plans a save: every value is written once, by the rank that has the fewest bytes to write so far.

    Args:
        flatten_state_dict: write the values of nested dicts and lists one by one.
        flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching: accepted, without effect.
        dedup_save_to_lowest_rank: the lowest rank that has a value writes it.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
        >>> list(dcp.save({"a": {"b": 1}}, checkpoint_id="flat", planner=planner).state_dict_metadata)
        ['a']
    """

    mappings: dict[str, nesting.Path]

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings = {}

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = nesting.flatten(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        items = [_item(name, value) for name, value in self.state_dict.items()]
        self.plan = SavePlan(items, planner_data=self.mappings if self.flatten_state_dict else None)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans = _each_once(all_plans, self.dedup_save_to_lowest_rank)
        self.global_plan = plans
        self.metadata = Metadata(_described(plans))
        if self.flatten_state_dict:
            paths: dict[str, nesting.Path] = {}
            for plan in reversed(plans):
                paths |= plan.planner_data
            self.metadata.planner_data = paths
        return plans, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        found: Tensor | io.BytesIO = self.transform_object(
            write_item, self.lookup_object(write_item.index)
        )
        return found

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Find a value by its name, for subclasses to override.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": {"b": 1}})
            >>> planner.lookup_object(planner.create_local_plan().items[0].index)
            1
        """
        return _find(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """Give a tensor, or the bytes of another value, as it is written; for subclasses to override.

        Raises:
            TypeError: for a value that files cannot have.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultSavePlanner()
            >>> planner.set_up_planner({"a": 1})
            >>> item, = planner.create_local_plan().items
            >>> adjit.load(planner.transform_object(item, 1))
            1
        """
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        made = io.BytesIO()
        serialization.save(object, made)
        made.seek(0)
        return made


def _item(name: str, value: Any) -> WriteItem:
    if not record.is_tensor(value):
        return WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO)
    begin, size = Size([0] * value.dim()), value.size()
    properties = TensorProperties.create_from_tensor(value)
    data = TensorWriteData(ChunkStorageMetadata(begin, size), properties, size)
    return WriteItem(MetadataIndex(name, begin), WriteItemType.TENSOR, tensor_data=data)


def _each_once(plans: list[SavePlan], by_lowest_rank: bool) -> list[SavePlan]:
    """The plans of all ranks without what another rank writes."""
    ranks: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            ranks.setdefault(item.index, []).append(rank)
            items[item.index] = item
    load = [0] * len(plans)
    writer: dict[MetadataIndex, int] = {}
    for index, candidates in ranks.items():
        rank = min(candidates, key=lambda r: r if by_lowest_rank else load[r])
        load[rank] += items[index].tensor_storage_size() or 1
        writer[index] = rank
    return [
        dataclasses.replace(plan, items=[i for i in plan.items if writer[i.index] == rank])
        for rank, plan in enumerate(plans)
    ]


def _described(plans: list[SavePlan]) -> dict[str, STORAGE_TYPES]:
    """What a checkpoint has that is written by these plans.

    Raises:
        AssertionError: if a name is a tensor on one rank and another value on another.
    """
    found: dict[str, STORAGE_TYPES] = {}
    for plan in plans:
        for item in plan.items:
            name, data = item.index.fqn, item.tensor_data
            if name in found:
                raise AssertionError(
                    f"the entry '{name}' is a tensor on one rank and another value on another"
                )
            found[name] = (
                BytesStorageMetadata()
                if data is None
                else TensorStorageMetadata(data.properties, data.size, [data.chunk])
            )
    return found


def _find(state: STATE_DICT_TYPE, index: MetadataIndex) -> Any:
    if index.fqn not in state:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    return state[index.fqn]


class DefaultLoadPlanner(LoadPlanner):
    """Plans a load: every value of the given state is read, tensors into those that are there.

    Args:
        flatten_state_dict: as of `DefaultSavePlanner`, and as it was when the checkpoint was saved.
        flatten_sharded_tensors: accepted, without effect.
        allow_partial_load: leave values alone that the checkpoint has not.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> _ = dcp.save({"a": 1}, checkpoint_id="checkpoint")
        >>> state = {"a": 0, "b": 2}
        >>> planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
        >>> dcp.load(state, checkpoint_id="checkpoint", planner=planner)
        >>> state
        {'a': 1, 'b': 2}
    """

    original_state_dict: STATE_DICT_TYPE
    mappings: dict[str, nesting.Path]

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.original_state_dict, self.mappings = {}, {}

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = nesting.flatten(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("self.metadata is not None")
        saved = self.metadata.state_dict_metadata
        items = []
        for name, value in self.state_dict.items():
            if name in saved:
                items.append(_read_item(name, saved[name], value))
            elif not self.allow_partial_load:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name, loaded = read_item.dest_index.fqn, serialization.load(value)
        if self.flatten_state_dict:
            nesting.put_at(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Find a tensor by its name, for subclasses to override.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultLoadPlanner()
            >>> planner.set_up_planner({"a": adjit.ones(2)})
            >>> planner.lookup_tensor(dcp.metadata.MetadataIndex("a"))
            tensor([1., 1.])
        """
        found: Tensor = _find(self.state_dict, index)
        return found

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """Give the part of a tensor that is overwritten, for subclasses to override.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> planner = dcp.DefaultLoadPlanner()
            >>> metadata = dcp.save({"a": adjit.ones(2)}, checkpoint_id="checkpoint")
            >>> planner.set_up_planner({"a": adjit.zeros(2)}, metadata)
            >>> item, = planner.create_local_plan().items
            >>> planner.transform_tensor(item, adjit.zeros(2))
            tensor([0., 0.])
        """
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


def _read_item(name: str, saved: STORAGE_TYPES, value: Any) -> ReadItem:
    """How a value is read.

    Raises:
        ValueError: if it is a tensor of another size than the one that was saved, or not one and was.
    """
    if not isinstance(saved, TensorStorageMetadata):
        index, nothing = MetadataIndex(name), Size([0])
        return ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)
    if not record.is_tensor(value):
        raise ValueError(
            f"Invalid checkpoint metadata for {name}, expected BytesStorageMetadata but found {type(saved)}"
        )
    if saved.size != value.size():
        raise ValueError(
            f"Size mismatch between saved {saved.size} and current: {value.size()} for {name}"
        )
    begin = Size([0] * len(saved.size))
    index = MetadataIndex(name, begin)
    return ReadItem(LoadItemType.TENSOR, index, begin, index, begin, saved.size)


def narrowed(tensor: Tensor, offsets: Size, lengths: Size) -> Tensor:
    """A part of a tensor, or itself if that is all of it."""
    for axis, (begin, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length != tensor.size(axis):
            tensor = tensor.narrow(axis, begin, length)
    return tensor


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Plans a load into an empty dict, which gets all that the checkpoint has, or what `keys` names."""

    def __init__(self, keys: Collection[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = keys

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        if state_dict:
            raise AssertionError("not state_dict")
        if metadata is None:
            raise AssertionError("metadata is not None")
        paths = metadata.planner_data or {}
        for name, saved in metadata.state_dict_metadata.items():
            path = paths.get(name, (name,))
            if self._is_wanted(path):
                value: Any = saved
                if isinstance(saved, TensorStorageMetadata):
                    value = creation.empty(saved.size, dtype=saved.properties.dtype)
                nesting.put_at(state_dict, path, value)
        super().set_up_planner(state_dict, metadata, is_coordinator)

    def _is_wanted(self, path: nesting.Path) -> bool:
        """Whether `keys` has a name, or the name of what lies around it."""
        names = {".".join(map(str, path[:n])) for n in range(1, len(path) + 1)}
        return self.keys is None or not names.isdisjoint(self.keys)
