from ..shapes import *  # noqa: F403
