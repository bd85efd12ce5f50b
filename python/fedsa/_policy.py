"""Policy improvement: a policy that chooses better actions, from transitions that stay with their agents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsa import _fedsa, _files, _logs
from fedsa._figure import Figure
from fedsa._files import Path
from fedsa._parameters import Parameters
from fedsa._progress import Listener, ProgressLike
from fedsa._results import Results
from fedsa._settings import plain_number
from fedsa._summary import Estimate, Summary, number
from fedsa._typed import named_settings
from fedsa._value import ValueEstimate
from fedsa.errors import InputError, NotAvailable

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ActionValueFunction:
    """Values of actions ``q(s, a) = phi(s) . theta_a``, and the policies that follow them.

    Attributes
    ----------
    actions_ : list of str
        The names of the actions, in the order of their numbers.
    columns_ : list of str
        The state columns, in the order for `q`.
    weights_ : ndarray of shape (K, m)
        The weights of each action.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsa
    >>> log = {"states": np.tile([0.0, 1.0], 30), "next_states": np.tile([1.0, 0.0], 30), "rewards": np.tile([0.0, 1.0, 1.0, 0.0], 15)}
    >>> log |= {"terminated": np.tile([False, True], 30), "action": np.tile([0, 1, 1, 0], 15), "episode": np.repeat(np.arange(30), 2)}
    >>> q = fedsa.PolicyImprovement(actions=["stay", "go"], features="one-hot", ridge=1e-6).fit([log]).q_
    >>> q.actions_, q.q([[1.0]]).shape
    (['stay', 'go'], (1, 2))
    >>> act = q.policy()
    >>> [act(0.0), act(1.0)] == q.greedy([[0.0], [1.0]]).tolist(), bool(q.value([[0.0]])[0] == q.q([[0.0]]).max())
    (True, True)
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._model = _fedsa.ActionModel(text)
        self.actions_: list[str] = self._model.actions()
        self.columns_: list[str] = self._model.inputs()
        data = json.loads(text)
        self._file_columns: dict[str, str] = data.get("file_columns") or {}
        self.weights_: NDArray[np.float64] = np.array(data["theta"], dtype=np.float64).reshape(len(self.actions_), -1)

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self._text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ActionValueFunction.__init__(self, state["text"])

    def _rows(self, states: Any) -> NDArray[np.float64]:
        return _logs.states(states, self.columns_, self._file_columns)

    def q(self, states: Any) -> NDArray[np.float64]:
        """Return the values of all actions.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            States, with columns in the order of `columns_` or by name. States outside the range of the fit are clipped to it.

        Returns
        -------
        ndarray of shape (n, K)
            The values.
        """
        rows = self._rows(states)
        return self._model.values(rows).reshape(len(rows), len(self.actions_))

    def probabilities(self, states: Any, soften: float = 0.0) -> NDArray[np.float64]:
        """Return the probabilities of all actions under the policy that takes the action of the largest value.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            As in :meth:`q`.
        soften : float
            The probability with which any action is taken instead. By default ``0.0``.

        Returns
        -------
        ndarray of shape (n, K)
            The probabilities; each row sums to 1.
        """
        if not 0.0 <= soften <= 1.0:
            raise InputError(f"{soften} is not accepted", "setting.out-of-range", "soften", "from 0 to 1")
        rows = self._rows(states)
        return self._model.probabilities(rows, float(soften)).reshape(len(rows), len(self.actions_))

    def greedy(self, states: Any) -> NDArray[np.int64]:
        """Return the number of the action of the largest value; the lowest of equal ones, and with `pessimism` only supported ones.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            As in :meth:`q`.

        Returns
        -------
        ndarray of shape (n,)
            The actions.
        """
        largest: NDArray[np.int64] = np.argmax(self.probabilities(states), axis=1).astype(np.int64)
        return largest

    def act(self, states: Any, soften: float = 0.0, rng: np.random.Generator | int | None = None) -> NDArray[np.int64]:
        """Draw actions.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            As in :meth:`q`.
        soften : float
            The probability with which any action is taken instead of the one of the largest value. By default ``0.0``.
        rng : numpy.random.Generator, int or None
            The source of randomness, or its seed.

        Returns
        -------
        ndarray of shape (n,)
            The numbers of the actions.
        """
        law = self.probabilities(states, soften)
        draws = np.random.default_rng(rng).random(len(law))
        drawn: NDArray[np.int64] = np.minimum((law.cumsum(axis=1) <= draws[:, None]).sum(axis=1), law.shape[1] - 1).astype(np.int64)
        return drawn

    def policy(self, soften: float = 0.0, rng: np.random.Generator | int | None = None) -> Callable[[Any], int]:
        """Return the policy as a function of one state, as :func:`fedsa.gym.record` takes it.

        Parameters
        ----------
        soften : float
            As in :meth:`act`.
        rng : numpy.random.Generator, int or None
            As in :meth:`act`.

        Returns
        -------
        callable
            Maps an array of shape (k,) with columns in the order of `columns_`, or a number if k = 1, to the number of the drawn action.
        """
        numbers = np.random.default_rng(rng)
        return lambda state: int(self.act(np.reshape(np.asarray(state, dtype=np.float64), (1, -1)), soften, numbers)[0])

    def value(self, states: Any, policy: Callable[[Any], Any] | None = None) -> NDArray[np.float64]:
        """Return the mean of the values of actions that a policy draws.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            As in :meth:`q`.
        policy : callable or None
            Maps the states to the probabilities of the actions, (n, K) numbers. By default the probabilities of this policy.

        Returns
        -------
        ndarray of shape (n,)
            The values. A value as of ``fedsa evaluate``, with an interval and from other episodes than those of the fit, comes from
            :class:`fedsa.ValueFunction` with its setting `policy`.
        """
        q = self.q(states)
        law = self.probabilities(states) if policy is None else np.asarray(policy(states), dtype=np.float64)
        if law.shape != q.shape:
            raise InputError(f"the policy gave probabilities of shape {law.shape}", "setting.bad-value", "policy", f"probabilities of shape {q.shape}")
        if not (np.all(law >= 0) and np.allclose(law.sum(axis=1), 1)):
            raise InputError("the policy gave numbers that are no probabilities", "setting.bad-value", "policy", "rows of numbers of at least 0 that sum to 1")
        means: NDArray[np.float64] = np.einsum("ij,ij->i", law, q)
        return means

    def save(self, folder: Path) -> None:
        """Write ``policy.json`` for ``fedsa predict``.

        Parameters
        ----------
        folder : path
            The folder; created if missing. An existing file of this name is replaced.
        """
        _files.write_all(folder, {"policy.json": self._text.encode()})

    @classmethod
    def load(cls, path: Path) -> ActionValueFunction:
        """Read a policy of ``fedsa improve`` or :meth:`save`.

        Parameters
        ----------
        path : path
            The folder, or its ``policy.json``.

        Returns
        -------
        ActionValueFunction
            The values of actions.

        Raises
        ------
        InputError
            When the file does not contain a policy.
        OSError
            When the file cannot be read.
        """
        name = os.fspath(path)
        name = os.path.join(name, "policy.json") if os.path.isdir(name) else name
        return cls(_files.read(name).decode())


@dataclass(frozen=True)
class ImprovedValue:
    """The value of a new policy on held-out episodes, beside that of the policy that acted.

    Attributes
    ----------
    new, acted : ValueEstimate
        The values at the start of episodes, by fitted values.
    difference : ValueEstimate
        The first minus the second, paired by episodes.
    new_by_agent, acted_by_agent : dict of str to ValueEstimate
        The values of each agent's start states.
    may_be_worse : bool
        Whether the interval of the difference is not above 0, or the value is impossible.

    Examples
    --------
    >>> from fedsa import ImprovedValue, ValueEstimate
    >>> new, acted, more = (ValueEstimate(mean, 0.1, mean - 0.2, mean + 0.2, 40, 40.0) for mean in (1.5, 1.0, 0.5))
    >>> print(ImprovedValue(new, acted, more, {}, {}, may_be_worse=False).difference)
    0.5 ± 0.1, interval 0.3 to 0.7
    """

    new: ValueEstimate
    acted: ValueEstimate
    difference: ValueEstimate
    new_by_agent: dict[str, ValueEstimate]
    acted_by_agent: dict[str, ValueEstimate]
    may_be_worse: bool

    def __str__(self) -> str:
        start = "may be worse" if self.may_be_worse else "better"
        return f"{start}: {self.new} beside {self.acted}; difference {self.difference}"


def estimate(one: Mapping[str, Any]) -> ValueEstimate:
    """An estimate of a file."""
    mean, se, low, high = (number(one[name]) for name in ("estimate", "se", "low", "high"))
    return ValueEstimate(mean, se, low, high, int(one["episodes"]), float(one["episodes"]))


class PolicyImprovement(Parameters):
    """A policy that chooses better actions, from transitions that stay with their agents.

    Each action has its own weights for the features of states. Least-squares policy iteration starts at the values of the policy that acted. Its
    messages are sums of the agents' transitions, and `bits_` counts them. The choice of the ridge and values on held-out episodes are computed
    where the logs are read, and are not counted.

    Parameters
    ----------
    actions : Sequence[str]
        Names of the actions, in the order of their numbers.
    columns : Mapping[str, str] or None
        Names of columns: s_0=x,reward=r,done=terminal, or s_*=obs_*,next_*=next_obs_*.
    agent_column : str or None
        Column with the agent of each row; by default each file is an agent.
    bad_rows : Literal["refuse", "skip"]
        Unreadable rows: refuse, or skip and count by file and reason. By default ``'refuse'``.
    keep_autoreset_rows : bool
        Keep rows of automatic resets, which are otherwise left out and counted. By default ``False``.
    holdout : float
        Share of each agent's episodes to hold out, drawn by `seed`: they choose the ridge and give the value
        of the new policy. 0 for none. By default ``0.25``.
    features : str or None
        Features of the state, as for fedsa evaluate; by default by the number of columns.
    ranges : Mapping[str, tuple[float, float]] or None
        Ranges of state columns, such as s_0=-1.2:0.6,s_1=-0.07:0.07; by default from the data.
    gamma : float
        Discount factor; 1 only if every episode terminates. By default ``0.99``.
    ridge : float or None
        EPS I is added to the matrix of the fit. By default held-out episodes choose it, or it is 1e-4 times
        the mean square of a feature if no policy is surely better than the one that acted.
    pessimism : str
        Avoid actions that few rows are behind: none, lcb:KAPPA (values less KAPPA standard errors) or
        support:ROWS (only actions with so many rows behind them). By default ``'none'``.
    soften : float
        Probability with which the new policy takes any action, in its value on held-out episodes. By default
        ``0.0``.
    level : float
        Level of intervals. By default ``0.95``.
    method : Literal["lspi", "fqi"]
        lspi, or fqi, which sends fewer bits if few sweeps suffice. By default ``'lspi'``.
    max_rounds : int or None
        Largest number of rounds; 50 by default, 20000 for fqi.
    tol : float
        Stop at this multiple of the mean operator's norm at zero weights. By default ``1e-06``.
    secure_sums : float or None
        Secure sums: the server learns sums of what agents send and no single answer. The bound of each number
        that an agent sends.
    seed : int
        Seed of held-out episodes. By default ``0``.

    Attributes
    ----------
    q_ : ActionValueFunction
        The values of actions.
    ending_ : str
        ``"settled"``, ``"cycle"`` (the best policy of a cycle on held-out episodes), ``"unsettled"`` or ``"diverged"``.
    ridge_ : float
        The ridge.
    agents_ : list of str
        The agents.
    n_iter_ : int
        Rounds.
    bits_ : int
        Bits up and down.
    rare_ : dict of str to float
        For each agent, the share of its logged states in which fewer than 5 rows are behind the chosen action.
    results_ : Results
        The run: its trace, its figure, and the notes on the policy.

    Examples
    --------
    Two agents walk on the line from 0 to 1, to the left or to the right at random. An episode ends at 1 with the reward 1.

    >>> import numpy as np
    >>> import fedsa
    >>> def walks(step, seed):
    ...     rng, rows = np.random.default_rng(seed), []
    ...     for episode in range(60):
    ...         x = 0.5
    ...         for t in range(40):
    ...             action = int(rng.random() < 0.5)
    ...             new = min(max(x + (step if action else -step), 0.0), 1.0)
    ...             rows.append((x, new, float(new == 1.0), new == 1.0, t == 39 and new < 1.0, episode, action))
    ...             x = new
    ...             if x == 1.0:
    ...                 break
    ...     names = ["states", "next_states", "rewards", "terminated", "truncated", "episode", "action"]
    ...     return {name: np.array(column) for name, column in zip(names, zip(*rows))}
    >>> found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:3")
    >>> found = found.fit({"slow": walks(0.1, 0), "fast": walks(0.2, 1)})
    >>> found.ending_, found.act([[0.3], [0.9]]).tolist(), found.value().may_be_worse
    ('settled', [1, 1], False)
    """

    q_: ActionValueFunction

    def __init__(
        self,
        *,
        actions: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
        agent_column: str | None = None,
        bad_rows: Literal["refuse", "skip"] = "refuse",
        keep_autoreset_rows: bool = False,
        holdout: float = 0.25,
        features: str | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        gamma: float = 0.99,
        ridge: float | None = None,
        pessimism: str = "none",
        soften: float = 0.0,
        level: float = 0.95,
        method: Literal["lspi", "fqi"] = "lspi",
        max_rounds: int | None = None,
        tol: float = 1e-06,
        secure_sums: float | None = None,
        seed: int = 0,
    ) -> None:
        self.actions = actions
        self.columns = columns
        self.agent_column = agent_column
        self.bad_rows = bad_rows
        self.keep_autoreset_rows = keep_autoreset_rows
        self.holdout = holdout
        self.features = features
        self.ranges = ranges
        self.gamma = gamma
        self.ridge = ridge
        self.pessimism = pessimism
        self.soften = soften
        self.level = level
        self.method = method
        self.max_rounds = max_rounds
        self.tol = tol
        self.secure_sums = secure_sums
        self.seed = seed

    def _settings(self) -> dict[str, Any]:
        """The settings of the engine."""
        named = {name: plain_number(value) for name, value in self.get_params().items()}
        names = list(self.actions) if isinstance(self.actions, Iterable) and not isinstance(self.actions, str) else [None]
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{self.actions!r}", "setting.wrong-type", "actions", "a list of names, such as ['left', 'right']")
        if not names:
            raise InputError("there are no names of actions", "setting.missing-key", "actions", "a list of names in the order of their numbers, such as ['left', 'right']")
        named["actions"] = [str(name) for name in names]
        return named

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pictures"}

    def fit(self, agents: Any, *, progress: ProgressLike = None, cancel: _fedsa.CancelToken | None = None) -> PolicyImprovement:
        """Find the policy.

        Parameters
        ----------
        agents : list, dict or one of its entries
            Each agent's transitions, as for :meth:`fedsa.ValueFunction.fit`, with ``action``: the number of the action that was taken. With
            ``behaviour``, its probability under the policy that acted, there may be a doubly robust value too.
        progress : bool, callable or None
            As in :meth:`fedsa.Experiment.run`.
        cancel : CancelToken or None
            Stops the call from another thread.

        Returns
        -------
        PolicyImprovement
            The same object. Notes on a policy that may be worse than the one that acted, or on an iteration that did not settle, are issued
            as :class:`fedsa.FedsaWarning`. ``results_.notes`` has all notes.

        Raises
        ------
        InputError
            When a setting, an array or a file cannot be used.
        """
        settings = self._settings()
        given = _logs.given(agents, self.columns or {}, self.agent_column)
        with Listener("PolicyImprovement", progress) as listener:
            try:
                fitted = _fedsa.improve_logs(listener, cancel, given, settings)
            except InputError as e:
                raise named_settings(e, self, {}) from None
        self._data: dict[str, Any] = json.loads(fitted.policy_json())
        self._told: dict[str, Any] = json.loads(fitted.told_json())
        data = self._data
        self.ending_: str = data["ending"]
        self.ridge_: float = data["ridge"]
        self.agents_: list[str] = [agent["name"] for agent in data["agents"]]
        self.n_iter_: int = data["rounds"]
        self.bits_: int = data["bits"]
        self.rare_: dict[str, float] = data["rare"]
        ran = fitted.ran()
        assert ran is not None
        self.results_ = Results._of(ran)
        self._pictures = dict(fitted.pictures())
        self.__dict__.pop("q_", None)
        if self.ending_ != "diverged" or None not in data["theta"]:
            self.q_ = ActionValueFunction(fitted.policy_json())
        return self

    def _require_fitted(self) -> ActionValueFunction:
        if "q_" not in self.__dict__:
            raise InputError("This PolicyImprovement has no policy", "setting.missing-key", "", "fit(agents) first, with a ridge under which values stay finite")
        return self.q_

    def act(self, states: Any, soften: float = 0.0, rng: np.random.Generator | int | None = None) -> NDArray[np.int64]:
        """Draw actions, as :meth:`ActionValueFunction.act`.

        Parameters
        ----------
        states, soften, rng
            As there.

        Returns
        -------
        ndarray of shape (n,)
            The numbers of the actions.
        """
        return self._require_fitted().act(states, soften, rng)

    def probabilities(self, states: Any, soften: float = 0.0) -> NDArray[np.float64]:
        """Return the probabilities of all actions, as :meth:`ActionValueFunction.probabilities`.

        Parameters
        ----------
        states, soften
            As there.

        Returns
        -------
        ndarray of shape (n, K)
            The probabilities.
        """
        return self._require_fitted().probabilities(states, soften)

    def value(self) -> ImprovedValue:
        """Return the values of the new policy and of the one that acted, on held-out episodes.

        Returns
        -------
        ImprovedValue
            Both values with their difference.

        Raises
        ------
        NotAvailable
            Without held-out episodes.
        """
        self._require_fitted()
        value = self._held_out_value()
        if value is None:
            raise NotAvailable("the value of the new policy is not known", "", "", "holdout above 0, and logs with the start of an episode")
        return value

    def _held_out_value(self) -> ImprovedValue | None:
        """The value on held-out episodes, if it is known."""
        value = self._data["value"]
        if value is None:
            return None
        new, acted, difference = (estimate(value[name]) for name in ("new", "acted", "difference"))
        of_new, of_acted = ({name: estimate(one) for name, one in value[key].items()} for key in ("new_by_agent", "acted_by_agent"))
        return ImprovedValue(new, acted, difference, of_new, of_acted, bool(self._told["may_be_worse"]))

    def summary(self) -> Summary:
        """Return the values of the new policy and of the one that acted, by agent.

        Without held-out episodes the table has the transitions of each agent in place of values.

        Returns
        -------
        Summary
            A table as text, HTML, CSV or LaTeX; its ``rows`` has the numbers. The column ``rare`` is `rare_`. Lines below the table have the
            ridges that were tried, as ``fedsa improve`` prints them, and the notes of `results_`.
        """
        if "_data" not in self.__dict__:
            self._require_fitted()
        data, value, tables = self._data, self._held_out_value(), list(self._told["report"]["tables"])
        spent = f"{self.ending_} after {self.n_iter_} rounds, {self.bits_ / 8e6:.4g} MB up and down"
        of_fit = f"{len(data['theta'])} weights, ridge {self.ridge_:.4g}, {number(data['degrees_of_freedom']):.3g} degrees of freedom"
        # The report ends with the ridges, if any were tried. The table of values, if they are known, is before them.
        ridges = tables.pop()["lines"] if data["ridges_tried"] else []
        of_value = tables.pop()["notes"] if value is not None else ["rare: share of the logged states in which fewer than 5 rows are behind the chosen action"]
        notes = [f"{spent}; {of_fit}", *of_value]
        notes += ["ridges that were tried:", *(f"  {line}" for line in ridges)] if ridges else []
        notes += map(str, self.results_.notes)
        if value is None:
            rows = [{"agent": one["name"], "transitions": one["transitions"], "rare": self.rare_.get(one["name"])} for one in data["agents"]]
            return Summary(f"policy of {len(self.agents_)} agents", ["agent", "transitions", "rare"], rows, notes)

        def row(name: str, new: ValueEstimate, acted: ValueEstimate, difference: Estimate, rare: float | None) -> dict[str, Any]:
            values = {"new policy": Estimate(new.mean, new.se), "policy that acted": Estimate(acted.mean, acted.se), "difference": difference}
            return {"agent": name, **values, "episodes": new.episodes, "rare": rare}

        of_one = next(iter(self.rare_.values()), None) if len(self.agents_) == 1 else None
        rows = [row("all agents", value.new, value.acted, Estimate(value.difference.mean, value.difference.se), of_one)]
        by_agent = value.new_by_agent if len(self.agents_) > 1 else {}
        for name, new in by_agent.items():
            if (acted := value.acted_by_agent.get(name)) is not None:
                # The two values of an agent count as independent.
                difference = Estimate(new.mean - acted.mean, float(np.hypot(new.se, acted.se)))
                rows.append(row(name, new, acted, difference, self.rare_.get(name)))
        return Summary("values of start states by fitted values on held-out episodes", list(rows[0]), rows, [str(value), *notes])

    def plot(self, what: Literal["policy", "ridges"] = "policy") -> Figure:
        """Draw the policy.

        Parameters
        ----------
        what : {"policy", "ridges"}
            - ``"policy"``: values, actions and the rows behind them over the one or two state columns along which values vary most.
            - ``"ridges"``: values of the ridges that were tried, on held-out episodes and on those of the fit.

        Returns
        -------
        Figure
            Notebooks show it; :meth:`Figure.save` writes SVG, PNG or PDF.

        Raises
        ------
        NotAvailable
            When there is no such picture, or the object was unpickled.
        """
        self._require_fitted()
        if what not in ("policy", "ridges"):
            raise InputError(f"{what!r} is not accepted", "setting.unknown-name", "what", "policy, ridges")
        if what not in self.__dict__.get("_pictures", {}):
            raise NotAvailable(f"there is no picture of {what}", "", "what", "ridge=None for ridges; a fit in this process, which pickling loses")
        return Figure(self._pictures[what])

    def save(self, folder: Path) -> None:
        """Write ``policy.json``, as :meth:`ActionValueFunction.save`.

        Parameters
        ----------
        folder : path
            The folder; created if missing. An existing file of this name is replaced.
        """
        self._require_fitted().save(folder)
