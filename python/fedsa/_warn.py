"""Warnings that point at the line of the user's call."""

from __future__ import annotations

import os
import re
import sys
import warnings

from fedsa.errors import FedsaWarning

PACKAGE = os.path.dirname(__file__) + os.sep


def warn(text: str, category: type[Warning] = FedsaWarning, code: str | None = None) -> None:
    """Warn of something at the first line outside of this package, so that each call of a user has its own warning."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warning = category(text)
    if isinstance(warning, FedsaWarning):
        warning.code = code
    warnings.warn(warning, stacklevel=level)


def as_keywords(text: str) -> str:
    """A text of the engine whose settings are spelt as keywords: ``standardise = true`` as ``standardise=True``."""
    text = re.sub(r"`(\w+) = (true|false)`", lambda found: f"`{found[1]}={found[2].title()}`", text)
    return re.sub(r"`(\w+) = ([^`]*)`", r"`\1=\2`", text)
