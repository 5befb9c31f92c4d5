"""Tools around training: datasets and loaders."""

from . import data

__all__ = ["data"]
