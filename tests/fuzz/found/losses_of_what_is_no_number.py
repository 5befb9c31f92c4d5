"""Margins that are NaN are not above 0, norms that are NaN not above a bound; trapezoids that cancel,
histograms of nothing and their history, copies of views that cannot be."""

v0 = T.tensor([[0.5, nan, 1.0], [2.0, 0.25, 3.0]])
v1 = F.multi_margin_loss(v0, T.tensor([0, 2]))
v2 = F.multilabel_margin_loss(v0, T.tensor([[0, -1, 1], [2, 0, -1]]))
v3 = v0.renorm(2, 0, 1.0)
v4 = T.trapezoid(T.tensor([0.0, 1.0, inf]))
v5, v6 = T.zeros(0).histogram(4)
v7, v8 = T.tensor([0.5, 1.5]).requires_grad_().histogram(2)
v9 = T.view_copy(T.ones(3, 1).expand(3, 4), (4, 3))
v10 = T.trapezoid(T.zeros(3, 0, dtype=T.int32))
v11 = T.isin(v0, True)
v12 = T.tensor([[3.0, nan, 0.5], [4.0, 1.0, 0.5]]).requires_grad_()
v12.renorm(2, 1, 1.0).sum().backward()
