"""Results of runs: outcomes, data, figures, comparisons."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fedsa import _fedsa, _files
from fedsa._figure import Figure
from fedsa._files import Path
from fedsa._reports import Report, report
from fedsa._settings import nearest
from fedsa._summary import Estimate, Note, Summary, notes_of, number, warn_of
from fedsa._warn import warn
from fedsa.errors import InputError, MissedError, NotAvailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

# The files that contain all data of a finished run, and one that a run with iterates has.
FILES = ("config.toml", "summary.json", "trace.parquet", "theta.npz")
ITERATES = "iterates.npz"


@dataclass(frozen=True)
class Outcome:
    """The worst outcome over a method's seeds.

    Attributes
    ----------
    name : str
        ``"completed"``, ``"converged"``, ``"incomplete"``, ``"stalled"``, ``"max-rounds"``, ``"diverged"`` or ``"refused"``.
    reason : str or None
        The likely reason, if the run did not end as asked.
    help : str or None
        What would help.
    as_expected : bool
        Whether the experiment expects this outcome.
    rounds : int or None
        The rounds of the slowest seed.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> experiment.run().outcomes["fedlsa"]
    Outcome(name='completed', reason=None, help=None, as_expected=True, rounds=100)
    """

    name: str
    reason: str | None = None
    help: str | None = None
    as_expected: bool = True
    rounds: int | None = None

    def __str__(self) -> str:
        return self.name + (f": {self.reason}" if self.reason else "") + (f"; {self.help}" if self.help else "")


@dataclass(frozen=True)
class CheckResult:
    """A measured check.

    Attributes
    ----------
    name : str
        The name of the check.
    passed : bool
        Whether the check holds; false if it was not measured.
    as_expected : bool
        Whether the experiment expects this result.
    detail : mapping
        The entry of ``summary.json``.

    Examples
    --------
    >>> import fedsa
    >>> ran = fedsa.Experiment.bundled("fedhsa/fig2-noiseless").run(quick=True)
    >>> all(verdict.as_expected for verdict in ran.checks)
    True
    """

    name: str
    passed: bool
    as_expected: bool
    detail: Mapping[str, Any] = field(repr=False)


class Results:
    """The results of an experiment, by label.

    With several points (sweeps, variants), the label of a method at a point is ``"label [point]"``. Results hold all of their data: they
    can be pickled, and do not depend on a folder.

    Attributes
    ----------
    id, title : str
        The name of the experiment, and the title of its figure.
    outcomes : mapping of str to Outcome
        The outcome of each method.
    checks : list of CheckResult
        The measured checks.
    provenance : dict
        Version, machine and time.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100, seeds=2)
    >>> results = experiment.run()
    >>> results.outcomes["fedlsa"].name
    'completed'
    >>> results.theta("fedlsa").shape
    (2, 3)
    >>> results.floor("fedlsa").se > 0.0
    True
    >>> results.trace()["mse"].shape
    (202,)
    """

    _native: _fedsa.Ran | None
    _files: dict[str, bytes]
    _data: dict[str, Any]
    _report: dict[str, Any] | None

    def __init__(self) -> None:
        raise TypeError("results are made by Experiment.run(), fedsa.open(folder), or pickle")

    # The folder of the files, for error messages.
    _folder = ""

    @classmethod
    def _of(cls, native: _fedsa.Ran) -> Results:
        self = cls.__new__(cls)
        self._native, self._files = native, {}
        self._data = json.loads(native.summary_json())
        self._report = json.loads(native.report_json())
        warn_of(self.notes)
        return self

    @classmethod
    def _of_files(cls, files: dict[str, bytes], report: dict[str, Any] | None = None) -> Results:
        self = cls.__new__(cls)
        self._native, self._files, self._report = None, files, report
        self._data = json.loads(files["summary.json"])
        return self

    @property
    def id(self) -> str:
        """The name of the experiment."""
        return str(self._data["id"])

    @property
    def title(self) -> str:
        """The title of the figure."""
        return str(self._data["title"])

    @property
    def quick(self) -> bool:
        """Whether the settings were quick."""
        return bool(self._data.get("quick"))

    @property
    def as_expected(self) -> bool:
        """Whether all checks and outcomes are as expected.

        With quick settings, misses are notes only.
        """
        return self._data.get("exit_status") == 0

    @property
    def provenance(self) -> dict[str, Any]:
        """Version, machine and time."""
        return dict(self._data["provenance"])

    @property
    def notes(self) -> list[Note]:
        """Remarks on the numbers."""
        return notes_of(self._data)

    @property
    def checks(self) -> list[CheckResult]:
        """The measured checks."""
        return [CheckResult(c["name"], bool(c.get("pass")), bool(c["as_expected"]), c) for c in self._data["checks"]]

    @property
    def labels(self) -> list[str]:
        """The labels of methods at points."""
        return [key_of(entry) for entry in self._data["results"]]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each method."""
        reported = {key_of(entry): entry for entry in (self._report or {}).get("entries", [])}
        return {key_of(entry): outcome(entry, reported.get(key_of(entry))) for entry in self._data["results"]}

    def summary_dict(self) -> dict[str, Any]:
        """Return the numbers of ``summary.json``."""
        # Digests of files belong to a folder, which results do not depend on.
        copy: dict[str, Any] = json.loads(json.dumps({name: value for name, value in self._data.items() if name != "files"}))
        return copy

    def config(self) -> str:
        """Return the settings of ``config.toml``, with defaults."""
        return self._native.config() if self._native else self._files["config.toml"].decode()

    def _entry(self, label: str) -> dict[str, Any]:
        for entry in self._data["results"]:
            if key_of(entry) == label:
                found: dict[str, Any] = entry
                return found
        raise KeyError(f"there is no '{label}'{nearest(label, self.labels)}; labels are {', '.join(self.labels)}")

    def floor(self, label: str) -> Estimate:
        """Return the floor of a method's squared error.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        Estimate
            The mean of ``||theta - theta*||^2`` over the last fifth of the rounds and over seeds, with its standard error over seeds.
            NaN if the root is unknown or a run diverged. If the error still falls, a warning has the code ``floor.falls``. The test for
            it has a false-alarm rate of at most 1%.

        Raises
        ------
        KeyError
            When there is no such label.
        """
        entry = self._entry(label)
        share = entry.get("floor_falls_by")
        if share is not None:
            warn(f"the error of {label} still falls, by {share:.2g} of itself over the last fifth of the rounds: their mean is above its floor", code="floor.falls")
        return floor_of(entry)

    def predicted(self, label: str) -> dict[str, float | None]:
        """Return the predicted quantities of a method, by name.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        dict of str to float or None
            ``None`` if theory has no answer. :meth:`Experiment.theory` has more.
        """
        return dict(self._entry(label)["predicted"])

    def cost(self, label: str) -> dict[str, float]:
        """Return a method's mean cost over seeds.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        dict of str to float
            ``bits_up``, ``bits_down``, ``exchanges``, ``samples`` and other counts, and ``seconds`` if known.
        """
        entry = self._entry(label)
        return {**(entry["ledger"] or {}), **({"seconds": entry["seconds"]} if entry.get("seconds") is not None else {})}

    def theta(self, label: str, *, seed: int | None = None) -> NDArray[Any]:
        """Return a method's final outputs.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.
        seed : int, optional
            One seed of the experiment.

        Returns
        -------
        ndarray
            Shape (seeds, d), or (d,) with `seed`.

        Raises
        ------
        KeyError
            When there is no such label, the method was refused, or the seed was not run.
        """
        return self._of_seed(self._entry(label), label, self.arrays()[label], seed)

    def _of_seed(self, entry: dict[str, Any], label: str, seeds: NDArray[Any], seed: int | None) -> NDArray[Any]:
        """The part of one seed, if it is given."""
        if seed is None:
            return seeds
        if seed not in entry["seed_numbers"]:
            raise KeyError(f"{label} has no seed {seed}; its seeds are {', '.join(map(str, entry['seed_numbers']))}")
        of_seed: NDArray[Any] = seeds[entry["seed_numbers"].index(seed)]
        return of_seed

    def iterates(self, label: str, *, seed: int | None = None) -> NDArray[Any]:
        """Return theta at the recorded rounds of a method.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.
        seed : int, optional
            One seed of the experiment.

        Returns
        -------
        ndarray
            Shape (seeds, records, d), or (records, d) with `seed`, at the rounds of :meth:`rounds`. NaN at rounds that a seed did not record,
            such as after its end.

        Raises
        ------
        KeyError
            When there is no such label, the method was refused, or the seed was not run.
        NotAvailable
            When the run did not keep them.

        Examples
        --------
        >>> import fedsa
        >>> from fedsa import methods, problems
        >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=10, record=[0, 5, 10])
        >>> results = experiment.run(iterates=True)
        >>> results.rounds("fedlsa").tolist(), results.iterates("fedlsa", seed=0).shape
        ([0, 5, 10], (3, 3))
        """
        entry = self._entry(label)
        if self._native:
            kept = self._native.iterates()
        else:
            kept = self._read(ITERATES, _fedsa.read_arrays) if ITERATES in self._files else {}
        if not kept:
            raise NotAvailable("this run did not keep its iterates", "", "iterates", "Experiment.run(iterates=True)")
        return self._of_seed(entry, label, kept[label], seed)

    def rounds(self, label: str) -> NDArray[np.int64]:
        """Return the recorded rounds of a method.

        Parameters
        ----------
        label : str
            The method, one of :attr:`labels`.

        Returns
        -------
        ndarray of shape (records,)
            The rounds that any of its seeds recorded, increasing.

        Raises
        ------
        KeyError
            When there is no such label.
        """
        import numpy as np

        entry, trace = self._entry(label), self.trace()
        is_of = (trace["method"] == entry["method"]) & (trace["point"] == entry["point"])
        rounds: NDArray[np.int64] = np.unique(trace["round"][is_of])
        return rounds

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of ``theta.npz``.

        They are the outputs by label, and ``theta_star`` if known.
        """
        arrays = self._native.outputs() if self._native else self._read("theta.npz", _fedsa.read_arrays)
        arrays.pop("format", None)
        return arrays

    def _read(self, name: str, read: Callable[[bytes], T]) -> T:
        """Read a file of the run. Errors name the file."""
        try:
            return read(self._files[name])
        except InputError as e:
            place = os.path.join(self._folder, name)
            raise InputError(f"{place}: {e.what}", e.code, place, e.help, file=place) from e

    def trace(self) -> _fedsa.Table:
        """Return a table with one row for each recorded round of each run.

        Returns
        -------
        Table
            ``polars.DataFrame(table)``, ``pyarrow.table(table)`` and ``pandas.DataFrame.from_arrow(table)`` read it without a copy;
            ``table["mse"]`` is a NumPy array.
        """
        return self._native.trace() if self._native else self._read("trace.parquet", _fedsa.read_trace)

    def summary(self) -> Summary:
        """Return a table of outcomes, floors and costs."""
        rows = []
        for entry in self._data["results"]:
            ledger = entry["ledger"] or {}
            bits = ledger.get("bits_up", 0.0) + ledger.get("bits_down", 0.0)
            share = entry.get("floor_falls_by")
            floor = floor_of(entry)
            end = outcome(entry, None)
            cells = dict(method=entry["method"], point=entry["point"], outcome=end.name, floor=floor if floor.mean == floor.mean and share is None else None, rounds=end.rounds, bits=bits or None)
            cells["no floor yet"] = None if share is None else f"falls by {share:.2%}"
            rows.append(cells)
        columns = [c for c in ("method", "point", "outcome", "floor", "no floor yet", "rounds", "bits") if any(row[c] not in (None, "") for row in rows)]
        notes = [f"{label}: {end}" for label, end in self.outcomes.items() if end.reason or end.help]
        if "no floor yet" in columns:
            notes.append("no floor yet: the error still falls, by this share over the last fifth of the rounds; more rounds tell the floor")
        notes += map(str, self.notes)
        said = [f"check {'holds' if check.passed else 'FAILS'}: {check.name}" for check in self.checks]
        notes += self._report["checks"] if self._report else said
        return Summary(f"{self.id}: {self.title}", columns, rows, notes)

    def plot(
        self,
        *,
        title: str | None = None,
        kind: Literal["curves", "scaling", "cost", "table"] | None = None,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        cost: str | None = None,
        level: float | Sequence[float] | None = None,
        relative: bool | None = None,
        x_log: bool | None = None,
        y_log: bool | None = None,
        methods: Sequence[str] | None = None,
        points: Sequence[str] | None = None,
        centre: Literal["mean", "median"] | None = None,
        band: str | None = None,
        panels: Sequence[str] | None = None,
        levels: Mapping[str, Sequence[str]] | None = None,
        exact: Sequence[str] | None = None,
        ratios: bool | None = None,
        slope: float | None = None,
        y_range: tuple[float, float] | None = None,
        share_y: bool | None = None,
        columns: int | None = None,
        style: Literal["neurips", "ieee", "slides"] | None = None,
        width: float | None = None,
        dpi: float | None = None,
        theme: Literal["light", "dark"] | None = None,
    ) -> Figure:
        """Draw the figure.

        The keywords are keys of ``[figure]`` of experiment files. They replace the experiment's values.

        Parameters
        ----------
        title : str, optional
            The title.
        kind : {"curves", "scaling", "cost", "table"}, optional
            A metric over rounds, floors over a coordinate, the cost of a level, or floors as numbers.
        x, y : str or sequence of str, optional
            The axes: ``x="bits_up"``, ``y="residual"``, or a metric of your own, whose axis is linear by default.
        cost, level, relative
            The count that measures cost, the level to reach, and whether the level is a share of the start.
        x_log, y_log : bool, optional
            Whether the axes are logarithmic. By default y is; x is in scaling and cost figures with positive values.
        methods, points : sequence of str, optional
            Labels of methods and points to draw; by default all.
        centre, band
            The centre over seeds, and the band around it.
        panels : sequence of str, optional
            Coordinates with one panel per value.
        levels, exact, ratios
            Theory to draw: levels by label, labels of exact curves, and a panel with measured values divided by exact ones.
        slope : float, optional
            The slope of a reference line.
        style : {"neurips", "ieee", "slides"}, optional
            The medium: 5.5 inches with 9 point Times, a column of 3.5 inches with 8 point Times, or a 16:9 slide. Lines then also differ in
            dashes and markers, and the caption is omitted.
        y_range, share_y, columns, width, dpi, theme
            The layout.

        Returns
        -------
        Figure
            Notebooks show it; :meth:`Figure.save` writes it.

        Raises
        ------
        InputError
            When a value cannot be used.
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        if self._native:
            return Figure(self._native.figure(given))
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            _files.write_all(folder, self._all_files())
            return Figure(_fedsa.redraw_folder(folder, given))

    def _all_files(self) -> dict[str, bytes]:
        return self._native.files() if self._native else self._files

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the files of a finished run.

        Parameters
        ----------
        folder : path
            The folder; created if missing.
        overwrite : bool
            Whether to replace a run in it. Files that fedsa did not write are kept.

        Raises
        ------
        InputError
            When the folder holds files that must not be replaced.
        MachineError
            When the folder cannot be written.
        """
        if self._native:
            self._native.write_into(_files.name_of(folder, "folder"), overwrite)
            return
        drawn = self.plot()
        figures = {f"figure.{name}": drawn.render(name) for name in ("svg", "png")}
        _fedsa.write_finished(_files.name_of(folder, "folder"), {**self._all_files(), **figures}, overwrite)

    def report(self, out: Path | None = None, *, title: str | None = None, overwrite: bool = False) -> Report:
        """Make an HTML page, as ``fedsa.report``.

        Parameters
        ----------
        out : path, optional
            The file to write, such as ``"report.html"``.
        title : str, optional
            The title; by default the experiment's title.
        overwrite : bool
            Whether to replace a file that is not a report.

        Returns
        -------
        Report
            The page.

        Raises
        ------
        InputError
            When the file exists and is not a report of fedsa.
        """
        return report(self, out, title=title, overwrite=overwrite)

    def raise_if_missed(self) -> Results:
        """Raise if anything is not as expected.

        Returns
        -------
        Results
            These results.

        Raises
        ------
        MissedError
            The message names the methods and checks.
        """
        missed = [f"{label}: {end}" for label, end in self.outcomes.items() if not end.as_expected]
        missed += [f"check: {check.name}" for check in self.checks if not check.as_expected]
        if missed:
            raise MissedError("; ".join(missed), "missed", "", "results.summary() says more")
        return self

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __copy__(self) -> Results:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Results:
        # Results are immutable.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _results_again, (dict(self._all_files()), self._report)

    def __repr__(self) -> str:
        return f"<fedsa.Results of {self.id}: {', '.join(f'{label} {end.name}' for label, end in self.outcomes.items())}>"

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def _results_again(files: dict[str, bytes], report: dict[str, Any] | None) -> Results:
    return Results._of_files(files, report)


def key_of(entry: Mapping[str, Any]) -> str:
    """The label of a method at a point."""
    return f"{entry['method']} [{entry['point']}]" if entry["point"] else str(entry["method"])


def floor_of(entry: Mapping[str, Any]) -> Estimate:
    """The floor of a method at a point. A diverged method has no floor, and one seed has no standard error."""
    if entry["outcome"] == "diverged" or entry["floor_mean"] is None:
        return Estimate(float("nan"), float("nan"))
    return Estimate(float(entry["floor_mean"]), number(entry["floor_se"]) if entry["seeds"] > 1 else float("nan"))


def outcome(entry: Mapping[str, Any], reported: Mapping[str, Any] | None) -> Outcome:
    """The outcome of a method at a point, from its entries in the summary and in the report."""
    name = str(entry["outcome"])
    reason = entry.get("why_stalled") or entry.get("reason")
    target = entry.get("target")
    if target and not reason:
        reason = f"the {target['metric']} is {number(target['reached']):.3g} at the end, the target is {number(target['asked']):.3g}"
    if name == "diverged":
        reason = f"in round {entry.get('diverged_at_round')}"
    help = reported.get("help") if reported else None
    stable = entry.get("largest_stable_step")
    if name == "diverged" and not help and stable is not None:
        of = " (the limit of the mean; that of the mean square is not known)" if entry.get("largest_stable_step_limit") == "mean" else ""
        help = f"a step size below {stable:.3g}{of}"
    return Outcome(name, reason, help, bool(entry["as_expected"]), entry.get("rounds"))


def open(folder: Path) -> Results:
    """Read the results of a finished run.

    Parameters
    ----------
    folder : path
        The folder of a run, such as ``out/scafflsa/fig1-high``.

    Returns
    -------
    Results
        The results. They do not depend on the folder afterwards.

    Raises
    ------
    InputError
        When the folder holds no finished run.

    Examples
    --------
    >>> import tempfile, fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ran = experiment.run(out=f"{folder}/mine")
    ...     read = fedsa.open(f"{folder}/mine")
    >>> bool((read.theta("fedlsa") == ran.theta("fedlsa")).all())
    True
    """
    name = _files.name_of(folder, "folder")
    _fedsa.require_finished(name)
    files = {}
    for file_name in (*FILES, *([ITERATES] if os.path.exists(os.path.join(name, ITERATES)) else [])):
        try:
            files[file_name] = _files.read(os.path.join(name, file_name))
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror}", "data.unreadable", os.path.join(name, file_name), "the files of a run") from e
    results = Results._of_files(files)
    results._folder = name
    return results


class Comparison:
    """The differences of two runs.

    Attributes
    ----------
    settings : list of dict
        The settings that differ: ``key``, ``a``, ``b``.
    results : list of dict
        By method and point: ``name``, ``a``, ``b``.
    checks : list of dict
        The checks whose outcomes differ: ``name``, ``a``, ``b``.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> fedsa.compare(experiment.run(), experiment.run()).settings
    []
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self.settings: list[dict[str, Any]] = data["settings"]
        self.results: list[dict[str, Any]] = data["results"]
        self.checks: list[dict[str, Any]] = data["checks"]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of ``fedsa diff --json``."""
        copy: dict[str, Any] = json.loads(json.dumps(self._data))
        return copy

    def summary(self) -> Summary:
        """Return a table of both results."""
        rows = []
        for pair in self.results:
            for side in ("a", "b"):
                cells = pair[side]
                rows.append(
                    {"name": pair["name"], "run": side, "outcome": cells.get("outcome"), "floor": cells.get("floor_mean"), "bits_up": cells.get("bits_up")}
                )
        notes = [f"{pair['key']}: {pair['a']} and {pair['b']}" for pair in self.settings]
        return Summary("a and b", ["name", "run", "outcome", "floor", "bits_up"], rows, notes)

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def compare(a: Results | Path, b: Results | Path) -> Comparison:
    """Compare two runs: settings, results, checks.

    Parameters
    ----------
    a, b : Results or path
        Results, or folders of finished runs.

    Returns
    -------
    Comparison
        The differences.

    Raises
    ------
    InputError
        When a folder holds no finished run.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> slower = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.05, 10), rounds=100)
    >>> fedsa.compare(experiment.run(), slower.run()).settings
    [{'key': 'method.fedlsa.step_size', 'a': '0.1', 'b': '0.05'}]
    """
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        folders = []
        for name, run in (("a", a), ("b", b)):
            if isinstance(run, Results):
                folder = os.path.join(temporary, name)
                _files.write_all(folder, run._all_files())
                folders.append(folder)
            else:
                folders.append(_files.name_of(run, name))
        return Comparison(json.loads(_fedsa.compare_folders(*folders)))
