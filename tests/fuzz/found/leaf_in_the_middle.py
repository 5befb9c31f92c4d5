"""A write into one of several views of a leaf that is a view itself left them a history."""

v0 = T.tensor([1.0, 2.0, 3.0], dtype=T.float32)[1:].requires_grad_()
(v1,) = T.split(v0, 2)
with T.no_grad():
    v1.mul_(2)
v2 = v1.is_leaf
