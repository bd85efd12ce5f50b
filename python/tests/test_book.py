"""Every command of the book, page by page, as a reader types it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import lacking

ROOT = Path(__file__).parents[2]
# Pages whose files later pages use, in the order of the table of contents.
START = ["first-experiment", "first-regression", "first-value-function"]
# Their commands run for minutes.
SLOW = ["choose/link", "evidence/second-order"]
# Words that stand for a reader's own.
OWN = {"FILE": "first.toml", "DATA": "rows.csv --target pressure", "LOGS": "logs/*.csv --gamma 0.95", "EPS2": "0.1", "NAME": "newton", "ID": "qshed"}
# Commands that are not run, and why.
SKIPPED = {
    "data fetch": "downloads",
    "fedsa agent": "waits for a server; the tests of federations run it",
    "--watch": "waits for a run",
    "fedsa run -": "",
}


def page(name: str) -> str:
    return (ROOT / name if name.endswith("README.md") else ROOT / "docs/src" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The listings of a page, each with its language; an indented one is of the shell."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$|((?:^ {4,}.*\n|^\n(?= {4}))+)", text, flags=re.DOTALL | re.MULTILINE):
        yield (match[1], match[2]) if match[3] is None else ("sh", re.sub(r"^ {4,}", "", match[3], flags=re.MULTILINE))


def commands(text: str) -> Iterator[str]:
    """The commands of a page for the program, without their comments."""
    for language, block in blocks(text):
        for line in block.replace("\\\n", " ").splitlines() if language in ("sh", "", "bash") else ():
            if line.startswith(("fedsa ", "python3 ")):
                yield re.sub(r"\s+# .*", "", line)


def saved(text: str, folder: Path) -> None:
    """Writes the files that a page tells its readers to save."""
    for language, block in blocks(text):
        if language == "toml" and block.startswith("id = "):
            name = re.match(r'id = "([\w-]+)"', block)
            assert name
            (folder / f"{name[1]}.toml").write_text(block)
        script = re.search(r"python3 (\w+\.py)", text)
        if language == "python" and script and "import csv" in block:
            (folder / script[1]).write_text(block)


def run(command: str, folder: Path, quick: bool) -> None:
    for word, own in OWN.items():
        command = re.sub(rf"(?<![\w.]){word}(?![\w.])", own, command)
    if any(part in command for part in SKIPPED):
        return
    if quick and "reproduce" in command and "--list" not in command and "--print" not in command:
        command += " --quick"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has followed the first pages."""
    folder = tmp_path_factory.mktemp("reader")
    for name in START:
        text = page(f"start/{name}")
        saved(text, folder)
        for command in commands(text):
            run(command, folder, quick=True)
    shutil.copy(folder / "sites/west.csv", folder / "rows.csv")
    return folder


def pages() -> list[str]:
    listed = re.findall(r"\(([\w/-]+)\.md\)", (ROOT / "docs/src/SUMMARY.md").read_text(encoding="utf-8"))
    return ["README.md", *(name for name in listed if any(commands(page(name))) and not name.startswith("reference/commands"))]


@pytest.mark.parametrize("name", [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in pages()])
def test_the_commands_of_a_page_run(name: str, reader: Path, tmp_path: Path) -> None:
    if not os.environ.get("FEDSA_DATA"):
        lacking("FEDSA_DATA names no folder of data")
    folder = tmp_path / "reader"
    shutil.copytree(reader, folder)
    text = page(name)
    saved(text, folder)
    for command in commands(text):
        run(command, folder, quick=name not in SLOW)
