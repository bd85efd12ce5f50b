"""Regression and classification of rows that stay with their agents, in scikit-learn's manner.

The classes neither import nor need scikit-learn. They work in its pipelines, searches and cross-validation, which use ``get_params``,
``set_params``, ``fit``, ``predict``, ``score`` and ``__sklearn_tags__``.
"""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedsa import _arrays, _fedsa, _files
from fedsa._arrays import refused
from fedsa._files import Path
from fedsa._parameters import Parameters
from fedsa._progress import Listener, ProgressLike
from fedsa._results import Outcome, Results
from fedsa._settings import plain_number
from fedsa._summary import Summary
from fedsa._typed import named_settings
from fedsa._warn import warn
from fedsa.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The default number of agents; fewer rows have one agent each.
AGENTS = 8


@dataclass(frozen=True)
class Spending:
    """The cost of a method's run.

    Attributes
    ----------
    rounds : int
        Rounds.
    exchanges : int
        Exchanges of the server with the agents; a round may have several.
    vectors_up : int
        Vectors of d numbers from all agents to the server.
    bits_up : int
        Bits from all agents to the server.
    bits : int
        Bits up and down, of all agents.
    hessians : int
        Hessians that all agents computed.
    seconds : float or None
        Wall time. Methods run one after another.
    gradient_norm : float or None
        The final norm of the gradient.
    objective : float or None
        The final objective, with the ridge.
    outcome : str
        How the run ended: ``"converged"``, ``"max-rounds"``, ``"diverged"``, ..

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> x = np.arange(12.0)[:, None]
    >>> model = fedsa.FederatedRegressor(method="newton").fit(x, 2 * x[:, 0] + 1, agents=3)
    >>> model.costs_["newton"].exchanges
    2
    """

    rounds: int
    exchanges: int
    vectors_up: int
    bits_up: int
    bits: int
    hessians: int
    seconds: float | None
    gradient_norm: float | None
    objective: float | None
    outcome: str


@dataclass(frozen=True)
class Inference:
    """Coefficients with standard errors, and the quality of the fit.

    Attributes
    ----------
    names : list of str
        The columns, ``"intercept"`` first; class by class if there are several classes.
    classes : list of str or None
        The class of each coefficient of the multinomial model, compared with `reference`; otherwise ``None``.
    estimate, se, z, p, low, high : ndarray of shape (p,)
        Estimates, standard errors, z = estimate / se, two-sided p-values of the normal distribution, and the ends of the intervals.
    covariance : ndarray of shape (p, p)
        The covariance of the estimates.
    kind : str
        The kind of covariance: ``"model"``, ``"sandwich"``, ``"hc1"`` or ``"clustered"``.
    level : float
        The level of the intervals.
    n : int
        Rows with a weight above 0.
    deviance, log_likelihood, aic, pearson, dispersion : float
        The quality of the fit, as R defines it.
    reference : str or None
        The reference class of the multinomial model.
    exchanges, numbers_up : int
        Exchanges for the inference, and numbers that each agent sends in them.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> x = np.arange(12.0)[:, None]
    >>> y = 2 * x[:, 0] + 1 + np.tile([0.1, -0.1], 6)
    >>> inference = fedsa.FederatedRegressor(ridge=0.0, inference="model").fit(x, y, agents=3).inference_
    >>> inference.names, inference.estimate.round(2).tolist()
    (['intercept', '1'], [1.02, 2.0])
    """

    names: list[str]
    classes: list[str] | None
    estimate: NDArray[np.float64]
    se: NDArray[np.float64]
    z: NDArray[np.float64]
    p: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    covariance: NDArray[np.float64] = field(repr=False)
    kind: str
    level: float
    n: int
    deviance: float
    log_likelihood: float
    aic: float
    pearson: float
    dispersion: float
    reference: str | None
    exchanges: int
    numbers_up: int

    @classmethod
    def _of(cls, found: dict[str, Any], covariance: NDArray[np.float64]) -> Inference:
        each = found["coefficients"]
        classes = [one["class"] for one in each] if each and "class" in each[0] else None
        numbers: dict[str, Any] = {}
        for name in ("estimate", "se", "z", "p", "low", "high"):
            numbers[name] = np.array([np.nan if one[name] is None else one[name] for one in each], dtype=np.float64)
        plain: dict[str, Any] = {name: found[name] for name in ("level", "n", "deviance", "log_likelihood", "aic", "pearson", "dispersion", "reference")}
        spent = {"exchanges": found["exchanges"], "numbers_up": found["numbers_up"]}
        names = [one["name"] for one in each]
        return cls(names=names, classes=classes, covariance=covariance, kind=found["covariance"], **numbers, **plain, **spent)


@lru_cache(maxsize=1)
def not_fitted_class(base: Any) -> Any:
    """The exception for an estimator without a fit. It is also scikit-learn's `NotFittedError` if scikit-learn is loaded."""
    return type("NotFittedError", (InputError, base) if base is not None else (InputError, AttributeError), {"__module__": "fedsa"})


# Metadata that scikit-learn can route to methods.
METADATA = {"fit": ("agents", "sample_weight", "offset"), "predict": ("offset",), "score": ("sample_weight", "offset")}
# The value of scikit-learn's own constant.
UNCHANGED: Any = "$UNCHANGED$"

E = TypeVar("E", bound="Estimator")


class Estimator(Parameters):
    """The base of regressions and classifications."""

    # scikit-learn's type of the estimator: "classifier" or "regressor".
    _kind = ""
    # The contents of weights.json.
    _weights: dict[str, Any]
    _model: _fedsa.LinearModel
    n_features_in_: int

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_weights" in state:
            self._model = _fedsa.LinearModel(json.dumps(self._weights))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_weights")

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn calls this, so it is imported already.
        utils = importlib.import_module("sklearn.utils")
        is_classifier = self._kind == "classifier"
        model = getattr(self, "model", "auto")
        return utils.Tags(
            estimator_type=self._kind,
            target_tags=utils.TargetTags(required=True, positive_only=model == "gamma"),
            classifier_tags=utils.ClassifierTags(multi_class=model != "logistic") if is_classifier else None,
            regressor_tags=None if is_classifier else utils.RegressorTags(),
            input_tags=utils.InputTags(sparse=True),
        )

    def get_metadata_routing(self) -> Any:
        """Return the metadata that scikit-learn routes to this estimator.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRequest
            The requests of `fit`, `predict` and `score`.
        """
        asked = getattr(self, "_metadata_request", None)
        if asked is not None:
            return asked
        routing = importlib.import_module("sklearn.utils.metadata_routing")
        request = routing.MetadataRequest(owner=type(self).__name__)
        for method, names in METADATA.items():
            for name in names:
                getattr(request, method).add_request(param=name, alias=None)
        return request

    def set_fit_request(
        self: E, *, agents: bool | str | None = UNCHANGED, sample_weight: bool | str | None = UNCHANGED, offset: bool | str | None = UNCHANGED
    ) -> E:
        """Request metadata for `fit`.

        Pipelines, searches and cross-validation pass the metadata on if scikit-learn's routing is enabled.

        Parameters
        ----------
        agents, sample_weight, offset : bool, str or None
            Whether the method gets the metadata; or the name under which it gets it; or ``None``, for an error if a caller passes it.

        Returns
        -------
        FederatedClassifier or FederatedRegressor
            The same object.

        Raises
        ------
        RuntimeError
            When routing is not enabled: ``sklearn.set_config(enable_metadata_routing=True)``.
        """
        return self._ask("fit", {"agents": agents, "sample_weight": sample_weight, "offset": offset})

    def set_predict_request(self: E, *, offset: bool | str | None = UNCHANGED) -> E:
        """Request metadata for `predict`, as :meth:`set_fit_request`.

        Parameters
        ----------
        offset : bool, str or None
            As in :meth:`set_fit_request`.

        Returns
        -------
        FederatedClassifier or FederatedRegressor
            The same object.

        Raises
        ------
        RuntimeError
            When routing is not enabled.
        """
        return self._ask("predict", {"offset": offset})

    def set_score_request(self: E, *, sample_weight: bool | str | None = UNCHANGED, offset: bool | str | None = UNCHANGED) -> E:
        """Request metadata for `score`, as :meth:`set_fit_request`.

        Parameters
        ----------
        sample_weight, offset : bool, str or None
            As in :meth:`set_fit_request`.

        Returns
        -------
        FederatedClassifier or FederatedRegressor
            The same object.

        Raises
        ------
        RuntimeError
            When routing is not enabled.
        """
        return self._ask("score", {"sample_weight": sample_weight, "offset": offset})

    def _ask(self: E, method: str, given: dict[str, Any]) -> E:
        sklearn = _arrays.foreign("sklearn", "get_config", None)
        if sklearn is None or not sklearn().get("enable_metadata_routing", False):
            raise RuntimeError("metadata is routed only where it is enabled: sklearn.set_config(enable_metadata_routing=True)")
        request = copy.deepcopy(self.get_metadata_routing())
        for name, alias in given.items():
            if alias != UNCHANGED:
                getattr(request, method).add_request(param=name, alias=alias)
        # scikit-learn copies this attribute to clones.
        self._metadata_request = request
        return self

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            base = _arrays.foreign("sklearn.exceptions", "NotFittedError", None)
            what = f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator."
            raise not_fitted_class(base)(what, "setting.missing-key", "", "fit(X, y) first")

    def _settings(self) -> dict[str, Any]:
        """The settings of the engine."""
        named = {name: plain_number(value) for name, value in self.get_params().items()}
        for name in ("compare", "categorical"):
            named[name] = [named[name]] if isinstance(named[name], str) else [str(one) for one in named[name]]
        return named

    def _fit(self, x: Any, y: Any, agents: Any, sample_weight: Any, offset: Any, progress: ProgressLike, cancel: _fedsa.CancelToken | None) -> None:
        name = type(self).__name__
        rows = _arrays.matrix(x, owner=name)
        names = _arrays.feature_names(x, rows)
        n, d = _arrays.size(rows)
        if y is None:
            what = f"{name} requires y to be passed, but the target y is None"
            raise InputError(what, "setting.missing-key", "y", "a target for each row of X")
        targets = _arrays.vector(y, "y", n)
        labels = None if agents is None or _arrays.is_scalar(agents) else _arrays.vector(agents, "agents", n)
        if isinstance(offset, str) and not isinstance(rows, _fedsa.Columns):
            raise refused(f"the column {offset!r}, and X is no data frame", "offset", "the numbers of the rows, or a data frame", "setting.wrong-type")
        weights, added = None, None if isinstance(offset, str) else offsets(offset, n)
        if sample_weight is not None:
            weights = row_weights(sample_weight, n)
            keep = weights > 0
            if not keep.all():
                # Rows of weight 0 are removed.
                rows, targets, weights = _arrays.taken(rows, keep), targets[keep], weights[keep]
                labels = None if labels is None else labels[keep]
                added = None if added is None else added[keep]
                n = len(targets)
        try:
            encoded = self._targets(targets)
            settings = self._settings()
            self._encoded(settings)
        finally:
            found = self.__dict__.pop("_found", None)
        count, agent_names = self._agents(agents, labels, n)
        settings["offset"] = offset if isinstance(offset, str) else None if added is None else free_name(names)
        columns = None if names is None else [str(one) for one in names]
        with Listener(name, progress) as listener:
            try:
                text, told, ran, covariance = _fedsa.fit_rows(listener, cancel, (rows, encoded, columns, weights, added, count), settings)
            except InputError as e:
                raise named_settings(e, self) from None
        for old in ("feature_names_in_", "inference_", "choice_", "_model", "_by_name"):
            self.__dict__.pop(old, None)
        fitted = json.loads(text)
        if names is not None:
            self.feature_names_in_, fitted["feature_names"] = names, columns
        self._weights = fitted
        self._classes(found)
        self.n_features_in_, self.agents_, came_to = d, agent_names, json.loads(told)
        self.tol_ = float(came_to["tol"])
        self._keep(came_to, ran, covariance)

    def _keep(self, told: dict[str, Any], ran: _fedsa.Ran, covariance: NDArray[np.float64] | None) -> None:
        """Keep the results of a fit."""
        self.results_ = Results._of(ran)
        spent = {one["method"]: Spending(**{k: v for k, v in one.items() if k != "method"}) for one in told["spent"]}
        self.costs_: dict[str, Spending] = spent
        first = next(iter(spent.values()))
        self.n_iter_ = first.rounds
        entry: dict[str, Any] = next((one for one in told["report"]["entries"] if one["method"] == next(iter(spent))), {})
        self.outcome_ = Outcome(first.outcome, entry.get("reason"), entry.get("help"), True, first.rounds)
        if told["choice"] is not None:
            self.choice_: dict[str, Any] = told["choice"]
        if told["inference"] is not None and covariance is not None:
            self.inference_ = Inference._of(told["inference"], covariance)
        weights = self._weights
        self._model = _fedsa.LinearModel(json.dumps(weights))
        self._quality = {"train": weights["train"], "objective": weights["objective"], "gradient_norm": weights["gradient_norm"]}
        self._take(weights)
        # With inference, further steps after this run give the weights.
        if first.outcome in ("max-rounds", "diverged", "stalled") and told["inference"] is None:
            more = f": {self.outcome_.reason}" if self.outcome_.reason else ""
            help = self.outcome_.help or "more max_rounds, standardise=True, or another method"
            warn(f"{next(iter(spent))} did not converge ({first.outcome}{more}); {help}")

    def _targets(self, targets: NDArray[Any]) -> Any:
        raise NotImplementedError

    def _encoded(self, settings: dict[str, Any]) -> None:
        """Add the settings that follow from the targets."""

    def _classes(self, found: Any) -> None:
        """Keep the classes of the targets."""

    def _take(self, weights: dict[str, Any]) -> None:
        raise NotImplementedError

    @staticmethod
    def _agents(agents: Any, labels: NDArray[Any] | None, n: int) -> tuple[Any, list[Any]]:
        """The number of agents, or each row's agent as a number; and the names of the agents."""
        if labels is None:
            if agents is None:
                count = min(AGENTS, n)
            elif isinstance(agents, (bool, np.bool_)) or not isinstance(agents, (int, np.integer)):
                raise InputError(f"{agents!r} is not accepted", "setting.wrong-type", "agents", "a whole number, or a label for each row")
            else:
                count = int(agents)
            if not 1 <= count <= n:
                what = f"{count} agents for {n} rows"
                raise InputError(what, "setting.out-of-range", "agents", "at least 1, and a row for each", value=str(count))
            return count, list(range(count))
        if any(one is None or one != one for one in labels.tolist()) if labels.dtype.kind in "fcOmM" else False:
            raise refused("a row without a label: None, NaN or NaT", "agents", "the label of its agent for each row", "data.bad-value")
        try:
            known, first, of = np.unique(labels, return_index=True, return_inverse=True)
        except TypeError as e:
            raise refused(f"labels that cannot be compared: {e}", "agents", "labels of one type: numbers or texts", "setting.wrong-type") from e
        # The engine orders agents by their first rows.
        order = np.argsort(first)
        place = np.empty(len(order), dtype=np.float64)
        place[order] = np.arange(len(order))
        return np.ascontiguousarray(place[of.reshape(-1)]), known[order].tolist()

    def _rows(self, x: Any, offset: Any = None) -> tuple[Any, NDArray[np.float64] | None]:
        """Convert rows to predict, which need the columns of the fit, and their offsets."""
        self._require_fitted()
        rows = _arrays.matrix(x, owner=type(self).__name__)
        n, d = _arrays.size(rows)
        is_by_name = getattr(self, "_by_name", False) and isinstance(rows, _fedsa.Columns)
        if not is_by_name:
            self._check_names(_arrays.feature_names(x, rows))
        if d != self.n_features_in_ and not is_by_name:
            what = f"X has {d} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise refused(what, "X", "the columns of the fit, in their order")
        name = self._weights.get("offset")
        if (offset is None) == (name is None or (isinstance(rows, _fedsa.Columns) and name in rows.names())):
            return rows, offsets(offset, n)
        what = "the model has no offset" if name is None else "the fit had an offset" if offset is None else f"the offset is the column `{name}` of X"
        raise refused(what, "offset", "a number for each row, where the fit had one", "setting.missing-key" if offset is None else "setting.bad-value")

    def _check_names(self, given: NDArray[np.object_] | None) -> None:
        fitted = getattr(self, "feature_names_in_", None)
        name = type(self).__name__
        if given is None and fitted is None:
            return
        if given is None or fitted is None:
            what = "X does not have valid feature names, but {} was fitted with feature names"
            warn((what if given is None else "X has feature names, but {} was fitted without feature names").format(name), UserWarning)
            return
        if len(given) == len(fitted) and bool(np.all(given == fitted)):
            return
        lines = ["The feature names should match those that were passed during fit."]
        unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
        for what, these in (("Feature names unseen at fit time:", unseen), ("Feature names seen at fit time, yet now missing:", missing)):
            if these:
                lines += [what, *(f"- {one}" for one in these[:5]), *(["- ..."] if len(these) > 5 else [])]
        if not unseen and not missing:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise refused("\n".join(lines) + "\n", "X", "the columns of the fit, in their order")

    def save(self, folder: Path) -> None:
        """Write ``weights.json`` for ``fedsa predict``.

        Parameters
        ----------
        folder : path
            The folder; created if missing. An existing ``weights.json`` is replaced.

        Raises
        ------
        OSError
            When the file cannot be written.
        """
        self._require_fitted()
        text = json.dumps(self._weights, indent=2) + "\n"
        _files.write_all(folder, {"weights.json": text.encode()})

    def summary(self) -> Summary:
        """Return coefficients, standard errors and costs.

        Standard errors need the setting `inference`.

        Returns
        -------
        Summary
            A table as text, HTML, CSV or LaTeX; its ``rows`` has the numbers.
        """
        self._require_fitted()
        notes = [f"{label}: {s.outcome} after {s.rounds} rounds, {s.bits_up / 8e6:.4g} MB up" for label, s in self.costs_.items()]
        train = self._quality["train"]
        # The server of a federation has no rows.
        if train is not None:
            quality = [f"loss {train['loss']:.6g}" if train["loss"] is not None else "no finite loss"]
            quality += [f"accuracy {train['accuracy']:.4g}"] if train["accuracy"] is not None else []
            quality += [f"root mean square error {train['rmse']:.4g}"] if train["rmse"] is not None else []
            notes.append(f"on the {train['rows']} rows of the fit: {', '.join(quality)}")
        found: Inference | None = getattr(self, "inference_", None)
        rows: list[dict[str, Any]] = []
        if found is not None:
            columns = ["coefficient", "estimate", "se", "z", "p", "low", "high"]
            for i, name in enumerate(found.names):
                row = {"coefficient": name, **{c: float(getattr(found, c)[i]) for c in columns[1:]}}
                rows.append({"class": found.classes[i], **row} if found.classes else row)
            columns = ["class", *columns] if found.classes else columns
            notes.append(f"{found.kind} covariance, {found.level:.0%} intervals; deviance {found.deviance:.6g}, AIC {found.aic:.6g}, n = {found.n}")
        else:
            rows, columns = self._coefficient_rows()
        notes += map(str, self.results_.notes) if hasattr(self, "results_") else []
        return Summary(f"{self._fitted_model()} with {len(self.agents_)} agents", columns, rows, notes)

    def _fitted_model(self) -> str:
        return str(self._weights["model"])

    def _coefficient_rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        raise NotImplementedError

    @property
    def coef_names_(self) -> list[str]:
        """The columns of ``coef_``.

        A categorical column of `X` has one column for each level except the reference.
        """
        self._require_fitted()
        weights = self._weights
        return weights["columns"] or [str(j + 1) for j in range(len(weights["coefficients"]))]


def free_name(names: Any) -> str:
    """A name for the column of offsets that no other column has."""
    name = "offset"
    while names is not None and name in names:
        name += "_"
    return name


def offsets(offset: Any, n: int) -> NDArray[np.float64] | None:
    """Convert offsets: numbers that are added to the linear predictors of rows."""
    if offset is None:
        return None
    array = _arrays.numbers(_arrays.vector(offset, "offset", n), "offset")
    _arrays.finite(array, "Input offset")
    return array


def row_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """Convert the weights of rows."""
    if _arrays.is_scalar(sample_weight):
        sample_weight = np.full(n, sample_weight)
    array = _arrays.array_of(sample_weight, "sample_weight")
    if array.ndim != 1:
        raise refused("Sample weights must be 1D array or scalar", "sample_weight", f"{n} numbers", "setting.wrong-type")
    weights = _arrays.numbers(_arrays.vector(array, "sample_weight", n), "sample_weight")
    _arrays.finite(weights, "Input sample_weight")
    if (weights < 0).any():
        raise refused("a row of negative weight", "sample_weight", "numbers of at least 0")
    if not (weights > 0).any():
        raise refused("Sample weights must contain at least one non-zero number.", "sample_weight", "rows that count")
    return weights
