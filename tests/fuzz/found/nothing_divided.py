"""To divide no elements by zero was refused."""

v0 = T.arange(0).reshape((3, 0))
v1 = T.tensor([[False], [False], [True]], dtype=T.bool)
v0.remainder_(v1)
v2 = v0.fmod(0)
v3 = T.floor_divide(v0, v1)
v4 = v0.div(T.tensor([0], dtype=T.int64), rounding_mode="trunc")
