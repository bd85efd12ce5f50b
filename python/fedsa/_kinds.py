"""Base classes of problems and methods."""

from __future__ import annotations

from typing import Any

from fedsa._link import DIRECTIONS, direction
from fedsa._settings import Settings, _rebuild, plain


class Problem(Settings):
    """N agents' operators. Methods find the root of their mean.

    Examples
    --------
    >>> from fedsa import problems
    >>> isinstance(problems.Garnet(agents=3), problems.Problem)
    True
    """

    __slots__ = ()
    _part = "problem"


class Method(Settings):
    """An algorithm of agents and server that finds the root.

    Examples
    --------
    >>> from fedsa import methods
    >>> isinstance(methods.FedLSA(0.1, 10), methods.Method)
    True
    """

    __slots__ = ()
    _part = "method"

    def _table(self) -> dict[str, Any]:
        return super()._table() | {key: plain(direction(key, self._given[key])) for key in DIRECTIONS if key in self._given}


def named_method(kind: str, classes: dict[str, type[Method]], given: dict[str, Any]) -> Method:
    """Make a method by the name of its kind or preset."""
    if kind not in classes:
        from fedsa._settings import nearest
        from fedsa.errors import InputError

        what = f"there is no method '{kind}'{nearest(kind, list(classes))}"
        raise InputError(what, "setting.unknown-name", "kind", f"one of {', '.join(classes)}", value=kind)
    cls = classes[kind]
    if cls.kind_name == kind:
        return cls(**given)
    return _rebuild(cls, kind, {name: value for name, value in given.items() if value is not None})
