"""What notebooks show by themselves: a module as a tree that unfolds, tensors as tables, graphs as pictures."""

from __future__ import annotations

import html.parser
import re
from typing import Any

import pytest

import adjit
from adjit import nn

VOID = {"br", "hr"}


class Balance(html.parser.HTMLParser):
    """Raises at a tag that closes what is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(page: str) -> list[str]:
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert not parser.open
    assert "script" not in parser.seen
    return parser.seen


def lines_of(page: str) -> list[str]:
    """The lines that a reader sees."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    found = re.findall(r'<summary>(.*?)</summary>|<div class="leaf">(.*?)</div>', body)
    return [re.sub(r"<[^>]*>", "", "".join(pair)) for pair in found]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1, bias=False))
    )


def test_modules_are_trees_with_shapes_and_numbers_of_parameters() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    page = model._repr_html_()
    assert tags_of(page).count("details") == 5
    assert page.count("<details open>") == 1
    assert lines_of(page) == [
        "Sequential 28 parameters",
        "0: Linear in_features=3, out_features=4, bias=True · 16 parameters",
        "weight adjit.float32 (4, 3) · frozen",
        "bias adjit.float32 (4,)",
        "1: ReLU",
        "2: Sequential 12 parameters",
        f"0: BatchNorm1d {model[2][0].extra_repr()} · 8 parameters",
        "weight adjit.float32 (4,)",
        "bias adjit.float32 (4,)",
        "running_mean adjit.float32 (4,) · buffer",
        "running_var adjit.float32 (4,) · buffer",
        "num_batches_tracked adjit.int64 () · buffer",
        "1: Linear in_features=4, out_features=1, bias=False · 4 parameters",
        "weight adjit.float32 (1, 4)",
    ]


def test_shared_parameters_count_once() -> None:
    layer = nn.Linear(2, 2)
    assert lines_of(nn.ModuleList([layer, layer])._repr_html_())[0] == "ModuleList 6 parameters"


def test_names_and_texts_are_escaped() -> None:
    class Odd(nn.Module):
        def extra_repr(self) -> str:
            return "<script>alert('&')</script>"

    Odd.__name__ = "<Odd>"
    model = nn.ModuleDict({"<b>&": Odd()})
    page = model._repr_html_()
    tags_of(page)
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;&amp;: <b>&lt;Odd&gt;</b>" in page


def test_lazy_modules_and_loops_are_shown() -> None:
    lazy = nn.LazyLinear(3)
    assert lines_of(lazy._repr_html_()) == [
        "LazyLinear in_features=0, out_features=3, bias=True", "weight uninitialized", "bias uninitialized",
    ]  # fmt: skip
    outer = nn.Module()
    outer.inner = nn.Module()
    outer.inner.back = outer
    assert lines_of(outer._repr_html_()) == ["Module", "inner: Module"]


def test_a_tree_is_small_and_computes_nothing() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(100)])
    with adjit.no_grad():
        model[0].weight.add_(1)
    before = model[0].weight.kernels()
    assert before != model[0].bias.kernels()
    page = model._repr_html_()
    assert len(page) < 60_000
    assert model[0].weight.kernels() == before


@pytest.mark.parametrize("requires_grad", [False, True])
def test_tensors_say_their_dtype_shape_and_gradient_function(requires_grad: bool) -> None:
    t = adjit.ones(2, 3, requires_grad=requires_grad)
    page = (t * 2)._repr_html_()
    assert "table" in tags_of(page)
    about = "Tensor · (2, 3) · adjit.float32"
    assert f">{about}{' · grad_fn=&lt;MulBackward0&gt;' if requires_grad else ''}<" in page
    assert ("requires_grad=True" in t._repr_html_()) is requires_grad
    assert "Parameter · (1,)" in nn.Parameter(adjit.ones(1))._repr_html_()


def test_graphs_are_pictures() -> None:
    x = adjit.ones(2, requires_grad=True)
    assert adjit.autograd.draw((x * 2).sum())._repr_svg_().startswith("<svg")
