"""Tensors that stand for others inside of transforms.

`tracer.py` has what they share, `batched.py` those of `vmap`.
"""
