"""Settings of estimators: keywords of the class and attributes of the object, as scikit-learn requires."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from fedsa._settings import nearest, shown
from fedsa.errors import InputError

P = TypeVar("P", bound="Parameters")


class Parameters:
    """Base of objects with named settings."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: p.default for name, p in inspect.signature(cls.__init__).parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name.

        Parameters
        ----------
        deep : bool
            No effect, because no setting is an estimator.

        Returns
        -------
        dict
            The given values.
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: P, **params: Any) -> P:
        """Change settings.

        Parameters
        ----------
        **params
            Keywords of the class.

        Returns
        -------
        estimator
            The same object.

        Raises
        ------
        InputError
            When a name is unknown. Then no setting changes.
        """
        known = list(self._defaults())
        for name in params:
            if name not in known:
                what = f"Invalid parameter {name!r} for estimator {self!r}. Valid parameters are: {known!r}{nearest(name, known)}"
                raise InputError(what, "setting.unknown-key", name, "one of these")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        differ = [f"{name}={shown(value)}" for name, value in self.get_params().items() if not same(value, defaults[name])]
        return f"{type(self).__name__}({', '.join(differ)})"


def same(a: Any, b: Any) -> bool:
    """Whether two settings are equal."""
    try:
        return a is b or bool(a == b)
    except ValueError:
        return False
