"""The kernels of operations that are not elementwise: a file an idea, with its CPU and its CUDA side."""
