"""The ends of a federation: bytes in, bytes out.

A server sends messages to agents, over any transport. All ends are built from the same :class:`Federation`; messages of other federations are
refused. The numbers equal those of :meth:`fedsa.Experiment.run`, bit for bit.

>>> from fedsa import federation, methods, problems
>>> data = federation.AgentData(problems.Garnet(agents=3, states=6, features=2, seed=1))
>>> shared = federation.Federation(methods.FedLSA(0.1, 10), weights=data.weights, dim=data.dim, seed=7)
>>> agents = [federation.ClientNode(shared, data, agent) for agent in range(3)]
>>> server = federation.ServerNode(shared)
>>> for _ in range(5):
...     todo = server.open()
...     while not todo.is_over:
...         for agent, message in todo.messages.items():
...             answer = agents[agent].handle(message)
...             if answer is not None:
...                 server.take(agent, answer)
...         todo = server.close()
>>> server.rounds, server.theta.shape
(5, (2,))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from fedsa import _fedsa
from fedsa._agent import Agent
from fedsa._carrier import AgentCarrier, Reply
from fedsa._deployed import serve
from fedsa._files import Path
from fedsa._kinds import Method, Problem
from fedsa._resident import Resident
from fedsa._settings import bytes_of, nearest, plain, positive, whole
from fedsa._warn import warn
from fedsa.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Agent",
    "AgentCarrier",
    "AgentData",
    "ClientNode",
    "Federation",
    "Reply",
    "Resident",
    "ServerNode",
    "Session",
    "Todo",
    "serve",
]

Table = Mapping[str, Any]

# Sends messages to agents by number, and returns their answers.
Carrier = Callable[[Mapping[int, bytes]], Mapping[int, bytes | None]]


class Exchange(Protocol):
    """Interface of a carrier with a deadline."""

    def exchange(self, messages: Mapping[int, bytes], deadline: float | None) -> Mapping[int, bytes | None]:
        """Send messages to agents; return the answers that arrive by the deadline, by agent."""
        ...


def expected(value: Any, kind: type, key: str) -> Any:
    """Check that a value is an object of a class of this module."""
    if not isinstance(value, kind):
        what = f"a value of the type '{type(value).__name__}'"
        raise InputError(what, "setting.wrong-type", key, f"a fedsa.federation.{kind.__name__}")
    return value


class AgentData:
    """The data of agents: a problem and its sampling.

    Parameters
    ----------
    problem : Problem or mapping
        One of :mod:`fedsa.problems`, also with the data of a single agent.
    sampling : {"iid", "markov", "mean"} or mapping
        The law of samples.
    base : path, optional
        The folder of relative paths; the working directory by default.

    Attributes
    ----------
    agents, dim : int
        The numbers of agents in the data, and of components of the model.
    weights : ndarray of shape (agents,)
        The agents' shares, which sum to 1.

    Raises
    ------
    InputError
        When a setting or a file cannot be used.

    Examples
    --------
    >>> from fedsa import problems
    >>> from fedsa.federation import AgentData
    >>> AgentData(problems.Garnet(agents=5, states=10, features=3))
    <fedsa.federation.AgentData of 5 agents, d = 3>
    """

    def __init__(self, problem: Problem | Table, *, sampling: str | Table = "iid", base: Path | None = None) -> None:
        law = {"kind": sampling} if isinstance(sampling, str) else plain(sampling)
        # The engine builds problems only as parts of experiments. The method has no effect here.
        method = {"kind": "fedlsa", "step_size": 1.0, "local_steps": 1}
        table = {"problem": plain(problem), "sampling": law, "method": [method], "run": {"rounds": 1}}
        folder = "" if base is None else os.fspath(base)
        held: tuple[Any, list[Any]] = (getattr(problem, "_held", None), [])
        self._native = _fedsa.AgentData.of(_fedsa.Experiment.of_table(table, folder, {}, {}, False, held))

    @property
    def agents(self) -> int:
        """The number of agents in the data."""
        return self._native.agents

    @property
    def dim(self) -> int:
        """The number of components of the model."""
        return self._native.dim

    @property
    def weights(self) -> NDArray[Any]:
        """The agents' shares, which sum to 1."""
        return self._native.weights

    def __repr__(self) -> str:
        return f"<fedsa.federation.AgentData of {self.agents} agents, d = {self.dim}>"


class Federation:
    """The settings that all ends share.

    Parameters
    ----------
    method : Method or mapping
        One of :mod:`fedsa.methods`, with its link.
    weights : array of shape (agents,)
        The shares of the agents: positive numbers that sum to 1.
    dim : int
        The number of components of the model.
    seed : int
        The seed of all random draws.
    start : array of shape (dim,), optional
        The first iterate; 0 by default.
    agreement : str, optional
        A text that must be equal at all ends, such as the names of columns. Ends with another text are refused.
    run : int
        A number that distinguishes runs with the same settings; equal at all ends. Draw a new one for each run. Messages and states of other
        runs are refused. It does not affect the results.

    Attributes
    ----------
    digest : int
        A hash of all settings, which messages contain.

    Raises
    ------
    InputError
        When a setting cannot be used, or the method cannot work over its link.

    Examples
    --------
    >>> from fedsa import methods
    >>> from fedsa.federation import Federation
    >>> federation = Federation(methods.FedLSA(0.5, 1), weights=[0.5, 0.5], dim=1)
    >>> federation == Federation(methods.FedLSA(0.5, 2), weights=[0.5, 0.5], dim=1)
    False
    """

    def __init__(
        self,
        method: Method | Table,
        *,
        weights: ArrayLike,
        dim: int,
        seed: int = 0,
        start: ArrayLike | None = None,
        agreement: str | None = None,
        run: int = 0,
    ) -> None:
        from fedsa._arrays import numbers

        shares = numbers(weights, "weights").ravel()
        dim, seed, run = whole(dim, "dim", 1), whole(seed, "seed"), whole(run, "run")
        first = None if start is None else numbers(start, "start").ravel().tolist()
        self._made = dict(method=method, weights=shares, dim=dim, seed=seed, start=first, agreement=agreement, run=run)
        rules = getattr(method, "_rules", None)
        self._native = _fedsa.Federation((plain(method), rules), shares.tolist(), dim, seed, first, agreement, run)

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self._native.agents

    @property
    def dim(self) -> int:
        """The number of components of the model."""
        return self._native.dim

    @property
    def digest(self) -> int:
        """A hash of all settings."""
        return self._native.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Federation) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _federation_again, (dict(self._made),)

    def __repr__(self) -> str:
        return f"<fedsa.federation.Federation of {self.agents} agents, d = {self.dim}: {self._made['method']!r}>"


def _federation_again(made: dict[str, Any]) -> Federation:
    return Federation(made.pop("method"), **made)


@dataclass(frozen=True)
class Todo:
    """The next messages of a server.

    Attributes
    ----------
    messages : mapping of int to bytes
        The messages to send, by agent.
    wants_answers : bool
        Whether the agents answer. Close the exchange after their answers, or without the late ones.
    is_over : bool
        Whether the round is over. Send messages that need no answers before you open the next round.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsa import methods, problems
    >>> from fedsa.federation import AgentData, ClientNode, Federation, ServerNode
    >>> problem = problems.Linear(np.array([[[2.0]], [[1.0]]]), [[1.0], [1.0]])
    >>> federation = Federation(methods.FedLSA(0.5, 1), weights=[0.5, 0.5], dim=1)
    >>> todo = ServerNode(federation).open()
    >>> sorted(todo.messages), todo.wants_answers, todo.is_over
    ([0, 1], True, False)
    """

    messages: Mapping[int, bytes]
    wants_answers: bool
    is_over: bool

    @classmethod
    def _of(cls, asked: tuple[str, dict[int, bytes]]) -> Todo:
        name, messages = asked
        return cls(messages, name == "ask", name == "over")


def numbers_of(available: Sequence[int]) -> list[int]:
    """Check and convert numbers of agents."""
    if isinstance(available, (str, bytes)) or not hasattr(available, "__iter__"):
        help = "a sequence of numbers of agents, or None for all"
        raise InputError(f"{available!r} is no sequence", "setting.wrong-type", "available", help, value=repr(available))
    return [whole(agent, "available") for agent in available]


class ClientNode:
    """One agent of a federation.

    Parameters
    ----------
    federation : Federation
        The shared settings.
    data : AgentData
        The agent's data.
    agent : int
        The agent's number in the federation, from 0.
    place : int, optional
        The index of the agent in ``data``. By default 0 if ``data`` has one agent, otherwise ``agent``.

    Raises
    ------
    InputError
        When there is no such agent, or the data do not suit the federation.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsa import methods, problems
    >>> from fedsa.federation import AgentData, ClientNode, Federation, ServerNode
    >>> problem = problems.Linear(np.array([[[2.0]], [[1.0]]]), [[1.0], [1.0]])
    >>> federation = Federation(methods.FedLSA(0.5, 1), weights=[0.5, 0.5], dim=1)
    >>> agent = ClientNode(federation, AgentData(problem, sampling="mean"), 0)
    >>> answer = agent.handle(ServerNode(federation).open().messages[0])
    >>> agent.handle(b"of somebody else")
    Traceback (most recent call last):
    ...
    fedsa.errors.InputError: message: too short
      help: the bytes of a message made by the same codec
    """

    def __init__(self, federation: Federation, data: AgentData, agent: int, *, place: int | None = None) -> None:
        expected(federation, Federation, "federation")
        expected(data, AgentData, "data")
        self.agent = whole(agent, "agent")
        at = whole(place, "place") if place is not None else 0 if data.agents == 1 else self.agent
        self._native = _fedsa.ClientNode(federation._native, data._native, self.agent, at)

    def handle(self, message: bytes) -> bytes | None:
        """Answer a message of the server.

        Parameters
        ----------
        message : bytes
            The received message. A copy of the last message gets the same answer, and changes nothing.

        Returns
        -------
        bytes or None
            The answer; ``None`` if the message needs none.

        Raises
        ------
        InputError
            When the message is damaged, late, for another agent, or from another federation. The agent is then unchanged.
        """
        return self._native.handle(bytes_of(message, "message"))

    def save(self) -> bytes:
        """Return the state, for :meth:`restore`."""
        return self._native.save()

    def restore(self, state: bytes) -> None:
        """Restore a saved state.

        Parameters
        ----------
        state : bytes
            The result of :meth:`save` of a node with the same federation, agent and data.

        Raises
        ------
        InputError
            When the state is damaged or from another node. The node is then unchanged.
        """
        self._native.restore(bytes_of(state, "state"))

    def __repr__(self) -> str:
        return f"<fedsa.federation.ClientNode of agent {self.agent}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ClientNode is not pickled: save() returns its state, which restore() of a node with the same federation and data takes")


class ServerNode:
    """The server of a federation, without data.

    Parameters
    ----------
    federation : Federation
        The shared settings.

    Attributes
    ----------
    theta : ndarray of shape (dim,)
        The iterate.
    rounds : int
        The number of finished rounds.
    diverged : int or None
        The round in which divergence was found.
    counts : dict of str to int
        Exchanges, messages and bits so far.

    Raises
    ------
    InputError
        When the method cannot work over its link between machines.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsa import methods, problems
    >>> from fedsa.federation import AgentData, ClientNode, Federation, ServerNode
    >>> problem = problems.Linear(np.array([[[2.0]], [[1.0]]]), [[1.0], [1.0]])
    >>> federation = Federation(methods.FedLSA(0.5, 1), weights=[0.5, 0.5], dim=1)
    >>> server, data = ServerNode(federation), AgentData(problem, sampling="mean")
    >>> agents = [ClientNode(federation, data, c) for c in range(2)]
    >>> for c, message in server.open().messages.items():
    ...     server.take(c, agents[c].handle(message))
    >>> server.close().is_over, server.theta
    (True, array([0.5]))
    """

    def __init__(self, federation: Federation) -> None:
        self._native = _fedsa.ServerNode(expected(federation, Federation, "federation")._native)

    def open(self, available: Sequence[int] | None = None) -> Todo:
        """Open the next round.

        Parameters
        ----------
        available : sequence of int, optional
            The agents that can take part; all by default.

        Returns
        -------
        Todo
            The messages to send. An open round continues.
        """
        return Todo._of(self._native.open(None if available is None else numbers_of(available)))

    def take(self, agent: int, answer: bytes) -> None:
        """Take an answer of an agent.

        Parameters
        ----------
        agent : int
            The agent's number.
        answer : bytes
            The agent's answer.

        Raises
        ------
        InputError
            When the answer is damaged, late, or from another agent. The server is then unchanged. A copy of an accepted answer is no error,
            and changes nothing.
        """
        self._native.take(whole(agent, "agent"), bytes_of(answer, "answer"))

    def close(self) -> Todo:
        """End the exchange with the answers so far.

        Returns
        -------
        Todo
            The next messages of this round, or the end of the round.
        """
        return Todo._of(self._native.close())

    def finish(self) -> Todo:
        """Return the last messages to agents.

        Returns
        -------
        Todo
            The messages to send, or the end if there are none.
        """
        return Todo._of(self._native.finish())

    @property
    def todo(self) -> Todo:
        """The next messages, also after :meth:`restore`."""
        return Todo._of(self._native.todo())

    @property
    def theta(self) -> NDArray[Any]:
        """The iterate."""
        return self._native.theta()

    @property
    def rounds(self) -> int:
        """The number of finished rounds."""
        return self._native.rounds()

    @property
    def diverged(self) -> int | None:
        """The round of divergence; ``None`` without."""
        return self._native.diverged()

    @property
    def answered(self) -> int:
        """The number of accepted answers of this exchange."""
        return self._native.answered()

    @property
    def counts(self) -> dict[str, int]:
        """Exchanges, messages and bits so far."""
        return self._native.counts()

    def metrics(self, data: AgentData) -> dict[str, float]:
        """Return metrics of the iterate on the agents' data.

        Parameters
        ----------
        data : AgentData
            The data of all agents.

        Returns
        -------
        dict of str to float
            The known metrics by name: ``mse``, ``residual``, ..

        Raises
        ------
        InputError
            When `data` lacks agents of the federation.
        """
        return self._native.metrics(expected(data, AgentData, "data")._native)

    def save(self) -> bytes:
        """Return the state, for :meth:`restore`."""
        return self._native.save()

    def restore(self, state: bytes) -> None:
        """Restore a saved state.

        Parameters
        ----------
        state : bytes
            The result of :meth:`save` of a server of the same federation.

        Raises
        ------
        InputError
            When the state is damaged or from another federation. The server is then unchanged.
        """
        self._native.restore(bytes_of(state, "state"))

    def __repr__(self) -> str:
        return f"<fedsa.federation.ServerNode after {self.rounds} rounds>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ServerNode is not pickled: save() returns its state, which restore() of a server of the same federation takes")


class Session:
    """Rounds of a server over a carrier, until a target.

    Parameters
    ----------
    server : ServerNode
        The server.
    carrier : callable, or an object with a method ``exchange``
        Takes messages by agent, and returns answers by agent; ``None`` for no answer. A callable chooses its own timeout.
        ``exchange(messages, deadline)`` gets the deadline as a time of :func:`time.monotonic`, or ``None``.
    patience : float, optional
        Seconds until the deadline of an exchange. Later answers are missing.
    least_answers, repeats : int
        The number of answers that an exchange needs (all, if fewer agents are asked), and how often agents are asked again if there are
        fewer. After that the round changes nothing, and the next one begins. By default both are 0.
    data : AgentData, optional
        The data of all agents. With it, metrics are recorded and targets can be measured.
    stop : mapping of str to float, optional
        Targets: ``{"mse": 1e-4}``, ``residual`` or ``gap``. A session ends in the first round that reaches one. Needs `data`.
    refused : callable, optional
        Called with the agent and the exception when an answer is refused. Refused answers do not count.

    Attributes
    ----------
    history : list of dict
        A row for each round, and one for the start of the first :meth:`advance`: ``round``, counts, and metrics.

    Raises
    ------
    InputError
        When a target is unknown or cannot be measured.

    Examples
    --------
    >>> from fedsa import federation, methods, problems
    >>> data = federation.AgentData(problems.RandomLinear(agents=3, dim=2))
    >>> shared = federation.Federation(methods.FedHSA(0.5, 5), weights=data.weights, dim=data.dim)
    >>> agents = [federation.ClientNode(shared, data, agent) for agent in range(3)]
    >>> class Here:
    ...     def exchange(self, messages, deadline):
    ...         return {agent: agents[agent].handle(message) for agent, message in messages.items()}
    >>> session = federation.Session(federation.ServerNode(shared), Here(), patience=5.0, data=data, stop={"mse": 1e-12})
    >>> session.advance(100)
    'converged'
    >>> session.history[-1]["mse"] <= 1e-12, session.history[-1]["bits_up"] > 0
    (True, True)
    """

    TARGETS = ("mse", "residual", "gap")

    def __init__(
        self,
        server: ServerNode,
        carrier: Carrier | Exchange,
        *,
        patience: float | None = None,
        least_answers: int = 0,
        repeats: int = 0,
        data: AgentData | None = None,
        stop: Mapping[str, float] | None = None,
        refused: Callable[[int, Exception], object] | None = None,
    ) -> None:
        self.server, self.carrier, self.refused = expected(server, ServerNode, "server"), carrier, refused
        for key, value, is_usable, help in (
            ("carrier", carrier, callable(carrier) or callable(getattr(carrier, "exchange", None)), "a function, or an object with a method exchange"),
            ("refused", refused, refused is None or callable(refused), "a function of an agent and an exception"),
            ("stop", stop, stop is None or isinstance(stop, Mapping), "a mapping of targets, as {'mse': 1e-4}"),
        ):
            if not is_usable:
                raise InputError(f"a value of the type '{type(value).__name__}'", "setting.wrong-type", key, help)
        self.patience = None if patience is None else positive(patience, "patience")
        self.stop = {name: positive(level, f"stop.{name}") for name, level in (stop or {}).items()}
        for name in self.stop:
            if name not in self.TARGETS:
                what = f"'{name}' is no target{nearest(name, list(self.TARGETS))}"
                raise InputError(what, "setting.unknown-name", f"stop.{name}", f"one of {', '.join(self.TARGETS)}")
            if data is None:
                help = "data of all agents that know it, or no target"
                raise InputError("there are no data to measure it with", "setting", f"stop.{name}", help)
        levels = (self.stop.get("mse"), self.stop.get("residual"), self.stop.get("gap"))
        quorum = (whole(least_answers, "least_answers"), whole(repeats, "repeats", most=2**31))
        held = None if data is None else expected(data, AgentData, "data")._native
        self._native = _fedsa.Session(server._native, held, levels, self.patience, quorum)
        self._history: list[dict[str, Any]] = []

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row per round of the session."""
        self._history += self._native.recorded(len(self._history))
        return self._history

    def _carried(self, messages: Mapping[int, bytes], left: float | None) -> list[tuple[int, bytes]]:
        """Carry messages. Returns the answers with their agents."""
        exchange = getattr(self.carrier, "exchange", None)
        if exchange is None:
            answers = self.carrier(messages)  # type: ignore[operator]
        else:
            answers = exchange(messages, None if left is None else time.monotonic() + left)
        if not isinstance(answers, Mapping):
            what = f"the carrier returned a value of the type '{type(answers).__name__}'"
            raise InputError(what, "setting.wrong-type", "carrier", "a mapping of agents to their answers; {} without any")
        taken, useless = [], 0
        for agent, answer in answers.items():
            # The message needs no answer, or the agent gave none.
            if answer is None:
                continue
            try:
                taken.append((whole(agent, "agent"), bytes_of(answer, "answer")))
            except InputError as e:
                useless += 1
                if self.refused is not None:
                    self.refused(agent, e)
        if useless and not taken:
            what = f"{useless} answers of the carrier, and none of them from the number of an agent and of bytes"
            warn(f"{what}: agents are whole numbers, as in the messages")
        return taken

    def advance(self, rounds: int, *, available: Sequence[int] | None = None) -> str:
        """Run further rounds.

        Parameters
        ----------
        rounds : int
            The largest number of rounds.
        available : sequence of int, optional
            The agents that can take part; all by default.

        Returns
        -------
        str
            The outcome, as in :class:`fedsa.Outcome`. ``"converged"``: a target is reached. ``"diverged"``. Without a target, ``"completed"``
            after all rounds; with a target, ``"max-rounds"``, or ``"stalled"`` if the second half of the rounds made hardly any progress.

        Raises
        ------
        InputError
            When arguments or answers of the carrier cannot be used, or when the carrier calls this method.
        MachineError
            When no agent is available.

        Notes
        -----
        An exception of the carrier, or Ctrl-C, leaves the session in the middle of a round. The next call continues and sends the open
        messages again. The carrier runs in the caller's thread. Meanwhile the server can be read and saved, but not changed.
        """
        agents = None if available is None else numbers_of(available)
        return self._native.advance(whole(rounds, "rounds"), agents, self._carried, self.refused)

    def __repr__(self) -> str:
        stop = f", stop={self.stop}" if self.stop else ""
        return f"<fedsa.federation.Session of {self.server!r}{stop}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Session is not pickled: save() of its server returns the state, with which another session goes on")
