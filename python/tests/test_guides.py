"""The examples of the book's pages on Python, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "src" / "guides"


@pytest.mark.parametrize("page", ["python-operators.md", "python-rules.md", "sweeps.md"])
def test_the_examples_of_a_page_run(page: str) -> None:
    text = (GUIDES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
