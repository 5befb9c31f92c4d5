"""How a kernel is written, typed and compiled.

`abi.py` has the calling convention and the decorators, `processor.py` what the processor can do, `level.py`
what says how much of that is used, `target.py` the compiler, `intrinsics.py` and `lanes.py` what is one
instruction or a vector of them, `turning.py` turns squares of memory, `conversion.py` has how floats become
whole numbers, `sharing.py` the words that threads meet at, and `device.py` the same for CUDA.
"""
