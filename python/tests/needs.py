"""What tests need and may not find."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest

# Disclosure rules that allow everything: agents of tests have few rows, and ranges from their data.
NO_RULES = os.path.join(os.path.dirname(__file__), "no_rules.toml")


def needs(name: str) -> ModuleType:
    """The module, or a skipped test; in continuous integration a failed one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        lacking(f"{name} is not installed here")


def lacking(what: str) -> NoReturn:
    """Skips a test for which something is not there; in continuous integration it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what, allow_module_level=True)
