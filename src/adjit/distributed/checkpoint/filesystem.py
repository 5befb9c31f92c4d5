"""A checkpoint as a folder: files of values for each rank, and `.metadata`, which says where each value lies.

A value is a file of `adjit.save` within such a file, with checksums of its own. Files have names that no save
has used before, and `.metadata` is replaced as a whole when all of them are on the disk: until then the folder
is the checkpoint that it was. Files that it no longer names are removed after that.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import secrets
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ... import serialization
from ...futures import Future
from ...serialization.atomic import replace_file
from ...tensor import Tensor
from .default_planner import narrowed
from .metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .storage import Identity, StorageReader, StorageWriter, WriteResult

__all__ = ["FileSystemReader", "FileSystemWriter"]

DEFAULT_SUFFIX = ".distcp"
_METADATA = ".metadata"
_OURS = re.compile(rf"__\d+_\d+_[0-9a-f]{{16}}{re.escape(DEFAULT_SUFFIX)}")
_VERSION = 1  # of the format
_PICKLE = re.compile(
    rb"\x80.{7}[^{]", re.DOTALL
)  # as PyTorch's `.metadata`; ours has a brace in that place


class _Place(NamedTuple):
    """Where a value lies."""

    file: str
    offset: int
    length: int


class _Folder:
    """What writer and reader have in common: the folder."""

    def __init__(self, path: Identity) -> None:
        self.path = Path(path)

    def reset(self, checkpoint_id: Identity | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)

    @property
    def checkpoint_id(self) -> Path:
        """The folder.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemReader("checkpoint").checkpoint_id.name
            'checkpoint'
        """
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Identity) -> bool:
        if isinstance(checkpoint_id, Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(
            parent.exists() and os.access(parent, os.W_OK) for parent in Path(checkpoint_id).parents
        )


class FileSystemWriter(_Folder, StorageWriter):
    """Writes a checkpoint into a folder, which is made if it is not there.

    Args:
        path: the folder.
        single_file_per_rank: one file for each rank that has something to write, or one for each value.
        sync_files, thread_count, per_thread_copy_ahead, cache_staged_state_dict: accepted, without effect:
            files are on the disk when they have their names.
        overwrite: replace a checkpoint that is there, with a warning, or raise an error.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> _ = dcp.save({"a": adjit.ones(2)}, storage_writer=dcp.FileSystemWriter("checkpoint"))
        >>> state = {"a": adjit.zeros(2)}
        >>> dcp.load(state, storage_reader=dcp.FileSystemReader("checkpoint"))
        >>> state
        {'a': tensor([1., 1.])}
    """

    def __init__(
        self,
        path: Identity,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        super().__init__(path)
        self.single_file_per_rank, self.overwrite = single_file_per_rank, overwrite
        self.save_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: Identity | None = None) -> None:
        super().reset(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / _METADATA).exists():
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
            warnings.warn(
                f"Detected an existing checkpoint in {self.path}, overwriting since {self.overwrite=}. Past "
                "version 2.5 of PyTorch, `overwrite` will default to False. Set this variable to True to "
                "maintain this functionality or False to raise when an existing checkpoint is found.",
                stacklevel=2,
            )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [
            dataclasses.replace(plan, storage_data=f"__{rank}_") for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        files = [[item] for item in plan.items]
        if self.single_file_per_rank:
            files = [plan.items] if plan.items else []
        unused = secrets.token_hex(8)
        results: list[WriteResult] = []
        for number, items in enumerate(files):
            name = f"{plan.storage_data}{number}_{unused}{DEFAULT_SUFFIX}"
            results += _write(self.path / name, items, planner)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        places = {found.index: found.storage_data for part in results for found in part}
        metadata.storage_data, metadata.storage_meta = places, self.storage_meta()
        metadata.version = str(_VERSION)
        serialization.save(_packed(metadata), self.path / _METADATA)
        used = {place.file for place in places.values()}
        for path in self.path.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in used:
                path.unlink(missing_ok=True)


def _write(path: Path, items: Sequence[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    """Write values into one file, one behind the other."""
    results: list[WriteResult] = []

    def write(temporary: str) -> None:
        with open(temporary, "wb") as file:
            for item in items:
                begin = file.tell()
                data = planner.resolve_data(item)
                if isinstance(data, Tensor):
                    serialization.save(data.detach().cpu(), file)
                else:
                    file.write(data.getbuffer())
                place = _Place(path.name, begin, file.tell() - begin)
                results.append(WriteResult(item.index, place.length, place))

    replace_file(path, write)
    return results


class FileSystemReader(_Folder, StorageReader):
    """Reads a checkpoint that `FileSystemWriter` has written.

    Args:
        path: the folder.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> _ = dcp.save({"epoch": 3}, checkpoint_id="checkpoint")
        >>> state = {"epoch": 0}
        >>> dcp.load(state, storage_reader=dcp.FileSystemReader("checkpoint"))
        >>> state
        {'epoch': 3}
    """

    def __init__(self, path: Identity) -> None:
        super().__init__(path)
        self.storage_data: dict[MetadataIndex, _Place] = {}
        self.load_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: Identity | None = None) -> None:
        super().reset(checkpoint_id)
        self.storage_data, self.load_id = {}, str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self.path / _METADATA
        with open(path, "rb") as file:
            if _PICKLE.match(file.read(9)):
                raise RuntimeError(
                    f"{path} is of a checkpoint that PyTorch wrote, which adjit does not read: make one file "
                    "of it by torch.distributed.checkpoint.format_utils.dcp_to_torch_save, and of that one a "
                    "checkpoint by adjit.distributed.checkpoint.format_utils.torch_save_to_dcp"
                )
        found = _unpacked(serialization.load(path), path)
        found.storage_meta = StorageMeta(checkpoint_id=self.checkpoint_id, load_id=self.load_id)
        return found

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if metadata.storage_data is None:
            raise AssertionError("storage_data must not be None in metadata")
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        items: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            items.setdefault(self.storage_data[item.storage_index].file, []).append(item)
        for name, of_file in items.items():
            with open(self.path / name, "rb") as file:
                for item in of_file:
                    try:
                        _read(file, self.storage_data[item.storage_index], item, planner)
                    except RuntimeError as error:
                        told = (
                            f"the entry '{item.storage_index.fqn}' of {self.path / name}: {error}"
                        )
                        raise RuntimeError(told) from error
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _read(file: BinaryIO, place: _Place, item: ReadItem, planner: LoadPlanner) -> None:
    """Read a value, and give it to the planner.

    Raises:
        RuntimeError: if it is not what was written.
        AssertionError: if its size is not that of the tensor that it goes into.
    """
    file.seek(place.offset)
    data = io.BytesIO(file.read(place.length))
    if len(data.getbuffer()) != place.length:
        raise RuntimeError(
            f"the file is truncated: {len(data.getbuffer())} of {place.length} bytes"
        )
    if item.type is LoadItemType.BYTE_IO:
        planner.load_bytes(item, data)
        return
    tensor = narrowed(serialization.load(data), item.storage_offsets, item.lengths)
    target = planner.resolve_tensor(item).detach()
    if target.size() != tensor.size():
        raise AssertionError(
            f"req {item.storage_index} mismatch sizes {target.size()} vs {tensor.size()}"
        )
    target.copy_(tensor)
    planner.commit_tensor(item, target)


# ----- `.metadata` -----


def _packed(metadata: Metadata) -> dict[str, Any]:
    """What is written for a checkpoint: plain values."""
    return {
        "version": _VERSION,
        "entries": {name: _entry(of) for name, of in metadata.state_dict_metadata.items()},
        "paths": metadata.planner_data,
        "places": [
            (index.fqn, index.offset, *place) for index, place in metadata.storage_data.items()
        ],
    }


def _entry(described: STORAGE_TYPES) -> Any:
    if isinstance(described, BytesStorageMetadata):
        return None
    properties = described.properties
    chunks = [(chunk.offsets, chunk.sizes) for chunk in described.chunks]
    return properties.dtype, properties.requires_grad, described.size, chunks


def _unpacked(packed: Any, path: Path) -> Metadata:
    """What a checkpoint has.

    Raises:
        RuntimeError: for a file of something else, or of a version to come.
    """
    version = packed.get("version") if isinstance(packed, dict) else None
    if version != _VERSION:
        raise RuntimeError(
            f"{path} is not of a checkpoint that this version of adjit wrote: its version is {version}"
        )
    entries: dict[str, STORAGE_TYPES] = {}
    for name, entry in packed["entries"].items():
        entries[name] = BytesStorageMetadata()
        if entry is not None:
            kind, requires_grad, size, chunks = entry
            entries[name] = TensorStorageMetadata(
                TensorProperties(kind, requires_grad=requires_grad),
                size,
                [ChunkStorageMetadata(*chunk) for chunk in chunks],
            )
    places = {
        MetadataIndex(name, begin): _Place(*place) for name, begin, *place in packed["places"]
    }
    return Metadata(entries, packed["paths"], places, version=str(version))
