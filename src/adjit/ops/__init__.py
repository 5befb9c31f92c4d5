"""The op table: every op is one place in one of these files."""

from . import (  # noqa: F401
    creation,
    elementwise,
    view,
)
