"""Models with torchvision's names, so that its weights fit."""

from __future__ import annotations

from .resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    ResNet18_Weights,
    ResNet34_Weights,
    ResNet50_Weights,
    ResNet101_Weights,
    ResNet152_Weights,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
)
from .weights import ImageClassification, Weights, WeightsEnum

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ImageClassification",
    "ResNet",
    "ResNet18_Weights",
    "ResNet34_Weights",
    "ResNet50_Weights",
    "ResNet101_Weights",
    "ResNet152_Weights",
    "Weights",
    "WeightsEnum",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
]
