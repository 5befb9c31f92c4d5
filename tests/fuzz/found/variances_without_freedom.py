"""The gradients of variances of as many numbers as the correction are infinite, not NaN."""

v0 = T.tensor([1.0, -2.0], dtype=T.float64).requires_grad_()
v1 = T.tensor([1.0, -2.0], dtype=T.float64).requires_grad_()
v2 = T.tensor([1.0, -2.0], dtype=T.float64).requires_grad_()
v0.var(0, correction=2).backward()
v1.var(0, correction=3).backward()
v2.std(0, correction=3).backward()
