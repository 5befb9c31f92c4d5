"""`torch.onnx.operators`: shapes as tensors, which programs of traced graphs reckon with."""

from ..ops.creation import _reshape_from_tensor as reshape_from_tensor_shape
from ..ops.creation import _shape_as_tensor as shape_as_tensor

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]
