"""Notebooks are those of their sources, and run."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest
from needs import needs

ROOT = Path(__file__).parents[2]


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "python/tools/notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = sorted((ROOT / "docs/notebooks").glob("*.py"))
PAGES = ROOT / "docs/src/notebooks"
# One by default.
DEFAULT = "regression-in-few-rounds"


def test_notebooks_are_those_of_their_sources() -> None:
    for source in SOURCES:
        text = tool().notebook(source.read_text(encoding="utf-8"))
        assert source.with_suffix(".ipynb").read_text(encoding="utf-8") == text, "python python/tools/notebooks.py writes it"


@pytest.mark.parametrize("source", [pytest.param(s, id=s.stem, marks=[] if s.stem == DEFAULT else pytest.mark.slow) for s in SOURCES])
def test_notebooks_run(source: Path, tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", "sklearn", "gymnasium"):
        needs(package)
    import nbclient
    import nbformat

    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", coalesce_streams=True, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs), "figures show themselves"
    assert any("text/html" in output.get("data", {}) for output in outputs), "tables show themselves"
    assert not list(tmp_path.iterdir()), "nothing is written unasked"
    made = tool().page(source.stem, notebook)
    if os.environ.get("FEDSA_WRITE_REFERENCE"):
        PAGES.mkdir(exist_ok=True)
        for name, text in made.items():
            (PAGES / name).write_text(text, encoding="utf-8")
    # Last digits depend on the processor, and seconds on the machine.
    assert shape((PAGES / f"{source.stem}.md").read_text(encoding="utf-8")) == shape(made[f"{source.stem}.md"])


def shape(text: str) -> str:
    """A text without its numbers, and with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "0", text))
