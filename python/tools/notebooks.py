"""Write the notebooks of ``docs/notebooks`` from their sources: ``python python/tools/notebooks.py``.

A source is ``docs/notebooks/NAME.py`` in Jupytext's percent format: cells begin with ``# %%`` (code) or ``# %% [markdown]`` (text, in
comments). A test compares the committed notebooks with the output of this program, and executes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs/notebooks"


def cells(source: str) -> list[dict[str, Any]]:
    """The cells of a source."""
    made: list[dict[str, Any]] = []
    for i, block in enumerate(source.split("# %%")[1:]):
        head, _, text = block.partition("\n")
        text = text.strip("\n")
        if head.strip() == "[markdown]":
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
            made.append({"cell_type": "markdown", "id": f"cell-{i}", "metadata": {}, "source": text.splitlines(keepends=True)})
        else:
            code = {"cell_type": "code", "execution_count": None, "id": f"cell-{i}", "metadata": {}, "outputs": []}
            made.append({**code, "source": text.splitlines(keepends=True)})
    return made


def notebook(source: str) -> str:
    """The text of a notebook."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    whole = {"cells": cells(source), "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(name: str, executed: Any) -> dict[str, str]:
    """The files of the book's page about an executed notebook: their names and texts. Figures are files beside the page."""
    files: dict[str, str] = {}
    blocks = [f"<!-- generated from docs/notebooks/{name}.py -->"]
    for cell in executed["cells"]:
        text = "".join(cell["source"])
        blocks.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        # Warnings of other packages are no part of a page.
        for output in (one for one in cell.get("outputs", []) if one.get("name") != "stderr"):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                picture = f"{name}-{len(files) + 1}.svg"
                files[picture] = "".join(data["image/svg+xml"])
                blocks.append(f"![{name}, figure {len(files)}]({picture})")
            elif said := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                blocks.append(f"```text\n{said}\n```")
    return {f"{name}.md": "\n\n".join(blocks) + "\n", **files}


def sources() -> list[Path]:
    """The sources of all notebooks."""
    return sorted(FOLDER.glob("*.py"))


def main() -> None:
    """Write all notebooks."""
    for source in sources():
        source.with_suffix(".ipynb").write_text(notebook(source.read_text(encoding="utf-8")), encoding="utf-8")
        print(source.with_suffix(".ipynb"), file=sys.stderr)


if __name__ == "__main__":
    main()
