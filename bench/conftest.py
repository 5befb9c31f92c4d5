"""Under pytest-benchmark: what machine it was, and with which versions, stands in its JSON."""

from __future__ import annotations

from typing import Any

import libraries
import machine
import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    machine_info["description"] = machine.description()
    machine_info["versions"] = libraries.versions()


def pytest_report_header() -> str:
    told = ", ".join(f"{name} {version}" for name, version in libraries.versions().items())
    return f"bench: {machine.description()}; {told}"
