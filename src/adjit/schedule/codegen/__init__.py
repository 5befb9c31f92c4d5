"""The text of kernels.

`body.py` reads the scalar bodies of operations, `loops.py` pastes one into loops over tensors, `fused.py` many,
`row_kernels.py` into loops over rows; `loops_cuda.py` and `units_cuda.py` are the same for a GPU.
"""
