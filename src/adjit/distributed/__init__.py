"""Several processes: stores to find each other by, groups, collectives, an optimiser that is spread over them.

Engines: see the README.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from .. import paths as _paths
from ..absent import absent as _absent
from . import optim
from .collectives import (
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
    send,
)
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError
from .group import (
    Backend,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .store import FileStore, HashStore, PrefixStore, Store, TCPStore
from .work import ReduceOp, Work

# isort: split
from . import nn as nn

_paths.place(
    "distributed.distributed_c10d",
    ("distributed", "distributed.collectives", "distributed.group", "distributed.work"),
)

_paths.place("distributed.nn.functional", ("distributed.nn",))
_paths.place("distributed.constants", ("distributed.group",))
_paths.place("distributed.algorithms.join", ("distributed.algorithms",))
_paths.place("distributed.algorithms._checkpoint", ("utils.checkpoint_wrapper",))
_paths.place("distributed.algorithms._checkpoint.checkpoint_wrapper", ("utils.checkpoint_wrapper",))
_paths.place("distributed.elastic", ())
_paths.place("distributed.elastic.multiprocessing", ())
_paths.place("distributed.elastic.multiprocessing.errors", ("distributed.failures",))
_paths.place("distributed.autograd", ("distributed.remote_gradients",))
_paths.place("distributed.rpc", ("distributed.remote",))
_paths.place("distributed.tensor", ("distributed.placements",))
_paths.place("distributed.tensor._utils", ())
_paths.place("distributed.tensor.placement_types", ("distributed.placements",))
for _path in (
    "_composable",
    "_composable.fsdp",
    "_functional_collectives",
    "_tensor",
    "_tensor.experimental",
    "device_mesh",
    "fsdp",
):
    _paths.place(f"distributed.{_path}", ())

__all__ = [
    "Backend",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "optim",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]


def __getattr__(name: str) -> Any:
    if name == "checkpoint":  # which asks for modules, that ask for groups
        return _importlib.import_module(f"{__name__}.checkpoint")
    raise _absent("distributed", name)
