"""Pairs of images, told apart by one residual network that sees both: Adadelta on bytes as they are."""


def run(torch, nn, F, draw):
    class Block(nn.Module):
        def __init__(self, inplanes, planes, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.downsample = None
            if stride != 1 or inplanes != planes:
                shortcut = nn.Conv2d(inplanes, planes, 1, stride, bias=False)
                self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes))

        def forward(self, x):
            identity = x if self.downsample is None else self.downsample(x)
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.conv1 = nn.Conv2d(1, width, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Block(width, width), Block(width, width))
            self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(2 * width, 1000)

    class SiameseNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.resnet = ResNet(8)
            self.fc_in_features = self.resnet.fc.in_features
            self.resnet = torch.nn.Sequential(*(list(self.resnet.children())[:-1]))
            self.fc = nn.Sequential(
                nn.Linear(self.fc_in_features * 2, 32), nn.ReLU(inplace=True), nn.Linear(32, 1)
            )
            self.sigmoid = nn.Sigmoid()

        def forward_once(self, x):
            output = self.resnet(x)
            return output.view(output.size()[0], -1)

        def forward(self, input1, input2):
            output = torch.cat((self.forward_once(input1), self.forward_once(input2)), 1)
            return self.sigmoid(self.fc(output))

    model = draw.into(SiameseNetwork())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    criterion = nn.BCELoss()
    losses = []
    for _ in range(5):
        pictures = [draw(12, 1, 28, 28).mul(64).add(128).clamp(0, 255).floor() for _ in range(2)]
        targets = draw.integers(2, 12).type_as(pictures[0])
        optimizer.zero_grad()
        outputs = model(*pictures).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        right = torch.where(outputs > 0.5, 1, 0).eq(targets.view_as(outputs)).sum().item()
        losses += [loss.item(), right]
        scheduler.step()
    return losses, model.parameters()
