"""Warnings that point at the line of the user's call."""

from __future__ import annotations

import os
import sys
import warnings

from fedsa.errors import FedsaWarning

PACKAGE = os.path.dirname(__file__) + os.sep


def warn(text: str, category: type[Warning] = FedsaWarning) -> None:
    """Warn of something at the first line outside of this package, so that each call of a user has its own warning."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
