"""Gradients of windows went by strides, of which two axes may have the same."""

v0 = T.tensor([[[-0.5], [0.5], [0.0]], [[0.75], [0.5], [1.5]]]).expand(2, 3, 4).requires_grad_()
v1 = v0.unfold(-2, 1, 1)
v1.square().mean().backward()
v2 = T.ones(2, 3, 1).expand(2, 3, 4).requires_grad_()
(v2.unfold(-1, 2, 1) * T.arange(36.0).reshape(2, 3, 3, 2)).sum().backward()
