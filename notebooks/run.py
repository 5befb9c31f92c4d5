"""Run notebooks from a clean kernel and store their outputs: all of them, or those named."""

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parent


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run; its file stays as it is.

    Raises:
        CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],  # errors; it warns of its own connection
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(
        env={
            **os.environ,
            # Errors that name a line name its file, else a temporary one that differs from run to run.
            "IPYKERNEL_CELL_NAME": path.name,
            "ADJIT_PROGRESS": "off",  # the outputs are those of a run with compiled kernels
        }
    )
    notebook.metadata["language_info"] = {"name": "python"}  # the same under every Python
    return notebook


def main(names: list[str]) -> int:
    """Run the notebooks in place; 1 if any failed, which then keeps its old outputs."""
    failed = []
    for path in [Path(name) for name in names] or sorted(FOLDER.glob("*.ipynb")):
        start = time.perf_counter()
        print(f"{path.name} ... ", end="", flush=True)
        try:
            notebook = execute(path)
        except CellExecutionError as error:
            failed.append(path.name)
            print(f"failed\n{error}")
            continue
        nbformat.write(notebook, path)
        print(f"{time.perf_counter() - start:.1f} s")
    if failed:
        print("failed:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
