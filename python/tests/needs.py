"""What tests need and may not find."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest


def needs(name: str) -> ModuleType:
    """The module, or a skipped test; in continuous integration a failed one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed here")
        pytest.skip(f"{name} is not installed here")
