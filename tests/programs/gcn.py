"""A graph network over a dense adjacency: a normalised matrix, masks of nodes, accuracy without gradients."""


def run(torch, nn, F, draw):
    class GraphConv(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.kernel = nn.Parameter(torch.Tensor(inputs, outputs))
            self.bias = nn.Parameter(torch.Tensor(outputs))
            nn.init.zeros_(self.bias)

        def forward(self, x, adjacency):
            return torch.mm(adjacency, torch.mm(x, self.kernel)) + self.bias

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.gc1, self.gc2 = GraphConv(9, 8), GraphConv(8, 3)

        def forward(self, x, adjacency):
            return F.log_softmax(self.gc2(F.relu(self.gc1(x, adjacency)), adjacency), dim=1)

    features, labels = torch.relu(draw(20, 9)), draw.integers(3, 20)
    scale = 1 / features.sum(dim=1)
    scale[scale == float("inf")] = 0
    features = torch.diag(scale) @ features
    edges = draw.integers(20, 60).view(2, 30)
    adjacency = torch.zeros(20, 20)
    adjacency[edges[0], edges[1]] = 1
    adjacency = torch.eye(20) + torch.maximum(adjacency, adjacency.T)
    degree = torch.diag(torch.sqrt(1 / adjacency.sum(dim=1)))
    adjacency = degree @ adjacency @ degree
    train, test = torch.arange(20)[:12], torch.arange(20)[12:]
    model = draw.into(GCN())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    criterion = nn.NLLLoss()
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        output = model(features, adjacency)
        loss = criterion(output[train], labels[train])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = (output[test].argmax(dim=1) == labels[test]).sum().item() / len(test)
        losses += [loss.item(), right]
    return losses, model.parameters()
