"""Residual networks: ResNet-18 to 152, with torchvision's names of parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import nn
from ..tensor import Tensor
from .weights import ImageClassification, Weights, WeightsEnum

Norm = Callable[[int], nn.Module]


def _conv(
    size: int, inputs: int, outputs: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Module:
    """A convolution without bias that keeps the size of images, but for its stride."""
    padding = size // 2 * dilation
    return nn.Conv2d(inputs, outputs, size, stride, padding, dilation, groups, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added: the block of ResNet-18 and 34.

    Args:
        inplanes: channels of the input.
        planes: channels of the output.
        stride: of the first convolution.
        downsample: what gives the input the shape of the output, where they differ.
        groups, base_width, dilation: 1, 64 and 1; `Bottleneck` has others.
        norm_layer: makes a normalisation of so many channels; `nn.BatchNorm2d` without it.

    Raises:
        ValueError: for other groups or widths.
        NotImplementedError: for another dilation.

    Example:
        >>> adjit.models.BasicBlock(4, 4)(adjit.zeros(1, 4, 8, 8)).shape
        adjit.Size([1, 4, 8, 8])
    """

    expansion: ClassVar[int] = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        norm = norm_layer or nn.BatchNorm2d
        self.conv1 = _conv(3, inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(3, planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block: (N, inplanes, H, W) to (N, planes, H / stride, W / stride).

        Example:
            >>> block = adjit.models.BasicBlock(4, 4)
            >>> block(adjit.zeros(1, 4, 8, 8)).shape
            adjit.Size([1, 4, 8, 8])
        """
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, the second to four times the channels: the block of
    ResNet-50 and deeper.

    Args:
        inplanes: channels of the input.
        planes: a quarter of the channels of the output.
        stride: of the 3x3 convolution.
        downsample: what gives the input the shape of the output, where they differ.
        groups, dilation: of the 3x3 convolution.
        base_width: its channels in each group are those of `planes` times this over 64.
        norm_layer: makes a normalisation of so many channels; `nn.BatchNorm2d` without it.

    Example:
        >>> adjit.models.Bottleneck(16, 4)(adjit.zeros(1, 16, 8, 8)).shape
        adjit.Size([1, 16, 8, 8])
    """

    expansion: ClassVar[int] = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = planes * base_width // 64 * groups
        self.conv1 = _conv(1, inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = _conv(3, width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = _conv(1, width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block: (N, inplanes, H, W) to (N, 4 * planes, H / stride, W / stride).

        Example:
            >>> block = adjit.models.Bottleneck(16, 4)
            >>> block(adjit.zeros(1, 16, 8, 8)).shape
            adjit.Size([1, 16, 8, 8])
        """
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


Block = type[BasicBlock] | type[Bottleneck]


class ResNet(nn.Module):
    """A residual network: a 7x7 convolution, four layers of blocks, and a linear classifier.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        layers: the number of blocks in each of the four layers.
        num_classes: outputs.
        zero_init_residual: start with blocks that pass their input on: the last normalisation in
            each begins with the weight 0.
        groups, width_per_group: of the 3x3 convolutions in `Bottleneck`.
        replace_stride_with_dilation: for the last three layers, whether they are dilated instead of
            strided.
        norm_layer: makes a normalisation of so many channels; `nn.BatchNorm2d` without it.

    Raises:
        ValueError: if `replace_stride_with_dilation` has not three elements.

    Example:
        >>> model = adjit.models.ResNet(adjit.models.BasicBlock, [1, 1, 1, 1], num_classes=10)
        >>> model(adjit.zeros(2, 3, 32, 32)).shape
        adjit.Size([2, 10])
    """

    def __init__(
        self,
        block: Block,
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        dilated = tuple(replace_stride_with_dilation or (False, False, False))
        if len(dilated) != 3:
            raise ValueError(
                "replace_stride_with_dilation should be None or a 3-element tuple, got "
                f"{replace_stride_with_dilation}"
            )
        norm = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = _conv(7, 3, self.inplanes, 2)
        self.bn1 = norm(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._layer(block, 64, layers[0], norm)
        self.layer2 = self._layer(block, 128, layers[1], norm, 2, dilated[0])
        self.layer3 = self._layer(block, 256, layers[2], norm, 2, dilated[1])
        self.layer4 = self._layer(block, 512, layers[3], norm, 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.zeros_(last.weight)

    def _layer(
        self, block: Block, planes: int, blocks: int, norm: Norm, stride: int = 1,
        dilate: bool = False,
    ) -> nn.Sequential:  # fmt: skip
        """Blocks of which the first changes the channels and the size."""
        dilation = self.dilation  # of the first block; the others have the new one
        if dilate:
            self.dilation *= stride
            stride = 1
        outputs = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != outputs:
            downsample = nn.Sequential(_conv(1, self.inplanes, outputs, stride), norm(outputs))
        shape = (self.groups, self.base_width)
        first = block(self.inplanes, planes, stride, downsample, *shape, dilation, norm)
        self.inplanes = outputs
        rest = [
            block(outputs, planes, 1, None, *shape, self.dilation, norm) for _ in range(1, blocks)
        ]
        return nn.Sequential(first, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images: (N, 3, H, W) to (N, num_classes).

        Example:
            >>> net = adjit.models.resnet18(num_classes=10).eval()
            >>> net(adjit.zeros(1, 3, 32, 32)).shape
            adjit.Size([1, 10])
        """
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


# ----- the networks of the paper, and their weights -----


def _imagenet(
    file: str, parameters: int, acc1: float, acc5: float, resize_size: int = 256
) -> Weights:
    """Weights for the 1000 classes of ImageNet, with the accuracy that torchvision reports."""
    return Weights(
        f"https://download.pytorch.org/models/{file}",
        ImageClassification(crop_size=224, resize_size=resize_size),
        {
            "num_params": parameters,
            "num_classes": 1000,
            "min_size": (1, 1),
            "_metrics": {"ImageNet-1K": {"acc@1": acc1, "acc@5": acc5}},
        },
    )


class ResNet18_Weights(WeightsEnum):
    """Weights of ResNet-18, trained on ImageNet.

    Example:
        >>> adjit.models.ResNet18_Weights.DEFAULT.meta["num_params"]
        11689512
    """

    IMAGENET1K_V1 = _imagenet("resnet18-f37072fd.pth", 11_689_512, 69.758, 89.078)
    DEFAULT = IMAGENET1K_V1


class ResNet34_Weights(WeightsEnum):
    """Weights of ResNet-34, trained on ImageNet.

    Example:
        >>> adjit.models.ResNet34_Weights.DEFAULT.meta["num_params"]
        21797672
    """

    IMAGENET1K_V1 = _imagenet("resnet34-b627a593.pth", 21_797_672, 73.314, 91.420)
    DEFAULT = IMAGENET1K_V1


class ResNet50_Weights(WeightsEnum):
    """Weights of ResNet-50, trained on ImageNet.

    Example:
        >>> adjit.models.ResNet50_Weights.DEFAULT.meta["num_params"]
        25557032
    """

    IMAGENET1K_V1 = _imagenet("resnet50-0676ba61.pth", 25_557_032, 76.130, 92.862)
    IMAGENET1K_V2 = _imagenet("resnet50-11ad3fa6.pth", 25_557_032, 80.858, 95.434, 232)
    DEFAULT = IMAGENET1K_V2


class ResNet101_Weights(WeightsEnum):
    """Weights of ResNet-101, trained on ImageNet.

    Example:
        >>> adjit.models.ResNet101_Weights.DEFAULT.meta["num_params"]
        44549160
    """

    IMAGENET1K_V1 = _imagenet("resnet101-63fe2227.pth", 44_549_160, 77.374, 93.546)
    IMAGENET1K_V2 = _imagenet("resnet101-cd907fc2.pth", 44_549_160, 81.886, 95.780, 232)
    DEFAULT = IMAGENET1K_V2


class ResNet152_Weights(WeightsEnum):
    """Weights of ResNet-152, trained on ImageNet.

    Example:
        >>> adjit.models.ResNet152_Weights.DEFAULT.meta["num_params"]
        60192808
    """

    IMAGENET1K_V1 = _imagenet("resnet152-394f9c45.pth", 60_192_808, 78.312, 94.046)
    IMAGENET1K_V2 = _imagenet("resnet152-f82ba261.pth", 60_192_808, 82.284, 96.002, 232)
    DEFAULT = IMAGENET1K_V2


def _resnet(
    block: Block, layers: Sequence[int], weights: WeightsEnum | None, progress: bool, options: Any
) -> ResNet:
    """A network of the paper, with weights where they are asked for."""
    if weights is None:
        return ResNet(block, layers, **options)
    classes = weights.meta["num_classes"]
    if options.setdefault("num_classes", classes) != classes:
        raise ValueError(
            f"The parameter 'num_classes' expected value {classes} but got "
            f"{options['num_classes']} instead."
        )
    state = weights.get_state_dict(progress=progress)
    model = ResNet(block, layers, **options)
    model.load_state_dict(state)
    return model


def resnet18(
    *, weights: ResNet18_Weights | str | None = None, progress: bool = True, **kwargs: Any
) -> ResNet:
    """ResNet-18, of "Deep Residual Learning for Image Recognition" (arXiv:1512.03385).

    Args:
        weights: a member of `ResNet18_Weights`, or its name such as `"DEFAULT"`; random without.
            They are read from a local file, see `WeightsEnum.path`.
        progress: without a meaning: nothing is downloaded.
        **kwargs: arguments of `ResNet`.

    Raises:
        FileNotFoundError: if the file of the weights is missing; says which one to put where.
        RuntimeError: if it is another file than its name says.
        ValueError: for weights together with another number of classes.

    Example:
        >>> model = adjit.models.resnet18(num_classes=10)
        >>> sum(p.numel() for p in model.parameters())
        11181642
    """
    return _resnet(BasicBlock, [2, 2, 2, 2], ResNet18_Weights.verify(weights), progress, kwargs)


def resnet34(
    *, weights: ResNet34_Weights | str | None = None, progress: bool = True, **kwargs: Any
) -> ResNet:
    """ResNet-34; the arguments are those of `resnet18`.

    Example:
        >>> len(list(adjit.models.resnet34().parameters()))
        110
    """
    return _resnet(BasicBlock, [3, 4, 6, 3], ResNet34_Weights.verify(weights), progress, kwargs)


def resnet50(
    *, weights: ResNet50_Weights | str | None = None, progress: bool = True, **kwargs: Any
) -> ResNet:
    """ResNet-50, with the stride in the 3x3 convolutions; the arguments are those of `resnet18`.

    Example:
        >>> len(list(adjit.models.resnet50().parameters()))
        161
    """
    return _resnet(Bottleneck, [3, 4, 6, 3], ResNet50_Weights.verify(weights), progress, kwargs)


def resnet101(
    *, weights: ResNet101_Weights | str | None = None, progress: bool = True, **kwargs: Any
) -> ResNet:
    """ResNet-101; the arguments are those of `resnet18`.

    Example:
        >>> len(list(adjit.models.resnet101().parameters()))
        314
    """
    return _resnet(Bottleneck, [3, 4, 23, 3], ResNet101_Weights.verify(weights), progress, kwargs)


def resnet152(
    *, weights: ResNet152_Weights | str | None = None, progress: bool = True, **kwargs: Any
) -> ResNet:
    """ResNet-152; the arguments are those of `resnet18`.

    Example:
        >>> len(list(adjit.models.resnet152().parameters()))
        467
    """
    return _resnet(Bottleneck, [3, 8, 36, 3], ResNet152_Weights.verify(weights), progress, kwargs)
