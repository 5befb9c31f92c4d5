"""What has to write and read a checkpoint; files of a folder do it in `filesystem`."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from ...futures import Future
from .metadata import Metadata, MetadataIndex, StorageMeta
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]

Identity = str | os.PathLike[str]


@dataclass(frozen=True)
class WriteResult:
    """The place of a value that has been written.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> dcp.storage.WriteResult(dcp.metadata.MetadataIndex("a"), 8, None).size_in_bytes
        8
    """

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """A base for writers, whose methods are called in the order that they have here.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> issubclass(dcp.FileSystemWriter, dcp.StorageWriter)
        True
    """

    @abc.abstractmethod
    def reset(self, checkpoint_id: Identity | None = None) -> None:
        """Begin another checkpoint.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> writer = dcp.FileSystemWriter("first")
            >>> writer.reset("second")
            >>> writer.checkpoint_id.name
            'second'
        """

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Learn which rank this is.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemWriter("checkpoint").set_up_storage_writer(True, rank=0)
        """

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Add to the plan of this rank what the storage needs.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemWriter("checkpoint").prepare_local_plan(dcp.SavePlan([])).items
            []
        """

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Add to the plans of all ranks what the storage needs, on the coordinator.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> plans = dcp.FileSystemWriter("checkpoint").prepare_global_plan([dcp.SavePlan([])] * 2)
            >>> [plan.storage_data for plan in plans]
            ['__0_', '__1_']
        """

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what the plan has, as `planner.resolve_data` gives it.

        Raises:
            OSError: if it cannot be written.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> writer = dcp.FileSystemWriter("checkpoint")
            >>> plan, = writer.prepare_global_plan([dcp.SavePlan([])])
            >>> writer.write_data(plan, dcp.DefaultSavePlanner()).wait()
            []
        """

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Complete the checkpoint once all ranks have written, on the coordinator.

        Raises:
            OSError: if it cannot be written.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> writer = dcp.FileSystemWriter("checkpoint")
            >>> _ = writer.prepare_local_plan(dcp.SavePlan([]))
            >>> writer.finish(dcp.Metadata({}), [[]])
        """

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Identity) -> bool:
        """Tell if a checkpoint of this name can be written.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemWriter.validate_checkpoint_id("s3://bucket/checkpoint")
            False
        """

    def storage_meta(self) -> StorageMeta | None:
        """Tell the planner which checkpoint it is.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemWriter("checkpoint").storage_meta().checkpoint_id.name
            'checkpoint'
        """
        return None


class StorageReader(abc.ABC):
    """A base for readers, whose methods are called in the order that they have here.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> issubclass(dcp.FileSystemReader, dcp.StorageReader)
        True
    """

    @abc.abstractmethod
    def reset(self, checkpoint_id: Identity | None = None) -> None:
        """Begin with another checkpoint.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> reader = dcp.FileSystemReader("first")
            >>> reader.reset("second")
            >>> reader.checkpoint_id.name
            'second'
        """

    @abc.abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Read what the checkpoint has.

        Raises:
            OSError: if it is not there.
            RuntimeError: if it is corrupt, or of PyTorch.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> _ = dcp.save({"epoch": 3}, checkpoint_id="checkpoint")
            >>> dcp.FileSystemReader("checkpoint").read_metadata().state_dict_metadata
            {'epoch': BytesStorageMetadata()}
        """

    @abc.abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Learn what the checkpoint has and which rank this is.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> reader = dcp.FileSystemReader("checkpoint")
            >>> reader.set_up_storage_reader(dcp.Metadata({}, storage_data={}), True, rank=0)
        """

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add to the plan of this rank what the storage needs.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemReader("checkpoint").prepare_local_plan(dcp.LoadPlan([])).items
            []
        """

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Add to the plans of all ranks what the storage needs, on the coordinator.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> len(dcp.FileSystemReader("checkpoint").prepare_global_plan([dcp.LoadPlan([])]))
            1
        """

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what the plan has, and give it to the planner.

        Raises:
            OSError: if a file is not there.
            RuntimeError: if one is corrupt or truncated.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> reader = dcp.FileSystemReader("checkpoint")
            >>> reader.read_data(dcp.LoadPlan([]), dcp.DefaultLoadPlanner()).wait()
        """

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Identity) -> bool:
        """Tell if a checkpoint of this name can be read.

        Example:
            >>> import adjit.distributed.checkpoint as dcp
            >>> dcp.FileSystemReader.validate_checkpoint_id("s3://bucket/checkpoint")
            False
        """
