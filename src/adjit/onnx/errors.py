"""The errors of exports."""

from __future__ import annotations

__all__ = [
    "OnnxExporterError",
    "OnnxExporterWarning",
    "SymbolicValueError",
    "UnsupportedOperatorError",
]


class OnnxExporterWarning(UserWarning):
    """Warns that an export may not be what was meant.

    Example:
        >>> issubclass(adjit.onnx.errors.OnnxExporterWarning, UserWarning)
        True
    """


class OnnxExporterError(RuntimeError):
    """Says why a program cannot be written as an ONNX graph.

    Example:
        >>> class Chooses(nn.Module):
        ...     def forward(self, x):
        ...         return x if x.sum() > 0 else -x
        >>> adjit.onnx.export(Chooses(), (adjit.ones(2),))
        Traceback (most recent call last):
        adjit.onnx.errors.OnnxExporterError: the program looks at values that depend on its inputs ...
    """


class UnsupportedOperatorError(OnnxExporterError):
    """Names an operation that has no rule for ONNX.

    Example:
        >>> class Ranks(nn.Module):
        ...     def forward(self, x):
        ...         return x.median()
        >>> adjit.onnx.export(Ranks(), (adjit.ones(2),))
        Traceback (most recent call last):
        adjit.onnx.errors.UnsupportedOperatorError: no rule writes 'median' as ONNX; ...
    """


class SymbolicValueError(OnnxExporterError):
    """Is there for programs that catch it: nothing here raises it.

    Example:
        >>> issubclass(adjit.onnx.errors.SymbolicValueError, adjit.onnx.OnnxExporterError)
        True
    """
