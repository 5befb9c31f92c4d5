"""Checkpoints of several processes, or of one: folders that any number of processes reads.

Only whole tensors, which every process has, are saved: those of DistributedDataParallel, for instance.
"""

from __future__ import annotations

from typing import Any

from ... import paths as _paths
from ...absent import known as _known
from . import format_utils as format_utils
from . import metadata as metadata
from . import state_dict as state_dict
from . import storage as storage
from .api import CheckpointException
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .state_dict_loader import load, load_state_dict
from .state_dict_saver import async_save, save, save_state_dict
from .storage import StorageReader, StorageWriter

_paths.place("distributed.checkpoint.hf_storage", ())

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "LoadPlan",
    "LoadPlanner",
    "Metadata",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]


def __getattr__(name: str) -> Any:
    return _known("distributed.checkpoint", name)
