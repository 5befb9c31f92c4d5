"""The places of what is not 0 lie column by column: what is a view of them reads what is written later."""

v0 = T.tensor([[2.0, 1.5, -1.25], [2.0, 0.0, 1.75]], dtype=T.float64)
v1 = T.argwhere(v0)
v2 = v1.reshape(-1)
v1.mul_(v1)
v3 = v1.t().reshape(-1)
