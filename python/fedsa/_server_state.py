"""The saved state of a federation's server: a state of constant size, and an append-only file of lines.

The server first appends the new lines, then replaces the state atomically, and only then sends. The state holds the number of valid bytes of
the lines and their checksum. Lines after these bytes come from a crash; the next save overwrites them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedsa import _fedsa, _files
from fedsa.errors import InputError

Kind = TypeVar("Kind")

# Exceptions that a changed state file may cause.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

# The layout of saved servers. The first line has this number and the checksum of the rest.
LAYOUT = 5


@dataclass
class ExchangeRecord:
    """The costs of an exchange."""

    round: int
    exchange: int
    epoch: int
    asked: int
    answered: int
    bytes_down: int
    bytes_up: int
    wire_bytes_up: int
    seconds: float
    # Valid answers of earlier rounds that came in this exchange.
    late: int = 0
    # The norm of the mean operator at the server's iterate, as answers show it; means of directions if agents send these.
    residual: float | None = None
    # The share of the participants' weight without an answer: of members that are away, that did not answer, or whose answer was refused.
    missing: float = 0.0

    def __str__(self) -> str:
        carried = f"{self.bytes_up:,} bytes up, {self.bytes_down:,} down"
        residual = "" if self.residual is None else f", residual {self.residual:.3g}"
        late = f", {self.late} late" if self.late else ""
        missing = f", {self.missing:.1%} of the weight missing" if self.missing > 0 else ""
        answered = f"{self.answered} of {self.asked} answered{late}{missing}"
        return f"round {self.round}, exchange {self.exchange}: {answered}, {carried}, {self.seconds:.2f} s{residual}"


@dataclass
class EpochRecord:
    """The members from a round on, and the messages, bytes and seconds of their enrolment."""

    epoch: int
    # Finished rounds before the epoch.
    round: int
    agents: list[dict[str, Any]]
    joined: list[str]
    left: list[str]
    messages: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    # For links that count late answers: for each exchange, the agents that computed nothing and the answers that arrived.
    arrivals: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        changes = [f"{', '.join(names)} {what}" for names, what in ((self.joined, "joined"), (self.left, "left")) if names]
        rows = sum(agent["rows"] for agent in self.agents)
        return f"epoch {self.epoch}: {len(self.agents)} agents, {rows:,} rows" + "".join(f"; {change}" for change in changes)

    def told(self) -> dict[str, Any]:
        """All fields except the arrivals, which grow with the rounds."""
        return {key: value for key, value in asdict(self).items() if key != "arrivals"}


class History:
    """The record of rounds, exchanges and epochs, which grows. The current epoch is in the state, because its costs still change."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.rounds: list[bytes] = []
        # Residuals at the ends of rounds, from round 0; `None` if unknown.
        self.residuals: list[float | None] = []
        # Seconds until the ends of rounds, from round 0.
        self.ends: list[float] = []
        self.exchanges: list[ExchangeRecord] = []
        # The last one is the current epoch.
        self.epochs: list[EpochRecord] = []
        # The valid bytes of the file, and new lines.
        self.kept, self.checksum = 0, hashlib.sha256()
        self.lines: list[bytes] = []

    def _write(self, **what: Any) -> None:
        self.lines.append(json.dumps(what).encode() + b"\n")

    def add_round(self, row: bytes, end: float, arrivals: list[dict[str, Any]]) -> None:
        """Record the end of a round."""
        self.rounds.append(row)
        self.ends.append(end)
        self.epochs[-1].arrivals += arrivals
        self._write(round=base64.b64encode(row).decode(), end=end, arrivals=arrivals)

    def add_residual(self, residual: float | None) -> None:
        """Record the residual at the end of the last round, if known."""
        self.residuals.append(residual)
        self._write(residual=residual)

    def add_exchange(self, record: ExchangeRecord) -> None:
        """Record the end of an exchange."""
        self.exchanges.append(record)
        self._write(exchange=asdict(record))

    def add_epoch(self, record: EpochRecord) -> None:
        """Record the end of the current epoch, and begin another."""
        if self.epochs:
            self._write(epoch=self.epochs[-1].told())
        self.epochs.append(record)

    def save(self) -> dict[str, Any]:
        """Append the new lines to the file. Returns the entry of the state."""
        if self.lines:
            lines = b"".join(self.lines)
            _files.append(self.file, self.kept, lines)
            self.kept += len(lines)
            self.checksum.update(lines)
            self.lines = []
        return {"bytes": self.kept, "sha256": self.checksum.hexdigest(), "epoch": self.epochs[-1].told() if self.epochs else None}

    def restore(self, told: dict[str, Any]) -> None:
        """Read the lines that a state's entry describes.

        Raises
        ------
        InputError
            When lines are missing or differ.
        """
        accepted = "the file that was saved with this state, or another folder"
        count, epoch = told["bytes"], told["epoch"]
        lines = b""
        if count > 0 and os.path.exists(self.file):
            with open(self.file, "rb") as file:
                lines = file.read(count)
        if len(lines) < count:
            raise InputError(f"{len(lines)} bytes of lines, and the state was saved with {count}", "format", self.file, accepted)
        self.checksum.update(lines)
        if self.checksum.hexdigest() != told["sha256"]:
            raise InputError("lines that were damaged, or are those of another state", "format", self.file, accepted)
        self.kept = count
        arrivals: list[dict[str, Any]] = []
        for line in lines.splitlines():
            arrivals = self._read(json.loads(line), arrivals)
        if epoch is not None:
            self.epochs.append(typed(EpochRecord, {**epoch, "arrivals": arrivals}))

    def check(self, rounds: int) -> None:
        """Check that this history belongs to a server with this many finished rounds.

        Raises
        ------
        InputError
            When it does not.
        """
        done = [_fedsa.Deployment.recorded_round(row) for row in self.rounds]
        if done not in (list(range(rounds + 1)), list(range(rounds))) or not self.epochs:
            raise InputError(f"records of {len(done)} rounds of {rounds}", "format", self.file, "the file that was saved with this state, or another folder")

    def _read(self, line: dict[str, Any], arrivals: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take a line. Returns the arrivals of the current epoch so far."""
        if "round" in line:
            self.rounds.append(base64.b64decode(line["round"]))
            self.ends.append(float(line["end"]))
            arrivals += line["arrivals"]
        elif "exchange" in line:
            self.exchanges.append(typed(ExchangeRecord, line["exchange"]))
        elif "epoch" in line:
            self.epochs.append(typed(EpochRecord, {**line["epoch"], "arrivals": arrivals}))
            return []
        else:
            self.residuals.append(line["residual"])
        return arrivals


@dataclass
class Progress:
    """The server's saved progress."""

    excluded: dict[str, str] = field(default_factory=dict)
    enrolment: bytes = b""
    membership: bytes | None = None
    server: bytes | None = None
    # The folder of the results, once writing began.
    writes: str | None = None
    # Members that know this epoch; that know no epoch and need the full announcement; that got it again and have not answered since.
    admitted: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    retold: list[str] = field(default_factory=list)
    # Members that still refuse, and are to be invited to reset; and those for which a reset was tried since their last answer.
    anew: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    # Members that leave, and excluded agents that may not come back.
    leaving: list[str] = field(default_factory=list)
    barred: list[str] = field(default_factory=list)
    # For agents that did not accept an invitation: the round of the next invitation, and the pause in rounds after it.
    again: dict[str, list[int]] = field(default_factory=dict)
    # The number of rounds at the last decision on the members. A restarted server does not decide twice.
    decided: int = -1
    # Silent rounds in a row by agent; and for this round, the agents that should answer and those that did.
    silent: dict[str, int] = field(default_factory=dict)
    wanted: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    # The sums after the last round so far; their exchanges, and their bytes down and up.
    after: bytes | None = None
    after_cost: list[int] = field(default_factory=lambda: [0, 0, 0])
    # Messages of enrolment for the next epoch, their bytes down and up, and their seconds.
    cost: list[int] = field(default_factory=lambda: [0, 0, 0])
    cost_seconds: float = 0.0
    # Running time since the founding in seconds, without the time in which the server was stopped.
    seconds: float = 0.0

    def count(self, record: EpochRecord | None, messages: Collection[bytes], up: int = 0) -> None:
        """Count messages of enrolment for the epoch `record`, or for the next epoch if it is ``None``."""
        down = sum(map(len, messages))
        if record is None:
            self.cost = [self.cost[0] + len(messages) + (up > 0), self.cost[1] + down, self.cost[2] + up]
        else:
            record.messages += len(messages)
            record.bytes_down += down


def save(file: str, progress: Progress, history: History) -> None:
    """Save the history, then the state."""

    def plain(value: Any) -> Any:
        return {"base64": base64.b64encode(value).decode()}

    state = json.dumps({**progress.__dict__, "history": history.save()}, default=plain).encode()
    _files.write(file, _head(state) + state)


def _head(state: bytes) -> bytes:
    return json.dumps({"layout": LAYOUT, "sha256": hashlib.sha256(state).hexdigest()}).encode() + b"\n"


def restored(file: str, history: History) -> Progress:
    """Read the saved progress, and fill the history.

    Raises
    ------
    InputError
        When a file is damaged, missing, or has another layout.
    """

    def parts(table: dict[str, Any]) -> Any:
        return base64.b64decode(table["base64"]) if set(table) == {"base64"} else table

    contents = _files.read(file)
    found = re.match(rb'\{"layout": (\d{1,9})[,}]', contents)
    if found is None:
        raise InputError("not the state of a server", "format", file, "a state that fedsa saved, or another folder")
    if (layout := int(found[1])) != LAYOUT:
        help = "a state that this version saved, or another folder"
        raise InputError(f"a saved server of layout {layout}; this version has {LAYOUT}", "format", file, help)
    state = contents[contents.find(b"\n") + 1 :]
    # A matching checksum shows that the file is complete.
    if contents != _head(state) + state:
        raise InputError("a saved server that is damaged: its checksum does not match", "format", file, "an intact copy of the state, or another folder")
    try:
        table = json.loads(state, object_hook=parts)
        history.restore(table.pop("history"))
        return typed(Progress, table)
    except UNREADABLE as e:
        if isinstance(e, InputError):
            raise
        raise InputError("not the state of a server", "format", file, "a state that fedsa saved, or another folder") from e


@contextmanager
def about(file: str) -> Iterator[None]:
    """Turn errors about a saved state into errors that name its file and a remedy."""
    try:
        yield
    except UNREADABLE as e:
        what = e.what if isinstance(e, InputError) else f"{type(e).__name__}: {e}"
        # Errors about lines name the file of the lines.
        file = e.key if isinstance(e, InputError) and os.path.dirname(e.key) else file
        accepted = "the settings with which it was saved, an intact copy of the folder, or another one, with which the federation begins anew"
        raise InputError(f"the state in {file} is damaged or not ours: {what}", "format", "state", accepted) from e


def typed(kind: type[Kind], table: dict[str, Any]) -> Kind:
    """Make a dataclass from a table, with a check of its types.

    Raises
    ------
    TypeError
        When a field is missing, unknown, or has another type.
    """
    for name, hint in get_type_hints(kind).items():
        if name in table and not is_of(table[name], hint):
            raise TypeError(f"`{name}` is {table[name]!r:.100}")
    return kind(**table)


def is_of(value: Any, hint: Any) -> bool:
    """Whether a JSON value has the type of an annotation."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(is_of(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_of(key, parts[0]) and is_of(one, parts[1]) for key, one in value.items())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))
