"""Cross-entropies beside the probabilities of no classes raised a ZeroDivisionError."""

v0 = T.tensor([], dtype=T.float32).reshape((3, 0)).requires_grad_()
v1 = T.tensor([], dtype=T.float32).reshape((3, 0))
v2 = F.cross_entropy(v0, v1)
v3 = F.cross_entropy(v0, v1, reduction="sum", label_smoothing=0.1)
v4 = F.cross_entropy(v0, v1, reduction="none")
v5 = F.cross_entropy(v0[:, 0:].sum(0), v1[0])
v6 = F.cross_entropy(v0, T.tensor([0, 0, 0], dtype=T.int64), label_smoothing=0.1)
