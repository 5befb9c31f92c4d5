"""Attention between the nodes of a graph, with several heads, masked by the adjacency."""


def run(torch, nn, F, draw):
    class Layer(nn.Module):
        def __init__(self, inputs, outputs, heads):
            super().__init__()
            self.heads, self.outputs = heads, outputs
            self.W = nn.Parameter(torch.empty(size=(inputs, outputs * heads)))
            self.a = nn.Parameter(torch.empty(size=(heads, 2 * outputs, 1)))
            self.leakyrelu = nn.LeakyReLU(0.2)

        def forward(self, h, adjacency):
            nodes = h.shape[0]
            h = torch.mm(h, self.W).view(nodes, self.heads, self.outputs).permute(1, 0, 2)
            source = torch.matmul(h, self.a[:, : self.outputs, :])
            target = torch.matmul(h, self.a[:, self.outputs :, :])
            e = self.leakyrelu(source + target.mT)
            e = torch.where(adjacency > 0, e, -9e16 * torch.ones_like(e))
            return torch.matmul(F.softmax(e, dim=-1), h).mean(dim=0)

    class GAT(nn.Module):
        def __init__(self):
            super().__init__()
            self.gat1, self.gat2 = Layer(7, 6, 3), Layer(6, 4, 1)

        def forward(self, x, adjacency):
            return F.log_softmax(self.gat2(F.elu(self.gat1(x, adjacency)), adjacency), dim=1)

    features, labels = draw(16, 7), draw.integers(4, 16)
    adjacency = torch.eye(16) + (draw(16, 16) > 0.8).float()
    model = draw.into(GAT())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.NLLLoss()(model(features, adjacency), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.parameters()
