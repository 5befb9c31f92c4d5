"""A language model over batches of a text: tied weights, states carried on, clipping, a step by hand."""


def run(torch, nn, F, draw):
    words, size = 30, 12

    class RNNModel(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.encoder = nn.Embedding(words, size)
            self.rnn = getattr(nn, kind)(size, size, 2)
            self.decoder = nn.Linear(size, words)
            self.decoder.weight = self.encoder.weight

        def forward(self, input, hidden):
            output, hidden = self.rnn(self.encoder(input), hidden)
            return F.log_softmax(self.decoder(output).view(-1, words), dim=1), hidden

    def repackage(hidden):
        if isinstance(hidden, torch.Tensor):
            return hidden.detach()
        return tuple(repackage(part) for part in hidden)

    losses, parameters = [], []
    for kind in ("LSTM", "GRU", "RNN"):
        text = draw.integers(words, 81)
        data = text[:80].view(4, 20).t().contiguous()
        model = draw.into(RNNModel(kind))
        weight = next(model.parameters())
        zeros = weight.new_zeros(2, 4, size)
        hidden = (zeros, weight.new_zeros(2, 4, size)) if kind == "LSTM" else zeros
        for at in range(0, 15, 5):
            model.zero_grad()
            hidden = repackage(hidden)
            output, hidden = model(data[at : at + 5], hidden)
            loss = F.nll_loss(output, data[at + 1 : at + 6].view(-1))
            loss.backward()
            losses.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25).item())
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-5.0)
            losses.append(loss.item())
        parameters += model.parameters()
    return losses, parameters
