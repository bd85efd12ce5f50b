"""Federations whose agents have data of their own, whoever carries the messages.

Both ends have the same settings, an experiment file without data. Their states are on the disk before anything leaves, so that each can be
killed at any time and go on.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from fedsa import _fedsa, _files
from fedsa._files import Path
from fedsa._results import Results
from fedsa.errors import FedsaError, InputError, MachineError

# The layout of saved servers.
LAYOUT = 1


@dataclass(frozen=True)
class Reply:
    """What came back of a message.

    Attributes
    ----------
    body : bytes or None
        The answer; ``None`` where the message wants none.
    refused : str or None
        Why the agent refuses the message.
    lost : str or None
        Why nothing came of it, where whoever carries messages knows: the agent may have got it, or not.
    wire_bytes : int
        The bytes that were carried for it, with what the carrier adds; 0 if that is not known.
    """

    body: bytes | None = None
    refused: str | None = None
    lost: str | None = None
    wire_bytes: int = 0


class AgentCarrier(Protocol):
    """What carries messages to agents. It knows them by texts, of which it says that they have sent what comes from them."""

    def reachable(self) -> Collection[str]:
        """Return who can be reached now."""
        ...

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Carry messages to agents, and return what came back until then.

        Parameters
        ----------
        messages : mapping of str to bytes
            Messages by agent.
        deadline : float
            The time of :func:`time.monotonic` at which waiting ends.

        Returns
        -------
        mapping of str to Reply
            By agent; those of whom nothing came are missing.
        """
        ...


@dataclass
class ExchangeRecord:
    """What an exchange has taken."""

    round: int
    exchange: int
    asked: int
    answered: int
    bytes_down: int
    bytes_up: int
    wire_bytes_up: int
    seconds: float

    def __str__(self) -> str:
        carried = f"{self.bytes_up:,} bytes up, {self.bytes_down:,} down"
        return f"round {self.round}, exchange {self.exchange}: {self.answered} of {self.asked} answered, {carried}, {self.seconds:.2f} s"


class Agent:
    """An agent with data of its own: bytes in, bytes out.

    Parameters
    ----------
    settings : path
        The settings that all ends have: an experiment file with one method and one seed, without data.
    data : path or sequence of path
        Its data: files, globs, a folder, or the name of a data set; none where the problem is generated.
    state : path, optional
        A folder for its state, which is made where there is none. An agent that is made again with it goes on from there.
    number : int, optional
        Its number in the federation; by default the server gives it one.

    Raises
    ------
    InputError
        When settings, data or a state cannot be used.
    """

    def __init__(self, settings: Path, data: Path | Sequence[Path] = (), *, state: Path | None = None, number: int | None = None) -> None:
        listed = [data] if isinstance(data, str) or hasattr(data, "__fspath__") else list(data)
        deployment = read_settings(settings)
        self._native = deployment.agent([os.fspath(one) for one in listed], "", number)
        self._file = None if state is None else os.path.join(os.fspath(state), "agent.state")
        if self._file is not None:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            if os.path.exists(self._file):
                self._native.restore(_files.read(self._file))

    @property
    def number(self) -> int | None:
        """Its number, once it is admitted."""
        return self._native.number

    def saved(self) -> bytes:
        """Return the state."""
        return self._native.save()

    def on_disk(self) -> bytes | None:
        """Return the state that the folder has, if there is one."""
        return _files.read(self._file) if self._file is not None and os.path.exists(self._file) else None

    def handle(self, message: bytes) -> bytes | None:
        """Process a message of the server.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        bytes or None
            The answer, if the message wants one. The state is on the disk then, where there is a folder for it.

        Raises
        ------
        InputError
            When the server does not send such a message to this agent now. The agent is then unchanged.
        """
        answer = self._native.handle(message)
        if self._file is not None:
            _files.write(self._file, self._native.save())
        return answer


class Resident:
    """A process ``fedsa agent`` of this machine.

    Parameters
    ----------
    socket : path
        Its socket.
    timeout : float
        The seconds for which it may be silent.
    """

    def __init__(self, socket: Path, timeout: float = 600.0) -> None:
        self.socket, self.timeout = os.fspath(socket), timeout

    def handle(self, message: bytes) -> bytes | None:
        """Pass a message on.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        bytes or None
            The answer, if the message wants one.

        Raises
        ------
        InputError
            When the agent refuses the message.
        MachineError
            When nobody listens, or the agent has failed.
        """
        import socket

        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.settimeout(self.timeout)
                stream.connect(self.socket)
                stream.sendall(b"FA1" + len(message).to_bytes(4, "little") + message)
                head = received(stream, 5)
                body = received(stream, int.from_bytes(head[1:], "little"))
        except OSError as e:
            raise MachineError(f"the agent does not answer: {e}", "machine", self.socket, "fedsa agent SETTINGS DATA --state DIR") from e
        if head[0] == 2:
            raise InputError(body.decode(errors="replace"), "message.refused", self.socket)
        if head[0] > 2:
            raise MachineError(body.decode(errors="replace"), "machine", self.socket)
        return body if head[0] else None


def received(stream: Any, n: int) -> bytes:
    """So many bytes of a stream."""
    parts = bytearray()
    while len(parts) < n:
        part = stream.recv(min(n - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("it has gone")
        parts += part
    return bytes(parts)


def read_settings(path: Path) -> _fedsa.Deployment:
    """The settings of a file."""
    name = os.fspath(path)
    try:
        text = _files.read(name).decode()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot be read: {e}", "data.unreadable", name, "settings of a federation: an experiment file without data") from e
    return _fedsa.Deployment(text, name)


@dataclass
class Progress:
    """What a server has come to, as it is saved."""

    # Those who have heard that they take part.
    admitted: list[str] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    enrolment: bytes = b""
    server: bytes | None = None
    rounds: list[bytes] = field(default_factory=list)
    exchanges: list[ExchangeRecord] = field(default_factory=list)
    seconds: float = 0.0

    def to_bytes(self) -> bytes:
        """As a file has it."""

        def plain(value: Any) -> Any:
            return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value.__dict__

        return json.dumps({"layout": LAYOUT, **self.__dict__}, default=plain).encode()

    @classmethod
    def of_bytes(cls, contents: bytes, file: str) -> Progress:
        """What a file has."""

        def parts(table: dict[str, Any]) -> Any:
            return base64.b64decode(table["base64"]) if set(table) == {"base64"} else table

        try:
            table = json.loads(contents, object_hook=parts)
            layout = table.pop("layout")
            if layout != LAYOUT:
                help = "a state that this version saved, or another folder"
                raise InputError(f"a saved server of layout {layout}; this version has {LAYOUT}", "format", file, help)
            self = cls(**table)
            self.exchanges = [ExchangeRecord(**one) for one in self.exchanges]  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            if isinstance(e, InputError):
                raise
            raise InputError("not the state of a server", "format", file, "a state that fedsa saved, or another folder") from e
        return self


def serve(
    settings: Path,
    carrier: AgentCarrier,
    *,
    agents: int,
    out: Path,
    most: int | None = None,
    state: Path | None = None,
    connect: float = 60.0,
    deadline: float = 300.0,
    least_answers: int = 1,
    repeats: int = 1,
    overwrite: bool = False,
    report: Callable[[str], object] | None = None,
) -> Results:
    """Be the server of a federation, from enrolment to results.

    Parameters
    ----------
    settings : path
        The settings that all ends have: an experiment file with one method and one seed, without data.
    carrier : AgentCarrier
        What carries messages.
    agents : int
        The least number of agents. There is no federation of fewer.
    out : path
        The folder for the results: files like those of any run.
    most : int, optional
        The greatest number of agents; by default `agents`.
    state : path, optional
        The folder for the state while the federation goes on; by default `out` with ``.state``. A call with the state of a server
        that was stopped goes on from there.
    connect : float
        The seconds for which agents are waited for: until there are `most`, and afterwards the federation begins if there are `agents`.
    deadline : float
        The seconds of an exchange. Answers that have not come by then are missing: the method counts them as zero.
    least_answers, repeats : int
        How many answers an exchange needs, or all where fewer are asked. Where fewer have come by the deadline, those who may still
        answer are asked again, so many times; then the round is given up, which changes nothing, and the next one begins.
    overwrite : bool
        Whether results that are in `out` are replaced.
    report : callable, optional
        Gets a line of text for each exchange; by default nothing is told.

    Returns
    -------
    Results
        The results, which are in `out` as well.

    Raises
    ------
    InputError
        When settings cannot be used, or `out` holds something that must not be replaced.
    MachineError
        When too few agents come, or none can be reached. The state is kept.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedsa import federation
    >>> folder = Path(tempfile.mkdtemp())
    >>> problem = 'problem = { kind = "garnet", agents = 3, states = 8, features = 3 }'
    >>> _ = (folder / "settings.toml").write_text(problem + '''
    ... method = [{ kind = "scafflsa", step_size = 0.1, local_steps = 4 }]
    ... run = { rounds = 5, seeds = [1] }
    ... ''')
    >>> class Here:
    ...     agents = {name: federation.Agent(folder / "settings.toml") for name in "abc"}
    ...     def reachable(self):
    ...         return list(self.agents)
    ...     def exchange(self, messages, deadline):
    ...         return {name: federation.Reply(self.agents[name].handle(message)) for name, message in messages.items()}
    >>> results = federation.serve(folder / "settings.toml", Here(), agents=3, out=folder / "out")
    >>> results.outcomes["scafflsa"].name, results.theta("scafflsa").shape
    ('completed', (1, 3))
    """
    if least_answers < 0 or repeats < 0:
        raise InputError(f"{least_answers} answers, {repeats} repeats", "setting.out-of-range", "least_answers", "numbers of at least 0")
    if connect < 0 or not deadline > 0:
        raise InputError(f"{connect} and {deadline} seconds", "setting.out-of-range", "deadline", "a positive number, and connect at least 0")
    folder = f"{os.fspath(out)}.state" if state is None else os.fspath(state)
    if os.path.exists(os.path.join(os.fspath(out), "summary.json")) and not overwrite:
        raise InputError(f"{os.fspath(out)} holds results", "setting.output-exists", "out", "another folder, or overwrite=True")
    rules = Rules(deadline, least_answers, repeats)
    server = Server(read_settings(settings), carrier, (agents, agents if most is None else most), folder, rules, report or (lambda _: None))
    server.enrol(connect)
    server.run()
    results = server.results()
    results.save(out, overwrite=overwrite)
    os.remove(server.file)
    return results


@dataclass(frozen=True)
class Rules:
    """When an exchange ends: :func:`serve` says what these are."""

    deadline: float
    least_answers: int
    repeats: int


class Server:
    """The server of a federation, whose state is saved before anything is sent."""

    def __init__(
        self,
        deployment: _fedsa.Deployment,
        carrier: AgentCarrier,
        agents: tuple[int, int],
        folder: str,
        rules: Rules,
        report: Callable[[str], object],
    ) -> None:
        self.deployment, self.carrier, self.rules, self.report = deployment, carrier, rules, report
        os.makedirs(folder, exist_ok=True)
        self.file = os.path.join(folder, "server.state")
        self.enrolment = deployment.enrolment(*agents)
        self.node: _fedsa.ServerNode | None = None
        # By the numbers of agents, once the federation is founded: who they are, their rows; and what they are to be told.
        self.senders: list[str] = []
        self.rows_of: list[int] = []
        self.admissions: dict[str, bytes] = {}
        self.progress = Progress()
        if os.path.exists(self.file):
            self.progress = Progress.of_bytes(_files.read(self.file), self.file)
            self.enrolment.restore(self.progress.enrolment)
            if self.progress.server is not None:
                self._found()
                assert self.node is not None
                self.node.restore(self.progress.server)
                self.report(f"goes on after round {self.node.rounds()}")

    def _save(self) -> None:
        self.progress.enrolment = self.enrolment.save()
        self.progress.server = None if self.node is None else self.node.save()
        _files.write(self.file, self.progress.to_bytes())

    def _carry(self, messages: Mapping[str, bytes], seconds: float) -> tuple[Mapping[str, Reply], float]:
        """Carry messages; what came back, and the seconds that it took. The state is on the disk before."""
        self._save()
        began = time.monotonic()
        replies = self.carrier.exchange(messages, began + seconds)
        return replies, time.monotonic() - began

    def _found(self) -> None:
        """The federation of those who have applied: the same however often it is founded."""
        federation, admitted, excluded = self.enrolment.close()
        self.node = _fedsa.ServerNode(federation)
        self.admissions = {sender: message for sender, _, _, message in admitted}
        self.senders = [sender for sender, *_ in admitted]
        self.rows_of = [rows for _, _, rows, _ in admitted]
        self.progress.excluded.update(excluded)

    def enrol(self, connect: float) -> None:
        """Wait for agents, and found the federation."""
        if self.node is not None:
            return
        ends = time.monotonic() + connect
        refused: set[str] = set()
        while not self.enrolment.is_full:
            known = {*self.enrolment.applied(), *refused}
            new = [who for who in self.carrier.reachable() if who not in known]
            if new:
                invitation = self.enrolment.invite(len(new))
                replies, _ = self._carry({who: invitation for who in new}, min(self.rules.deadline, max(ends - time.monotonic(), 1.0)))
                for who, reply in replies.items():
                    if self._applies(who, reply):
                        self.progress.excluded.pop(who, None)
                    elif reply.lost is None:
                        refused.add(who)
            if time.monotonic() >= ends:
                break
            time.sleep(min(0.2, connect))
        if not self.enrolment.has_enough:
            self._save()
            told = "; ".join(f"{who}: {why}" for who, why in self.progress.excluded.items())
            what = f"{len(self.enrolment.applied())} agents have come in {connect:.0f} s" + (f"; {told}" if told else "")
            raise MachineError(what, "machine", "agents", "more agents, fewer that must come, or more seconds; the next call goes on")
        self._found()
        assert self.node is not None
        self.progress.rounds = [self.node.recorded()]
        self.report(f"{len(self.senders)} agents, {sum(self.rows_of):,} rows")

    def _applies(self, who: str, reply: Reply) -> bool:
        """Whether what came back is an application that counts."""
        if reply.lost is not None:
            self.report(f"{who} was not reached: {reply.lost}")
            return False
        try:
            if reply.body is None:
                raise InputError(reply.refused or "no application", "message.refused")
            self.enrolment.take(who, reply.body)
        except FedsaError as e:
            self.progress.excluded[who] = e.what
            self.report(f"{who} cannot take part: {e.what}")
            return False
        self.report(f"{who} takes part: {len(self.enrolment.applied())} so far")
        return True

    def _admit(self, numbers: Collection[int]) -> None:
        """Tell those who have not heard of it that they are admitted."""
        waiting = [self.senders[c] for c in numbers if self.senders[c] not in self.progress.admitted]
        if not waiting:
            return
        replies, seconds = self._carry({who: self.admissions[who] for who in waiting}, self.rules.deadline)
        self.progress.seconds += seconds
        for who, reply in replies.items():
            why = reply.refused or reply.lost
            if why is None:
                self.progress.admitted.append(who)
            else:
                self.report(f"{who} does not take part in this round: {why}")

    def _available(self) -> list[int]:
        """The numbers of those who can be reached."""
        waited = time.monotonic() + self.rules.deadline
        while True:
            reachable = set(self.carrier.reachable())
            numbers = [c for c, who in enumerate(self.senders) if who in reachable]
            self._admit(numbers)
            admitted = [c for c in numbers if self.senders[c] in self.progress.admitted]
            if admitted:
                return admitted
            if time.monotonic() > waited:
                self._save()
                raise MachineError("no agent can be reached", "machine", "agents", "agents that run; the next call goes on")
            time.sleep(0.2)

    def run(self) -> None:
        """Carry the rounds."""
        node, progress = self.node, self.progress
        assert node is not None
        kind, messages = node.todo()
        while True:
            if kind == "over":
                if len(progress.rounds) <= node.rounds():
                    progress.rounds.append(node.recorded())
                if node.rounds() >= self.deployment.rounds or node.diverged() is not None:
                    self._save()
                    return
                kind, messages = node.open(self._available())
                continue
            if kind == "tell":
                self._ask(messages)
                # It is over whether they have heard it or not.
                kind, messages = "over", {}
                continue
            enough = min(self.rules.least_answers, len(messages))
            waiting = messages
            for _ in range(self.rules.repeats + 1):
                for c, reply in self._ask(waiting).items():
                    if reply.body is not None:
                        try:
                            node.take(c, reply.body)
                        except FedsaError as e:
                            self.report(f"{self.senders[c]} was refused: {e.what}")
                waiting = {c: messages[c] for c in node.may_still_answer() if c in messages}
                if node.answered() >= enough or not waiting:
                    break
            if node.answered() >= enough:
                kind, messages = node.close()
            else:
                self.report(f"round {node.rounds() + 1} is given up: {node.answered()} of {enough} answers")
                kind, messages = node.give_up()

    def _ask(self, messages: Mapping[int, bytes]) -> dict[int, Reply]:
        """Carry messages to agents by their numbers; what came back."""
        progress, node = self.progress, self.node
        assert node is not None
        self._admit(messages)
        names = {c: self.senders[c] for c in messages}
        replies, seconds = self._carry({names[c]: message for c, message in messages.items()}, self.rules.deadline)
        progress.seconds += seconds
        self._note(node.rounds(), messages, replies, seconds)
        for who in names.values():
            reply = replies.get(who)
            why = "no answer" if reply is None else reply.refused or reply.lost
            if why is not None:
                self.report(f"{who}: {why}")
        return {c: replies[who] for c, who in names.items() if who in replies}

    def _note(self, rounds: int, messages: Mapping[int, bytes], replies: Mapping[str, Reply], seconds: float) -> None:
        """Keep what an exchange has taken."""
        exchanges = self.progress.exchanges
        again = exchanges[-1].exchange + 1 if exchanges and exchanges[-1].round == rounds + 1 else 1
        bodies = [reply.body for reply in replies.values() if reply.body is not None]
        record = ExchangeRecord(
            round=rounds + 1,
            exchange=again,
            asked=len(messages),
            answered=sum(reply.refused is None and reply.lost is None for reply in replies.values()),
            bytes_down=sum(map(len, messages.values())),
            bytes_up=sum(map(len, bodies)),
            wire_bytes_up=sum(reply.wire_bytes for reply in replies.values()),
            seconds=seconds,
        )
        exchanges.append(record)
        self.report(str(record))

    def results(self) -> Results:
        """The results of the rounds."""
        assert self.node is not None
        progress = self.progress
        agents = [{"name": who, "rows": rows} for who, rows in zip(self.senders, self.rows_of)]
        told = {"agents": agents, "excluded": progress.excluded, "exchanges": [asdict(one) for one in progress.exchanges]}
        ran = self.deployment.results(self.node, progress.rounds, progress.seconds, json.dumps(told))
        return Results._of(ran)
