"""A checkpoint as one file, and one file as a checkpoint."""

from __future__ import annotations

from ... import serialization
from .default_planner import _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .state_dict_loader import _load_state_dict
from .state_dict_saver import _save_state_dict
from .storage import Identity

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir: Identity, torch_save_path: Identity) -> None:
    """Write all that a checkpoint has into one file, by `adjit.save`.

    Args:
        dcp_checkpoint_dir: the folder of the checkpoint.
        torch_save_path: the file.

    Raises:
        CheckpointException: if the checkpoint cannot be read.
        OSError: if the file cannot be written.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> from adjit.distributed.checkpoint.format_utils import dcp_to_torch_save
        >>> _ = dcp.save({"model": {"weight": adjit.ones(2)}}, checkpoint_id="checkpoint")
        >>> dcp_to_torch_save("checkpoint", "checkpoint.safetensors")
        >>> adjit.load("checkpoint.safetensors")
        {'model': {'weight': tensor([1., 1.])}}
    """
    state: dict[str, object] = {}
    planner = _EmptyStateDictLoadPlanner()
    _load_state_dict(state, FileSystemReader(dcp_checkpoint_dir), no_dist=True, planner=planner)
    serialization.save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: Identity, dcp_checkpoint_dir: Identity) -> None:
    """Write a checkpoint of the state that one file has, of `adjit.save` or `torch.save`.

    Args:
        torch_save_path: the file.
        dcp_checkpoint_dir: the folder of the checkpoint.

    Raises:
        RuntimeError: if the file is corrupt.
        CheckpointException: if the checkpoint cannot be written.

    Example:
        >>> import adjit.distributed.checkpoint as dcp
        >>> from adjit.distributed.checkpoint.format_utils import torch_save_to_dcp
        >>> adjit.save({"weight": adjit.ones(2)}, "weights.safetensors")
        >>> torch_save_to_dcp("weights.safetensors", "checkpoint")
        >>> dcp.load(state := {"weight": adjit.zeros(2)}, checkpoint_id="checkpoint")
        >>> state
        {'weight': tensor([1., 1.])}
    """
    state = serialization.load(torch_save_path)
    _save_state_dict(state, FileSystemWriter(dcp_checkpoint_dir), no_dist=True)
