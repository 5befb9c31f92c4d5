"""Plans on a GPU: which kernels run a node (`lower.py`, `products.py`), their plan and how it is run."""
