"""Pairs of images, told apart by one network that sees both, with a residual block and inplace activations."""


def run(torch, nn, F, draw):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(4)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.bn1(self.conv1(x))
            out += x
            return self.relu(out)

    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [
                nn.Conv2d(1, 4, 3, 2, 1),
                Block(),
                nn.AdaptiveAvgPool2d((1, 1)),
                nn.Linear(4, 9),
            ]
            self.net = torch.nn.Sequential(*(list(nn.Sequential(*layers).children())[:-1]))
            self.fc = nn.Sequential(nn.Linear(8, 6), nn.ReLU(inplace=True), nn.Linear(6, 1))
            self.sigmoid = nn.Sigmoid()

        def once(self, x):
            output = self.net(x)
            return output.view(output.size()[0], -1)

        def forward(self, a, b):
            return self.sigmoid(self.fc(torch.cat((self.once(a), self.once(b)), 1)))

    model = draw.into(Siamese())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    criterion = nn.BCELoss()
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        outputs = model(draw(6, 1, 8, 8), draw(6, 1, 8, 8)).squeeze()
        loss = criterion(outputs, draw.integers(2, 6).float())
        loss.backward()
        optimizer.step()
        right = torch.where(outputs > 0.5, 1, 0).sum().item()
        losses += [loss.item(), right]
    return losses, model.parameters()
