"""Methods of one's own: client and server rules that are classes of Python.

A client rule says what an agent sends, a server rule how theta moves. Each is called once an exchange, for all participants.

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
        The names of the vectors of d components that an agent keeps from round to round; none without it.

    Notes
    -----
    In the engine a call has all participants of the round. A node of a federation calls for its own agent alone. What is computed
    of an agent must not depend on who shares the call: then results have the same bits wherever it runs. Sums along rows are of
    that sort; products of matrices (``@``) may differ in their last bits with the number of rows.

    Objects have no state of a run: several runs share one. What lasts is in ``agents.memory``, which checkpoints have.

    Further methods are optional:

    ``report(theta, agents)``
        With it a round has two exchanges. It answers the first, as ``answer`` does; the server replies, with the weighted mean of the
        reports unless its rule says otherwise; ``answer`` then answers the second, with the same ``theta`` and ``agents.reply``. Samples
        of the second exchange begin with those of the first again.
    ``sent(sent, agents)``
        Is told what the server can decode of the answers, (n, dim), 0 where nothing was sent; of two exchanges after each
        (``agents.exchange``). It may change ``agents.memory``; there are no steps. It is called only where a link alters messages, and
        only if the rule has memory.

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
            The model that the server has sent, as agents decode it.
        agents : Agents
            The agents: their numbers, what they keep, and how they make steps.

        Returns
        -------
        array of shape (n, dim)
            What each agent sends. The average wants a direction, ``(theta_c - theta) / agents.step_sum``.
        """
        ...


@runtime_checkable
class ServerRule(Protocol):
    """The interface of a server rule.

    Attributes
    ----------
    answers : bool, optional
        Whether it wants the answer of each agent beside their mean; not without it. Links over the air deliver sums alone.

    Notes
    -----
    Objects have no state of a run: several runs share one. What lasts is in ``at.state``, which checkpoints have.

    Further methods are optional:

    ``start(theta)``
        The state at the start: a mapping of names to arrays of numbers.
    ``reply(theta, mean, at)``
        Of rounds with two exchanges, where the client rule has a method ``report``: what goes down in the second, (dim,). `mean` is the
        weighted mean of the reports, which is the reply without this method, and ``at.answers`` are the reports.

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
            The weighted mean of what the participants sent, over those that were asked; a missing answer counts as 0.
        at : ServerRound
            The round, the sum of its step sizes, the state, and the answers one by one if the rule wants them.

        Returns
        -------
        array of shape (dim,)
            The next iterate. The average is ``theta + at.step_sum * mean``.
        """
        ...


def checked_rows(value: Any, n: int, d: int, name: str) -> Any:
    """Rows of n agents, for which one row may stand."""
    import numpy as np

    array = checked(value, None, False, name)
    if array.shape not in ((d,), (n, d)):
        raise refused(f"{name} is an array of shape {array.shape}", name, f"shape ({n}, {d}) or ({d},)", "setting.wrong-length")
    return np.ascontiguousarray(np.broadcast_to(array, (n, d)))


def checked_state(value: Any, shapes: dict[str, list[int]] | None, name: str) -> dict[str, Any]:
    """The arrays of a state, with these names and shapes if it has had them."""
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
    """The attributes of a rule; numbers of NumPy as those of Python."""
    names: Any = getattr(rule, "__dict__", None) or getattr(rule, "__dataclass_fields__", ())
    values = {name: getattr(rule, name) for name in names}
    return {name: value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value for name, value in values.items()}


def is_plain(value: Any) -> bool:
    """Whether files have a value of this sort."""
    return isinstance(value, (bool, int, float, str))


def described(rule: Any) -> str:
    """The text by which files name a rule: its class, and its attributes that are numbers or texts."""
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
    """The names of what an agent keeps."""
    given = getattr(rule, "memory", ())
    accepted = "a sequence of different names, as ('control', 'base')"
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise refused(f"{type(rule).__name__}.memory is {given!r}", "memory", accepted, "setting.wrong-type")
    if len(set(given)) != len(given):
        raise refused(f"{type(rule).__name__}.memory has a name twice: {list(given)}", "memory", accepted)
    return list(given)


class Custom(Method):
    """A method with a client or server rule of your own.

    Parameters
    ----------
    step_size : float or mapping
        ``eta``, as :class:`fedsa.methods.FedLSA` has it.
    local_steps : int
        H.
    client : ClientRule, optional
        What agents do; plain local steps by default, of which they send the direction.
    server : ServerRule, optional
        How theta moves; the average by default, ``theta + global_step_size * E * mean``.
    global_step_size : float, optional
        ``alpha_g`` of the average; 1 by default. A server rule has none.
    participants : int, optional
        m of the N agents take part in a round; all when absent.
    label : str, optional
        The method's name in tables, pictures, checks and dotted keys; ``custom`` by default.
    start : path or array of shape (dim,), optional
        The method's own ``theta_0``.
    output : {"last", "average"} or mapping, optional
        The iterate or average that is measured and written.
    expect : {"ok", "diverges", "misses-target"} or sequence of mapping, optional
        The status with which its runs must end.
    uplink : Uplink, codec or medium, optional
        What happens to messages from agents to the server; nothing by default.
    downlink : Downlink or codec, optional
        What happens to messages from the server to agents; nothing by default.

    Raises
    ------
    InputError
        When neither rule is given, or one lacks a method.

    Notes
    -----
    It runs on every problem and over every link of :class:`fedsa.Experiment`, and at nodes of a federation. Delays (pull) want rules
    without memory and with one exchange, and links over the air want rules that do not ask for each answer.

    What a rule raises is raised by the call that has called it, and the round does not count. A result of another shape, and numbers
    that are not finite where all that they are computed from is, are an :class:`fedsa.InputError`. A rule cannot call the engine. The
    work of a call has one thread, whatever :func:`fedsa.set_threads` says.

    Experiment files, and the digest of a federation, have the names of the classes, and the attributes of the objects that are numbers
    or texts. A run in a folder goes on with objects of which these are the same. Theory knows nothing of the method.

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
    # The texts of the client and the server rule.
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
    """Whether two rules do the same: they are one object, are equal, or are of one class with the same numbers and texts."""
    if one is other or type(one) is not type(other):
        return one is other
    mine, theirs = attributes(one), attributes(other)
    if all(map(is_plain, [*mine.values(), *theirs.values()])):
        return mine == theirs
    return bool(one == other)


def rules_in(methods: Any) -> list[_fedsa.HeldRules]:
    """The rules of some methods; different rules whose texts are the same are refused."""
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
