"""What cannot be differentiated, said with the user's line."""

from __future__ import annotations


class NotDifferentiable(SyntaxError):
    """Code of a user's kernel that adjit cannot differentiate, and what to write instead.

    `filename`, `lineno` and `text` say where, as those of every `SyntaxError` do.

    Example:
        >>> issubclass(adjit.user_kernels.NotDifferentiable, SyntaxError)
        True
    """

    def __str__(self) -> str:
        return str(self.msg)
