"""Settings of estimators, which are kept as they were given and checked when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsa._settings import plain_number
from fedsa.errors import InputError

# What settings are, in words.
WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "True or False"}


def named_settings(e: InputError, owner: object, others: Mapping[str, str] | None = None) -> InputError:
    """The error, about the setting of an object where it is about a key of the experiment that the settings come to.

    `others` has the names of settings that are called otherwise here.
    """
    if e.key in (others or {}):
        e.key = (others or {})[e.key]
        e.args = (*e.args[:2], e.key, *e.args[3:])
    table, _, key = e.key.rpartition(".")
    if table in ("method[0]", "problem", "run", "sampling", "run.stop") and hasattr(owner, key):
        e.key = key
        if e.code == "setting.missing-key":
            e.what, e.help = f"the method needs `{key}`", f"{type(owner).__name__}(.., {key}=..), or method='auto'"
        e.args = (e.what, e.code, e.key, e.help, *e.args[4:])
    return e


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
