"""Gradients of amax, amin and aminmax at NaN are NaN, those of max and min of all elements go to the NaN."""

v0 = T.tensor([[1.0, nan], [nan, inf]], dtype=T.float32).requires_grad_()
v1 = T.tensor([[1.0, nan], [inf, inf]], dtype=T.float32).requires_grad_()
v2 = T.tensor([[1.0, nan], [nan, 2.0]], dtype=T.float32).requires_grad_()
v3 = T.tensor([[1.0, nan], [nan, 2.0]], dtype=T.float32).requires_grad_()
v4 = T.tensor([[1.0, nan], [3.0, 3.0]], dtype=T.float32).requires_grad_()
v0.amax().backward()
v1.amin(-1).sum().backward()
v2.aminmax(dim=0)[0].sum().backward()
v3.max().backward()
T.linalg.matrix_norm(v4, inf).backward()
