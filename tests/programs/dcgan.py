"""Two networks against each other: transposed convolutions, weights set by `apply`, two walks a step."""


def run(torch, nn, F, draw):
    def weights_init(m):
        name = m.__class__.__name__
        if name.find("BatchNorm") != -1:
            torch.nn.init.ones_(m.weight)
            torch.nn.init.zeros_(m.bias)

    generator = nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
        nn.ConvTranspose2d(4, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0),
    )  # fmt: skip
    for net in (generator, critic):
        draw.into(net)
        net.apply(weights_init)
    criterion = nn.BCELoss()
    optimizers = [
        torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.5, 0.999))
        for net in (critic, generator)
    ]
    losses = []
    for _ in range(3):
        real = draw(5, 1, 16, 16)
        critic.zero_grad()
        label = torch.full((5,), 1, dtype=real.dtype, device=real.device)
        output = critic(real)
        real_loss = criterion(output, label)
        real_loss.backward()
        fake = generator(draw(5, 6, 1, 1))
        label.fill_(0)
        fake_loss = criterion(critic(fake.detach()), label)
        fake_loss.backward()
        optimizers[0].step()
        generator.zero_grad()
        label.fill_(1)
        loss = criterion(critic(fake), label)
        loss.backward()
        optimizers[1].step()
        losses += [(real_loss + fake_loss).item(), loss.item(), output.mean().item()]
    return losses, [*generator.parameters(), *critic.parameters()]
