"""The version of what an op had written itself depended on whether the call was known."""

v0 = T.tensor([0.25, 0.0, 1.0, 1.25], dtype=T.float64)
v1 = T.diag(v0)
v2 = T.diag(v0)
v3 = T.diag(v0)
