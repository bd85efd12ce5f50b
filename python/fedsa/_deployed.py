"""Federations whose agents have data of their own, whoever carries the messages.

Both ends have the same settings, an experiment file without data. Their states are on the disk before anything leaves, so that each can be
killed at any time and go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedsa import _fedsa, _files
from fedsa._carrier import AgentCarrier
from fedsa._files import Path, name_of
from fedsa._results import Results
from fedsa._server import Server
from fedsa.errors import InputError, MachineError


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
        Its number in the federation; by default the server gives it one. In later epochs it may have another one.
    longest_gap : int, optional
        The most rounds by which a question may be ahead of the last one that it accepted: without a limit, which is the default, one forged
        question of a round that is never reached would silence it for good.

    Raises
    ------
    InputError
        When settings, data or a state cannot be used.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from fedsa.federation import Agent
    >>> lines = ["problem = {kind = 'garnet', agents = 2}", "method = [{kind = 'fedlsa', step_size = 0.1, local_steps = 10}]", "run = {rounds = 9}"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "settings.toml").write_text(os.linesep.join(lines))
    ...     agent = Agent(f"{folder}/settings.toml", number=0)
    >>> agent.number is None
    True
    """

    def __init__(
        self, settings: Path, data: Path | Sequence[Path] = (), *, state: Path | None = None, number: int | None = None, longest_gap: int | None = None
    ) -> None:
        listed = [data] if isinstance(data, str) or hasattr(data, "__fspath__") else list(data)
        deployment = read_settings(settings, {"longest_gap": longest_gap})
        self._native = deployment.agent([os.fspath(one) for one in listed], "", number)
        self._file = None if state is None else os.path.join(name_of(state, "state"), "agent.state")
        if self._file is not None:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            if os.path.exists(self._file):
                self._native.restore(_files.read(self._file))

    @property
    def number(self) -> int | None:
        """Its number, once it is admitted."""
        return self._native.number

    def leave(self) -> None:
        """From now on answer, whatever the server asks, that it leaves for good. One that is made again comes back where there is room."""
        self._native.leave()

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

    Examples
    --------
    >>> from fedsa.federation import Resident
    >>> Resident("agent.sock", timeout=60.0).timeout
    60.0
    """

    def __init__(self, socket: Path, timeout: float = 600.0) -> None:
        self.socket, self.timeout = name_of(socket, "socket"), timeout

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


def read_settings(path: Path, waiting: Mapping[str, Any]) -> _fedsa.Deployment:
    """The settings of a file, with what is not ``None`` in place of its table ``[federation]``."""
    name = name_of(path)
    try:
        text = _files.read(name).decode()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot be read: {e}", "data.unreadable", name, "settings of a federation: an experiment file without data") from e
    return _fedsa.Deployment(text, name, {key: value for key, value in waiting.items() if value is not None})


def serve(
    settings: Path,
    carrier: AgentCarrier,
    *,
    agents: int,
    out: Path,
    most: int | None = None,
    state: Path | None = None,
    connect: float | None = None,
    deadline: float | None = None,
    least_answers: int | None = None,
    least_share: float | None = None,
    repeats: int | None = None,
    missing: str | None = None,
    norm_limit: float | None = None,
    leave_after: int | None = None,
    invite: float | None = None,
    overwrite: bool = False,
    report: Callable[[str], object] | None = None,
) -> Results:
    """Be the server of a federation, from enrolment to results.

    Between two rounds agents join and leave: those that can be reached and do not take part are invited where there is room, those that say
    that they leave, are silent for too long, or are excluded, leave. Whenever that changes who takes part, an epoch begins: with weights by
    rows, or equal ones, as the problem says, and control variates that sum to zero.

    What is ``None`` here is as the table ``[federation]`` of the settings says, whose defaults are named below.

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
        The greatest number of agents, up to which others may join later; by default `agents`.
    state : path, optional
        The folder for the state while the federation goes on; by default `out` with ``.state``. A call with the state of a server
        that was stopped goes on from there.
    connect : float, optional
        The seconds for which agents are waited for: until there are `most`, and afterwards the federation begins if there are `agents`. 60.
    deadline : float, optional
        The seconds of an exchange. Answers that have not come by then are missing, or late over a link with ``law = "network"`` if the
        carrier has them later. 300.
    least_answers : int, optional
        How many answers an exchange needs, or all where fewer are asked. 1.
    least_share : float, optional
        The share of the weight of those who were asked, whose answers an exchange needs. 0.
    repeats : int, optional
        How often those who may still answer are asked again where an exchange has too few answers. Then the round is given up, which changes
        nothing, and the next one begins. 1.
    missing : {"zero", "reweighted"}, optional
        What a missing answer counts as: zero, which shortens the step, or the mean of the others, which methods whose control variates
        must sum to zero cannot have. Zero.
    norm_limit : float, optional
        Agents are excluded, and leave, whose answers are no longer finite, or have a norm above this many times the median of the others'.
        By default answers are believed, and the federation ends where an agent's numbers are no longer finite.
    leave_after : int, optional
        After so many rounds in a row in which it was asked or could not be reached, and did not answer, an agent has left for good. By
        default only those leave that say so.
    invite : float, optional
        The seconds for which applications of others are waited for between two rounds, where there is room; 0 for nobody. 20.
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
    folder = f"{os.fspath(out)}.state" if state is None else os.fspath(state)
    if os.path.exists(os.path.join(os.fspath(out), "summary.json")) and not overwrite:
        raise InputError(f"{os.fspath(out)} holds results", "setting.output-exists", "out", "another folder, or overwrite=True")
    waiting: dict[str, Any] = dict(connect=connect, deadline=deadline, least_answers=least_answers, least_share=least_share, repeats=repeats)
    waiting |= dict(missing=missing, norm_limit=norm_limit, leave_after=leave_after, invite=invite)
    deployment = read_settings(settings, waiting)
    server = Server(deployment, carrier, (agents, agents if most is None else most), folder, report or (lambda _: None))
    server.enrol()
    server.run()
    results = server.results()
    server.write(results, out, overwrite)
    return results
