"""Modules, layers, losses and initialisers, as in ``torch.nn``."""

from __future__ import annotations

import re
import sys
from typing import NoReturn

from . import functional, init, parameter, utils
from .activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from .container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .layers import (
    AlphaDropout,
    Bilinear,
    CosineSimilarity,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    Linear,
    PairwiseDistance,
    RMSNorm,
    Unflatten,
)
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelSoftMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from .module import Module
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from .padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from .parameter import Buffer, Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "AlphaDropout",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Buffer",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "Embedding",
    "Flatten",
    "GaussianNLLLoss",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiLabelSoftMarginLoss",
    "NLLLoss",
    "PReLU",
    "PairwiseDistance",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "PoissonNLLLoss",
    "RMSNorm",
    "RReLU",
    "ReLU",
    "ReLU6",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "Unflatten",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]

# Programs reach the hooks on all modules as `nn.modules.module.register_module_forward_hook`.
modules = sys.modules[__name__]

# What PyTorch has and adjit has not, yet. Any other unknown name is a slip of the keyboard.
_NOT_SUPPORTED_YET = re.compile(
    r"(Lazy)?(Conv|ConvTranspose|BatchNorm|InstanceNorm)[123]d"
    r"|(Adaptive)?(Avg|Max)Pool[123]d|(MaxUnpool|LPPool)[123]d|FractionalMaxPool[23]d"
    r"|(Circular|Constant|Reflection|Replication|Zero)Pad[123]d|Softmax2d|NLLLoss2d"
    r"|(RNN|LSTM|GRU)(Cell)?|RNN(Cell)?Base|Transformer((En|De)coder(Layer)?)?|MultiheadAttention"
    r"|Upsample|Upsampling(Bilinear|Nearest)2d|PixelShuffle|PixelUnshuffle|ChannelShuffle"
    r"|GroupNorm|SyncBatchNorm|LocalResponseNorm|CrossMapLRN2d|Fold|Unfold|EmbeddingBag"
    r"|FeatureAlphaDropout|CTCLoss|MultiMarginLoss|MultiLabelMarginLoss|LinearCrossEntropy(Loss|Options)"
    r"|AdaptiveLogSoftmaxWithLoss|DataParallel|LazyLinear|Uninitialized(Buffer|Parameter)|Container"
)


def __getattr__(name: str) -> NoReturn:
    if _NOT_SUPPORTED_YET.fullmatch(name):
        raise AttributeError(
            f"nn.{name} is not supported by adjit yet; the layers that are supported are listed "
            "in adjit.nn.__all__"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
