"""What programs for several GPUs of one process import: there by name only."""

from typing import Any

from ...absent import known


def __getattr__(name: str) -> Any:
    return known("nn.parallel._functions", name)
