"""How tensors look: PyTorch's text form, an HTML form for notebooks, and the options of both.

Everything here works on a NumPy array and a few facts about the tensor, so that nothing in this
file depends on the tensor itself.  Only the elements that are shown are ever formatted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

__all__ = [
    "ModuleTree",
    "format_tensor_spec",
    "get_printoptions",
    "module_html",
    "printoptions",
    "set_printoptions",
    "tensor_html",
    "tensor_repr",
]

Array = np.ndarray[Any, np.dtype[Any]]


# ---- options -------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Options:
    """The settings of `set_printoptions`."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: float = 80
    sci_mode: bool | None = None


PRINT_OPTS = _Options()  # PyTorch's name

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: float | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    An option left at None keeps its value, with one exception: `sci_mode` is set by every call,
    and None means that each tensor chooses by its own values.

    Args:
        precision: digits after the point of floating numbers (4).
        threshold: a tensor with more elements than this is summarised (1000).
        edgeitems: how many items a summary shows at either end of a dimension (3).
        linewidth: characters in a line (80).
        profile: "default", "short" or "full", applied before the other arguments; another one changes nothing.
        sci_mode: True for scientific notation, False for fixed point, None for automatic.

    Example:
        >>> import adjit
        >>> adjit.set_printoptions(precision=2)
        >>> adjit.tensor([1.12345])
        tensor([1.12])
        >>> adjit.set_printoptions(profile="default")
    """
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen = dict(_PROFILES.get(profile or "", {}))
    chosen |= {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The current options, as keyword arguments for `set_printoptions`.

    Example:
        >>> import adjit
        >>> adjit.get_printoptions()["precision"]
        4
    """
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Print with other options inside a `with` block; takes what `set_printoptions` takes.

    Example:
        >>> import adjit
        >>> with adjit.printoptions(precision=1):
        ...     print(adjit.tensor([0.25, 0.5]))
        tensor([0.2, 0.5])
    """
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# ---- one number ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Notation:
    """One way of writing every number of a tensor: a format, a point after integers, a width."""

    spec: str
    point: bool
    width: int

    def write(self, value: Any) -> str:
        text = format(value, self.spec)
        if self.point and math.isfinite(value):
            text += "."
        return text.rjust(self.width)


@dataclasses.dataclass(frozen=True, slots=True)
class _ComplexNotation:
    """The notations of the real and of the imaginary parts."""

    real: _Notation
    imag: _Notation

    @property
    def width(self) -> int:
        return self.real.width + self.imag.width + 1

    def write(self, value: complex) -> str:
        imag = self.imag.write(value.imag).lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return f"{self.real.write(value.real)}{sign}{imag}j"


def _notation(shown: Array) -> _Notation | _ComplexNotation:
    """The notation that PyTorch chooses for the elements that are shown."""
    if shown.dtype.kind == "c":
        return _ComplexNotation(_float_notation(shown.real), _float_notation(shown.imag))
    if shown.dtype.kind == "f":
        return _float_notation(shown)
    return _measured(_Notation(spec="", point=False, width=1), shown)


def _float_notation(shown: Array) -> _Notation:
    """Zeros, infinities and NaN have no say in the notation nor in the width of a column."""
    deciding = shown[np.isfinite(shown) & (shown != 0)].astype(np.float64)
    if deciding.size == 0:
        return _Notation(spec=".0f", point=True, width=1)
    if PRINT_OPTS.sci_mode if PRINT_OPTS.sci_mode is not None else _is_spread_out(np.abs(deciding)):
        spec, point = f".{PRINT_OPTS.precision}e", False
    elif np.array_equal(deciding, np.trunc(deciding)):
        spec, point = ".0f", True
    else:
        spec, point = f".{PRINT_OPTS.precision}f", False
    return _measured(_Notation(spec, point, width=1), deciding)


def _is_spread_out(magnitudes: Array) -> bool:
    """Whether fixed point would lose small numbers or drag out large ones."""
    least, most = magnitudes.min().item(), magnitudes.max().item()
    return bool(most > 1.0e8 or least < 1.0e-4 or most / least > 1000.0)


def _measured(notation: _Notation, values: Array) -> _Notation:
    """The notation as wide as its longest number."""
    width = max((len(notation.write(value)) for value in values.ravel().tolist()), default=1)
    return dataclasses.replace(notation, width=width)


def format_tensor_spec(values: Array, spec: str) -> str:
    """Format a 0-d tensor's item, as `f"{x:.3f}"` and `f"{x}"` do.

    Raises:
        TypeError: the tensor is not 0-d; only its plain text form can be formatted.

    Example:
        >>> import adjit
        >>> f"{adjit.tensor(2.5):.2f}"
        '2.50'
    """
    if values.ndim:
        raise TypeError("unsupported format string passed to Tensor.__format__")
    return format(values.item(), spec)


# ---- text ----------------------------------------------------------------------------------------


def tensor_repr(
    values: Array,
    *,
    dtype_name: str,
    is_default_dtype: bool,
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    device: str | None = None,
    tangent: str | None = None,
    prefix: str = "tensor(",
    around: int = 0,
) -> str:
    """The text form of a tensor, character by character PyTorch's.

    Args:
        values: the elements, of any shape.
        dtype_name: what stands after `dtype=`, for example "adjit.float64".
        is_default_dtype: whether the dtype is the default floating dtype (or, for complex values,
            the complex dtype that belongs to it).
        requires_grad: whether a leaf needs gradients; shown where there is no `grad_fn_name`.
        grad_fn_name: the name of the backward function, for example "MulBackward0".
        device: shown if given.
        tangent: the text of the forward-mode tangent, shown if given.
        prefix: what stands before the elements, "Parameter containing:\\ntensor(" for parameters.
        around: how many axes of size 1 there are in front of those of `values`.

    Example:
        >>> import numpy as np
        >>> tensor_repr(np.ones(2), dtype_name="adjit.float64", is_default_dtype=False)
        'tensor([1., 1.], dtype=adjit.float64)'
    """
    indent = len(prefix) - prefix.rfind("\n") - 1
    notes = []
    if device is not None:
        notes.append(f"device='{device}'")
    if _needs_size(values):
        notes.append(f"size={values.shape}")
    if _needs_dtype(values, is_default_dtype):
        notes.append(f"dtype={dtype_name}")
    if grad_fn_name is not None:
        notes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        notes.append("requires_grad=True")
    if tangent is not None:
        notes.append(f"tangent={tangent}")
    shown = "[" * around + _elements(values, indent + around) + "]" * around
    return _with_notes(prefix + shown, notes, indent) + ")"


def _needs_size(values: Array) -> bool:
    """Whether the elements alone do not tell the shape."""
    return values.ndim != 1 if values.size == 0 else not PRINT_OPTS.edgeitems


def _needs_dtype(values: Array, is_default_dtype: bool) -> bool:
    """Whether the elements alone do not tell the dtype."""
    if values.size == 0:
        return not is_default_dtype or values.dtype.kind == "c"
    return not is_default_dtype and values.dtype not in (np.int64, np.bool_)


def _with_notes(text: str, notes: Iterable[str], indent: int) -> str:
    """Append the notes, each on the same line if it fits."""
    # PyTorch counts the first line one character longer than it is, and a final bracket or comma.
    used = len(text) - text.rfind("\n") + 1
    for note in notes:
        if used + len(note) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + note
            used = indent + len(note)
        else:
            text += ", " + note
            used += len(note) + 2
    return text


def _elements(values: Array, indent: int) -> str:
    """The nested brackets; a big array is summarised."""
    if values.size == 0:
        return "[]"
    edge = PRINT_OPTS.edgeitems if values.size > PRINT_OPTS.threshold else None
    shown, cut = _corners(values, [edge] * values.ndim)
    return _nested(shown, cut, edge or 0, indent, _notation(shown))


def _tensor_str(self: Any, indent: int) -> str:
    """The elements of a tensor alone, by the name that programs know from PyTorch."""
    return _elements(self.detach().cpu().numpy(), indent)


def _corners(values: Array, edges: Sequence[int | None]) -> tuple[Array, list[bool]]:
    """The elements near the ends of every axis, and which axes have left something out."""
    cut = [
        edge is not None and size > 2 * edge for size, edge in zip(values.shape, edges, strict=True)
    ]
    if not any(cut):
        return values, cut
    kept = [
        np.r_[:edge, size - edge : size] if left_out and edge is not None else np.arange(size)
        for size, edge, left_out in zip(values.shape, edges, cut, strict=True)
    ]
    return values[np.ix_(*kept)], cut


def _nested(
    shown: Array,
    cut: Sequence[bool],
    edge: int,
    indent: int,
    notation: _Notation | _ComplexNotation,
) -> str:
    """Brackets around the rows of the elements that are shown, "..." where an axis was cut."""
    if shown.ndim == 0:
        return notation.write(shown.item())
    if shown.ndim == 1:
        items = [notation.write(value) for value in shown.tolist()]
        if cut[0]:
            items.insert(edge, " ..." if edge else "...")
        lines = [", ".join(line) for line in _lines(items, notation.width + 2, indent)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_nested(row, cut[1:], edge, indent + 1, notation) for row in shown]
    if cut[0]:
        rows.insert(edge, "...")
    between = "," + "\n" * (shown.ndim - 1) + " " * (indent + 1)
    return "[" + between.join(rows) + "]"


def _lines(items: Sequence[str], width: int, indent: int) -> Iterator[Sequence[str]]:
    """Break the items into lines; each takes its width, separator included."""
    room = PRINT_OPTS.linewidth - indent
    if room >= width * len(items):  # also where the line is infinitely wide
        return iter([items])
    fitting = max(1, int(room // width))
    return (items[start : start + fitting] for start in range(0, len(items), fitting))


# ---- HTML ----------------------------------------------------------------------------------------

_EDGE_CELLS = 5
_EDGE_SLICES = 3

# Translucent greys over inherited colours are readable on a light and on a dark page.
_STYLE = """\
<style>
.adjit-tensor {max-width: 100%; overflow-x: auto; line-height: 1.4}
.adjit-tensor .about {opacity: .7; margin-bottom: .3em}
.adjit-tensor .slices {display: flex; flex-wrap: wrap; align-items: center; gap: .6em 2em}
.adjit-tensor table {border-collapse: collapse; border: none; margin: 0}
.adjit-tensor caption {
  caption-side: top; text-align: left; padding: 0 0 .2em; opacity: .7; font-family: monospace}
.adjit-tensor th, .adjit-tensor td {
  padding: .1em .6em; border: none; background: none; text-align: right; white-space: nowrap;
  font-family: monospace; font-variant-numeric: tabular-nums}
.adjit-tensor th {font-weight: normal; opacity: .55}
.adjit-tensor thead th {border-bottom: 1px solid rgba(128, 128, 128, .5)}
.adjit-tensor tbody th {border-right: 1px solid rgba(128, 128, 128, .5)}
</style>"""


def tensor_html(
    values: Array,
    *,
    dtype_name: str,
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    device: str | None = None,
    kind: str = "Tensor",
) -> str:
    """The form of a tensor for notebooks: a table with row and column numbers.

    Shows at most five items at either end of a row or column; tensors of more than two dimensions
    become at most six labelled slices.  A line above tells the kind, shape, dtype and gradient
    function.  No script is used, and colours follow the page.

    Args:
        values: the elements, of any shape.
        dtype_name: the dtype's name, for example "adjit.float64".
        requires_grad: whether a leaf needs gradients; shown where there is no `grad_fn_name`.
        grad_fn_name: the name of the backward function.
        device: shown if given.
        kind: the first word, for example "Parameter".

    Example:
        >>> import numpy as np
        >>> "<td>0.5000</td>" in tensor_html(np.array(0.5), dtype_name="adjit.float64")
        True
    """
    about = [kind, str(values.shape), dtype_name]
    if device is not None:
        about.append(device)
    if grad_fn_name is not None:
        about.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        about.append("requires_grad=True")
    parts = [
        '<div class="adjit-tensor">',
        _STYLE,
        f'<div class="about">{html.escape(" · ".join(about))}</div>',
        *_slices(values),
        "</div>",
    ]
    return "\n".join(parts)


@dataclasses.dataclass(slots=True)
class ModuleTree:
    """A module as its tree for notebooks shows it.

    Attributes:
        name: what its parent calls it, "" at the root.
        kind: its class.
        about: its `extra_repr`.
        tensors: its own parameters and buffers: name, dtype and shape, and a remark.
        count: how many numbers its parameters have, with those of its children.
        children: the modules in it.
    """

    name: str
    kind: str
    about: str
    tensors: list[tuple[str, str, str]]
    count: int
    children: list[ModuleTree]


_TREE_STYLE = """\
<style>
.adjit-module {line-height: 1.5; font-family: monospace; overflow-x: auto}
.adjit-module .inner {margin-left: .45em; padding-left: 1em; border-left: 1px solid rgba(128, 128, 128, .4)}
.adjit-module summary {cursor: pointer; white-space: nowrap}
.adjit-module .leaf {padding-left: 1.05em; white-space: nowrap}
.adjit-module .about {opacity: .7}
</style>"""


def module_html(root: ModuleTree) -> str:
    """The form of a module for notebooks: a tree that unfolds, without a script.

    The root is open. Each line tells the name, class, `extra_repr` and number of parameters; what is in it
    comes below: its own parameters and buffers with their shapes, then its children.

    Example:
        >>> tree = ModuleTree("", "ReLU", "", [], 0, [])
        >>> '<div class="leaf"><b>ReLU</b></div>' in module_html(tree)
        True
    """
    return "\n".join(['<div class="adjit-module">', _TREE_STYLE, *_branch(root, " open"), "</div>"])


def _branch(branch: ModuleTree, state: str) -> Iterator[str]:
    """The lines of a module and of all in it."""
    name = f"{html.escape(branch.name)}: " if branch.name else ""
    about = " · ".join([part for part in (branch.about, _parameters(branch.count)) if part])
    line = f"{name}<b>{html.escape(branch.kind)}</b>"
    if about:
        line += f' <span class="about">{html.escape(about)}</span>'
    if not branch.tensors and not branch.children:
        yield f'<div class="leaf">{line}</div>'
        return
    yield f'<details{state}><summary>{line}</summary><div class="inner">'
    for tensor, form, remark in branch.tensors:
        told = html.escape(" · ".join([part for part in (form, remark) if part]))
        yield f'<div class="leaf">{html.escape(tensor)} <span class="about">{told}</span></div>'
    for child in branch.children:
        yield from _branch(child, "")
    yield "</div></details>"


def _parameters(count: int) -> str:
    return f"{count:,} parameter{'' if count == 1 else 's'}" if count else ""


def _slices(values: Array) -> Iterator[str]:
    """The tables of a tensor, one for each position in the leading dimensions."""
    if values.size == 0:
        return
    leading = values.shape[:-2]
    chosen = _axis(math.prod(leading), _EDGE_SLICES)
    positions = [None if flat is None else np.unravel_index(flat, leading) for flat in chosen]
    matrices = [np.asarray(values[at]) for at in positions if at is not None]
    corners = [_corners(matrix, [_EDGE_CELLS] * matrix.ndim)[0] for matrix in matrices]
    notation = _notation(np.stack(corners))
    yield '<div class="slices">'
    for at in positions:
        if at is None:
            yield "<div>…</div>"
        else:
            label = ", ".join([*(str(index) for index in at), ":", ":"]) if leading else None
            yield from _table(np.asarray(values[at]), label, notation)
    yield "</div>"


def _axis(size: int, edge: int) -> list[int | None]:
    """The indices that `_corners` keeps of an axis, with None where it leaves some out."""
    if size <= 2 * edge:
        return list(range(size))
    return [*range(edge), None, *range(size - edge, size)]


def _table(
    values: Array, label: str | None, notation: _Notation | _ComplexNotation
) -> Iterator[str]:
    """A table of a scalar, a row or a matrix; its sides are numbered if it has them."""
    matrix = np.atleast_2d(values)
    rows, columns = (_axis(size, _EDGE_CELLS) for size in matrix.shape)
    yield "<table>"
    if label is not None:
        yield f"<caption>[{label}]</caption>"
    if values.ndim > 0:
        corner = "<th></th>" if values.ndim > 1 else ""
        numbers = "".join(f'<th scope="col">{_numbered(column)}</th>' for column in columns)
        yield f"<thead><tr>{corner}{numbers}</tr></thead>"
    yield "<tbody>"
    for row in rows:
        number = f'<th scope="row">{_numbered(row)}</th>' if values.ndim > 1 else ""
        cells = (
            "…" if row is None or column is None else notation.write(matrix[row, column].item())
            for column in columns
        )
        yield f"<tr>{number}{''.join(f'<td>{cell.strip()}</td>' for cell in cells)}</tr>"
    yield "</tbody></table>"


def _numbered(index: int | None) -> str:
    return "…" if index is None else str(index)
