"""Kernels of the CPU as programs of a GPU: by a warp (`warp.py`) or a block (`block.py`), and its `math.py`."""
