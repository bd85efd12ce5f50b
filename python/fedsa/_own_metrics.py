"""Metrics of one's own: functions of theta that a run evaluates at recorded rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat

from fedsa.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Metric = Callable[["NDArray[np.float64]"], SupportsFloat]


def checked(metrics: Mapping[str, Metric], is_taken: Callable[[str], bool]) -> dict[str, Metric]:
    """The metrics by name.

    Raises
    ------
    InputError
        When a name or a function cannot be used.
    """
    help = 'a dictionary of functions of theta by name: {"return": f}'
    if not isinstance(metrics, Mapping):
        raise InputError(f"a {type(metrics).__name__}", "setting.wrong-type", "metrics", help, value=repr(metrics))
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InputError(f"{name!r} is no name", "setting.bad-value", "metrics", help, value=repr(name))
        if is_taken(name):
            raise InputError("fedsa has a column of this name", "setting.bad-value", key_of(name), "another name", value=name)
        if not callable(metric):
            what = f"a {type(metric).__name__} is not callable"
            raise InputError(what, "setting.wrong-type", key_of(name), "a function of theta that returns a float", value=repr(metric))
    return dict(metrics)


def key_of(name: str) -> str:
    """The key of a metric in errors."""
    return f"metrics[{name!r}]"


class Measure:
    """Evaluates metrics at an iterate, for the engine."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics

    def __call__(self, method: str, point: str, seed: int, round: int, theta: NDArray[np.float64]) -> list[float]:
        import numpy as np

        # Divergence is an outcome, which most functions do not expect.
        if not np.isfinite(theta).all():
            return [np.nan] * len(self.metrics)
        values = []
        for name, metric in self.metrics.items():
            try:
                # A function may change its array.
                values.append(number(name, metric(theta.copy())))
            except Exception as e:
                label = f"{method} [{point}]" if point else method
                add_note(e, f"in the metric {name!r} of {label}, seed {seed}, round {round}")
                raise
        return values


def number(name: str, value: Any) -> float:
    """The value of a metric.

    Raises
    ------
    InputError
        When it is not a number.
    """
    # Arrays of one number, and numbers of other libraries, have `__float__` too.
    if not isinstance(value, bool) and hasattr(value, "__float__") and tuple(getattr(value, "shape", ())) == ():
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    what = f"it returned {value!r:.60}, a {type(value).__name__}"
    raise InputError(what, "setting.wrong-type", key_of(name), "a function of theta that returns a float", value=repr(value))


def add_note(e: Exception, text: str) -> None:
    """Add a note to an exception."""
    if sys.version_info >= (3, 11):
        e.add_note(text)
    else:
        e.__notes__ = [*getattr(e, "__notes__", []), text]
