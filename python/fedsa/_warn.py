"""Warnings at the line of the user's call."""

from __future__ import annotations

import os
import re
import sys
import warnings

from fedsa.errors import FedsaWarning

PACKAGE = os.path.dirname(__file__) + os.sep


def warn(text: str, category: type[Warning] = FedsaWarning, code: str | None = None) -> None:
    """Issue a warning at the first line outside this package, so that Python shows it once for each line of the user."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warning = category(text)
    if isinstance(warning, FedsaWarning):
        warning.code = code
    warnings.warn(warning, stacklevel=level)


def as_keywords(text: str) -> str:
    """Spell settings in a text of the engine as keywords: ``standardise = true`` as ``standardise=True``."""
    text = re.sub(r"`(\w+) = (true|false)`", lambda found: f"`{found[1]}={found[2].title()}`", text)
    return re.sub(r"`(\w+) = ([^`]*)`", r"`\1=\2`", text)
