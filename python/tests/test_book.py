"""Every command of the book, page by page, as a reader types it."""

from __future__ import annotations

import itertools
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
SLOW = ["choose/link", "evidence/second-order", "evidence/tuning"]
# Words that stand for a reader's own.
OWN = {"FILE": "plain.toml", "DATA": "rows.csv --target pressure", "LOGS": "episodes/*.csv --gamma 0.95", "EPS2": "0.1", "NAME": "newton", "ID": "qshed"}
# Pages whose commands have nothing to do with each other: each is run in a folder of its own.
APART = ["guides/what-happens-when", "choose/features"]
# Commands that are not run, and why.
SKIPPED = {
    "data fetch": "downloads",
    "fedsa agent": "waits for a server; the tests of federations run it",
    "audit.jsonl": "an agent writes it",
    "--watch": "waits for a run",
    "fit data.csv --resume": "needs a fit that was interrupted; test_program.py has one",
}


# Twenty-four points.
SWEEP = """
[[sweep]]
key = "problem.seed"
values = [1, 2, 3, 4]

[[sweep]]
key = "method.*.local_steps"
values = [1, 2, 5, 10, 20, 50]
"""


def page(name: str) -> str:
    return (ROOT / name if name.endswith("README.md") else ROOT / "docs/src" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The listings of a page, each with its language; an indented one is of the shell."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$|((?:^ {4,}[^\n]*\n|^\n(?= {4}))+)", text, flags=re.DOTALL | re.MULTILINE):
        yield (match[1], match[2]) if match[3] is None else ("sh", re.sub(r"^ {4,}", "", match[3], flags=re.MULTILINE))


def commands(text: str) -> Iterator[str]:
    """The commands of a page for the program, without their comments. An output may speak of commands: a listing begins with one."""
    for language, block in blocks(text):
        if not re.match(r"(fedsa|python3|cargo|pip|tail) ", block.lstrip()):
            continue
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
    if quick and re.search(r"reproduce (?!.*--(list|print|quick))|run mine.toml(?!.*--quick)", command):
        command += " --quick"
    if quick:
        command = re.sub(r"--budget 5m|$", " --budget 5s", command, count=1) if "fedsa tune" in command else command
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    if "mine.toml" in command and "--print" in command:
        mine = folder / "mine.toml"
        mine.write_text(re.sub(r'^id = .*', 'id = "mine"', mine.read_text(), flags=re.MULTILINE))
    # The guide on figures says that checks fail.
    assert done.returncode in ((0, 1) if "mine.toml" in command else (0,)), f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"


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
    (folder / "pilot").mkdir()
    (folder / "episodes").mkdir()
    for i, site in enumerate(sorted((folder / "sites").glob("*.csv"))):
        rows = [row.split(",") for row in site.read_text().splitlines()[1:]]
        lines = [f"{age},{dose},{'high' if float(pressure) > 120 else 'low'}" for age, dose, pressure in rows]
        (folder / f"pilot/site_{i}.csv").write_text("\n".join(["age,dose,y", *lines]) + "\n")
    for log in sorted((folder / "logs").glob("*.csv")):
        rows = [row.split(",") for row in log.read_text().splitlines()[1:]]
        ends = itertools.accumulate((done == "1" for *_, done in rows), initial=0)
        states = [f"{x},{float(x) ** 2},{float(x) > 0.5:d},{reward},{y},{float(y) ** 2},{float(y) > 0.5:d},{done}" for x, reward, y, done in rows]
        lines = [f"{row},{n}" for row, n in zip(states, ends)]
        (folder / "episodes" / log.name).write_text("\n".join(["s_0,s_1,s_2,reward,next_0,next_1,next_2,done,episode", *lines]) + "\n")
    for name, shift in (("moves", 0.0), ("new", 1e-9)):
        (folder / name).mkdir()
        for log in sorted((folder / "logs").glob("*.csv")):
            rows = [row.split(",") for row in log.read_text().splitlines()[1:]]
            ends = itertools.accumulate((done == "1" for *_, done in rows), initial=0)
            columns = [(float(x) + shift, float(y) + shift, reward, done, int(float(y) > float(x)), n) for (x, reward, y, done), n in zip(rows, ends)]
            lines = [",".join(map(str, (*row, 0.5))) for row in columns]
            (folder / name / log.name).write_text("\n".join(["s_0,next_0,reward,done,action,episode,behaviour", *lines]) + "\n")
    first = (folder / "first.toml").read_text().split("[[check]]")[0]
    (folder / "plain.toml").write_text(first.replace('"first"', '"plain"'))
    first = first.replace('"first"', '"mine"').replace("seeds = 5", "seeds = 10")
    (folder / "mine.toml").write_text(f"{first}[quick.run]\nrounds = 20\n{SWEEP}")
    # A guide has the same command as a first page.
    shutil.rmtree(folder / "out/first-tune")
    return folder


def pages() -> list[str]:
    listed = re.findall(r"\(([\w/-]+)\.md\)", (ROOT / "docs/src/SUMMARY.md").read_text(encoding="utf-8"))
    first = [f"start/{name}" for name in START]
    return ["README.md", *(name for name in listed if any(commands(page(name))) and name not in first and "/commands/" not in name)]


@pytest.mark.parametrize("name", [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in pages()])
def test_the_commands_of_a_page_run(name: str, reader: Path, tmp_path: Path) -> None:
    if not os.environ.get("FEDSA_DATA"):
        lacking("FEDSA_DATA names no folder of data")
    text = page(name)
    for i, command in enumerate(commands(text)):
        folder = tmp_path / (str(i) if name in APART else "reader")
        if not folder.exists():
            shutil.copytree(reader, folder)
            saved(text, folder)
        run(command, folder, quick=name not in SLOW)


def test_programs_and_tests_that_pages_name_exist() -> None:
    everything = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/src").rglob("*.md"))
    for package, example in re.findall(r"cargo run [^\n]*-p ([\w-]+) --example (\w+)", everything):
        assert (ROOT / f"crates/{package}/examples/{example}.rs").exists(), example
    for script in re.findall(r"python3? (benchmarks/\w+\.py)", everything):
        assert (ROOT / script).exists(), script
    sources = [path for kind in ("tests", "src") for path in ROOT.glob(f"crates/*/{kind}/**/*.rs")]
    tests = "\n".join(f"{path.stem}::\n{path.read_text(encoding='utf-8')}" for path in sources)
    rows = [line.split("|")[-2].strip().strip("`") for line in page("evidence/correctness").splitlines() if line.startswith("|")]
    named = [name for name in rows if re.fullmatch(r"[\w:]+", name) and "_" in name]
    named += re.findall(r"cargo test --release [^\n]*(?:--lib|--test suites)(?: --)? ([\w:]+)", everything)
    assert len(named) > 15
    for name in named:
        assert all(part in tests for part in name.strip(":").split("::")), name
