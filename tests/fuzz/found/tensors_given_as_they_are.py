"""What has the common shape already, or has no elements to differ, is no other tensor."""

v0 = T.tensor([1.0, 2.0], dtype=T.float64).requires_grad_()
v1, v2 = T.broadcast_tensors(v0, T.tensor([[1.0], [2.0]], dtype=T.float64))
v1.sum().backward()
v3 = T.arange(0).to(T.float64).reshape((3, 0)).requires_grad_()
v4 = v3.diff()
v4.mul_(2)
v4.sum().backward()
