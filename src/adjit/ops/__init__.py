"""The op table: every op is one place in one of these files."""

from . import (
    arithmetic,
    bitwise,
    comparison,
    creation,
    elementwise,
    operators,
    rounding,
    view,
)
