"""A capture gave the memory of its argument without the history that a write had given it."""

v0 = T.tensor([[0.0, 0.25], [0.0, 2.0]], dtype=T.float64).requires_grad_()
v1 = v0.detach()
v1 += v0
