"""PyTorch's `torch.amp`: programs of mixed precision run in the precision of their tensors.

No device computes in half precision here. As PyTorch does where a device lacks a dtype, `autocast` says so and
leaves tensors as they are. `GradScaler` scales losses, and skips steps whose gradients are not finite.

`autocast_mode.py` has what is asked and refused, `grad_scaler.py` the scaler.
"""

from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
