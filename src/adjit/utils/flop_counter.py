"""How many multiplications and additions a program asks for: PyTorch's `FlopCounterMode`.

Counted are products of matrices, convolutions, attention, recurrent layers and what goes back through
them, where they are recorded: by the formulas and under the names that PyTorch has for them.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Self, TypeVar

from ..autograd.graph import register_multi_grad_hook
from ..graph.operation import Operation
from ..graph.registry import registry
from ..graph.state import be_careful, state
from ..nn.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from ..ops import attention, conv, linear, matmul, product_sums, recurrent
from ..shapes import Shape
from ..tensor import Tensor
from ._pytree import tree_leaves, tree_map

__all__ = ["FlopCounterMode", "register_flop_formula"]

Formula = Callable[..., int]
_Formula = TypeVar("_Formula", bound=Formula)
Named = tuple[str, Formula]  # the name that PyTorch has for an op, and its formula


class FlopCounterMode:
    """Count the floating-point operations of products, convolutions, attention and recurrent layers in a block.

    A multiplication and an addition are two. What is counted is also said for each module that was called in
    the block, with the modules around it: forward and, as far as it runs in the block, backward.

    What is counted is what is computed: PyTorch's figures, where it computes the same. It counts nothing for
    its own CPU kernels of attention and of LSTMs: here these count as its attention on GPUs, and as its GRU.

    Args:
        mods: not needed any more; warns.
        depth: how many levels of modules the table has; None for all.
        display: whether the table is printed at the end of the block.
        custom_mapping: formulas for further ops, as for `register_flop_formula`.

    Example:
        >>> with adjit.utils.flop_counter.FlopCounterMode(display=False) as counter:
        ...     y = adjit.ones(2, 3) @ adjit.ones(3, 4)
        >>> counter.get_total_flops(), counter.get_flop_counts()
        (48, {'Global': {'aten.mm': 48}})
    """

    def __init__(
        self, mods: Module | list[Module] | None = None, depth: int = 2, display: bool = True,
        custom_mapping: dict[Any, Formula] | None = None,
    ) -> None:  # fmt: skip
        if mods is not None:
            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", stacklevel=2
            )
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        custom = {
            _operation(op): (_name(op), _of_shapes(formula))
            for op, formula in (custom_mapping or {}).items()
        }
        self._formulas = _FORMULAS | custom
        self._modules = ModuleTracker()

    def get_total_flops(self) -> int:
        """Tell how many there were.

        Example:
            >>> with adjit.utils.flop_counter.FlopCounterMode(display=False) as counter:
            ...     y = nn.Linear(3, 4)(adjit.ones(2, 3))
            >>> counter.get_total_flops()
            48
        """
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Tell how many there were, by module ("Global" for all) and by the op's name in PyTorch.

        Example:
            >>> with adjit.utils.flop_counter.FlopCounterMode(display=False) as counter:
            ...     y = nn.Linear(3, 4)(adjit.ones(2, 3))
            >>> counter.get_flop_counts()["Linear"]
            {'aten.addmm': 48}
        """
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Write the counts as a table of modules.

        Args:
            depth: how many levels of modules it has; as the block was told unless given.

        Example:
            >>> with adjit.utils.flop_counter.FlopCounterMode(display=False) as counter:
            ...     y = nn.Linear(30, 40)(adjit.ones(20, 30))
            >>> print(counter.get_table())
            Module            FLOP    % Total
            -------------  -------  ---------
            Linear         48.000K    100.00%
             - aten.addmm  48.000K    100.00%
        """
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        suffix = _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(total)) - 2) // 3))]
        rows, is_total_shown = [], False
        for name in sorted(self.flop_counts):
            level = name.count(".") + 1
            if name != "Global" and (depth is None or level <= depth):
                is_total_shown |= sum(self.flop_counts[name].values()) >= total
                rows += self._rows(name, level - 1, total, suffix)
        if not is_total_shown and "Global" in self.flop_counts:
            rows = [(f" {row[0]}", *row[1:]) for row in rows]
            rows = self._rows("Global", 0, total, suffix) + rows
        return _table([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, name: str, level: int, total: int, suffix: str) -> list[tuple[str, ...]]:
        counts, pad = self.flop_counts[name], " " * level
        shown = [(f"{pad}{name}", sum(counts.values()))]
        shown += [(f"{pad} - {op}", count) for op, count in counts.items()]
        return [
            (label, _with_suffix(count, suffix), f"{count / total:.2%}" if total else "0%")
            for label, count in shown
        ]

    def __enter__(self) -> Self:
        self.flop_counts.clear()
        self._modules.__enter__()
        state.counters = (*state.counters, self)
        be_careful()
        return self

    def __exit__(self, *_: object) -> None:
        state.counters = tuple([one for one in state.counters if one is not self])
        be_careful()
        self._modules.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    # ----- what the ops tell -----

    def knows(self, op: Any) -> bool:
        """Whether an op is counted as a whole; else the ops that it consists of are."""
        return op in self._formulas

    def ran(self, op: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Count a call of an op that is known."""
        name, formula = self._formulas[op]
        self.add(name, formula(op, args, kwargs, out))

    def add(self, name: str, count: int) -> None:
        """Count what PyTorch has a name for."""
        for module in self._modules.parents:
            self.flop_counts[module][name] += count


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[_Formula], _Formula]:
    """Make a decorator for a formula of ops, which says what a call counts.

    Args:
        targets: the functions of adjit's ops, one or a list. Functions that consist of other ops have none.
        get_raw: whether the formula gets the arguments and `out_val=`; else the shapes of tensors in the
            place of these, and `out_shape=`.

    Raises:
        ValueError: if it is no function of an op.

    Example:
        >>> @adjit.utils.flop_counter.register_flop_formula(adjit.dot)
        ... def dot_flop(x_shape, y_shape, out_shape=None):
        ...     return 2 * x_shape[0]
        >>> with adjit.utils.flop_counter.FlopCounterMode(display=False) as counter:
        ...     y = adjit.ones(3).dot(adjit.ones(3))
        >>> counter.get_total_flops()
        6
    """
    chosen = targets if isinstance(targets, (list, tuple)) else [targets]
    named = {_operation(target): _name(target) for target in chosen}

    def register(formula: _Formula) -> _Formula:
        counted = _of_shapes(formula, get_raw)
        _FORMULAS.update({op: (name, counted) for op, name in named.items()})
        return formula

    return register


# ----- ops and their formulas -----


def _operation(target: Any) -> Operation:
    """The op that a function is one of, by the body that both are made of."""
    ops = [op for op in registry.values() if isinstance(op, Operation)]
    bodies = {op.function: op for op in ops}
    inside = target
    while inside is not None and not isinstance(inside, Operation):
        inside = bodies.get(inside) or getattr(inside, "__wrapped__", None)
    if inside is None:
        raise ValueError(
            "register_flop_formula(targets): expected each target to be the function of one op of "
            f"adjit, as adjit.dot; got {target}"
        )
    return inside


def _name(target: Any) -> str:
    return f"aten.{target.__name__}"


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value


def _of_shapes(formula: Formula, get_raw: bool = False) -> Formula:
    def count(_: Operation, args: Any, kwargs: Any, out: Any) -> int:
        if get_raw:
            return formula(*args, **kwargs, out_val=out)
        args, kwargs, out = tree_map(_shape, (tuple(args), dict(kwargs), out))
        return formula(*args, **kwargs, out_shape=out)

    return count


def product(a: Shape, b: Shape) -> int:
    """Operations of a product of matrices, or of a batch of products."""
    return 2 * prod(a) * b[-1]


def convolution(
    image: Sequence[int], weight: Sequence[int], out: Sequence[int], is_transposed: bool = False
) -> int:
    """Operations of a convolution (batch, channels, ...), as PyTorch counts them: those at its border too."""
    places = (image if is_transposed else out)[2:]
    return 2 * prod(places) * prod(weight) * image[0]


def _turned(shape: Sequence[int]) -> Sequence[int]:
    return (shape[1], shape[0], *shape[2:])


def attend(query: Shape, key: Shape, value: Shape) -> int:
    """Operations of attention (batch, heads, positions, width): of all pairs, masked ones too."""
    pairs = prod(query[:3]) * key[2]
    return 2 * pairs * (query[3] + value[3])


def attend_backward(query: Shape, key: Shape, value: Shape) -> int:
    """Operations of what goes back through attention, with its weights once more."""
    pairs = prod(query[:3]) * key[2]
    return 2 * pairs * (3 * query[3] + 2 * value[3])


def _tensors(op: Operation, args: Any, kwargs: Any) -> dict[str, Any]:
    return {name: _shape(value) for name, value in op.bind(args, kwargs).items()}


def _by(names: str, count: Callable[..., int]) -> Formula:
    """A formula of the shapes of the arguments with these names."""

    def formula(op: Operation, args: Any, kwargs: Any, out: Any) -> int:
        given = _tensors(op, args, kwargs)
        return count(*[given[name] for name in names.split()])

    return formula


def _convolution(is_transposed: bool) -> Formula:
    def formula(op: Operation, args: Any, kwargs: Any, out: Any) -> int:
        image, weight = (*_tensors(op, args, kwargs).values(),)[:2]
        return convolution(image, weight, out.shape, is_transposed)

    return formula


def _weight_gradient(op: Operation, args: Any, kwargs: Any, out: Any) -> int:
    image, upper = (*_tensors(op, args, kwargs).values(),)[:2]
    return convolution(_turned(image), _turned(upper), _turned(out.shape))


def _recurrent(op: Operation, args: Any, kwargs: Any, out: Any) -> int:
    given = _tensors(op, args, kwargs)
    return 2 * given["x"][0] * (prod(given["w_ih"]) + prod(given["w_hh"]))


_FORWARD, _BACK = "aten.convolution", "aten.convolution_backward"
_FLASH = "aten._scaled_dot_product_flash_attention"
_FORMULAS: dict[Operation, Named] = {
    matmul.mm: ("aten.mm", _by("input mat2", product)),
    matmul.batched_product: ("aten.bmm", _by("x y", product)),
    linear.affine: ("aten.addmm", _by("input weight", lambda x, w: product(x, w[::-1]))),
    product_sums.addmm: ("aten.addmm", _by("mat1 mat2", product)),
    product_sums.addbmm: ("aten.addbmm", _by("batch1 batch2", product)),
    product_sums.baddbmm: ("aten.baddbmm", _by("batch1 batch2", product)),
    conv.convolved: (_FORWARD, _convolution(False)),
    conv.convolved_with_bias: (_FORWARD, _convolution(False)),
    conv.transposed: (_FORWARD, _convolution(True)),
    conv.transposed_with_bias: (_FORWARD, _convolution(True)),
    conv.convolution_of: (_BACK, _convolution(False)),
    conv.image_gradient: (_BACK, _convolution(True)),
    conv.weight_gradient: (_BACK, _weight_gradient),
    attention.attend: (_FLASH, _by("query key value", attend)),
    attention.attend_backward: (f"{_FLASH}_backward", _by("query key value", attend_backward)),
    recurrent.recurrent_layer: ("aten.addmm", _recurrent),
}


# ----- modules -----


class ModuleTracker:
    """The names of the modules that are running: forward, and in a backward pass those it goes through."""

    def __init__(self) -> None:
        self._parents = {"Global"}
        self._walk: Any = None  # the backward pass that has put names there
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._hooks: list[Any] = []

    @property
    def parents(self) -> set[str]:
        """The names that they have now; "Global" is always among them."""
        if self._walk is not None and state.walk is not self._walk:
            self._parents, self._walk = {"Global"}, None
        return self._parents

    def __enter__(self) -> Self:
        self._hooks = [
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _name(self, module: Module) -> str:
        """The name of a module: its class, or that of the one around it and the attribute."""
        name = self._names.setdefault(module, type(module).__name__)
        for attribute, part in module.named_children():
            if part not in self._names:
                self._names[part] = f"{name}.{attribute}"
                self._name(part)
        return name

    def _begins(self, module: Module, args: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        self._when_back(args, partial(self._leave, name))

    def _ends(self, module: Module, args: Any, output: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        self._when_back(output, partial(self._enter, name))

    def _when_back(self, values: Any, call: Callable[..., None]) -> None:
        """Have something called when the gradients of tensors are there."""
        tensors = [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.requires_grad]
        if tensors:
            self._hooks.append(register_multi_grad_hook(tensors, call))

    def _enter(self, name: str, *_: object) -> None:
        self.parents.add(name)
        self._walk = state.walk

    def _leave(self, name: str, *_: object) -> None:
        self.parents.discard(name)


# ----- tables -----

_SUFFIXES = ["", "K", "M", "B", "T"]


def _with_suffix(number: int, suffix: str) -> str:
    if not suffix:
        return f"{number:g}"
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def _table(rows: list[tuple[str, ...]]) -> str:
    """Rows in columns as wide as their widest, the first to the left; the first row above a line."""
    widths = [max(len(column[0]) + 2, *map(len, column[1:])) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [cells[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        )
        for cells in [*rows[:1], tuple(["-" * width for width in widths]), *rows[1:]]
    ]
    return "\n".join(lines)
