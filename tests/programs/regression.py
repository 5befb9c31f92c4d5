"""A polynomial fitted by a single layer, with a step written by hand and a stop once the loss is small."""

from itertools import count


def run(torch, nn, F, draw):
    weight, bias = draw(4, 1) * 5, draw(1) * 5

    def features(x):
        x = x.unsqueeze(1)
        return torch.cat([x**i for i in range(1, 5)], 1)

    fc = draw.into(torch.nn.Linear(weight.size(0), 1))
    losses = []
    for index in count(1):
        x = features(draw(16))
        fc.zero_grad()
        output = F.smooth_l1_loss(fc(x), x.mm(weight) + bias.item())
        losses.append(output.item())
        output.backward()
        for param in fc.parameters():
            param.data.add_(-0.1 * param.grad)
        if losses[-1] < 1e-3 or index == 8:
            break
    return losses, fc.parameters()
