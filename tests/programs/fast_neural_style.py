"""A network that paints in the style of a picture: instance norms, mirrors, Gram matrices of features."""

from collections import namedtuple


def run(torch, nn, F, draw):
    class Block(nn.Module):
        def __init__(self, inputs, outputs, kernel, stride=1, upsample=None):
            super().__init__()
            self.upsample = upsample
            self.pad = nn.ReflectionPad2d(kernel // 2)
            self.conv = nn.Conv2d(inputs, outputs, kernel, stride)
            self.norm = nn.InstanceNorm2d(outputs, affine=True)

        def forward(self, x):
            if self.upsample:
                x = F.interpolate(x, mode="nearest", scale_factor=self.upsample)
            return self.norm(self.conv(self.pad(x)))

    features = draw.into(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2),
                                       nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace=True)))  # fmt: skip
    for p in features.parameters():
        p.requires_grad = False
    Outputs = namedtuple("Outputs", ["first", "second"])

    def looked_at(x):
        mean = x.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
        x = x.div_(255.0) if not x.requires_grad else x / 255.0
        first = features[:2](x - mean)
        return Outputs(first, features[2:](first))

    def gram(y):
        b, ch, h, w = y.size()
        flat = y.view(b, ch, w * h)
        return flat.bmm(flat.transpose(1, 2)) / (ch * h * w)

    painter = draw.into(nn.Sequential(Block(3, 5, 3), nn.ReLU(), Block(5, 6, 3, 2), nn.ReLU(),
                                      Block(6, 3, 3, upsample=2)))  # fmt: skip
    optimizer = torch.optim.Adam(painter.parameters(), 1e-2)
    criterion = torch.nn.MSELoss()
    style = [gram(y) for y in looked_at(draw(1, 3, 8, 8).repeat(2, 1, 1, 1) * 100)]
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        x = draw(2, 3, 8, 8) * 100
        y = painter(x)
        of_y, of_x = looked_at(y), looked_at(x)
        content = criterion(of_y.second, of_x.second)
        style_loss = 0.0
        for a, b in zip(of_y, style, strict=True):
            style_loss += criterion(gram(a), b[:2, :, :])
        (content + 10 * style_loss).backward()
        optimizer.step()
        losses += [content.item(), style_loss.item()]
    return losses, painter.parameters()
