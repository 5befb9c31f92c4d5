"""Patches of images as tokens, a learned class token, encoder layers, label smoothing, warm-up."""


def run(torch, nn, F, draw):
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 12, kernel_size=4, stride=4)
            self.cls_token = nn.Parameter(torch.zeros(1, 1, 12))
            self.positions = nn.Parameter(torch.zeros(1, 5, 12))
            layer = nn.TransformerEncoderLayer(12, 3, 24, 0.0, activation="gelu", batch_first=True,
                                               norm_first=True)  # fmt: skip
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 5))

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
            return self.head(self.encoder(x)[:, 0])

    model = draw.into(ViT())
    # With a large eps, as biases of keys have gradients of rounding errors alone.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
        ],
        [2],
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    for _ in range(4):
        loss = criterion(model(draw(4, 3, 8, 8)), draw.integers(5, 4))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses += [loss.item(), scheduler.get_last_lr()[0]]
    return losses, model.parameters()
