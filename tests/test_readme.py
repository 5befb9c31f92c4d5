"""The examples in README.md and CONTRIBUTING.md run and print what the page says."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md"]
NOT_RUN = "<!-- not run -->"

FENCED = re.compile(
    r"(?P<mark>^<!--.*?-->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block of a page, the lines of its first text and of its closing fence."""

    language: str
    body: str
    run: bool
    line: int
    end: int


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            language=match["language"],
            body=match["body"],
            run=(match["mark"] or "").strip() != NOT_RUN,
            line=text.count("\n", 0, match.start("body")) + 1,
            end=text.count("\n", 0, match.end()) + 1,
        )
        for match in FENCED.finditer(text)
    ]


def promised(text: str, blocks: list[Block], k: int) -> str | None:
    """The text block that follows block `k` with only blank lines between them."""
    if k + 1 == len(blocks) or blocks[k + 1].language != "text":
        return None
    between = text.splitlines()[blocks[k].end : blocks[k + 1].line - 2]
    return None if any(line.strip() for line in between) else blocks[k + 1].body


def differences(text: str, name: str) -> list[str]:
    """Run a page's Python blocks in order, in one namespace; where the output is another."""
    blocks = blocks_of(text)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    wrong = []
    for k, block in enumerate(blocks):
        if block.language != "python":
            continue
        tree = ast.parse(block.body, filename=name)
        if not block.run:
            continue
        ast.increment_lineno(tree, block.line - 1)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(tree, str(ROOT / name), "exec"), namespace)
        expected = promised(text, blocks, k)
        if expected is not None and output.getvalue() != expected:
            wrong.append(f"{name}:{block.line}: printed\n{output.getvalue()}instead of\n{expected}")
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_print_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert differences((ROOT / page).read_text(encoding="utf-8"), page) == []


def test_the_readme_shows_examples_and_both_ways_to_begin() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = blocks_of(text)
    shown = [k for k, block in enumerate(blocks) if block.language == "python" and block.run]
    assert any(promised(text, blocks, k) for k in shown)
    first_lines = {block.body.split("\n", 1)[0] for block in blocks}
    assert {"make demo", "make test"} <= first_lines


PAGE = """
```python
x = 1
```

<!-- not run -->
```python
x = undefined
```

```python
print(x)
```

```text
{}
```

```python
print("not promised")
```

Some words.

```text
between
```
"""


def test_this_check_tells_right_from_wrong_output() -> None:
    assert differences(PAGE.format("1"), "page") == []
    assert differences(PAGE.format("2"), "page") == [
        "page:12: printed\n1\ninstead of\n2\n",
    ]


def test_this_check_names_the_line_that_raises() -> None:
    with pytest.raises(NameError) as caught:
        differences(PAGE.replace(NOT_RUN, "<!-- a remark -->").format("1"), "page")
    innermost = traceback.extract_tb(caught.tb)[-1]
    assert (innermost.filename, innermost.lineno) == (str(ROOT / "page"), 8)
