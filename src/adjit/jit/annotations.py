"""`torch.jit.annotations`, where programs import `List` and other names of `typing` from."""

from typing import *  # noqa: F403
from typing import __all__ as __all__
