"""A tensor of an empty list was float64 where bool was asked for."""

v0 = T.tensor([], dtype=T.bool)
v1 = T.tensor([[], []], dtype=T.bool)
v2 = T.masked_select(T.ones(2, 0), v1)
