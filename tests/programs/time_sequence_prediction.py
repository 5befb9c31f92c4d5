"""Sines foretold by two LSTM cells in float64, trained with L-BFGS on closures, run on without gradients."""


def run(torch, nn, F, draw):
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1 = nn.LSTMCell(1, 8)
            self.lstm2 = nn.LSTMCell(8, 8)
            self.linear = nn.Linear(8, 1)

        def forward(self, input, future=0):
            outputs = []
            h, c, h2, c2 = (torch.zeros(input.size(0), 8, dtype=torch.double) for _ in range(4))
            for step in input.split(1, dim=1):
                h, c = self.lstm1(step, (h, c))
                h2, c2 = self.lstm2(h, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            for _ in range(future):
                h, c = self.lstm1(output, (h, c))
                h2, c2 = self.lstm2(h, (h2, c2))
                output = self.linear(h2)
                outputs += [output]
            return torch.cat(outputs, dim=1)

    shift = draw(6, 1).double() * 10
    data = torch.sin((torch.arange(20, dtype=torch.double) + shift) / 4)
    model = draw.into(Sequence()).double()
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=5)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(data[1:, :-1]), data[1:, 1:])
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
        with torch.no_grad():
            foretold = model(data[:1, :-1], future=4)
            losses.append(criterion(foretold[:, :-4], data[:1, 1:]).item())
            losses.append(foretold.detach().numpy()[0, -1].item())
    return losses, model.parameters()
