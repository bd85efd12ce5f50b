"""Conversion of agents' transitions to tables of the engine.

A table has a name, matrices (n, k) with column names, and other columns. Column names are those of logs: ``s_*``, ``next_*``, ``reward``,
``done``, ``truncated``, ``episode``, ..
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from fedsa import _arrays, _fedsa
from fedsa._arrays import refused
from fedsa.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = tuple[list[str], NDArray[np.float64]]

Table = tuple[str, "list[Matrix]", Union["_fedsa.Columns", None]]
Given = Union["list[str]", "list[Table]"]

HELP = (
    "a dictionary of arrays, a tuple (states, rewards, next_states, terminated) or (.., truncated), a data frame, an Arrow table, a recording of "
    "fedsa.gym, or the name of a file"
)

# Prefixes of column names, by the names of arrays with several columns.
PREFIXES = {
    "s": "s_",
    "state": "s_",
    "states": "s_",
    "obs": "s_",
    "observation": "s_",
    "observations": "s_",
    "next": "next_",
    "next_state": "next_",
    "next_states": "next_",
    "next_obs": "next_",
    "next_observation": "next_",
    "next_observations": "next_",
    "phi": "phi_",
    "phi_next": "phi_next_",
    "target": "target_",
    "target_next": "target_next_",
}

# Further columns of logs.
FURTHER = (
    ("reward", "rewards", "done", "dones", "terminated", "terminations", "truncated", "truncations")
    + ("episode", "episodes", "action", "actions", "ratio", "behaviour", "behavior", "env")
)

# The arrays of a tuple.
TUPLE = ("states", "rewards", "next_states", "terminated", "truncated")


def is_path(agent: Any) -> bool:
    """Whether `agent` is a file name."""
    return isinstance(agent, str) or hasattr(agent, "__fspath__")


def given(agents: Any, columns: Mapping[str, str] | None = None, agent_column: str | None = None) -> Given:
    """The file names, or the tables of the agents."""
    if is_path(agents):
        return [os.fspath(agents)]
    if isinstance(agents, Mapping) and not is_log(agents):
        named = [(str(name), agent) for name, agent in agents.items()]
    elif is_one(agents):
        named = [("agent_0", agents)]
    else:
        try:
            listed = list(agents)
        except TypeError as e:
            raise refused(f"an object of the type {type(agents).__name__}", "agents", f"a list with, for each agent, {HELP}", "setting.wrong-type") from e
        width = len(str(max(len(listed) - 1, 0)))
        named = [(f"agent_{i:0{width}d}", agent) for i, agent in enumerate(listed)]
    if not named:
        raise refused("no agents", "agents", "the transitions of at least one agent")
    paths = [is_path(agent) for _, agent in named]
    if all(paths):
        return [os.fspath(agent) for _, agent in named]
    if any(paths):
        i = paths.index(True)
        help = "files alone, or data in memory alone: polars.read_parquet and pandas.read_csv read files"
        raise refused(f"agent {i} is the name of a file, and others are in memory", "agents", help, "setting.wrong-type")
    mapped = {*(columns or {}).values(), agent_column}
    return [table(name, agent, dict(columns or {}), mapped) for name, agent in named]


def is_log(agents: Mapping[Any, Any]) -> bool:
    """Whether a dictionary holds one agent's arrays: at least one key is a column name."""
    known = {"reward", "rewards", "terminations", "terminated", "dones", "truncations", "actions", "episodes", *PREFIXES}
    return any(name in known for name in agents)


def is_one(agents: Any) -> bool:
    """Whether `agents` is one agent's data, and not a list of agents."""
    if isinstance(agents, tuple) and len(agents) in (4, 5) and all(isinstance(part, np.ndarray) for part in agents):
        return True
    is_structured = isinstance(agents, np.ndarray) and agents.dtype.names is not None
    return is_structured or _arrays.is_table(agents) or hasattr(agents, "columns_of_log") or isinstance(agents, Mapping)


def table(name: str, agent: Any, columns: Mapping[str, str], mapped: Collection[str | None]) -> Table:
    """Convert one agent's data to a table."""
    encodable(name, "agents")
    where = f"agents[{name!r}]"
    if hasattr(agent, "columns_of_log"):
        agent = agent.columns_of_log()
    elif isinstance(agent, np.ndarray) and agent.dtype.names is not None:
        agent = {field: agent[field] for field in agent.dtype.names}
    elif isinstance(agent, (tuple, list)):
        if len(agent) not in (4, 5):
            what = f"a {type(agent).__name__} of {len(agent)} parts"
            raise refused(what, where, f"({', '.join(TUPLE[:4])}) or ({', '.join(TUPLE)}), or {HELP}", "setting.wrong-type")
        agent = dict(zip(TUPLE, agent))
    if _arrays.is_table(agent):
        return name, [], _arrays.table(agent, where)
    if not isinstance(agent, Mapping):
        raise refused(f"an object of the type {type(agent).__name__}", where, HELP, "setting.wrong-type")
    check_names(agent, where, mapped)
    matrices: list[Matrix] = []
    others: list[tuple[str, Any]] = []
    for key, value in agent.items():
        if value is not None:
            add(matrices, others, where, str(key), value)
    lengths = {names[0]: len(matrix) for names, matrix in matrices if names}
    lengths.update({name: len(one) for name, one in others})
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{length} of {column}" for column, length in lengths.items())
        raise refused(f"different numbers of transitions: {listed}", where, "arrays of equal length")
    return name, matrices, _fedsa.Columns.of_arrays(others) if others else None


def check_names(agent: Mapping[Any, Any], where: str, mapped: Collection[str | None]) -> None:
    """Refuse likely misspellings of column names, because unknown columns are ignored."""
    known = [*PREFIXES, *FURTHER]
    for key in agent:
        name = str(key)
        head, _, number = name.rpartition("_")
        is_numbered = number.isdigit() and f"{head}_" in PREFIXES.values()
        if name in known or is_numbered or name in mapped or agent[key] is None:
            continue
        near = difflib.get_close_matches(name, known, 1, 0.85)
        if near and abs(len(near[0]) - len(name)) <= 2:
            what = f"`{name}` is no column; did you mean `{near[0]}`?"
            raise refused(what, where, "the names that the documentation of fit lists, or another name for what is not used", "setting.unknown-name")


def encodable(text: str, key: str) -> None:
    """Refuse texts that UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise refused(f"the name {text!r} has half a surrogate pair", key, "texts of Unicode") from e


def add(matrices: list[Matrix], others: list[tuple[str, Any]], where: str, key: str, value: Any) -> None:
    """Add a column, or an array of several columns."""
    place = f"{where}[{key!r}]"
    array = _arrays.array_of(value, place)
    is_text = array.dtype.kind in "UST" or array.dtype.kind == "O" and any(isinstance(one, str) for one in array.flat)
    if array.ndim == 1 and (is_text or array.dtype.kind in "iu" and key not in PREFIXES):
        others.append((key, _arrays.column(array, place)))
        return
    if array.ndim == 2 and key in PREFIXES:
        names = [f"{PREFIXES[key]}{j}" for j in range(array.shape[1])]
    elif array.ndim == 1:
        # A vector `target` is the probability of the taken action, and keeps its name.
        is_state = key in PREFIXES and key not in ("target", "target_next")
        names, array = [f"{PREFIXES[key]}0" if is_state else key], array.reshape(-1, 1)
    else:
        accepted = "an array (n,)" if key not in PREFIXES else "an array (n, k) or (n,)"
        help = f"{accepted}; states of images and dictionaries have to be made numbers first"
        raise refused(f"an array of shape {array.shape}", place, help, "setting.wrong-type")
    matrices.append((names, _arrays.numbers(array, place)))


def states(rows: Any, inputs: Sequence[str], file_columns: Mapping[str, str]) -> NDArray[np.float64]:
    """Convert states to (n, k), in the column order of the fit."""
    k = len(inputs)
    named_so = {file_name(column, file_columns) for column in inputs}
    is_structured = isinstance(rows, np.ndarray) and rows.dtype.names is not None
    if isinstance(rows, Mapping) or is_structured or _arrays.is_table(rows):
        if isinstance(rows, Mapping):
            known = {str(name): rows[name] for name in rows}
        elif is_structured:
            known = {name: rows[name] for name in rows.dtype.names}
        else:
            table = _arrays.table(rows, "states")
            known = {name: table.numbers(name) for name in table.names() if name in inputs or name in named_so}
        columns = []
        for column in inputs:
            name = next((one for one in (column, file_name(column, file_columns)) if one in known), None)
            if name is None:
                missing = f"there is no column `{column}`, which the fit has: the columns are {', '.join(known)}"
                raise refused(missing, "states", f"the columns {', '.join(inputs)}, or an array (n, {k}) in this order")
            value = known[name]
            columns.append(_arrays.numbers(_arrays.array_of(value, f"states[{name!r}]"), f"states[{name!r}]"))
        array = np.ascontiguousarray(np.column_stack(columns))
    else:
        array = _arrays.numbers(_arrays.array_of(rows, "states"), "states")
        if array.ndim == 1 and k == 1:
            array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] != k:
        what = f"an array of shape {array.shape}"
        help = f"an array (n, {k}) with the columns {', '.join(inputs)}" + ("; one state is states.reshape(1, -1)" if array.ndim == 1 else "")
        raise InputError(what, "setting.wrong-type", "states", help)
    _arrays.finite(array, "Input states")
    return array


def file_name(column: str, file_columns: Mapping[str, str]) -> str:
    """The name of a column in the files of the fit."""
    for role, field in file_columns.items():
        if role == column:
            return field
        head, star, tail = role.partition("*")
        if star and column.startswith(head) and column.endswith(tail) and len(column) >= len(head) + len(tail):
            return field.replace("*", column[len(head) : len(column) - len(tail)])
    return column
