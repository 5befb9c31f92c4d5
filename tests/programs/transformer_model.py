"""A language model of encoder layers: positions as sines, a mask of what comes later, SGD with clipping."""

import math


def run(torch, nn, F, draw):
    words, size, length = 20, 16, 7

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=50):
            super().__init__()
            pe = torch.zeros(max_len, d_model)
            position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
            step = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
            pe[:, 0::2] = torch.sin(position * step)
            pe[:, 1::2] = torch.cos(position * step)
            self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

        def forward(self, x):
            return x + self.pe[: x.size(0), :]

    class TransformerModel(nn.Transformer):
        def __init__(self):
            super().__init__(d_model=size, nhead=4, dim_feedforward=24, num_encoder_layers=2,
                             num_decoder_layers=1, dropout=0.0)  # fmt: skip
            self.input_emb = nn.Embedding(words, size)
            self.positions = PositionalEncoding(size)
            self.decoder = nn.Linear(size, words)

        def forward(self, src):
            mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
            src = self.positions(self.input_emb(src) * math.sqrt(size))
            return F.log_softmax(self.decoder(self.encoder(src, mask=mask)), dim=-1)

    model = draw.into(TransformerModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(3):
        text = draw.integers(words, (length + 1) * 3).view(length + 1, 3)
        optimizer.zero_grad()
        loss = F.nll_loss(model(text[:-1]).view(-1, words), text[1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses, model.parameters()
