"""`FlopCounterMode`: what it counts, by op and by module, and its table, beside PyTorch's."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import Any

import pytest

import adjit
from adjit.utils.flop_counter import FlopCounterMode, register_flop_formula

torch = pytest.importorskip("torch")
theirs = importlib.import_module("torch.utils.flop_counter")

COUNTERS = (torch, theirs.FlopCounterMode), (adjit, FlopCounterMode)


def counts(counter: Any) -> dict[str, dict[str, int]]:
    """What was counted, by module and by the op's name."""
    found = counter.get_flop_counts()
    return {name: {str(op): n for op, n in ops.items()} for name, ops in found.items()}


def by_library(call: Any) -> list[dict[str, dict[str, int]]]:
    """What both count in a call, and in what goes back from its result."""
    found = []
    for library, mode in COUNTERS:
        library.manual_seed(0)

        def leaf(*shape: int, grad: bool = True, of: Any = library) -> Any:
            return of.randn(*shape, requires_grad=grad)

        with mode(display=False) as counter:
            call(library, leaf).sum().backward()
        assert counter.get_total_flops() == sum(counts(counter).get("Global", {}).values())
        found.append(counts(counter))
    return found


CALLS = {
    "linear": lambda L, t: L.nn.functional.linear(t(5, 3, grad=False), t(4, 3), t(4)),
    "linear of three axes": lambda L, t: L.nn.functional.linear(t(2, 5, 3), t(4, 3), t(4)),
    "linear without bias": lambda L, t: L.nn.functional.linear(t(2, 5, 3), t(4, 3)),
    "matmul": lambda L, t: t(3, 4) @ t(4, 5),
    "matmul of batches": lambda L, t: t(2, 3, 4) @ t(2, 4, 5),
    "vector and matrix": lambda L, t: t(4) @ t(4, 3),
    "matrix and vector, uncounted": lambda L, t: t(3, 4) @ t(4),
    "addmm": lambda L, t: L.addmm(t(5), t(3, 4), t(4, 5), alpha=2),
    "baddbmm": lambda L, t: L.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
    "einsum": lambda L, t: L.einsum("bhid,bhjd->bhij", t(2, 3, 4, 5), t(2, 3, 6, 5)),
    "tensordot": lambda L, t: L.tensordot(t(3, 4, 5), t(4, 5, 2), 2),
    "conv2d": lambda L, t: L.nn.functional.conv2d(t(2, 3, 8, 8), t(4, 3, 3, 3), t(4), stride=2, padding=1),
    "conv2d of data": lambda L, t: L.nn.functional.conv2d(t(2, 3, 8, 8, grad=False), t(4, 3, 3, 3)),
    "conv1d in groups": lambda L, t: L.nn.functional.conv1d(t(2, 4, 8), t(6, 2, 3), groups=2),
    "conv3d": lambda L, t: L.nn.functional.conv3d(t(1, 2, 5, 5, 5), t(3, 2, 3, 3, 3)),
    "turned convolution": lambda L, t: L.nn.functional.conv_transpose2d(
        t(2, 3, 5, 5), t(3, 4, 3, 3), t(4), stride=2
    ),
    "turned convolution in groups": lambda L, t: L.nn.functional.conv_transpose2d(
        t(2, 4, 5, 5), t(4, 3, 3, 3), groups=2
    ),
    "GRU": lambda L, t: L.nn.GRU(4, 5)(t(7, 2, 4))[0],
    "RNN": lambda L, t: L.nn.RNN(4, 5)(t(7, 2, 4))[0],
    "of a state with gradients": lambda L, t: L.nn.RNN(4, 5)(t(7, 2, 4, grad=False), t(1, 2, 5))[0],
    "network": lambda L, t: L.nn.Sequential(
        L.nn.Conv2d(3, 4, 3), L.nn.ReLU(), L.nn.Flatten(), L.nn.Linear(144, 10)
    )(t(2, 3, 8, 8, grad=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_counts_are_those_of_pytorch(name):
    expected, found = by_library(CALLS[name])
    assert found == expected


def test_the_second_time_as_the_first():
    for _ in range(12):  # calls are remembered, and machine code is there
        expected, found = by_library(CALLS["network"])
        assert found == expected


def test_attention_counts_as_on_pytorchs_gpus():
    x = [adjit.randn(2, 3, 8, 16, requires_grad=True) for _ in range(3)]
    with FlopCounterMode(display=False) as counter:
        adjit.nn.functional.scaled_dot_product_attention(*x, is_causal=True).sum().backward()
    name, shapes = "aten._scaled_dot_product_flash_attention", [(2, 3, 8, 16)] * 3
    assert counter.get_flop_counts()["Global"] == {
        name: theirs.sdpa_flop_count(*shapes),
        f"{name}_backward": theirs.sdpa_backward_flop_count(shapes[0], *shapes),
    }


def test_an_lstm_counts_its_products():
    def of(kind: str) -> int:
        with FlopCounterMode(display=False) as counter:
            getattr(adjit.nn, kind)(4, 5)(adjit.ones(7, 2, 4))[0].sum().backward()
        return counter.get_total_flops()

    assert 3 * of("LSTM") == 4 * of("GRU")


def test_gradients_of_gradients_and_recomputed_parts():
    for library, mode in COUNTERS:
        x = library.ones(4, 4, requires_grad=True)
        with mode(display=False) as counter:
            (g,) = library.autograd.grad((x @ x).sum(), x, create_graph=True)
            g.sum().backward()
        assert counts(counter)["Global"]["aten.mm"] == 640
    found = []
    for library, mode in COUNTERS:
        net, again = library.nn.Linear(3, 3), library.utils.checkpoint.checkpoint
        with mode(display=False) as counter:
            again(net, library.ones(5, 3, requires_grad=True), use_reentrant=False).sum().backward()
        found.append(counts(counter)["Global"])
    assert found[1] == found[0]


def test_nothing_is_counted_outside_and_blocks_lie_in_each_other():
    x = adjit.ones(2, 2)
    with FlopCounterMode(display=False) as outer:
        x @ x
        with FlopCounterMode(display=False) as inner:
            x @ x
        x @ x
    x @ x
    assert (outer.get_total_flops(), inner.get_total_flops()) == (48, 16)
    with outer:  # begins again
        pass
    assert outer.get_total_flops() == 0
    assert not adjit.graph.state.state.careful


def table_of_text(rows: Any, headers: Any, colalign: Any) -> str:
    """What the package tabulate, which PyTorch asks, makes of PyTorch's rows: numbers lose their zeros."""

    def shown(text: str) -> str:
        return text if text[-1] in "KMBT%" else f"{float(text):g}"

    cells = [headers, *([label, shown(count), share] for label, count, share in rows)]
    widths = [max(len(c[0]) + 2, *map(len, c[1:])) for c in zip(*cells, strict=True)]
    cells.insert(1, ["-" * w for w in widths])
    return "\n".join(
        "  ".join([c[0].ljust(widths[0]), c[1].rjust(widths[1]), c[2].rjust(widths[2])])
        for c in cells
    )


def test_tables(monkeypatch, capsys):
    if importlib.util.find_spec("tabulate") is None:
        stand_in = types.ModuleType("tabulate")
        stand_in.tabulate = table_of_text
        monkeypatch.setitem(sys.modules, "tabulate", stand_in)
    tables = []
    for library, mode in COUNTERS:

        class Block(library.nn.Module):
            def __init__(self, nn=library.nn):
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
                self.out = nn.Linear(3, 2)

            def forward(self, x, ones=library.ones):
                return self.out(self.inner(x) + x @ ones(3, 3))

        with mode(depth=3) as counter:
            Block()(library.ones(5, 3, requires_grad=True)).sum().backward()
        tables += [counter.get_table(), counter.get_table(1)]
        with mode(display=False) as counter:
            library.ones(30, 40) @ library.ones(40, 500)
            library.nn.Linear(40, 500)(library.ones(3, 40))
        tables.append(counter.get_table())
        with mode(display=False) as counter:
            pass
        tables.append(counter.get_table())
    assert tables[4:] == tables[:4]
    assert capsys.readouterr().out == f"{tables[0]}\n" * 2


def test_formulas_of_ones_own():
    def flops(x, y, out_shape=None):
        return 2 * x[0] + len(out_shape)

    with FlopCounterMode(display=False, custom_mapping={adjit.dot: flops}) as counter:
        adjit.ones(3).dot(adjit.ones(3))
    assert counter.get_flop_counts()["Global"] == {"aten.dot": 6}
    with pytest.raises(ValueError, match=r"register_flop_formula\(targets\): expected each target"):
        register_flop_formula(len)
    with pytest.raises(ValueError, match="expected each target"):
        register_flop_formula([adjit.matmul])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        FlopCounterMode(adjit.nn.Linear(1, 1))
    assert "mods argument is not needed anymore" in str(told[0].message)
