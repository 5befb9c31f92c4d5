"""A write into an element of the gradient of a mean changed all of it."""

v0 = T.tensor([1.0, 2.0, 3.0], dtype=T.float64).requires_grad_()
(v1,) = T.autograd.grad(v0.mean(), [v0])
v1[0].mul_(4)
v2, v3 = T.autograd.grad(v0.mean(), [v0, v0])
v3.zero_()
