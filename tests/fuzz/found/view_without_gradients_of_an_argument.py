"""A capture forgot the history of a view of a view that was made without gradients."""

v0 = T.tensor([[0.5, 1.0], [2.0, 4.0]]).requires_grad_()
with T.no_grad():
    v1 = v0.squeeze()
v2 = v1.reshape(-1)
v3 = T.autograd.grad(v0[0, :1].mean(), v0)[0]
v3 += v0
