"""Errors about the settings of estimators."""

from __future__ import annotations

from collections.abc import Mapping

from fedsa.errors import InputError


def named_settings(e: InputError, owner: object, others: Mapping[str, str] | None = None) -> InputError:
    """The error, with the setting of `owner` in place of the experiment's key.

    `others` has the Python names of differently named settings.
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
