"""An image made larger by sub-pixel convolution; the whole model is saved and loaded again."""

import io


class Net:
    """What the model computes; `run` joins it with the library's `Module`."""

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.pixel_shuffle(self.conv2(self.relu(x)))


def run(torch, nn, F, draw):
    global SuperResolution

    class SuperResolution(Net, nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()
            self.conv1 = nn.Conv2d(1, 6, (5, 5), (1, 1), (2, 2))
            self.conv2 = nn.Conv2d(6, 9, (3, 3), (1, 1), (1, 1))
            self.pixel_shuffle = nn.PixelShuffle(3)

    SuperResolution.__qualname__ = "SuperResolution"
    model = draw.into(SuperResolution())
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(draw(2, 1, 6, 6)), draw(2, 1, 18, 18))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    classes = [
        SuperResolution, torch.nn.modules.activation.ReLU, torch.nn.modules.conv.Conv2d,
        torch.nn.modules.pixelshuffle.PixelShuffle,
    ]  # fmt: skip
    with torch.serialization.safe_globals(classes):
        model = torch.load(file)
    return [*losses, model(draw(1, 1, 4, 4)).sum().item()], model.parameters()
