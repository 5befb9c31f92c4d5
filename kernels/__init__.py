"""Compiled kernels: each file pairs the CPU side with the place of its CUDA side.

Nothing in here imports anything from `src`; the scheduler instantiates kernels by dtype.
"""
