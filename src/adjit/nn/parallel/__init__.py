"""Modules on several devices and in several processes."""

from .data_parallel import DataParallel, data_parallel, parallel_apply, replicate
from .distributed import DistributedDataParallel
from .scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
