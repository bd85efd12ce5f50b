"""Settings of estimators, which are kept as they were given and checked when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsa.errors import InputError

# What settings are, in words.
WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "True or False"}


def plain_number(value: Any) -> Any:
    """A number of NumPy as one of Python; anything else as it is."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0 else value


def typed(owner: object, types: Mapping[str, tuple[type, bool]]) -> dict[str, Any]:
    """The settings of an object by name, of these types; the flag says whether ``None`` is accepted.

    Raises
    ------
    InputError
        When a value is of another type, or a whole number is below 0 or too large.
    """
    named: dict[str, Any] = {}
    for name, (kind, may_be_none) in types.items():
        value: Any = plain_number(getattr(owner, name))
        if value is None and may_be_none:
            named[name] = None
            continue
        accepted = (int, float) if kind is float else (kind,)
        is_accepted = type(value) in accepted or (kind is str and isinstance(value, str))
        if not is_accepted:
            help = WORDS[kind] + (" or None" if may_be_none else "")
            raise InputError(f"{value!r} is not accepted", "setting.wrong-type", name, help, value=repr(value))
        if kind is int and not 0 <= value < 2**63:
            raise InputError(f"{value} is not accepted", "setting.out-of-range", name, "a whole number of at least 0", value=str(value))
        named[name] = kind(value)
    return named
