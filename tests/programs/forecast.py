"""Forecasts with their spread: a recurrent layer over sequences of different lengths, smoothed by a loop
of one's own at a rate that is learned, and likelihoods; then one sequence goes on from its last state."""

import numpy as np


def smoother(torch):
    """Exponential smoothing along a sequence: a kernel in adjit, a loop over tensors in PyTorch."""
    if torch.__name__ == "adjit":

        @torch.kernel
        def smooth(x, rate):
            y = np.empty_like(x)
            y[0] = x[0]
            for i in range(1, len(x)):
                y[i] = rate[0] * y[i - 1] + (1.0 - rate[0]) * x[i]
            return y

        return smooth

    def smooth(x, rate):
        y = [x[0]]
        for value in x[1:]:
            y.append(rate[0] * y[-1] + (1.0 - rate[0]) * value)
        return torch.stack(y)

    return smooth


def run(torch, nn, F, draw):
    smooth, laws = smoother(torch), torch.distributions
    pad, pack, unpack = (
        nn.utils.rnn.pad_sequence, nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
    )  # fmt: skip

    class Forecaster(nn.Module):
        def __init__(self, cell):
            super().__init__()
            self.layer = cell(2, 9, batch_first=True)
            self.head = nn.Linear(9, 3)
            self.rate = nn.Parameter(torch.zeros(1))

        def entries(self, sequence):
            level = smooth(sequence, self.rate.sigmoid())
            return torch.stack([sequence, sequence - level], 1)

        def law(self, states):
            loc, scale, freedom = self.head(states).unbind(-1)
            return laws.StudentT(2 + F.softplus(freedom), loc, F.softplus(scale) + 1e-2)

        def forward(self, sequences):
            lengths = [len(s) - 1 for s in sequences]
            entries = pad([self.entries(s[:-1]) for s in sequences], batch_first=True)
            packed, state = self.layer(
                pack(entries, lengths, batch_first=True, enforce_sorted=False)
            )
            states, _ = unpack(packed, batch_first=True)
            return self.law(states), state

    sequences = [draw(length).cumsum(0) * 0.3 for length in (12, 7, 19, 15)]
    losses, parameters = [], []
    for cell in (nn.LSTM, nn.GRU, nn.RNN):
        model = draw.into(Forecaster(cell))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            law, _ = model(sequences)
            target = pad([s[1:] for s in sequences], batch_first=True)
            mask = pad([torch.ones(len(s) - 1) for s in sequences], batch_first=True)
            loss = -(law.log_prob(target) * mask).sum() / mask.sum()
            loss.backward()
            losses.append(loss.item())
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
        parameters += model.parameters()

        with torch.no_grad():  # a forecast: mean after mean
            longest = sequences[2]
            _, state = model.layer(model.entries(longest)[None])
            value = longest[-1]
            for _ in range(3):
                states, state = model.layer(torch.stack([value, value * 0]).view(1, 1, 2), state)
                value = model.law(states).mean[0, 0]
                losses.append(value.item())
    return losses, parameters
