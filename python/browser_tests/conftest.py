"""Chromium, and runs to report on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow and not config.getoption("--all"):
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


# The program of this environment.
FEDSA = shutil.which("fedsa", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def fedsa(*args: object, cwd: Path, status: int = 0) -> str:
    """Run the program; what it said."""
    done = subprocess.run([FEDSA, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"{args}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


SWEEP = """
id = "sweep"
title = "A sweep over two keys"

[problem]
kind = "garnet"
agents = 4
seed = 1

[[method]]
kind = "fedlsa"
label = "FedLSA"
step_size = 0.1
local_steps = 5

[[method]]
kind = "scafflsa"
label = "SCAFFLSA"
step_size = 0.1
local_steps = 5

[run]
rounds = 60
seeds = 3

[[sweep]]
key = "method.*.step_size"

values = [0.01, 0.05, 0.1]

[[sweep]]
key = "method.*.local_steps"

values = [1, 5]

[[check]]
name = "floors can be compared"
kind = "ratio"
method = "FedLSA"
over = "SCAFFLSA"
min = 0.001
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def sweep(folder: Path) -> Path:
    """The folder of a finished run with two methods, six points and three seeds."""
    (folder / "sweep.toml").write_text(SWEEP)
    fedsa("run", "sweep.toml", "--out", "sweep", cwd=folder)
    return folder / "sweep"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    # Debian's, which the test command installs: playwright's own cannot be had everywhere.
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium")
        pytest.skip("there is no chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


class Opened:
    """A page with what it said and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, fragment: str = "") -> Page:
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
        return self.page

    def quiet(self, path: Path) -> None:
        """Hold that nothing was complained of, and nothing was asked for but the page itself and what is in it."""
        assert self.errors == []
        asked = [url for url in self.requests if not url.startswith(("data:", "blob:")) and url.split("#")[0] != path.as_uri()]
        assert asked == []


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Opened]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield Opened(context.new_page())
    context.close()
