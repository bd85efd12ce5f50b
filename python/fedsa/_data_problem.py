"""Problems on data: files, or tables and arrays in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedsa import _fedsa
from fedsa._kinds import Problem
from fedsa._settings import plain, shown
from fedsa.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Set = tuple[str, Any, "NDArray[np.float64] | tuple[list[str], NDArray[np.int64]]", "list[str] | None"]

# Settings for files only: rows in memory have the target y, and every column of X is a feature.
OF_FILES = ("target", "group", "drop")


class Kept:
    """Read-only copies of data in memory, for pickles and `replace`."""

    def __init__(self, agents: Sequence[Any]) -> None:
        self.agents = list(agents)

    def __repr__(self) -> str:
        return f"<data of {len(self.agents)} agent{'s' if len(self.agents) != 1 else ''}>"


# The name of rows (X, y) that the engine deals out to agents.
ALL_ROWS = "data"


class DataProblem(Problem):
    """A problem on data. A saved experiment stores only a hash of data in memory."""

    __slots__ = ("_hash", "_held")

    # The keyword that takes the data.
    _data: ClassVar[str]

    _hash: str
    _held: _fedsa.HeldProblem

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        if is_of_files(given[self._data]):
            super()._set(kind, given)
            return
        data = given[self._data]
        kept = data if isinstance(data, Kept) else Kept(self._agents(data, given))
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_given", {**given, self._data: kept})
        object.__setattr__(self, "_hash", digest(kept.agents))
        self._hold(kept.agents)

    def _agents(self, data: Any, given: dict[str, Any]) -> list[Any]:
        """Convert each agent's data for the engine."""
        raise NotImplementedError

    def _hold(self, agents: list[Any]) -> None:
        raise NotImplementedError

    def _is_held(self) -> bool:
        return hasattr(self, "_hash")

    def _table(self) -> dict[str, Any]:
        if not self._is_held():
            return super()._table()
        table: dict[str, Any] = {"kind": f"{self._kind}-in-memory"}
        for name, value in self._given.items():
            table[self._keys.get(name, name)] = [f"in memory: {self._hash}"] if name == self._data else plain(value)
        return table

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, DataProblem)
        if self._is_held() or other._is_held():
            return self._table() == other._table()
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self._is_held():
            return super().__repr__()
        named = {name: value for name, value in self._named().items() if name != self._data}
        given = [repr(self._given[self._data]), *(f"{name}={shown(value)}" for name, value in named.items())]
        return f"{type(self).__name__}({', '.join(given)})"


def is_of_files(data: Any) -> bool:
    """Whether `data` is a file name or a list of file names."""
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return True
    return isinstance(data, Sequence) and len(data) > 0 and all(isinstance(one, str) or hasattr(one, "__fspath__") for one in data)


def frozen(part: Any) -> Any:
    """Copy `part`, with read-only arrays."""
    if hasattr(part, "setflags"):
        copy = part.copy()
        copy.setflags(write=False)
        return copy
    if isinstance(part, _fedsa.Columns):
        return _fedsa.Columns.of_bytes(part.to_bytes())
    return type(part)(frozen(one) for one in part) if isinstance(part, (tuple, list)) else part


def digest(agents: list[Any]) -> str:
    """A hash of data: 32 hexadecimal digits."""
    found = hashlib.sha256()

    def see(part: Any) -> None:
        if hasattr(part, "setflags"):
            found.update(f"array {part.shape} {part.dtype}".encode())
            found.update(part.data)
        elif isinstance(part, (tuple, list)):
            found.update(f"{len(part)} parts".encode())
            for one in part:
                see(one)
        elif isinstance(part, _fedsa.Columns):
            found.update(part.to_bytes())
        else:
            found.update(repr(part).encode())

    see(agents)
    return found.hexdigest()[:32]


class LogsProblem(DataProblem):
    """A problem on transitions."""

    __slots__ = ()
    _data = "path"

    def _agents(self, data: Any, given: dict[str, Any]) -> list[Any]:
        from fedsa import _logs

        return [frozen(table) for table in _logs.given(data)]

    def _hold(self, agents: list[Any]) -> None:
        object.__setattr__(self, "_held", _fedsa.HeldProblem.logs(agents, self._table()))


class RowsProblem(DataProblem):
    """A problem on rows with targets."""

    __slots__ = ()
    _data = "data"

    def _agents(self, data: Any, given: dict[str, Any]) -> list[Any]:
        for name in OF_FILES:
            if name in given:
                raise InputError("is a setting of files, and rows are in memory", "setting", name, "y beside X, and X without other columns")
        return [frozen(one_set(name, part, where)) for name, part, where in parts(data)]

    def _hold(self, agents: list[Any]) -> None:
        # The engine deals one (X, y) out to agents; a list or a dictionary has one set of rows per agent.
        is_list = len(agents) > 1 or (agents[0][0] != ALL_ROWS and "agents" not in self._given)
        if "partition" not in self._given and is_list:
            object.__setattr__(self, "_given", {**self._given, "partition": "files"})
        object.__setattr__(self, "_held", _fedsa.HeldProblem.rows(agents, self._table()))


def parts(data: Any) -> list[tuple[str, Any, str]]:
    """The sets of rows: name, rows with targets, and their name in error messages."""
    if isinstance(data, tuple):
        return [(ALL_ROWS, data, "data")]
    if isinstance(data, Mapping):
        named = [(str(name), part, f"data[{name!r}]") for name, part in data.items()]
    elif isinstance(data, list):
        width = len(str(max(len(data) - 1, 0)))
        named = [(f"agent_{i:0{width}d}", part, f"data[{i}]") for i, part in enumerate(data)]
    else:
        what = f"an object of the type {type(data).__name__}"
        raise InputError(what, "setting.wrong-type", "data", "names of files, (X, y), or a list or dictionary of (X, y), one an agent")
    if not named:
        raise InputError("no agents", "data.bad-value", "data", "the rows of at least one agent")
    return named


def one_set(name: str, part: Any, where: str) -> Set:
    """Convert rows with targets for the engine."""
    import numpy as np

    from fedsa import _arrays

    if not isinstance(part, (tuple, list)) or len(part) != 2:
        what = f"an object of the type {type(part).__name__}" + (f" with {len(part)} parts" if isinstance(part, (tuple, list)) else "")
        raise InputError(what, "setting.wrong-type", where, "(X, y): an array, a data frame or a sparse matrix, and a target for each row")
    rows = _arrays.matrix(part[0], f"{where}[0]")
    names = _arrays.feature_names(part[0], rows)
    targets = _arrays.vector(part[1], f"{where}[1]", _arrays.size(rows)[0])
    columns = None if names is None else [str(one) for one in names]
    if targets.dtype.kind in "UST" or (targets.dtype.kind == "O" and all(isinstance(one, str) for one in targets)):
        classes, of = np.unique(targets.astype(str), return_inverse=True)
        return name, rows, (classes.tolist(), of.reshape(-1).astype(np.int64)), columns
    y = _arrays.numbers(targets, f"{where}[1]")
    _arrays.finite(y, f"Input {where}[1]")
    return name, rows, y, columns
