"""A convolutional classifier: dropout left to evaluation, Adadelta, a schedule, a test without gradients."""


def run(torch, nn, F, draw):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3, 1)
            self.conv2 = nn.Conv2d(4, 8, 3, 1)
            self.dropout1 = nn.Dropout(0.0)
            self.fc1 = nn.Linear(8 * 16, 16)
            self.fc2 = nn.Linear(16, 10)

        def forward(self, x):
            x = F.relu(self.conv2(F.relu(self.conv1(x))))
            x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)

    images, labels = draw(24, 1, 12, 12), draw.integers(10, 24)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=8
    )
    model = draw.into(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for _ in range(2):
        model.train()
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            output = model(images)
            losses.append(F.nll_loss(output, labels, reduction="sum").item())
            guess = output.argmax(dim=1, keepdim=True)
            losses.append(guess.eq(labels.view_as(guess)).sum().item())
        scheduler.step()
    return losses, model.parameters()
