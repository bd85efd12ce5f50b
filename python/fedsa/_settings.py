"""The base of settings: values given by keyword, kept unchanged, and checked by the engine."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from fedsa import _fedsa
from fedsa.errors import InputError

S = TypeVar("S", bound="Settings")


def nearest(name: str, known: list[str]) -> str:
    """A hint at the nearest known name, or an empty text."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


# Seconds per unit.
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: float | str, key: str) -> float:
    """Convert a time to seconds: a number, or a text with a unit, such as ``"90s"``."""
    accepted = "seconds, as 60, or a text with a unit: '90s', '2m', '1h'"
    if isinstance(value, str):
        number = value.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = value.strip()[len(number) :] or "s"
        try:
            value = float(number) * UNITS[unit]
        except (ValueError, KeyError):
            raise InputError(f"{value!r} is no time", "setting", key, accepted, value=repr(value)) from None
    try:
        number_of = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is no time", "setting.wrong-type", key, accepted, value=repr(value)) from None
    if not number_of >= 0.0:
        raise InputError(f"{value!r} is no time", "setting.out-of-range", key, accepted, value=repr(value))
    return number_of


def plain_number(value: Any) -> Any:
    """Convert a NumPy number to a Python number; other values stay unchanged."""
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 else value


def positive(value: Any, key: str) -> float:
    """Convert to a positive finite number.

    Raises
    ------
    InputError
        When the value has another type or is out of range.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{value!r} is not accepted", "setting.wrong-type", key, "a positive number", value=repr(value)) from None
    if not 0.0 < number < float("inf"):
        raise InputError(f"{value!r} is not accepted", "setting.out-of-range", key, "a positive number", value=repr(value))
    return number


def whole(value: Any, key: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Convert to a whole number between `least` and `most`.

    Raises
    ------
    InputError
        When the value has another type or is out of range.
    """
    accepted = f"a whole number of at least {least}" if most >= 2**63 - 1 else f"a whole number between {least} and {most}"
    try:
        plain = operator.index(value)
    except TypeError:
        plain = None
    if plain is None or isinstance(value, bool):
        raise InputError(f"{value!r} is not accepted", "setting.wrong-type", key, accepted, value=repr(value))
    if not least <= plain <= most:
        raise InputError(f"{value} is not accepted", "setting.out-of-range", key, accepted, value=str(value))
    return plain


def bytes_of(value: Any, key: str) -> bytes:
    """Convert ``bytes``, a ``bytearray`` or a ``memoryview`` to ``bytes``.

    Raises
    ------
    InputError
        When the value has another type.
    """
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InputError(f"a value of the type {type(value).__name__}", "setting.wrong-type", key, "bytes")
    return bytes(value)


class Settings:
    """Settings of a kind. They are compared by value, can be pickled, and their repr is Python code.

    ``None`` means not given. Settings are immutable; :meth:`replace` makes changed copies.
    """

    __slots__ = ("_given", "_kind")

    # The kind in experiment files.
    kind_name: ClassVar[str] = ""
    # The engine's name of the part, for checks at construction: problem, method, codec, medium.
    _part: ClassVar[str] = ""
    _positional: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    # Keys of experiment files for parameters with another name.
    _keys: ClassVar[dict[str, str]] = {}

    _given: dict[str, Any]
    _kind: str

    def __init__(self, *args: Any, **given: Any) -> None:
        raise TypeError(f"{type(self).__name__} is what kinds have in common, and none itself")

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        documented = cls.__dict__.get("__init__")
        if documented is None:
            return
        code = documented.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        positional = names[: code.co_argcount - 1]
        defaults = dict(documented.__kwdefaults__ or {})
        values = documented.__defaults__ or ()
        defaults.update(zip(positional[len(positional) - len(values) :], values))
        cls._positional, cls._defaults = positional, defaults
        required = [name for name in names if name not in defaults]

        @functools.wraps(documented)
        def init(self: Settings, *args: Any, **given: Any) -> None:
            if len(args) > len(positional):
                takes = f"{len(positional)} positional arguments ({', '.join(positional)})" if positional else "keyword arguments only"
                raise TypeError(f"{cls.__name__} takes {takes}, and {len(args)} were given")
            for name, value in zip(positional, args):
                if name in given:
                    raise TypeError(f"{cls.__name__} got '{name}' twice")
                given[name] = value
            for name in given:
                if name not in names:
                    raise TypeError(f"{cls.__name__} has no keyword '{name}'{nearest(name, list(names))}")
            missing = [name for name in required if given.get(name) is None]
            if missing:
                raise TypeError(f"{cls.__name__} needs {', '.join(missing)}")
            self._set(cls.kind_name, {name: given[name] for name in names if given.get(name) is not None})

        cls.__init__ = init  # type: ignore[method-assign]

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_given", given)
        table = self._table()
        if self._part:
            try:
                _fedsa.check_part(self._part, table)
            except InputError as e:
                raise self._about_keyword(e) from None

    def _about_keyword(self, e: InputError) -> InputError:
        """The error, with the Python keyword in place of the key of experiment files."""
        first, dot, rest = e.key.partition(".")
        keyword = next((name for name, key in self._keys.items() if key == first), first)
        e.key = f"{keyword}{dot}{rest}"
        e.args = (*e.args[:2], e.key, *e.args[3:])
        return e

    def _table(self) -> dict[str, Any]:
        """The table in experiment files."""
        table: dict[str, Any] = {"kind": self._kind} if self._kind else {}
        for name, value in self._given.items():
            table[self._keys.get(name, name)] = plain(value)
        return table

    def _named(self) -> dict[str, Any]:
        """The given values that differ from the defaults."""
        return {n: v for n, v in self._given.items() if n not in self._defaults or plain(v) != plain(self._defaults[n])}

    def replace(self: S, **changes: Any) -> S:
        """Return a copy with changed settings.

        Parameters
        ----------
        **changes
            Keywords of the class. ``None`` removes a value.

        Returns
        -------
        Settings
            Settings of the same class.
        """
        given = {**self._given, **changes}
        if self._kind != self.kind_name:
            return _rebuild(type(self), self._kind, {n: v for n, v in given.items() if v is not None})
        return type(self)(**given)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            if name in self._given:
                return self._given[name]
            if name in self._defaults:
                return self._defaults[name]
            raise AttributeError(f"{type(self).__name__} has no setting '{name}'{nearest(name, [*self._defaults, *self._given])}")
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"settings do not change; .replace({name}=..) makes others")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("settings do not change; .replace(..) makes others")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Settings)
        return self._kind == other._kind and plain(self._named()) == plain(other._named())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        named = self._named()
        if self._kind != self.kind_name:
            parts = [repr(self._kind), *(f"{name}={shown(value)}" for name, value in named.items())]
            return f"named({', '.join(parts)})"
        positional = []
        for name in self._positional:
            if name not in named:
                break
            positional.append(shown(named.pop(name)))
        return f"{type(self).__name__}({', '.join([*positional, *(f'{name}={shown(value)}' for name, value in named.items())])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._kind, dict(self._given))


def _rebuild(cls: type[S], kind: str, given: dict[str, Any]) -> S:
    self = cls.__new__(cls)
    unknown = [name for name in given if name not in cls._defaults and name not in parameters(cls)]
    if unknown:
        raise TypeError(f"{kind} has no keyword '{unknown[0]}'{nearest(unknown[0], parameters(cls))}")
    self._set(kind, given)
    return self


def parameters(cls: type) -> list[str]:
    """The names of the parameters of a class."""
    return [name for name in inspect.signature(cls).parameters]


# Deeper nesting is refused, because settings have few levels.
DEEPEST = 64


def plain(value: Any, depth: int = 0) -> Any:
    """Convert a value to the types of experiment files: dictionaries, lists, texts and numbers."""
    if isinstance(value, Settings):
        return value._table()
    if depth > DEEPEST:
        raise InputError(f"more than {DEEPEST} levels of lists and dictionaries", "setting.wrong-type", help="fewer levels")
    if isinstance(value, Mapping):
        return {name: plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(inner, depth + 1) for inner in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    return value


def shown(value: Any) -> str:
    """A value as Python code."""
    if isinstance(value, Settings):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(shown(inner) for inner in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {shown(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(shown(inner) for inner in value)}]"
    return repr(plain(value))
