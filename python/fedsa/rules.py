"""Methods written in Python: client and server rules.

A client rule computes what agents send, a server rule computes the next theta. The engine calls each once per exchange for all participants.

>>> import numpy as np, fedsa
>>> from fedsa import methods, problems
>>> class Momentum:
...     def __init__(self, beta):
...         self.beta = beta
...     def start(self, theta):
...         return {"velocity": np.zeros_like(theta)}
...     def step(self, theta, mean, at):
...         velocity = at.state["velocity"]
...         velocity *= self.beta
...         velocity += mean
...         return theta + at.step_sum * velocity
>>> problem = problems.Garnet(agents=10, states=10, features=3)
>>> heavy = methods.Custom(0.05, 10, server=Momentum(0.5), label="momentum")
>>> results = fedsa.Experiment(problem, [methods.FedLSA(0.05, 10), heavy], rounds=200).run()
>>> results.labels
['fedlsa', 'momentum']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from fedsa import _fedsa
from fedsa._fedsa import Agents, ServerRound
from fedsa._kinds import Method
from fedsa._link import DownlinkLike, UplinkLike
from fedsa._settings import plain
from fedsa.errors import InputError
from fedsa.operators import checked, refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["Agents", "ClientRule", "Custom", "ServerRound", "ServerRule"]


@runtime_checkable
class ClientRule(Protocol):
    """The interface of a client rule.

    Attributes
    ----------
    memory : sequence of str, optional
        The names of the vectors of d components that an agent keeps between rounds; none by default. They start at 0.

    Notes
    -----
    In the engine a call has all participants of the round; a node of a federation calls for its own agent only. An agent's values must not
    depend on the others in the call, so that results are equal bit for bit everywhere. Sums along rows are safe. Matrix products (``@``)
    are not: their last bits may change with the number of rows.

    Several runs share one object. Keep state in ``agents.memory``, which checkpoints contain.

    Optional methods:

    ``report(theta, agents)``
        Makes a round with two exchanges. ``report`` answers the first. The server replies with the weighted mean of the reports, or with
        its rule's ``reply``. ``answer`` then answers the second, with the same ``theta`` and ``agents.reply``. Both exchanges use the same
        samples.
    ``sent(sent, agents)``
        Called after each exchange with what the server can decode of the answers, (n, dim); 0 where nothing was sent. It may change
        ``agents.memory``, but makes no steps. It is called only if the link alters messages and the rule has memory.

    Examples
    --------
    >>> from fedsa.rules import ClientRule
    >>> class Steps:
    ...     def answer(self, theta, agents):
    ...         return (agents.steps(theta) - theta) / agents.step_sum
    >>> isinstance(Steps(), ClientRule)
    True
    """

    def answer(self, theta: Floats, agents: Agents, /) -> Any:
        """Answer the model of a round.

        Parameters
        ----------
        theta : ndarray of shape (dim,)
            The server's model, as agents decode it.
        agents : Agents
            The agents: numbers, memory, and local steps.

        Returns
        -------
        array of shape (n, dim)
            The message of each agent. The default server rule needs a direction: ``(theta_c - theta) / agents.step_sum``.
        """
        ...


@runtime_checkable
class ServerRule(Protocol):
    """The interface of a server rule.

    Attributes
    ----------
    answers : bool, optional
        Whether the rule needs each agent's answer in addition to the mean; false by default. Over-the-air links deliver sums only.

    Notes
    -----
    Several runs share one object. Keep state in ``at.state``, which checkpoints contain.

    Optional methods:

    ``start(theta)``
        The first state: a mapping of names to arrays of numbers.
    ``reply(theta, mean, at)``
        For client rules with ``report``: the server's message (dim,) in the second exchange. `mean` is the weighted mean of the reports,
        which is the default reply; ``at.answers`` are the reports.

    Examples
    --------
    >>> from fedsa.rules import ServerRule
    >>> class Average:
    ...     def step(self, theta, mean, at):
    ...         return theta + at.step_sum * mean
    >>> isinstance(Average(), ServerRule)
    True
    """

    def step(self, theta: Floats, mean: Floats, at: ServerRound, /) -> Any:
        """Move theta at the end of a round.

        Parameters
        ----------
        theta : ndarray of shape (dim,)
            The iterate.
        mean : ndarray of shape (dim,)
            The weighted mean of the answers, over all agents that were asked; a missing answer counts as 0.
        at : ServerRound
            The round, the sum of its step sizes, the state, and each answer if the rule needs them.

        Returns
        -------
        array of shape (dim,)
            The next iterate. FedLSA's is ``theta + at.step_sum * mean``.
        """
        ...


def checked_rows(value: Any, n: int, d: int, name: str) -> Any:
    """Check rows of n agents. A single row (d,) is repeated for all."""
    import numpy as np

    array = checked(value, None, False, name)
    if array.shape not in ((d,), (n, d)):
        raise refused(f"{name} is an array of shape {array.shape}", name, f"shape ({n}, {d}) or ({d},)", "setting.wrong-length")
    return np.ascontiguousarray(np.broadcast_to(array, (n, d)))


def checked_state(value: Any, shapes: dict[str, list[int]] | None, name: str) -> dict[str, Any]:
    """Check the arrays of a state, and their names and shapes after the first call."""
    if not isinstance(value, Mapping):
        what = f"None ({name} has no return?)" if value is None else f"{type(value).__name__}"
        raise refused(f"{name} returned {what}", "start", "a mapping of names to arrays of numbers", "setting.wrong-type")
    if shapes is not None and list(value) != list(shapes):
        accepted = f"the names that start has given, in their order: {', '.join(shapes) or 'none'}"
        raise refused(f"{name} left a state of {', '.join(map(str, value)) or 'nothing'}", "state", accepted, "setting.unknown-name")
    read = {}
    for key, array in value.items():
        if not isinstance(key, str):
            raise refused(f"{name} returned the name {key!r}", "start", "names that are texts", "setting.wrong-type")
        shape = None if shapes is None else shapes[key]
        read[key] = checked(array, shape, False, f"the state '{key}' of {name}")
    return read


def attributes(rule: Any) -> dict[str, Any]:
    """The attributes of a rule, with NumPy numbers as Python numbers."""
    names: Any = getattr(rule, "__dict__", None) or getattr(rule, "__dataclass_fields__", ())
    values = {name: getattr(rule, name) for name in names}
    return {name: value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value for name, value in values.items()}


def is_plain(value: Any) -> bool:
    """Whether experiment files can contain the value."""
    return isinstance(value, (bool, int, float, str))


def described(rule: Any) -> str:
    """The text of a rule in experiment files: its class, and its public attributes that are numbers or texts."""
    values = attributes(rule)
    shown = [f"{name}={values[name]!r}" for name in sorted(values) if not name.startswith("_") and is_plain(values[name])]
    return f"{type(rule).__module__}.{type(rule).__qualname__}({', '.join(shown)})"


def functions_of(rule: Any, key: str, needed: str, arguments: str, optional: tuple[str, ...]) -> dict[str, Any]:
    """The methods of a rule by name."""
    name = type(rule).__name__
    if isinstance(rule, type):
        raise refused(f"the class {rule.__name__}", key, f"an object of it: {rule.__name__}(..)", "setting.wrong-type")
    functions = {}
    for function in (needed, *optional):
        found = getattr(rule, function, None)
        if found is not None and not callable(found):
            raise refused(f"{name}.{function} is {found!r}", function, "a method", "setting.wrong-type")
        if found is not None:
            functions[function] = found
    if needed not in functions:
        raise refused(f"{name} has no method '{needed}'", needed, f"a method {needed}({arguments})", "setting.missing-key")
    return functions


def names_of(rule: Any) -> list[str]:
    """The names of an agent's memory."""
    given = getattr(rule, "memory", ())
    accepted = "a sequence of different names, as ('control', 'base')"
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise refused(f"{type(rule).__name__}.memory is {given!r}", "memory", accepted, "setting.wrong-type")
    if len(set(given)) != len(given):
        raise refused(f"{type(rule).__name__}.memory has a name twice: {list(given)}", "memory", accepted)
    return list(given)


class Custom(Method):
    """A method with your own client rule, server rule, or both.

    Parameters
    ----------
    step_size : float or mapping
        The local step size eta, as in :class:`fedsa.methods.FedLSA`.
    local_steps : int
        The number H of local steps.
    client : ClientRule, optional
        The client rule. By default agents make plain local steps and send the direction.
    server : ServerRule, optional
        The server rule; by default ``theta + global_step_size * E * mean``.
    global_step_size : float, optional
        The factor ``alpha_g`` of the default server rule; 1 by default. Not with your own server rule.
    participants : int, optional
        The number m of agents that take part in a round; by default all.
    label : str, optional
        The method's name in tables, pictures, checks and dotted keys; ``custom`` by default.
    start : path or array of shape (dim,), optional
        The method's own first iterate.
    output : {"last", "average"} or mapping, optional
        The iterate or average to measure and write.
    expect : {"ok", "diverges", "misses-target"} or sequence of mapping, optional
        The expected status of its runs.
    uplink : Uplink, codec or medium, optional
        The link from agents to the server; perfect by default.
    downlink : Downlink or codec, optional
        The link from the server to agents; perfect by default.

    Raises
    ------
    InputError
        When neither rule is given, or a rule lacks a method.

    Notes
    -----
    It runs on all problems and links of :class:`fedsa.Experiment`, and at nodes of a federation, with two exceptions. Delays (pull) need
    rules without memory and with one exchange. Over-the-air links need rules that do not use each answer.

    Exceptions of a rule pass to the caller of the engine, and the round does not count. A wrong shape, or a non-finite number computed from
    finite ones, is an :class:`fedsa.InputError`. A rule cannot call the engine. Rules run in one thread, whatever :func:`fedsa.set_threads`
    says.

    Experiment files and the digest of a federation contain the names of the classes, and the attributes that are numbers or texts. A run in
    a folder continues with any objects for which these are equal. Theory has no predictions for the method.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> from fedsa import methods, problems
    >>> class Proximal:
    ...     def __init__(self, pull):
    ...         self.pull = pull
    ...     def answer(self, theta, agents):
    ...         at = np.tile(theta, (len(agents.numbers), 1))
    ...         for eta in agents.step_sizes:
    ...             at = agents.steps(at, drift=self.pull * (theta - at), step_sizes=[eta])
    ...         return (at - theta) / agents.step_sum
    >>> problem = problems.Garnet(agents=10, states=10, features=3)
    >>> method = methods.Custom(0.05, 10, client=Proximal(0.5), label="FedProx")
    >>> fedsa.Experiment(problem, method, rounds=50).run().outcomes["FedProx"].name
    'completed'
    """

    __slots__ = ("_rules", "_texts")
    kind_name = "custom"

    _rules: _fedsa.HeldRules
    # The texts of the client and the server rule in experiment files.
    _texts: dict[str, str]

    def __init__(
        self,
        step_size: float | Mapping[str, Any],
        local_steps: int,
        *,
        client: ClientRule | None = None,
        server: ServerRule | None = None,
        global_step_size: float | None = None,
        participants: int | None = None,
        label: str | None = None,
        start: str | PathLike[str] | ArrayLike | None = None,
        output: Literal["last", "average"] | Mapping[str, Any] | None = None,
        expect: Literal["ok", "diverges", "misses-target"] | Sequence[Mapping[str, Any]] | None = None,
        uplink: UplinkLike | None = None,
        downlink: DownlinkLike | None = None,
    ) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_texts", {key: described(given[key]) for key in ("client", "server") if key in given})
        client, server = given.get("client"), given.get("server")
        if client is None and server is None:
            what = "neither client nor server"
            raise refused(what, "client", "client=, server=, or both; methods.FedLSA has neither", "setting.missing-key")
        of_client = of_server = None
        if client is not None:
            functions = functions_of(client, "client", "answer", "theta, agents", ("report", "sent"))
            of_client = (self._texts["client"], type(client).__name__, names_of(client), functions)
        if server is not None:
            functions = functions_of(server, "server", "step", "theta, mean, at", ("reply", "start"))
            wants_each = bool(getattr(server, "answers", False))
            of_server = (self._texts["server"], type(server).__name__, functions, wants_each)
        checks = (checked, checked_rows, checked_state)
        object.__setattr__(self, "_rules", _fedsa.HeldRules(self._table(), of_client, of_server, checks))

    def _table(self) -> dict[str, Any]:
        table = super()._table()
        table.update(self._texts)
        return table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Custom):
            return NotImplemented
        same = all(alike(self._given.get(key), other._given.get(key)) for key in ("client", "server"))
        return same and bool(self._table() == other._table())

    __hash__ = None  # type: ignore[assignment]


def alike(one: Any, other: Any) -> bool:
    """Whether two rules are the same: one object, or one class with equal plain attributes, or equal by ``==``."""
    if one is other or type(one) is not type(other):
        return one is other
    mine, theirs = attributes(one), attributes(other)
    if all(map(is_plain, [*mine.values(), *theirs.values()])):
        return mine == theirs
    return bool(one == other)


def rules_in(methods: Any) -> list[_fedsa.HeldRules]:
    """The rules of methods. Different rules with the same text are refused."""
    seen: dict[tuple[str, str], Any] = {}
    found = []
    for method in methods:
        if not isinstance(method, Custom):
            continue
        for key, text in method._texts.items():
            rule = method._given[key]
            if not alike(seen.setdefault((key, text), rule), rule):
                help = "attributes that are numbers or texts and tell them apart, or one object for both"
                raise InputError(f"two objects are {text}", "setting", key, help)
        found.append(method._rules)
    return found
