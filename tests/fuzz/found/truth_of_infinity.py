"""Infinity and NaN are true; filling with them raised an OverflowError."""

v0 = T.tensor([False, False, False], dtype=T.bool)
v0[0] = inf
v0[1:2].fill_(nan)
v1 = T.full((2,), -inf, dtype=T.bool)
v2 = T.zeros_like(v0).fill_(0.5)
v3 = T.tensor([1, 2], dtype=T.int64)
v3.fill_(inf)
v3[0] = nan
