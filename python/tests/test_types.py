"""Stubs match the extension, and type checkers accept a program in their strict modes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typed_sample
from needs import needs

ROOT = Path(__file__).parents[2]


def checked(*command: str) -> None:
    # The package is checked where it is installed.
    run = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_sample_runs() -> None:
    typed_sample.main()


@pytest.mark.slow
def test_stubs_match_the_extension() -> None:
    needs("mypy")
    allowed = str(ROOT / "python/tests/stubtest_allowlist.txt")
    checked("mypy.stubtest", "fedsa._fedsa", "--mypy-config-file", "pyproject.toml", "--allowlist", allowed)


@pytest.mark.slow
def test_mypy_accepts_the_package_and_the_sample() -> None:
    needs("mypy")
    checked("mypy", "--cache-dir", os.devnull)


@pytest.mark.slow
def test_pyright_accepts_the_sample() -> None:
    needs("pyright")
    checked("pyright", "--pythonpath", sys.executable)
