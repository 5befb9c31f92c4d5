"""A capture gave a result without the gradient that a backward inside had left it."""

v0 = T.tensor([-0.25, 0.25, 1.625, -0.875], dtype=T.float64).requires_grad_()
v0.sum().backward(retain_graph=True)
v0.detach_()
