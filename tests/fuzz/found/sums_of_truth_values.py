"""A sum of two true values was a truth value that counts twice."""

v0 = T.tensor([False], dtype=T.bool)
v1 = T.tensor([True, True], dtype=T.bool)
v2 = T.tensor([0, 0], dtype=T.int64)
v3 = v0.index_add(0, v2, v1) + 2
v4 = v0.scatter_add(0, v2, v1) + 2
v5 = v0.scatter_reduce(0, v2, v1, "sum") + 2
v6 = v0.index_put((v2,), v1, accumulate=True) + 2
v7 = v0.put(v2, v1, accumulate=True) + 2
v0.index_add_(0, v2, v1)
v8 = v0 + 2
