"""Plans on a GPU: which kernels run a node (`lower.py`, `cublas.py`), their plan and how it is run."""
