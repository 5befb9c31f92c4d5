"""Powers of uint8 beyond 2 ** 53 were 0."""

v0 = T.tensor([3, 7, 127, 200, 255], dtype=T.uint8)
v1 = T.pow(v0, v0)
v2 = v0.pow(8)
v3 = T.pow(3, v0)
v4 = T.tensor([[1], [3], [255]], dtype=T.uint8).pow(v0)
