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
from typing import Any

from fedsa import _fedsa, _files
from fedsa.errors import InputError

# Exceptions that a changed state file may cause.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)

# The most members that the line of an exchange names.
MAX_NAMED = 5

# The layout of saved servers. The first line has this number and the checksum of the rest.
LAYOUT = 6


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
    # The norm of the mean operator at the server's iterate, as answers show it; means of directions if agents send these.
    residual: float | None = None
    # Members without a valid answer: away, silent, or refused.
    silent: list[str] = field(default_factory=list)
    # The share of the participants' weight without an answer: of members that are away, that did not answer, or whose answer was refused.
    missing: float = 0.0

    def __str__(self) -> str:
        carried = f"{self.bytes_up:,} bytes up, {self.bytes_down:,} down"
        residual = "" if self.residual is None else f", residual {self.residual:.3g}"
        more = f" and {len(self.silent) - MAX_NAMED} more" if len(self.silent) > MAX_NAMED else ""
        without = f", without {', '.join(self.silent[:MAX_NAMED])}{more}" if self.silent else ""
        missing = f"{without}, {self.missing:.1%} of the weight missing" if self.missing > 0 else without
        answered = f"{self.answered} of {self.asked} answered{missing}"
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

    def __str__(self) -> str:
        changes = [f"{', '.join(names)} {what}" for names, what in ((self.joined, "joined"), (self.left, "left")) if names]
        rows = sum(agent["rows"] for agent in self.agents)
        return f"epoch {self.epoch}: {len(self.agents)} agents, {rows:,} rows" + "".join(f"; {change}" for change in changes)


class History:
    """The record of rounds, exchanges and epochs, which grows. The current epoch is in the state, because its costs still change."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.rounds: list[bytes] = []
        # Residuals at the ends of rounds, from round 0; `None` if unknown.
        self.residuals: list[float | None] = []
        # Seconds until the ends of rounds, and the shares of the weight without an answer in them, from round 0.
        self.ends: list[float] = []
        self.missing: list[float | None] = []
        self.exchanges: list[ExchangeRecord] = []
        # The last one is the current epoch.
        self.epochs: list[EpochRecord] = []
        # The valid bytes of the file, and new lines.
        self.kept, self.checksum = 0, hashlib.sha256()
        self.lines: list[bytes] = []

    def _write(self, **what: Any) -> None:
        self.lines.append(json.dumps(what).encode() + b"\n")

    def add_round(self, row: bytes, end: float, missing: float | None) -> None:
        """Record the end of a round."""
        self.rounds.append(row)
        self.ends.append(end)
        self.missing.append(missing)
        self._write(round=base64.b64encode(row).decode(), end=end, missing=missing)

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
            self._write(epoch=asdict(self.epochs[-1]))
        self.epochs.append(record)

    def save(self) -> dict[str, Any]:
        """Append the new lines to the file. Returns the entry of the state."""
        if self.lines:
            lines = b"".join(self.lines)
            _files.append(self.file, self.kept, lines)
            self.kept += len(lines)
            self.checksum.update(lines)
            self.lines = []
        return {"bytes": self.kept, "sha256": self.checksum.hexdigest(), "epoch": asdict(self.epochs[-1]) if self.epochs else None}

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
        for line in lines.splitlines():
            self._read(json.loads(line))
        if epoch is not None:
            self.epochs.append(EpochRecord(**epoch))

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

    def _read(self, line: dict[str, Any]) -> None:
        """Take a line."""
        if "round" in line:
            self.rounds.append(base64.b64decode(line["round"]))
            self.ends.append(float(line["end"]))
            self.missing.append(line["missing"])
        elif "exchange" in line:
            self.exchanges.append(ExchangeRecord(**line["exchange"]))
        elif "epoch" in line:
            self.epochs.append(EpochRecord(**line["epoch"]))
        else:
            self.residuals.append(line["residual"])


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
    # The largest share of the weight without an answer in an exchange of this round.
    missing: float = 0.0
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
    _files.write(file, _head(state) + state, is_private=True)


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
        return Progress(**table)
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
