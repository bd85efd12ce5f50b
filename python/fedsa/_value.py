"""Policy evaluation: a value function from transitions that stay with their agents."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from fedsa import _fedsa, _files, _logs
from fedsa._estimator import Spending
from fedsa._figure import Figure
from fedsa._files import Path
from fedsa._parameters import Parameters
from fedsa._progress import Listener, ProgressLike
from fedsa._results import Outcome, Results
from fedsa._settings import plain_number
from fedsa._summary import Estimate, Summary, number
from fedsa._typed import named_settings
from fedsa._warn import warn
from fedsa.errors import InputError, NotAvailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Method = Literal["fitted", "importance", "doubly_robust"]

# Settings with another name in Python.
KEYS = {"lam": "lambda"}

# The estimates of a policy's value.
METHODS = {"fitted": "fitted values", "importance": "importance sampling, or returns", "doubly_robust": "a doubly robust estimate"}


@dataclass(frozen=True)
class ValueEstimate:
    """A policy's value at the start of episodes, with an interval.

    Attributes
    ----------
    mean : float
        The estimate.
    se : float
        The standard error over episodes; NaN if unknown.
    low, high : float
        The interval, at the level of the fit.
    episodes : int
        The number of episodes.
    effective_episodes : float
        The effective number of episodes under importance ratios: ``(sum w)^2 / sum w^2``.

    Examples
    --------
    >>> from fedsa import ValueEstimate
    >>> print(ValueEstimate(mean=1.5, se=0.1, low=1.3, high=1.7, episodes=40, effective_episodes=40.0))
    1.5 ± 0.1, interval 1.3 to 1.7
    """

    mean: float
    se: float
    low: float
    high: float
    episodes: int
    effective_episodes: float

    @classmethod
    def _of(cls, one: Mapping[str, Any]) -> ValueEstimate:
        mean, se, low, high, effective = (number(one[name]) for name in ("estimate", "se", "low", "high", "effective_episodes"))
        return cls(mean, se, low, high, int(one["episodes"]), effective)

    def __str__(self) -> str:
        return f"{Estimate(self.mean, self.se)}, interval {self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True)
class PolicyValue:
    """One estimate of a policy's value.

    Attributes
    ----------
    method : str
        ``"fitted"``, ``"importance"`` (plain returns without importance ratios) or ``"doubly_robust"``.
    level : float
        The level of the intervals.
    all : ValueEstimate
        The estimate for all agents together.
    agents : dict of str to ValueEstimate
        Estimates from each agent's own data: for agents with at least 20 episodes, or if the estimate uses no fitted values for truncated
        episodes.
    under_shared_weights : dict of str to ValueEstimate
        For several agents: the value of an agent's start states under the weights of all agents. It is valid for an agent that behaves like
        the average. If agents differ, the intervals do not cover the values of single agents.
    weights : dict of str to ndarray of shape (d,)
        With ``"fitted"``: the own weights of agents with at least 20 episodes.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> n = 40
    >>> states = np.linspace(0.0, 1.0, n)[:, None]
    >>> log = {"states": states, "rewards": np.ones(n), "next_states": np.roll(states, -1, axis=0), "terminated": np.arange(n) % 2 == 1}
    >>> fitted = fedsa.ValueFunction(features="polynomial:1", gamma=0.5).fit([log])
    >>> fitted.value("importance").mean
    1.5
    """

    method: str
    level: float
    all: ValueEstimate
    agents: dict[str, ValueEstimate]
    under_shared_weights: dict[str, ValueEstimate] = field(default_factory=dict)
    weights: dict[str, NDArray[np.float64]] = field(default_factory=dict, compare=False)

    @property
    def mean(self) -> float:
        """The estimate for all agents together."""
        return self.all.mean

    @property
    def interval(self) -> tuple[float, float]:
        """The interval for all agents together."""
        return self.all.low, self.all.high

    def against(self, other: PolicyValue) -> ValueEstimate:
        """Return the difference to another policy's value.

        Parameters
        ----------
        other : PolicyValue
            The value of the other policy by the same kind of estimate, from independent logs.

        Returns
        -------
        ValueEstimate
            This value minus the other one, for all agents together, with an interval at this value's level.

        Raises
        ------
        InputError
            When the two kinds of estimate differ.
        """
        if other.method != self.method:
            what = f"a value by {METHODS[other.method]}, and this one is by {METHODS[self.method]}"
            raise InputError(what, "setting", "other", f"other.value({self.method!r})")
        a, b = ((e.mean, e.se, e.low, e.high, e.episodes, e.effective_episodes) for e in (self.all, other.all))
        return ValueEstimate(*_fedsa.value_difference(a, b, self.level))

    def __str__(self) -> str:
        lines = [f"value of the start states by {METHODS[self.method]}, {self.level:.0%} intervals", f"all agents  {self.all}"]
        shared = {f"{name}, under shared weights": one for name, one in self.under_shared_weights.items() if name not in self.agents}
        return "\n".join([*lines, *(f"{name}  {one}" for name, one in {**self.agents, **shared}.items())])


class ValueFunction(Parameters):
    """A value function ``v(s) = weights_ . phi(s)`` from transitions that stay with their agents.

    The weights equal those of LSTD or LSTD(lambda) on all transitions with equal weights, to `tol`. By default fedsa chooses the method
    with the fewest bits.

    Parameters
    ----------
    columns : Mapping[str, str] or None
        Names of columns: s_0=x,reward=r,done=terminal, or s_*=obs_*,next_*=next_obs_*.
    agent_column : str or None
        Column with the agent of each row; by default each file is an agent.
    bad_rows : Literal["refuse", "skip"]
        Unreadable rows: refuse, or skip and count by file and reason. By default ``'refuse'``.
    keep_autoreset_rows : bool
        Keep rows of automatic resets, which are otherwise left out and counted. By default ``False``.
    holdout : float or None
        Share of each agent's episodes to hold out, drawn by `seed`, to compare federated with local weights.
        Needs the column episode.
    features : str or None
        Features of the state: identity, polynomial:ORDER, fourier:ORDER or fourier:ORDER:scaled,
        tiles:TILINGSxBINS or tiles:TILINGSxBINS@HASHED, radial:CENTRES or radial:CENTRES:quantiles,
        standardised, one-hot; products: 'one-hot(s_2) * tiles:8x4(s_0, s_1)'; auto: least held-out error. By
        default logged columns phi_*, else by the number of columns.
    max_features : int or None
        Largest number for `features = auto`; 256 by default.
    ranges : Mapping[str, tuple[float, float]] or None
        Ranges of state columns, such as s_0=-1.2:0.6,s_1=-0.07:0.07; by default from the data.
    gamma : float
        Discount factor; 1 only if every episode terminates. By default ``0.99``.
    lam : float
        Decay of the traces of TD(lambda), from 0 to 1. Traces end at done and at a change of episode. By
        default ``0.0``.
    operator : Literal["td", "gtd2", "tdc"]
        Operator: td; gtd2 or tdc minimise the projected Bellman error, and converge off-policy where td
        diverges. By default ``'td'``.
    kappa : float or None
        Ratio of the steps of gtd2 and tdc; 1 by default.
    ridge : float or None
        EPS I is added to every agent's A_c; by default a small share of the features' mean square, 0 for
        none.
    policy : str or None
        The policy.json of fedsa improve, to evaluate by logs of another policy with action and behaviour.
        Refuses episodes it was found from.
    max_importance_ratio : float or None
        Importance ratios are clipped at this value; the report gives their number and effect on the mean.
        None by default.
    scaling : Literal["none", "equal-squares"]
        Scaling of features; equal-squares: equal mean squares over all data. By default ``'none'``.
    level : float
        Level of intervals. By default ``0.95``.
    method : str
        Method, or auto: the one that reaches `tol` with the fewest bits. anderson accelerates fedhsa. By
        default ``'auto'``.
    keep_matrices : bool
        Keep the matrices A_c with agents: `method = auto` does not choose lstd. By default ``False``.
    sampling : str
        Transitions of steps: mean (all), iid or markov. By default ``'mean'``.
    step_size : float or None
        Local step size, of methods with local steps; 1 by default.
    local_steps : int or None
        Local steps in a round (mean number for scafflsa-random), of methods that have them; 100 by default.
    max_rounds : int
        Largest number of rounds. By default ``20000``.
    tol : float or None
        Stop at this multiple of the mean operator's norm at zero weights; 0 for never. By default 1e-12, or
        what rounding allows.
    secure_sums : float or None
        Secure sums: the server learns sums of what agents send and no single answer. The bound of each number
        that an agent sends.
    seed : int
        Seed of the run and of held-out episodes. By default ``0``.
    value_columns : Sequence[str]
        One or two state columns for the picture of values; by default those with most variation.

    Attributes
    ----------
    weights_ : ndarray of shape (d,)
        The weights.
    weights_se_ : ndarray of shape (d,) or None
        The standard errors of the weights over transitions, if known.
    feature_names_ : list of str
        The features.
    columns_ : list of str
        The state columns, in the order for `predict`.
    agents_ : list of str
        The agents.
    outcome_ : Outcome
        The outcome. A run that misses `tol` issues a warning, no exception.
    n_iter_ : int
        Rounds.
    costs_ : dict of str to Spending
        The costs of the method, by its name.
    logs_ : dict
        Counts of the data, for all and for each agent: transitions, episodes and their ends, discounted returns, and omitted rows.
    choice_ : dict
        The choice of ``method="auto"``: its reason, and the estimated costs of the other candidates.
    results_ : Results
        The run: its trace, its figure.

    Examples
    --------
    Two agents walk to the right with different steps. An episode ends at 1 with the reward 1.

    >>> import numpy as np
    >>> import fedsa
    >>> def walk(step):
    ...     n = int(1 / step)
    ...     x = np.tile(np.arange(n) * step, 20)
    ...     ends = np.tile(np.arange(n) == n - 1, 20)
    ...     episode = np.repeat(np.arange(20), n)
    ...     return {"states": x, "rewards": ends.astype(float), "next_states": x + step, "terminated": ends, "episode": episode}
    >>> value = fedsa.ValueFunction(gamma=0.9, features="fourier:3").fit({"slow": walk(0.1), "fast": walk(0.2)})
    >>> value.agents_, value.outcome_.name, list(value.costs_)
    (['slow', 'fast'], 'converged', ['lstd'])
    >>> bool(value.predict([[0.8]])[0] > value.predict([[0.2]])[0])
    True
    >>> value.value("importance").agents["fast"].mean.__round__(4)
    0.6561
    """

    weights_: NDArray[np.float64]

    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        agent_column: str | None = None,
        bad_rows: Literal["refuse", "skip"] = "refuse",
        keep_autoreset_rows: bool = False,
        holdout: float | None = None,
        features: str | None = None,
        max_features: int | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        gamma: float = 0.99,
        lam: float = 0.0,
        operator: Literal["td", "gtd2", "tdc"] = "td",
        kappa: float | None = None,
        ridge: float | None = None,
        policy: str | None = None,
        max_importance_ratio: float | None = None,
        scaling: Literal["none", "equal-squares"] = "none",
        level: float = 0.95,
        method: str = "auto",
        keep_matrices: bool = False,
        sampling: str = "mean",
        step_size: float | None = None,
        local_steps: int | None = None,
        max_rounds: int = 20000,
        tol: float | None = None,
        secure_sums: float | None = None,
        seed: int = 0,
        value_columns: Sequence[str] = (),
    ) -> None:
        self.columns = columns
        self.agent_column = agent_column
        self.bad_rows = bad_rows
        self.keep_autoreset_rows = keep_autoreset_rows
        self.holdout = holdout
        self.features = features
        self.max_features = max_features
        self.ranges = ranges
        self.gamma = gamma
        self.lam = lam
        self.operator = operator
        self.kappa = kappa
        self.ridge = ridge
        self.policy = policy
        self.max_importance_ratio = max_importance_ratio
        self.scaling = scaling
        self.level = level
        self.method = method
        self.keep_matrices = keep_matrices
        self.sampling = sampling
        self.step_size = step_size
        self.local_steps = local_steps
        self.max_rounds = max_rounds
        self.tol = tol
        self.secure_sums = secure_sums
        self.seed = seed
        self.value_columns = value_columns

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_model", "_pictures")}

    def _settings(self) -> dict[str, Any]:
        """The settings of the engine."""
        named = {KEYS.get(name, name): plain_number(value) for name, value in self.get_params().items()}
        named["value_columns"] = [self.value_columns] if isinstance(self.value_columns, str) else list(self.value_columns)
        return named

    def fit(self, agents: Any, *, progress: ProgressLike = None, cancel: _fedsa.CancelToken | None = None) -> ValueFunction:
        """Fit the value function.

        Parameters
        ----------
        agents : list, dict or one of its entries
            Each agent's transitions; the keys of a dictionary are the agents' names. An agent's transitions are one of:

            - a dictionary of arrays: ``states`` (n, k), ``rewards``, ``next_states``, ``terminated``; optional ``truncated``, ``episode``,
              ``env``, and ``ratio`` or ``target`` and ``behaviour``, the probabilities of the action under the evaluated and the acting
              policy
            - a tuple ``(states, rewards, next_states, terminated)`` or ``(.., truncated)``
            - a data frame or Arrow table with the columns ``s_*``, ``next_*``, ``reward``, ``done``, ..
            - a recording of :func:`fedsa.gym.record`
            - the name of a file, a folder or a data set, as for ``fedsa evaluate``

            The engine copies numbers once.
        progress : bool, callable or None
            As in :meth:`fedsa.Experiment.run`.
        cancel : CancelToken or None
            Stops the call from another thread.

        Returns
        -------
        ValueFunction
            The same object.

        Raises
        ------
        InputError
            When a setting, an array or a file cannot be used.
        """
        settings = self._settings()
        given = _logs.given(agents, self.columns or {}, self.agent_column)
        with Listener("ValueFunction", progress) as listener:
            try:
                fitted = _fedsa.evaluate_logs(listener, cancel, given, settings)
            except InputError as e:
                raise named_settings(e, self, {key: name for name, key in KEYS.items()}) from None
        self.__dict__.pop("_model", None)
        self.__dict__.pop("choice_", None)
        self.__dict__.pop("logs_", None)
        self._weights_json = fitted.weights_json()
        self._npz: bytes | None = fitted.npz()
        self._told: dict[str, Any] = json.loads(fitted.told_json())
        self._pictures = dict(fitted.pictures())
        self._take()
        ran = fitted.ran()
        assert ran is not None
        self.results_ = Results._of(ran)
        if self.outcome_.name not in ("converged", "completed"):
            more = f": {self.outcome_.reason}" if self.outcome_.reason else ""
            text = f"{self._data['method']} ended {self.outcome_.name}{more}; {self.outcome_.help or 'more max_rounds, or another method'}"
            warn(text)
        return self

    def _take(self) -> None:
        """Set the attributes of the fit from its files."""
        self._data: dict[str, Any] = json.loads(self._weights_json)
        data, told = self._data, self._told
        self.weights_ = np.array([number(x) for x in data["theta"]], dtype=np.float64)
        se = data.get("theta_se")
        self.weights_se_: NDArray[np.float64] | None = None if se is None else np.array([number(x) for x in se], dtype=np.float64)
        self.feature_names_: list[str] = data["features"] or [str(i) for i in range(len(self.weights_))]
        self.columns_: list[str] = data["columns"]
        self.agents_: list[str] = [agent["name"] for agent in data["agents"]]
        self.n_iter_: int = data["rounds"]
        entry: dict[str, Any] = next(iter(told.get("report", {}).get("entries", [])), {})
        self.outcome_ = Outcome(data["outcome"], entry.get("reason"), entry.get("help"), True, data["rounds"])
        counts = {name: int(told.get(name) or data.get(name) or 0) for name in ("exchanges", "vectors_up", "bits_up", "bits")}
        spent = Spending(data["rounds"], hessians=0, seconds=told.get("seconds"), gradient_norm=data["residual"], objective=None, outcome=data["outcome"], **counts)
        self.costs_ = {str(data["method"]): spent}
        if told.get("logs") is not None:
            self.logs_: dict[str, Any] = told["logs"]
        if told.get("choice") is not None:
            self.choice_: dict[str, Any] = told["choice"]

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn calls this, so it is imported already.
        utils = importlib.import_module("sklearn.utils")
        # Input is transitions by agent, without targets.
        no_targets = utils.TargetTags(required=False)
        return utils.Tags(estimator_type=None, target_tags=no_targets, input_tags=utils.InputTags(two_d_array=False))

    def _require_fitted(self) -> None:
        if "_weights_json" not in self.__dict__:
            raise InputError("This ValueFunction is not fitted yet", "setting.missing-key", "", "fit(agents) or ValueFunction.load(path) first")

    @property
    def _value(self) -> _fedsa.ValueModel:
        self._require_fitted()
        if "_model" not in self.__dict__:
            npz = self._npz if self.weights_se_ is not None else None
            self._model = _fedsa.ValueModel(self._weights_json, npz)
        return self._model

    @overload
    def predict(self, states: Any, *, return_std: Literal[False] = False) -> NDArray[np.float64]: ...
    @overload
    def predict(self, states: Any, *, return_std: Literal[True]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def predict(self, states: Any, *, return_std: bool = False) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values of states.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            States, with columns in the order of `columns_` or by name. States outside the range of the fit are clipped to it.
        return_std : bool
            Whether to return standard errors too. They are errors of values, not of returns.

        Returns
        -------
        values : ndarray of shape (n,)
            Values.
        se : ndarray of shape (n,)
            Standard errors of the values, with `return_std`; NaN if the data have no information on a state.

        Raises
        ------
        NotAvailable
            With `return_std`, when standard errors of the weights are unknown.
        """
        model = self._value
        rows = _logs.states(states, self.columns_, model.file_columns())
        values = model.values(rows)
        if not return_std:
            return values
        if self.weights_se_ is None:
            raise NotAvailable("standard errors of the weights are not known", "", "return_std", "a fit to logs of at least 16 transitions an agent")
        return values, model.errors(rows)

    def transform(self, states: Any) -> NDArray[np.float64]:
        """Return the features of states.

        Parameters
        ----------
        states : array-like of shape (n, k), data frame or dictionary
            As in :meth:`predict`.

        Returns
        -------
        ndarray of shape (n, d)
            The features; ``predict(states)`` is their product with `weights_`.
        """
        model = self._value
        rows = _logs.states(states, self.columns_, model.file_columns())
        return model.features(rows).reshape(len(rows), len(self.weights_))

    def value(self, method: Method = "fitted") -> PolicyValue:
        """Return the policy's value at the start of episodes.

        Parameters
        ----------
        method : {"fitted", "importance", "doubly_robust"}
            - ``"fitted"``: fitted values, whose error includes the error of the features.
            - ``"importance"``: returns, weighted by importance ratios if there are any.
            - ``"doubly_robust"``: needs ``action``, ``target_*`` and ``target_next_*``.

        Returns
        -------
        PolicyValue
            Estimates with intervals, for all agents together and for each agent.

        Raises
        ------
        NotAvailable
            When the logs lack the data for the estimate.
        """
        self._require_fitted()
        if method not in METHODS:
            raise InputError(f"{method!r} is not accepted", "setting.unknown-name", "method", ", ".join(METHODS))
        found = self._told.get("policy_value")
        if not found:
            for note in self._told.get("notes") or []:
                if note["code"] == "ratios.no-value":
                    raise NotAvailable(note["text"], "", "method", "logs with the importance ratios of these policies")
            if "report" not in self._told:
                help = "summary.json of `fedsa evaluate` beside weights.json, or value() of the fit before it is saved"
                raise NotAvailable("this value function is of a file, and weights.json has no value of the policy", "", "method", help)
            raise NotAvailable("the value of the policy is not known", "", "method", "a fit to logs with the start of an episode, and at most 1024 features")
        if method not in found:
            help = "the columns action, target_0, target_1, .. and target_next_0, .. in all logs"
            raise NotAvailable("the logs have no probabilities of all actions", "", "method", help)
        one = found[method]
        agents, shared = ({name: ValueEstimate._of(e) for name, e in one.get(key, {}).items()} for key in ("agents", "under_shared_weights"))
        own = {str(agent["name"]): np.array(agent["own_theta"]) for agent in self._data.get("agents", []) if "own_theta" in agent}
        return PolicyValue(method, float(found["level"]), ValueEstimate._of(one["all"]), agents, shared, own if method == "fitted" else {})

    def score(self, agents: Any) -> float:
        """Return minus the root mean square error against discounted returns.

        Higher is better.

        Parameters
        ----------
        agents : list, dict or one of its entries
            Transitions as in :meth:`fit`, from episodes outside the fit.

        Returns
        -------
        float
            At most 0; NaN, with a warning, if no episode terminates. Truncated episodes do not count, because their returns are unknown.
        """
        *_, (_, _, error, _) = self._errors(agents)
        if error is None:
            warn("no episode of these logs terminates, so that there are no returns to compare values with: the score is NaN")
        return float("nan") if error is None else -error

    def _errors(self, agents: Any) -> list[tuple[str, int, float | None, float | None]]:
        model = self._value
        columns, agent_column = dict(self.columns or {}), self.agent_column
        gamma, lam = float(self._data["gamma"]), float(self._data["lambda"])
        return model.return_errors(_logs.given(agents, columns, agent_column), columns, agent_column, gamma, lam)

    def errors(self, agents: Any) -> dict[str, Estimate]:
        """Return root mean square errors against discounted returns.

        Parameters
        ----------
        agents : list, dict or one of its entries
            As in :meth:`score`.

        Returns
        -------
        dict of str to Estimate
            The error of each agent and of ``"all agents"``, with standard errors over episodes.
        """
        return {name: Estimate(number(error), number(se)) for name, _, error, se in self._errors(agents)}

    def summary(self) -> Summary:
        """Return errors on held-out episodes: federated, local and pooled.

        Without `holdout` the table has the weights and their standard errors.

        Returns
        -------
        Summary
            A table as text, HTML, CSV or LaTeX; its ``rows`` has the numbers.
        """
        self._require_fitted()
        data = self._data
        (method, spent), *_ = self.costs_.items()
        notes = [f"{method}: {self.outcome_} after {spent.rounds} rounds, {spent.bits / 8e6:.4g} MB up and down"]
        notes += [f"value of the start states: {self.value().all}"] if self._told.get("policy_value") else []
        notes += map(str, self.results_.notes) if hasattr(self, "results_") else []
        held = data.get("holdout")
        if held is None:
            se = self.weights_se_
            estimates = [Estimate(float(w), float(se[i]) if se is not None else float("nan")) for i, w in enumerate(self.weights_)]
            rows: list[dict[str, Any]] = [{"feature": name, "weight": estimate} for name, estimate in zip(self.feature_names_, estimates)]
            notes.append("with holdout=0.2 the table says whether the federation helps")
            return Summary(f"value function with {len(self.agents_)} agents", ["feature", "weight"], rows, notes)
        rows = []
        kind = "return_error" if held["all"]["return_error"]["federated"]["rms"] is not None else "projected_bellman_error"
        for one in [*held["agents"], {**held["all"], "name": "all agents"}]:
            errors = {name: Estimate(number(one[kind][name]["rms"]), number(one[kind][name]["se"])) for name in ("federated", "own", "pooled")}
            minus = one[kind]["own_minus_federated"]
            difference = Estimate(number(minus["difference"]), number(minus["se"]))
            rows.append({"agent": one["name"], **errors, "own - federated": difference, "does it help?": minus.get("helps", "not known")})
        words = {"return_error": "error against Monte-Carlo returns", "projected_bellman_error": "projected Bellman error"}[kind]
        title = f"{words} on held-out episodes ({held['share']:.0%} of each agent), root mean square (standard error)"
        return Summary(title, ["agent", "federated", "own", "pooled", "own - federated", "does it help?"], rows, notes)

    def plot(self, what: Literal["value", "returns", "methods"] = "value") -> Figure:
        """Draw the fit.

        Parameters
        ----------
        what : {"value", "returns", "methods"}
            - ``"value"``: the value function over `value_columns`, by default the one or two state columns along which it varies most.
            - ``"returns"``: values against returns of held-out episodes. Needs `holdout`.
            - ``"methods"``: estimated costs of all candidates. Needs ``method="auto"``.

        Returns
        -------
        Figure
            Notebooks show it; :meth:`Figure.save` writes SVG, PNG or PDF.

        Raises
        ------
        NotAvailable
            When there is no such picture, or the object was loaded or unpickled.
        """
        self._require_fitted()
        stems = {"value": "value-function", "returns": "returns", "methods": "methods"}
        if what not in stems:
            raise InputError(f"{what!r} is not accepted", "setting.unknown-name", "what", ", ".join(stems))
        pictures = self.__dict__.get("_pictures")
        if pictures is None:
            raise NotAvailable("pictures are kept by the fit itself, not by copies or files", "", "what", "fit again, and draw before pickling")
        found = next((picture for name, picture in pictures.items() if name == stems[what] or what in name), None)
        if found is None:
            raise NotAvailable(f"there is no picture of {what}", "", "what", "holdout for returns, method='auto' for methods, states for value")
        return Figure(found)

    def save(self, folder: Path) -> None:
        """Write ``weights.json`` and ``weights.npz`` for ``fedsa predict``.

        Parameters
        ----------
        folder : path
            The folder; created if missing. Existing files of these names are replaced.

        Raises
        ------
        OSError
            When the files cannot be written.
        """
        self._require_fitted()
        files = {"weights.json": self._weights_json.encode(), "weights.npz": self._npz}
        _files.write_all(folder, {name: contents for name, contents in files.items() if contents is not None})

    @classmethod
    def load(cls, path: Path) -> ValueFunction:
        """Read weights of ``fedsa evaluate`` or :meth:`save`.

        Parameters
        ----------
        path : path
            The folder, or its ``weights.json``.

        Returns
        -------
        ValueFunction
            An object that predicts. It has the policy's value if the folder has the ``summary.json`` of an evaluation.

        Raises
        ------
        InputError
            When the file does not contain a value function.
        OSError
            When the file cannot be read.
        """
        name = _files.weights_file(path)
        folder, text = os.path.dirname(name), _files.read(name).decode()
        model = _fedsa.ValueModel(text, None)
        data = json.loads(text)
        spec = data["feature_map"]
        self = cls(gamma=data["gamma"], lam=data.get("lambda") or 0.0)
        self._weights_json, self._told = text, {}
        self._npz = None
        beside = os.path.join(folder, "weights.npz")
        if os.path.exists(beside):
            self._npz = _files.read(beside)
        summary = os.path.join(folder, "summary.json")
        if os.path.exists(summary):
            self._told = {k: v for k, v in json.loads(_files.read(summary)).items() if k in ("policy_value", "notes", "logs")}
        self._take()
        if self._npz is None:
            self.weights_se_ = None
        assert spec is not None and model.inputs() == self.columns_
        return self
