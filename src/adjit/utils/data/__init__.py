"""Datasets, samplers and the loader that makes batches of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .collate import default_collate, default_convert
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .loader import DataLoader
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .workers import get_worker_info

if TYPE_CHECKING:
    from .distributed import DistributedSampler


def __dir__() -> list[str]:
    return sorted({*globals(), "DistributedSampler", "distributed"})


def __getattr__(name: str) -> Any:
    """What needs several processes, loaded at its first use."""
    if name not in ("DistributedSampler", "distributed"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(".distributed", __name__)
    return module if name == "distributed" else module.DistributedSampler


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]
