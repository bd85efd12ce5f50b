"""Predictions on an experiment before it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from fedsa import _fedsa
from fedsa._figure import Figure
from fedsa._settings import nearest
from fedsa._summary import Summary
from fedsa.errors import FedsaError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a prediction.

    Attributes
    ----------
    status : {"exact", "closure", "leading-order", "radius"}
        - ``"exact"``: exact to rounding.
        - ``"closure"``: neglects some of the dependence between agents' chains.
        - ``"leading-order"``: leading order in the step size, often 10 to 50% off.
        - ``"radius"``: from the asymptotic rate.
    eps_squared : float or None
        The largest relative error of a closure.
    warning : str or None
        When the number may be far off.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> print(experiment.theory().limits("fedlsa").accuracy)
    exact
    """

    status: str
    eps_squared: float | None = None
    warning: str | None = None

    def __str__(self) -> str:
        return f"closure, eps² = {self.eps_squared:.2g}" if self.eps_squared is not None else self.status.replace("-", " ")


@dataclass(frozen=True)
class Limits:
    """The final mean-square error and its parts.

    Attributes
    ----------
    floor : float
        The sum of the parts.
    bias : float
        The squared distance between the noise-free limit and the root; with nonlinear operators, between the mean iterate and the root.
    samples : float or None
        The noise of independent samples.
    mixing : float or None
        The contribution of dependent successive samples; negative if it helps.
    link, participation : float or None
        The contributions of the random link and of the random choice of participants.
    accuracy : Accuracy
        The accuracy of the floor.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> limits = experiment.theory().limits("fedlsa")
    >>> limits.bias < limits.floor
    True
    """

    floor: float
    bias: float
    samples: float | None
    mixing: float | None
    link: float | None
    participation: float | None
    accuracy: Accuracy


@dataclass(frozen=True)
class Unknown:
    """The reason why a prediction is unknown.

    Its truth value is false, so ``if theory.limits(label):`` tests for a prediction.

    Attributes
    ----------
    code : {"not-known", "takes-too-long", "diverges", "infinite"}
        The kind of the reason.
    text : str
        The reason in words.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> fast = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(30.0, 10), rounds=100)
    >>> bool(fast.theory().limits("fedlsa"))
    False
    """

    code: str
    text: str

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Change:
    """The floor with one setting changed.

    Attributes
    ----------
    change : str
        The setting in words.
    floor : float or None
        The floor after the change; ``None`` if unknown.
    why : str or None
        Why the floor is unknown.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> experiment.theory().changes("fedlsa")[0].change
    'half the step, 0.05'
    """

    change: str
    floor: float | None
    why: str | None


@dataclass(frozen=True)
class StableStep:
    """The largest stable step size of a method.

    Attributes
    ----------
    step : float
        The step size; infinite if all are stable.
    in_mean_square : bool
        Whether the bound is for the mean square. If false, it is for the mean only.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> from fedsa import methods, problems
    >>> problem = problems.Linear(np.array([[[2.0]], [[2.0]]]), [[1.0], [3.0]])
    >>> stable = fedsa.Experiment(problem, methods.FedLSA(0.1, 1), rounds=10).theory().stable_step("fedlsa")
    >>> round(stable.step, 4), stable.in_mean_square
    (1.0, True)
    """

    step: float
    in_mean_square: bool


@dataclass(frozen=True)
class Target:
    """The cost of a mean-square error.

    Attributes
    ----------
    mse : float
        The target.
    reached : bool or None
        Whether the method reaches the target; ``None`` if unknown.
    rounds : float or None
        The rounds to the target.
    accuracy : Accuracy or None
        The accuracy of the rounds.
    detail : mapping
        Costs and obstacles, as in ``fedsa theory --json``.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> target = experiment.theory(target_mse=0.1).target("fedlsa")
    >>> target.reached, target.rounds
    (True, 345.0)
    """

    mse: float
    reached: bool | None
    rounds: float | None
    accuracy: Accuracy | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """A method's predicted mean-square error over rounds.

    Attributes
    ----------
    rounds : ndarray of int
        The recorded rounds.
    mse : ndarray
        ``||E theta_t - theta*||^2 + noise``.
    bias, noise : ndarray
        The two parts of `mse`.
    accuracy : Accuracy
        The accuracy of the curve.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> curve = experiment.theory().curve("fedlsa")
    >>> bool((curve.mse[1:] <= curve.mse[:-1]).all())
    True
    """

    rounds: NDArray[Any]
    mse: NDArray[Any]
    bias: NDArray[Any]
    noise: NDArray[Any]
    accuracy: Accuracy


class Theory:
    """Predictions on an experiment. ``print`` shows them.

    Attributes
    ----------
    labels : list of str
        The labels of methods at points.
    problems : list of dict
        Constants of the problems; only with ``full=True``.
    left_out : list of dict
        Quantities that would take too long to compute, with the reasons.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> theory = experiment.theory()
    >>> theory.labels
    ['fedlsa']
    """

    def __init__(self, native: _fedsa.Theory) -> None:
        self._native = native
        self._data: dict[str, Any] = json.loads(native.json())
        self.problems: list[dict[str, Any]] = self._data["problems"]
        self.left_out: list[dict[str, Any]] = self._data["left_out"]

    @property
    def labels(self) -> list[str]:
        """The labels of methods at points."""
        return [f"{m['method']} [{m['point']}]" if m["point"] else str(m["method"]) for m in self._data["methods"]]

    def _at(self, label: str) -> int:
        if label not in self.labels:
            raise KeyError(f"there is no '{label}'{nearest(label, self.labels)}; labels are {', '.join(self.labels)}")
        return self.labels.index(label)

    def _method(self, label: str) -> dict[str, Any]:
        found: dict[str, Any] = self._data["methods"][self._at(label)]
        return found

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Theory is not pickled: pickle the experiment, and ask for its theory again; to_dict() has the numbers")

    def limits(self, label: str) -> Limits | Unknown:
        """Return a method's floor and its parts.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        Limits or Unknown
            The parts, or why they are unknown.
        """
        limits = self._method(label)["limits"]
        if "unknown" in limits:
            return Unknown(**limits["unknown"])
        return Limits(**{k: v for k, v in limits.items() if k not in ("accuracy", "warning")}, accuracy=accuracy(limits["accuracy"], limits))

    def stable_step(self, label: str) -> StableStep | Unknown:
        """Return a method's largest stable step size.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        StableStep or Unknown
            The step, or why it is unknown.
        """
        method = self._method(label)
        step, limit = method["largest_stable_step"], method.get("largest_stable_step_limit")
        if limit is None:
            return Unknown(**method["unknown"]["largest_stable_step"])
        return StableStep(float("inf") if step is None else step, limit == "mean-square")

    def target(self, label: str) -> Target | Unknown:
        """Return the cost of the target for a method.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        Target or Unknown
            The cost, or why it is unknown.

        Raises
        ------
        FedsaError
            When the theory has no target: ``experiment.theory(target_mse=..)``.
        """
        target = self._method(label).get("target")
        if target is None:
            raise FedsaError("no target was asked for", "setting.missing-key", "target_mse", "theory(target_mse=..)")
        unknown = target.get("unknown", {}).get("reached")
        if unknown:
            return Unknown(**unknown)
        known = accuracy(target["accuracy"], {}) if "accuracy" in target else None
        return Target(target["mse"], target["reached"], target.get("rounds"), known, target)

    def changes(self, label: str) -> list[Change]:
        """Return the effect of single settings on a method's floor.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        list of Change
            The changes; empty if the floor is unknown or zero.
        """
        return [Change(**change) for change in self._method(label)["changes"]]

    def quantities(self, label: str) -> dict[str, Any]:
        """Return a method's numbers of ``fedsa theory --json``.

        Most are known only with ``full=True``.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        dict
            Numbers by name. Unknown ones are ``None``, with the reason under ``"unknown"``.
        """
        copy: dict[str, Any] = json.loads(json.dumps(self._method(label)))
        return copy

    def curve(self, label: str) -> Curve:
        """Compute a method's predicted mean-square error over rounds.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        Curve
            Arrays over the recorded rounds.

        Raises
        ------
        FedsaError
            When theory does not know the curve. The error has the reason.
        """
        rounds, mse, bias, noise, known = self._native.curve(self._at(label))
        return Curve(rounds, mse, bias, noise, accuracy(json.loads(known), {}))

    def plot(self, which: Literal["curves", "stability"] = "curves") -> Figure:
        """Draw predicted curves, or stable steps.

        Parameters
        ----------
        which : {"curves", "stability"}
            Predicted curves, or stable steps.

        Returns
        -------
        Figure
            Notebooks show it.

        Raises
        ------
        NotAvailable
            When there is nothing to draw.
        """
        return Figure(self._native.figure(which))

    def summary(self) -> Summary:
        """Return a table of floors, stable steps and targets."""
        rows: list[dict[str, Any]] = []
        for label in self.labels:
            limits, stable = self.limits(label), self.stable_step(label)
            row: dict[str, Any] = {"method": label}
            if isinstance(limits, Limits):
                row |= {"floor": limits.floor, "known": str(limits.accuracy), "bias": limits.bias, "samples": limits.samples}
                row |= {"mixing": limits.mixing, "link": limits.link, "participation": limits.participation}
            if isinstance(stable, StableStep):
                row["largest step"] = stable.step
            if self._method(label).get("target") is not None:
                target = self.target(label)
                row["rounds"] = target.rounds if isinstance(target, Target) and target.reached else None
            rows.append(row)
        all_columns = ["method", "floor", "known", "bias", "samples", "mixing", "link", "participation", "largest step", "rounds"]
        columns = [c for c in all_columns if any(row.get(c) is not None for row in rows)]
        return Summary(f"{self._data['id']}: {self._data['title']}", columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers.

        With ``full=True`` they include those of ``fedsa theory --full --json``.
        """
        copy: dict[str, Any] = json.loads(json.dumps(self._data))
        return copy

    def __str__(self) -> str:
        return self._native.page().replace("--full or --json", "full=True").replace("--full", "full=True")

    def __repr__(self) -> str:
        return f"<fedsa.Theory of {self._data['id']}: print() shows the page; {', '.join(self.labels)}>"

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def accuracy(data: Mapping[str, Any], beside: Mapping[str, Any]) -> Accuracy:
    """The accuracy of a prediction, from its JSON."""
    return Accuracy(str(data["status"]), data.get("eps_squared"), beside.get("warning"))


class Check:
    """Time, memory and stability of an experiment before it runs.

    Attributes
    ----------
    accepted : bool
        Whether the experiment would run.
    refusal : FedsaError or None
        Why it would be refused: not enough memory, or known instability.
    seconds, bytes : float
        The estimated time on this machine, and the memory.
    runs : int
        The number of different runs.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> check = experiment.check()
    >>> check.accepted, check.runs, check.stable
    (True, 1, {'fedlsa': True})
    """

    def __init__(self, data: dict[str, Any], refusal: FedsaError | None) -> None:
        self._data, self.refusal = data, refusal
        self.accepted: bool = data["accepted"]
        self.seconds: float = data["seconds"]
        self.bytes: float = data["bytes"]
        self.runs: int = data["runs"]

    @property
    def stable(self) -> dict[str, bool | None]:
        """Whether each method is stable at each point.

        ``None`` means unknown.
        """
        out: dict[str, bool | None] = {}
        for point in self._data["points"]:
            for method in point["methods"]:
                name = f"{method['method']} [{point['point']}]" if point["point"] else method["method"]
                out[name] = method["stable"]
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of ``fedsa check --json``."""
        copy: dict[str, Any] = json.loads(json.dumps(self._data))
        return copy

    def __bool__(self) -> bool:
        return self.accepted

    def __repr__(self) -> str:
        said = "accepted" if self.accepted else f"refused: {self.refusal}"
        return f"<fedsa.Check of {self._data['id']}: {said}; {self.runs} runs, {self.seconds:.2g} s, {self.bytes / 1e6:.3g} MB>"
