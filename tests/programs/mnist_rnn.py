"""Rows of an image read by an LSTM, batch normalisation behind it."""


def run(torch, nn, F, draw):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(input_size=8, hidden_size=16, batch_first=True)
            self.batchnorm = nn.BatchNorm1d(16)
            self.fc1 = nn.Linear(16, 12)
            self.fc2 = nn.Linear(12, 10)

        def forward(self, input):
            output, _ = self.rnn(input.reshape(-1, 8, 8))
            output = self.batchnorm(output[:, -1, :])
            return F.log_softmax(self.fc2(F.relu(self.fc1(output))), dim=1)

    model = draw.into(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        data, target = draw(6, 1, 8, 8), draw.integers(10, 6)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [*losses, *model.batchnorm.running_var.tolist()], model.parameters()
