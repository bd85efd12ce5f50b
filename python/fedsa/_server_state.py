"""What a server of a federation keeps on the disk: a state of a size that does not grow, and beside it lines that only become more.

A state is written as a whole before anything is sent. What becomes more with the rounds is appended to a file of its own before that, of which
the state says how many bytes count and their checksum: lines that a crash has left behind them are cut off, and are written again.
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

# What reading a state may raise that somebody has changed.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

# The layout of saved servers: a line with its number and the checksum of all that follows it.
LAYOUT = 5


@dataclass
class ExchangeRecord:
    """What an exchange has taken."""

    round: int
    exchange: int
    epoch: int
    asked: int
    answered: int
    bytes_down: int
    bytes_up: int
    wire_bytes_up: int
    seconds: float
    # How many answers of earlier rounds came in it, and count.
    late: int = 0
    # The norm of the mean of the answers: operators' values or gradients where agents send them, otherwise directions.
    residual: float | None = None

    def __str__(self) -> str:
        carried = f"{self.bytes_up:,} bytes up, {self.bytes_down:,} down"
        residual = "" if self.residual is None else f", residual {self.residual:.3g}"
        late = f", {self.late} late" if self.late else ""
        answered = f"{self.answered} of {self.asked} answered{late}"
        return f"round {self.round}, exchange {self.exchange}: {answered}, {carried}, {self.seconds:.2f} s{residual}"


@dataclass
class EpochRecord:
    """Who takes part from a round on, and what it took to tell them: messages of enrolment with their bytes and seconds."""

    epoch: int
    # The rounds that were done before.
    round: int
    agents: list[dict[str, Any]]
    joined: list[str]
    left: list[str]
    messages: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    # Of each exchange who computed nothing, and which answers arrived, where those that miss a deadline count later.
    arrivals: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        changes = [f"{', '.join(names)} {what}" for names, what in ((self.joined, "joined"), (self.left, "left")) if names]
        rows = sum(agent["rows"] for agent in self.agents)
        return f"epoch {self.epoch}: {len(self.agents)} agents, {rows:,} rows" + "".join(f"; {change}" for change in changes)

    def told(self) -> dict[str, Any]:
        """All but its arrivals, which become more with the rounds."""
        return {key: value for key, value in asdict(self).items() if key != "arrivals"}


class History:
    """What has happened, which becomes more with the rounds. The epoch under way, of which costs still change, is in the state."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.rounds: list[bytes] = []
        # At the ends of rounds, from round 0, as far as they are known.
        self.residuals: list[float | None] = []
        # The seconds until the ends of rounds, from round 0.
        self.ends: list[float] = []
        self.exchanges: list[ExchangeRecord] = []
        # The last one is under way.
        self.epochs: list[EpochRecord] = []
        # The bytes of the file that count, and lines that are not in it yet.
        self.kept, self.checksum = 0, hashlib.sha256()
        self.lines: list[bytes] = []

    def _write(self, **what: Any) -> None:
        self.lines.append(json.dumps(what).encode() + b"\n")

    def add_round(self, row: bytes, end: float, arrivals: list[dict[str, Any]]) -> None:
        """A round has ended."""
        self.rounds.append(row)
        self.ends.append(end)
        self.epochs[-1].arrivals += arrivals
        self._write(round=base64.b64encode(row).decode(), end=end, arrivals=arrivals)

    def add_residual(self, residual: float | None) -> None:
        """The residual at the end of the last round, or that it is not known."""
        self.residuals.append(residual)
        self._write(residual=residual)

    def add_exchange(self, record: ExchangeRecord) -> None:
        """An exchange has ended."""
        self.exchanges.append(record)
        self._write(exchange=asdict(record))

    def add_epoch(self, record: EpochRecord) -> None:
        """An epoch begins, and what the last one has cost is known."""
        if self.epochs:
            self._write(epoch=self.epochs[-1].told())
        self.epochs.append(record)

    def save(self) -> dict[str, Any]:
        """What a state says of it, once its lines are on the disk."""
        if self.lines:
            lines = b"".join(self.lines)
            _files.append(self.file, self.kept, lines)
            self.kept += len(lines)
            self.checksum.update(lines)
            self.lines = []
        return {"bytes": self.kept, "sha256": self.checksum.hexdigest(), "epoch": self.epochs[-1].told() if self.epochs else None}

    def restore(self, told: dict[str, Any]) -> None:
        """Go on from what a state says.

        Raises
        ------
        InputError
            When these lines are not there, or are others.
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
        """Check that it is that of a server which has done so many rounds.

        Raises
        ------
        InputError
            When it is not.
        """
        done = [_fedsa.Deployment.recorded_round(row) for row in self.rounds]
        if done not in (list(range(rounds + 1)), list(range(rounds))) or not self.epochs:
            raise InputError(f"records of {len(done)} rounds of {rounds}", "format", self.file, "the file that was saved with this state, or another folder")

    def _read(self, line: dict[str, Any], arrivals: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take a line; the arrivals so far of the epoch that has not ended."""
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
    """What a server has come to, as it is saved."""

    excluded: dict[str, str] = field(default_factory=dict)
    enrolment: bytes = b""
    membership: bytes | None = None
    server: bytes | None = None
    # The folder into which results are being written.
    writes: str | None = None
    # Those who have heard of this epoch; those who know no epoch, and must be told all; those who were told all again and have not answered since.
    admitted: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    retold: list[str] = field(default_factory=list)
    # Those who refuse questions nevertheless, and are to be invited to begin anew; and those who were since their last answer.
    anew: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    # Those who have said that they leave, and those who may not come back.
    leaving: list[str] = field(default_factory=list)
    barred: list[str] = field(default_factory=list)
    # In which round those are invited again who did not come, and after how many rounds once more.
    again: dict[str, list[int]] = field(default_factory=dict)
    # The last number of rounds at which it was decided who takes part: once, also by a server that was stopped in between.
    decided: int = -1
    # For how many rounds agents were silent; and of this round, who was to answer and who has.
    silent: dict[str, int] = field(default_factory=dict)
    wanted: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    # Messages of enrolment for the next epoch, with their bytes down and up, and seconds.
    cost: list[int] = field(default_factory=lambda: [0, 0, 0])
    cost_seconds: float = 0.0
    # The seconds in which a server ran since the federation was founded: not those in which it was stopped.
    seconds: float = 0.0

    def count(self, record: EpochRecord | None, messages: Collection[bytes], up: int = 0) -> None:
        """Count messages of enrolment: of an epoch, or of the next one."""
        down = sum(map(len, messages))
        if record is None:
            self.cost = [self.cost[0] + len(messages) + (up > 0), self.cost[1] + down, self.cost[2] + up]
        else:
            record.messages += len(messages)
            record.bytes_down += down


def save(file: str, progress: Progress, history: History) -> None:
    """Keep both."""

    def plain(value: Any) -> Any:
        return {"base64": base64.b64encode(value).decode()}

    state = json.dumps({**progress.__dict__, "history": history.save()}, default=plain).encode()
    _files.write(file, _head(state) + state)


def _head(state: bytes) -> bytes:
    return json.dumps({"layout": LAYOUT, "sha256": hashlib.sha256(state).hexdigest()}).encode() + b"\n"


def restored(file: str, history: History) -> Progress:
    """What was kept.

    Raises
    ------
    InputError
        When a file is damaged, is missing, or has another layout.
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
    # Whoever has the checksum has what this program wrote.
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
    """Whatever is wrong with a state is said of its file, with what can be done."""
    try:
        yield
    except UNREADABLE as e:
        what = e.what if isinstance(e, InputError) else f"{type(e).__name__}: {e}"
        # Lines are in a file of their own.
        file = e.key if isinstance(e, InputError) and os.path.dirname(e.key) else file
        accepted = "the settings with which it was saved, an intact copy of the folder, or another one, with which the federation begins anew"
        raise InputError(f"the state in {file} is damaged or not ours: {what}", "format", "state", accepted) from e


def typed(kind: type[Kind], table: dict[str, Any]) -> Kind:
    """A value of a dataclass.

    Raises
    ------
    TypeError
        When a field is missing, is another one, or has another type.
    """
    for name, hint in get_type_hints(kind).items():
        if name in table and not is_of(table[name], hint):
            raise TypeError(f"`{name}` is {table[name]!r:.100}")
    return kind(**table)


def is_of(value: Any, hint: Any) -> bool:
    """Whether a value that JSON has is of a type."""
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
