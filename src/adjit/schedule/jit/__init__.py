"""From the text of kernels to machine code, and where it is kept.

`cache.py` links a kernel from memory, `disk.py` or the compiler, which `apart.py` runs on a thread of its own
and `progress.py` tells of; `pack.py` has what was compiled ahead. `kernel_files.py` knows what a text depends
on, `modules.py` is for kernels written as LLVM's instructions, `native.py` for functions that Python calls (if
`interpreter.py` finds objects laid out as assumed), and `nvidia.py` for CUDA: the one file that imports
numba-cuda.
"""
