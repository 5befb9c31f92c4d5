"""A loss with a share for all of no classes raised by its weights, and left one behind that raised later."""

v0 = T.ones(3, 0)
v1 = F.cross_entropy(v0, T.tensor([0, 0, 0]), T.ones(0), label_smoothing=0.1)
v2 = T.ones(2)
