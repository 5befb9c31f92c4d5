"""A variational autoencoder: noise through a reparametrisation, two terms of a loss in sums."""


def run(torch, nn, F, draw):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(36, 16)
            self.fc21 = nn.Linear(16, 4)
            self.fc22 = nn.Linear(16, 4)
            self.fc3 = nn.Linear(4, 16)
            self.fc4 = nn.Linear(16, 36)

        def forward(self, x, noise):
            h = F.relu(self.fc1(x.view(-1, 36)))
            mu, logvar = self.fc21(h), self.fc22(h)
            z = mu + noise * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    model = draw.into(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        x = torch.sigmoid(draw(6, 1, 6, 6))
        optimizer.zero_grad()
        made, mu, logvar = model(x, draw(6, 4))
        bce = F.binary_cross_entropy(made, x.view(-1, 36), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        (bce + kld).backward()
        optimizer.step()
        losses += [bce.item(), kld.item()]
    return losses, model.parameters()
