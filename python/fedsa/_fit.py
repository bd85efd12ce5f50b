"""Regression and classification in scikit-learn's manner: the public classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsa import _arrays, _fedsa, _files
from fedsa._arrays import refused
from fedsa._estimator import Estimator, row_weights
from fedsa._files import Path
from fedsa._progress import ProgressLike
from fedsa._settings import plain_number
from fedsa.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


# The models of FederatedClassifier.
CLASSIFIERS = ("logistic", "multinomial")
# In files, the type of classes that are Python integers.
WHOLE_OBJECTS = "object of int"

REGRESSORS = ("least-squares", "poisson", "gamma", "negative-binomial", "huber")


class FederatedClassifier(Estimator):
    """Logistic or multinomial regression of rows that stay with their agents.

    The coefficients equal those of all rows pooled, to `tol`. Agents send gradients and parts of Hessians, but no rows. Losses are means
    over rows. For two classes scikit-learn's ``LogisticRegression(C=1 / (ridge * n))`` has the same solution. For several classes the ridge
    applies to differences from the reference class, whose coefficients are 0, so the solution differs from scikit-learn's.

    Parameters
    ----------
    categorical : Sequence[str]
        Categorical columns: a 0/1 column per level but the reference. Text columns always are.
    standardise : bool
        Scale columns to mean 0 and standard deviation 1, by row weights; sparse columns are not centred. The
        ridge applies to scaled columns, coefficients to the original ones. By default ``False``.
    model : Literal["auto", "logistic", "multinomial"]
        By default logistic for two classes, and multinomial for more. By default ``'auto'``.
    reference : str or None
        Reference class of multinomial; the first by default.
    ridge : float or None
        Ridge mu: mu/2 ||coefficients||^2 is added to the mean loss, without intercept (see
        `penalise_intercept`). 1e-5 by default, 0 with `inference`.
    intercept : bool or None
        Whether to fit an intercept; by default for tables (CSV, Parquet, arrays, frames) and with
        `inference`.
    penalise_intercept : bool
        Apply the ridge to the intercept. By default ``False``.
    weighting : Literal["rows", "equal"]
        Weights of agents: by number of rows, or 1/N each. By default ``'rows'``.
    inference : Literal["model", "sandwich", "hc1", "clustered"] or None
        Standard errors, intervals, p-values, deviance and AIC, from agents' sums; sandwich: HC0; clustered:
        by agents. The ridge is then 0.
    level : float
        Level of intervals. By default ``0.95``.
    method : str or None
        Method, or auto: chosen for `objective` among methods that use all rows in a round. By default the
        first of `compare`, else auto.
    objective : Literal["rounds", "bits", "samples", "seconds"]
        Cost that auto minimises; seconds: of computation and messages (`latency`, `bandwidth`). By default
        ``'bits'``.
    latency : float or None
        Seconds of an exchange of any size, for `objective = seconds`.
    bandwidth : float or None
        Bits per second of all messages, for `objective = seconds`.
    compare : Sequence[str]
        Methods to compare on the same data. Without `method` the first gives the weights.
    tol : float
        Stop at this gradient norm of the mean loss; 0 for never. By default ``1e-09``.
    max_rounds : int
        Largest number of rounds. By default ``5000``.
    sampling : str
        Rows of local steps: mean (all rows), or iid with `batch`. By default ``'mean'``.
    batch : int or None
        Rows of a local step, for `sampling = iid`.
    step_size : float or None
        Local step size, of methods with local steps.
    local_steps : int or None
        Local steps in a round, of methods that have them; 10 by default.
    secure_sums : float or None
        Secure sums: the server learns sums of what agents send and no single answer. The bound of each number
        that an agent sends.
    seed : int
        Seed of the run, of the partition, and of held-out rows. By default ``0``.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        The classes, in increasing order.
    coef_ : ndarray of shape (1, d) or (k, d)
        The coefficients of the second of two classes, or of all of several classes; those of the reference class are 0.
    coef_names_ : list of str
        The columns of `coef_`. A categorical column of `X` has one for each level except the most frequent.
    intercept_ : ndarray of shape (1,) or (k,)
        The intercepts.
    n_iter_ : int
        The rounds of the method.
    costs_ : dict of str to Spending
        The costs of each method. The first one gives the coefficients.
    tol_ : float
        The norm of the gradient at which the run stops.
    outcome_ : Outcome
        The outcome. A run that misses `tol` issues a warning, no exception.
    choice_ : dict
        The choice of ``method="auto"``: its reason, and the estimated costs of all candidates.
    inference_ : Inference
        Standard errors; only with `inference`.
    agents_ : list
        The agents, in the order of their first rows.
    n_features_in_ : int
        The number of columns d.
    feature_names_in_ : ndarray of shape (d,)
        The names of the columns, if `X` has names.
    results_ : Results
        The run: its trace, its figure, its checks.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X[:, 0] - X[:, 1] + rng.normal(size=400) > 0, "yes", "no")
    >>> model = fedsa.FederatedClassifier(ridge=1e-3).fit(X, y, agents=4)
    >>> model.classes_.tolist(), model.outcome_.name, bool(model.score(X, y) > 0.7)
    (['no', 'yes'], 'converged', True)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)

    With a label for each row's agent, and with standard errors:

    >>> site = np.repeat(["north", "south", "east", "west"], 100)
    >>> model = fedsa.FederatedClassifier(inference="model").fit(X, y, agents=site)
    >>> model.agents_, bool(abs(model.inference_.z[1]) > 5)
    (['north', 'south', 'east', 'west'], True)
    """

    _kind = "classifier"
    _estimator_type = "classifier"
    # Coefficients of nearly separated classes depend on the last digits of the gradient.

    def __init__(
        self,
        *,
        categorical: Sequence[str] = (),
        standardise: bool = False,
        model: Literal["auto", "logistic", "multinomial"] = "auto",
        reference: str | None = None,
        ridge: float | None = None,
        intercept: bool | None = None,
        penalise_intercept: bool = False,
        weighting: Literal["rows", "equal"] = "rows",
        inference: Literal["model", "sandwich", "hc1", "clustered"] | None = None,
        level: float = 0.95,
        method: str | None = None,
        objective: Literal["rounds", "bits", "samples", "seconds"] = "bits",
        latency: float | None = None,
        bandwidth: float | None = None,
        compare: Sequence[str] = (),
        tol: float = 1e-09,
        max_rounds: int = 5000,
        sampling: str = "mean",
        batch: int | None = None,
        step_size: float | None = None,
        local_steps: int | None = None,
        secure_sums: float | None = None,
        seed: int = 0,
    ) -> None:
        self.categorical = categorical
        self.standardise = standardise
        self.model = model
        self.reference = reference
        self.ridge = ridge
        self.intercept = intercept
        self.penalise_intercept = penalise_intercept
        self.weighting = weighting
        self.inference = inference
        self.level = level
        self.method = method
        self.objective = objective
        self.latency = latency
        self.bandwidth = bandwidth
        self.compare = compare
        self.tol = tol
        self.max_rounds = max_rounds
        self.sampling = sampling
        self.batch = batch
        self.step_size = step_size
        self.local_steps = local_steps
        self.secure_sums = secure_sums
        self.seed = seed

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        agents: int | ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | str | None = None,
        progress: ProgressLike = None,
        cancel: _fedsa.CancelToken | None = None,
    ) -> FederatedClassifier:
        """Fit the model to rows of agents.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows. The engine copies a float64 array in C order once; other input is converted first.
        y : array-like of shape (n,)
            The class of each row: numbers or texts.
        agents : int, array-like of shape (n,) or None
            A number of agents, to which rows are dealt at random in equal parts; or the label of each row's agent. By default 8 agents, or
            one for each row if there are fewer.
        sample_weight : array-like of shape (n,) or None
            Factors of the rows' losses; 1 by default. Coefficients are as if rows were repeated so often, and weight 0 removes a row.
            Weights are not counts: `n`, an estimated dispersion, and the standard errors ``"sandwich"`` and ``"hc1"`` count each row once.
            Repeat rows for these.
        offset : array-like of shape (n,), str or None
            Numbers that are added to the rows' linear predictors, such as logarithms of exposures; or the column of a data frame with them,
            which is then not a feature.
        progress : bool, callable or None
            As in :meth:`fedsa.Experiment.run`.
        cancel : CancelToken or None
            Stops the call from another thread.

        Returns
        -------
        FederatedClassifier
            The same object.

        Raises
        ------
        InputError
            When a setting or an array cannot be used, or the loss has no minimum.
        NotAvailable
            With `inference`, when the likelihood has no maximum: separated classes, collinear columns.
        """
        self._fit(X, y, agents, sample_weight, offset, progress, cancel)
        return self

    def _targets(self, targets: NDArray[Any]) -> Any:
        classes, of = ranked(targets)
        if len(classes) < 2:
            what = f"the rows that count are all of one class, {plain_number(classes[0])!r}"
            raise refused(what, "y", "rows of at least two classes")
        numbers, texts = as_numbers(classes), as_texts(classes)
        # The engine orders names by their characters.
        are_names = numbers is None and sorted(set(texts)) == texts
        if numbers is None:
            # Other classes are passed as positions.
            numbers = np.arange(len(classes), dtype=np.float64)
        positive = None if are_names else repr(float(numbers[-1]))
        self._found: tuple[NDArray[Any], str, str | None] = (classes, self._model_for(len(classes)), positive)
        return (texts, np.ascontiguousarray(of, dtype=np.int64)) if are_names else np.ascontiguousarray(numbers[of])

    def _model_for(self, count: int) -> str:
        if self.model == "auto":
            return "logistic" if count == 2 else "multinomial"
        if self.model not in CLASSIFIERS:
            raise InputError(f"{self.model!r} is not accepted", "setting.unknown-name", "model", "auto, logistic or multinomial")
        if self.model == "logistic" and count != 2:
            what = f"Only binary classification is supported. logistic, and {count} classes"
            raise InputError(what, "setting.bad-value", "model", "model='auto', or 'multinomial'")
        return self.model

    def _encoded(self, settings: dict[str, Any]) -> None:
        classes, model, positive = self._found
        settings.update(model=model, positive=positive if model == "logistic" else None)
        if self.reference is not None:
            numbers, place = as_numbers(classes), self._position(classes, self.reference)
            is_named = positive is None
            settings["reference"] = as_texts(classes)[place] if is_named else repr(float(place if numbers is None else numbers[place]))

    @staticmethod
    def _position(classes: NDArray[Any], reference: Any) -> int:
        """The position of the reference class."""
        places = [i for i, one in enumerate(classes.tolist()) if one == reference or str(one) == str(reference)]
        if not places:
            shown = ", ".join(repr(one) for one in classes.tolist()[:12])
            raise InputError(f"no row has the class {reference!r}", "setting.bad-value", "reference", f"one of {shown}", value=repr(reference))
        return places[0]

    def _classes(self, found: Any) -> None:
        self.classes_, _, _ = found
        # The engine got numbers or names. Save the classes of the targets, and their type.
        weights = self._weights
        numbers = as_numbers(self.classes_)
        names = as_texts(self.classes_) if numbers is None else numbers.tolist()
        weights["classes_dtype"] = kept_type(self.classes_, names)
        # In the order of the coefficients, the reference class first.
        weights["first_class"] = 0 if self.reference is None else self._position(self.classes_, self.reference)
        weights["classes"] = [names[i] for i in self._order()]

    def _take(self, weights: dict[str, Any]) -> None:
        self._read(weights)

    def _read(self, weights: dict[str, Any]) -> None:
        coefficients = [weights["coefficients"], *(one["coefficients"] for one in weights["further"] or [])]
        intercepts = [weights["intercept"], *(one["intercept"] for one in weights["further"] or [])]
        if weights["model"] == "multinomial":
            coefficients, intercepts = [[0.0] * len(coefficients[0]), *coefficients], [0.0, *intercepts]
            back = np.argsort(self._order())
            coefficients, intercepts = [coefficients[i] for i in back], [intercepts[i] for i in back]
        self.coef_ = np.array(coefficients, dtype=np.float64)
        self.intercept_ = np.array(intercepts, dtype=np.float64)

    def decision_function(self, X: Any, offset: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the linear predictors of rows.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        ndarray of shape (n,) or (n, k)
            Linear predictors of the second of two classes, or of all of several classes.
        """
        scores = self._scores(X, offset)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Any, offset: Any) -> NDArray[np.float64]:
        """The linear predictors of all classes; 0 for the reference."""
        given = self._rows(X, offset)
        scores = self._model.scores(*given)
        all = np.zeros((len(scores), len(self.classes_)))
        all[:, self._order()[1:]] = scores
        return all

    def _order(self) -> list[int]:
        """The positions of the classes in the engine's order: the reference first."""
        first = int(self._weights.get("first_class") or 0)
        return [first, *(i for i in range(len(self.classes_)) if i != first)]

    def predict(self, X: Any, offset: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable class of each row.

        Ties go to the first class.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        ndarray of shape (n,)
            The classes.
        """
        best = np.argmax(self._scores(X, offset), axis=1)
        classes: NDArray[Any] = self.classes_[best]
        return classes

    def predict_proba(self, X: Any, offset: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the probabilities of classes.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        ndarray of shape (n, k)
            The probability of each of `classes_`.
        """
        scores = self._scores(X, offset)
        if len(self.classes_) == 2:
            with np.errstate(over="ignore"):
                yes = 1.0 / (1.0 + np.exp(-scores[:, 1]))
            return np.column_stack([1.0 - yes, yes])
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        proba: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
        return proba

    def predict_log_proba(self, X: Any, offset: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return log probabilities of classes.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        ndarray of shape (n, k)
            The log probability of each of `classes_`. It is finite even if the probability is too small for a float.
        """
        scores = self._scores(X, offset)
        shifted = scores - scores.max(axis=1, keepdims=True)
        logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return logs

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        y : array-like of shape (n,)
            The classes of the rows.
        sample_weight : array-like of shape (n,) or None
            The weights of the rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        float
            From 0 to 1.
        """
        predicted = self.predict(X, offset)
        right = _arrays.vector(y, "y", len(predicted)) == predicted
        weights = None if sample_weight is None else row_weights(sample_weight, len(predicted))
        return float(np.average(right, weights=weights))

    @classmethod
    def load(cls, path: Path) -> FederatedClassifier:
        """Read weights of ``fedsa fit`` or :meth:`save`.

        Parameters
        ----------
        path : path
            The file ``weights.json``, or its folder.

        Returns
        -------
        FederatedClassifier
            An object that predicts.

        Raises
        ------
        InputError
            When the file does not contain a classification.
        """
        weights, fitted = read_weights(path, CLASSIFIERS)
        self = cls()
        self.__dict__.update(fitted)
        classes = weights["classes"]
        if None in classes:
            raise refused("a class against the rest", "path", "a fit of two classes or of several")
        self.classes_ = restored(classes, weights.get("classes_dtype"))
        self.classes_ = self.classes_[np.argsort(self._order())]
        self._read(weights)
        return self

    def save(self, folder: Path) -> None:
        """Write ``weights.json`` for ``fedsa predict``.

        Classes keep their types: texts of digits stay texts.

        Parameters
        ----------
        folder : path
            The folder; created if missing. An existing ``weights.json`` is replaced.

        Raises
        ------
        InputError
            When the classes are objects that a file cannot contain.
        OSError
            When the file cannot be written.
        """
        self._require_fitted()
        if self._weights.get("classes_dtype", "") is None:
            kinds = ", ".join(sorted({type(one).__name__ for one in self.classes_}))
            raise InputError(f"classes that no file holds: objects of the type {kinds}", "data.bad-value", "y", "classes that are numbers or texts")
        super().save(folder)

    def _coefficient_rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        first = len(self.coef_) > 1
        rows = []
        for k in range(int(first), len(self.coef_)):
            values = zip(["intercept", *self.coef_names_], [self.intercept_[k], *self.coef_[k]])
            name = {"class": str(self.classes_[k])} if first else {}
            rows += [{**name, "coefficient": column, "estimate": float(x)} for column, x in values]
        return rows, [*(["class"] if first else []), "coefficient", "estimate"]


class FederatedRegressor(Estimator):
    """Regression of rows that stay with their agents.

    There are models for numbers, counts, positive numbers, and numbers with outliers.

    The coefficients equal those of all rows pooled, to `tol`. Agents send gradients and parts of Hessians, but no rows. Losses are means
    over rows: ``1/2 (y - f)^2`` for least squares, with the solution of scikit-learn's ``Ridge(alpha=ridge * n)``; negative log-likelihoods
    for counts and positive numbers, with the solution of ``PoissonRegressor(alpha=ridge)`` and ``GammaRegressor(alpha=ridge)``.

    Parameters
    ----------
    categorical : Sequence[str]
        Categorical columns: a 0/1 column per level but the reference. Text columns always are.
    standardise : bool
        Scale columns to mean 0 and standard deviation 1, by row weights; sparse columns are not centred. The
        ridge applies to scaled columns, coefficients to the original ones. By default ``False``.
    model : Literal["least-squares", "poisson", "gamma", "negative-binomial", "huber"]
        The loss. Counts and positive numbers have a log link: the mean is exp(intercept + coef x). By default
        ``'least-squares'``.
    dispersion : float or None
        Dispersion alpha of negative-binomial: variance mean + alpha mean^2.
    huber_delta : float or None
        Residual above which Huber's loss is linear, in target units.
    ridge : float or None
        Ridge mu: mu/2 ||coefficients||^2 is added to the mean loss, without intercept (see
        `penalise_intercept`). 1e-5 by default, 0 with `inference`.
    intercept : bool or None
        Whether to fit an intercept; by default for tables (CSV, Parquet, arrays, frames) and with
        `inference`.
    penalise_intercept : bool
        Apply the ridge to the intercept. By default ``False``.
    weighting : Literal["rows", "equal"]
        Weights of agents: by number of rows, or 1/N each. By default ``'rows'``.
    inference : Literal["model", "sandwich", "hc1", "clustered"] or None
        Standard errors, intervals, p-values, deviance and AIC, from agents' sums; sandwich: HC0; clustered:
        by agents. The ridge is then 0.
    level : float
        Level of intervals. By default ``0.95``.
    method : str or None
        Method, or auto: chosen for `objective` among methods that use all rows in a round. By default the
        first of `compare`, else auto.
    objective : Literal["rounds", "bits", "samples", "seconds"]
        Cost that auto minimises; seconds: of computation and messages (`latency`, `bandwidth`). By default
        ``'bits'``.
    latency : float or None
        Seconds of an exchange of any size, for `objective = seconds`.
    bandwidth : float or None
        Bits per second of all messages, for `objective = seconds`.
    compare : Sequence[str]
        Methods to compare on the same data. Without `method` the first gives the weights.
    tol : float
        Stop at this gradient norm of the mean loss; 0 for never. By default ``1e-09``.
    max_rounds : int
        Largest number of rounds. By default ``5000``.
    sampling : str
        Rows of local steps: mean (all rows), or iid with `batch`. By default ``'mean'``.
    batch : int or None
        Rows of a local step, for `sampling = iid`.
    step_size : float or None
        Local step size, of methods with local steps.
    local_steps : int or None
        Local steps in a round, of methods that have them; 10 by default.
    secure_sums : float or None
        Secure sums: the server learns sums of what agents send and no single answer. The bound of each number
        that an agent sends.
    seed : int
        Seed of the run, of the partition, and of held-out rows. By default ``0``.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The coefficients.
    coef_names_ : list of str
        The columns of `coef_`. A categorical column of `X` has one for each level except the most frequent.
    intercept_ : float
        The intercept.
    n_iter_ : int
        The rounds of the method.
    costs_ : dict of str to Spending
        The costs of each method. The first one gives the coefficients.
    tol_ : float
        The norm of the gradient at which the run stops.
    outcome_ : Outcome
        The outcome. A run that misses `tol` issues a warning, no exception.
    choice_ : dict
        The choice of ``method="auto"``: its reason, and the estimated costs of all candidates.
    inference_ : Inference
        Standard errors; only with `inference`.
    agents_ : list
        The agents, in the order of their first rows.
    n_features_in_ : int
        The number of columns d.
    feature_names_in_ : ndarray of shape (d,)
        The names of the columns, if `X` has names.
    results_ : Results
        The run: its trace, its figure, its checks.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0 + 0.1 * rng.normal(size=300)
    >>> model = fedsa.FederatedRegressor(inference="hc1").fit(X, y, agents=6)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([1.0, -2.0, 0.5], 3.0)
    >>> model.summary().columns
    ['coefficient', 'estimate', 'se', 'z', 'p', 'low', 'high']
    """

    _kind = "regressor"
    _estimator_type = "regressor"

    def __init__(
        self,
        *,
        categorical: Sequence[str] = (),
        standardise: bool = False,
        model: Literal["least-squares", "poisson", "gamma", "negative-binomial", "huber"] = "least-squares",
        dispersion: float | None = None,
        huber_delta: float | None = None,
        ridge: float | None = None,
        intercept: bool | None = None,
        penalise_intercept: bool = False,
        weighting: Literal["rows", "equal"] = "rows",
        inference: Literal["model", "sandwich", "hc1", "clustered"] | None = None,
        level: float = 0.95,
        method: str | None = None,
        objective: Literal["rounds", "bits", "samples", "seconds"] = "bits",
        latency: float | None = None,
        bandwidth: float | None = None,
        compare: Sequence[str] = (),
        tol: float = 1e-09,
        max_rounds: int = 5000,
        sampling: str = "mean",
        batch: int | None = None,
        step_size: float | None = None,
        local_steps: int | None = None,
        secure_sums: float | None = None,
        seed: int = 0,
    ) -> None:
        self.categorical = categorical
        self.standardise = standardise
        self.model = model
        self.dispersion = dispersion
        self.huber_delta = huber_delta
        self.ridge = ridge
        self.intercept = intercept
        self.penalise_intercept = penalise_intercept
        self.weighting = weighting
        self.inference = inference
        self.level = level
        self.method = method
        self.objective = objective
        self.latency = latency
        self.bandwidth = bandwidth
        self.compare = compare
        self.tol = tol
        self.max_rounds = max_rounds
        self.sampling = sampling
        self.batch = batch
        self.step_size = step_size
        self.local_steps = local_steps
        self.secure_sums = secure_sums
        self.seed = seed

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        agents: int | ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | str | None = None,
        progress: ProgressLike = None,
        cancel: _fedsa.CancelToken | None = None,
    ) -> FederatedRegressor:
        """Fit the model to rows of agents.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows. The engine copies a float64 array in C order once; other input is converted first.
        y : array-like of shape (n,)
            The target of each row.
        agents : int, array-like of shape (n,) or None
            A number of agents, to which rows are dealt at random in equal parts; or the label of each row's agent. By default 8 agents, or
            one for each row if there are fewer.
        sample_weight : array-like of shape (n,) or None
            Factors of the rows' losses; 1 by default. Coefficients are as if rows were repeated so often, and weight 0 removes a row.
            Weights are not counts: `n`, an estimated dispersion, and the standard errors ``"sandwich"`` and ``"hc1"`` count each row once.
            Repeat rows for these.
        offset : array-like of shape (n,), str or None
            Numbers that are added to the rows' linear predictors, such as logarithms of exposures; or the column of a data frame with them,
            which is then not a feature.
        progress : bool, callable or None
            As in :meth:`fedsa.Experiment.run`.
        cancel : CancelToken or None
            Stops the call from another thread.

        Returns
        -------
        FederatedRegressor
            The same object.

        Raises
        ------
        InputError
            When a setting or an array cannot be used, or the loss has no minimum.
        NotAvailable
            With `inference`, when the likelihood has no maximum: separated classes, collinear columns.
        """
        self._fit(X, y, agents, sample_weight, offset, progress, cancel)
        return self

    def _targets(self, targets: NDArray[Any]) -> Any:
        numbers = _arrays.numbers(targets, "y")
        _arrays.finite(numbers, "Input y")
        return numbers

    def _encoded(self, settings: dict[str, Any]) -> None:
        if self.model not in REGRESSORS:
            raise InputError(f"{self.model!r} is not accepted", "setting.unknown-name", "model", ", ".join(REGRESSORS))

    def _take(self, weights: dict[str, Any]) -> None:
        self.coef_ = np.array(weights["coefficients"], dtype=np.float64)
        self.intercept_ = float(weights["intercept"])

    def predict(self, X: Any, offset: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the mean target of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        ndarray of shape (n,)
            Means, in units of the target.
        """
        given = self._rows(X, offset)
        return self._model.predictions(*given)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> float:
        """Return R squared.

        This is ``1 - sum (y - f)^2 / sum (y - mean)^2``.

        Parameters
        ----------
        X : array-like of shape (n, d), sparse matrix or data frame
            The rows.
        y : array-like of shape (n,)
            The targets of the rows.
        sample_weight : array-like of shape (n,) or None
            The weights of the rows.
        offset : array-like of shape (n,) or None
            The offset of each row, if `fit` had an offset that is not a column of `X`.

        Returns
        -------
        float
            At most 1; NaN for fewer than two rows.
        """
        predicted = self.predict(X, offset)
        targets = self._targets(_arrays.vector(y, "y", len(predicted)))
        if len(targets) < 2:
            return float("nan")
        weights = np.ones(len(targets)) if sample_weight is None else row_weights(sample_weight, len(targets))
        rest = float(np.sum(weights * (targets - predicted) ** 2))
        all = float(np.sum(weights * (targets - np.average(targets, weights=weights)) ** 2))
        return 1.0 - rest / all if all > 0 else float(rest == 0.0)

    @classmethod
    def load(cls, path: Path) -> FederatedRegressor:
        """Read weights of ``fedsa fit`` or :meth:`save`.

        Parameters
        ----------
        path : path
            The file ``weights.json``, or its folder.

        Returns
        -------
        FederatedRegressor
            An object that predicts.

        Raises
        ------
        InputError
            When the file does not contain a regression.
        """
        weights, fitted = read_weights(path, REGRESSORS)
        self = cls(model=weights["model"])
        self.__dict__.update(fitted)
        self._take(weights)
        return self

    def _coefficient_rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        values = zip(["intercept", *self.coef_names_], [self.intercept_, *self.coef_])
        return [{"coefficient": column, "estimate": float(x)} for column, x in values], ["coefficient", "estimate"]


def ranked(targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in increasing order, and the position of each row's class."""
    if targets.dtype.kind in "fc":
        _arrays.finite(_arrays.numbers(targets, "y"), "Input y")
        if (targets != np.floor(targets)).any():
            what = "Unknown label type: continuous. Maybe you are trying to fit a classifier, which expects discrete classes on a regression target"
            raise refused(f"{what} with continuous values.", "y", "whole numbers or texts, or FederatedRegressor")
    if targets.dtype.kind == "O" and any(one is None or type(one).__name__ == "NAType" or one != one for one in targets):
        raise refused("Input y contains NaN.", "y", "a class for each row")
    try:
        classes, of = np.unique(targets, return_inverse=True)
    except TypeError as e:
        raise refused(f"Unknown label type: classes that cannot be compared: {e}", "y", "classes of one type", "setting.wrong-type") from e
    return classes, of.reshape(-1)


def as_numbers(classes: NDArray[Any]) -> NDArray[np.float64] | None:
    """Numeric classes as float64; ``None`` if they are not numbers, or not exact in float64."""
    if classes.dtype.kind not in "biuf":
        return None
    numbers = classes.astype(np.float64)
    return numbers if bool((numbers.astype(classes.dtype) == classes).all()) and len(np.unique(numbers)) == len(classes) else None


def as_texts(classes: NDArray[Any]) -> list[str]:
    """Classes as texts."""
    texts = [one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one) for one in classes]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise refused(f"the class {text!r} is no text of Unicode: it has half a surrogate pair", "y", "texts without surrogates") from e
    return texts


def kept_type(classes: NDArray[Any], values: list[Any]) -> str | None:
    """The NumPy type with which a file restores the classes; ``None`` if it cannot."""
    are_whole = classes.dtype.kind == "O" and all(type(one) is int for one in classes)
    kind: str = WHOLE_OBJECTS if are_whole else classes.dtype.str
    try:
        back = restored(values, kind)
    except (TypeError, ValueError, OverflowError):
        return None
    are_same = back.dtype == classes.dtype and all(isinstance(a, type(b)) and a == b for a, b in zip(classes.tolist(), back.tolist()))
    return kind if are_same else None


def restored(values: list[Any], kind: str | None) -> NDArray[Any]:
    """The classes of a file. Files of the program have no type: their classes are numbers or texts."""
    if kind is None:
        return np.array(values)
    if kind == WHOLE_OBJECTS:
        return np.array([int(text) for text in values], dtype=object)
    if np.dtype(kind).kind == "S":
        values = [text.encode() for text in values]
    return np.array(values).astype(kind)


def read_weights(path: Path, models: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a ``weights.json`` of one of these models. Returns it, and the attributes of an estimator."""
    text = _files.read(_files.weights_file(path)).decode()
    # This refuses files that are not fits.
    model = _fedsa.LinearModel(text)
    weights: dict[str, Any] = json.loads(text)
    if weights["model"] not in models:
        raise refused(f"a model of the kind {weights['model']}", "path", f"one of {', '.join(models)}")
    is_plain = weights.get("offset") is None and not weights.get("categories")
    columns = weights.get("feature_names", weights["columns"] if is_plain else None)
    levels = sum(len(category["levels"]) - 1 for category in weights.get("categories") or [])
    known: dict[str, Any] = {
        "_weights": weights,
        "_model": model,
        "n_features_in_": len(weights["coefficients"]) - levels if columns is None else len(columns),
        # Data frames may have the model's columns in any order.
        "_by_name": columns is None and not is_plain,
        "n_iter_": weights.get("rounds"),
        "agents_": list(range(weights.get("agents") or 0)),
        "costs_": {},
        "_quality": {"train": weights["train"]},
    }
    if columns is not None:
        known["feature_names_in_"] = np.array(columns, dtype=object)
    return weights, known
