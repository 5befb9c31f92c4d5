"""A language model of encoder layers: positions as sines, a mask of what comes later, a step by hand."""

import math


def run(torch, nn, F, draw):
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, dropout=0.1, max_len=5000):
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            pe = torch.zeros(max_len, d_model)
            position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
            step = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
            pe[:, 0::2] = torch.sin(position * step)
            pe[:, 1::2] = torch.cos(position * step)
            self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))

        def forward(self, x):
            return self.dropout(x + self.pe[: x.size(0), :])

    class TransformerModel(nn.Transformer):
        def __init__(self, ntoken, ninp, nhead, nhid, nlayers, dropout=0.5):
            super().__init__(
                d_model=ninp, nhead=nhead, dim_feedforward=nhid, num_encoder_layers=nlayers
            )
            self.src_mask = None
            self.pos_encoder = PositionalEncoding(ninp, dropout)
            self.input_emb = nn.Embedding(ntoken, ninp)
            self.ninp = ninp
            self.decoder = nn.Linear(ninp, ntoken)

        def forward(self, src):
            if self.src_mask is None or self.src_mask.size(0) != len(src):
                self.src_mask = torch.log(torch.tril(torch.ones(len(src), len(src))))
            src = self.pos_encoder(self.input_emb(src) * math.sqrt(self.ninp))
            output = self.decoder(self.encoder(src, mask=self.src_mask))
            return F.log_softmax(output, dim=-1)

    words, length = 20, 7
    model = draw.into(TransformerModel(words, 16, 4, 24, 2, dropout=0.0))
    # The layers keep nn.Transformer's dropout of 0.1, and attention has it as a number of its own:
    # random masks, which are not those of another library.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    losses = []
    for _ in range(4):
        text = draw.integers(words, (length + 1) * 3).view(length + 1, 3)
        model.zero_grad()
        loss = F.nll_loss(model(text[:-1]).view(-1, words), text[1:].reshape(-1))
        loss.backward()
        used = [p for p in model.parameters() if p.grad is not None]
        torch.nn.utils.clip_grad_norm_(used, 0.25)
        for p in used:
            p.data.add_(p.grad, alpha=-2.0)
        losses.append(loss.item())
    return losses, model.parameters()
