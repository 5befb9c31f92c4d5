"""Where there was nothing to do, the result was the operand itself: a write into one changed the other."""

v0 = T.tensor([[[1.0], [2.0]]], dtype=T.float32)
v1 = T.channel_shuffle(v0, 2)
v2 = T.channel_shuffle(v0, 1)
v3 = T.diff(v0, n=0)
v4 = T.chain_matmul(v0[0])
v0.mul_(10)
v5 = v0.tolist()
