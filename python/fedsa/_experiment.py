"""Experiments, and the search for settings that reach a target."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from fedsa import _fedsa, _files
from fedsa._figure import Figure
from fedsa._files import Path
from fedsa._kinds import Method, Problem
from fedsa._link import in_keys, swept_keys
from fedsa._own_metrics import Measure, Metric, checked
from fedsa._progress import Listener, Observer, ProgressLike
from fedsa._results import Results
from fedsa._settings import plain, seconds, shown
from fedsa._summary import Summary, number
from fedsa._theory import Check, Theory
from fedsa.errors import FedsaError, InputError, NotAvailable
from fedsa.rules import rules_in

Table = Mapping[str, Any]

# The keys of `[run]` that are arguments.
RUN = ("rounds", "seeds", "start", "stop", "record", "refused")


class Tuning:
    """The cheapest settings that reach a target, or the obstacle.

    Attributes
    ----------
    best : dict or None
        The choice: ``method``, ``step_size``, ``local_steps``, ``global_step_size``, ``cost``, ``mse``. ``None`` if no candidate
        reaches the target.
    evidence : dict or None
        The source of the choice's error: theory, with its accuracy; or pilot runs, with seeds and standard error.
    refusal : FedsaError or None
        Why no candidate reaches the target, and what would help.
    experiment : Experiment or None
        The experiment with the chosen settings and new seeds.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> tuning = experiment.tune(target_mse=0.1, methods=["fedlsa"])
    >>> tuning.best["cost"]["rounds"]
    2
    """

    def __init__(self, native: _fedsa.Tuned | None, refusal: FedsaError | None, experiment_of: Callable[[str], Experiment]) -> None:
        # `experiment_of` makes an experiment from the text of its file.
        self._native, self.refusal, self._experiment_of = native, refusal, experiment_of
        self._data: dict[str, Any] = json.loads(native.summary) if native else {}
        answer = self._data.get("answer")
        self.best: dict[str, Any] | None = {k: v for k, v in answer.items() if k not in ("evidence", "table")} if answer else None
        self.evidence: dict[str, Any] | None = answer["evidence"] if answer else None

    @property
    def experiment(self) -> Experiment | None:
        """The experiment with the chosen settings; ``None`` if there are none."""
        return None if self._native is None else self._experiment_of(self._native.files()["tuned.toml"].decode())

    def plot(self) -> Figure:
        """Draw cost against error of the candidates.

        Returns
        -------
        Figure
            It shows itself in notebooks.

        Raises
        ------
        FedsaError
            The refusal, if no candidate reaches the target.
        """
        return Figure(self._known().figure())

    def _known(self) -> _fedsa.Tuned:
        if self._native is None:
            assert self.refusal is not None
            raise self.refusal
        return self._native

    def summary(self) -> Summary:
        """Return a table of the best candidates.

        It has at most 20 candidates that reach the target: the choice, then the others by cost. Ties are ordered by samples, bits and error.
        """
        rows = []
        for tried in self._data.get("tried", []):
            if tried["cost"]:
                row = {"family": tried["family"], "step size": tried["step_size"], "local steps": tried["local_steps"]}
                row["global step size"] = tried["global_step_size"]
                cost = {name: number(value) for name, value in tried["cost"].items() if isinstance(value, (int, float))}
                rows.append({**row, "by": tried["by"], "mse": tried["outcome"]["mse"], **cost})
        goal = str(self._data.get("options", {}).get("objective", "bits"))
        choice = tuple(self.best[name] for name in ("family", "step_size", "local_steps", "global_step_size")) if self.best else ()

        def place(row: dict[str, Any]) -> tuple[Any, ...]:
            is_other = tuple(row[name] for name in ("family", "step size", "local steps", "global step size")) != choice
            return (is_other, *(row.get(name, float("inf")) for name in (goal, "samples", "bits", "mse")))

        rows = sorted(rows, key=place)[:20]
        if all(row["global step size"] == 1.0 for row in rows):
            rows = [{name: value for name, value in row.items() if name != "global step size"} for row in rows]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        notes = self._native.report if self._native else [str(self.refusal)]
        return Summary(str(self._data.get("title", "")), columns, rows, notes)

    def save(self, folder: Path) -> None:
        """Write the experiment, the figure and the summary.

        Parameters
        ----------
        folder : path
            The folder; created if missing.

        Raises
        ------
        FedsaError
            The refusal, if no candidate reaches the target.
        """
        _files.write_all(folder, self._known().files())

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of ``fedsa tune --json``."""
        copy: dict[str, Any] = json.loads(json.dumps(self._data))
        return copy

    def __bool__(self) -> bool:
        return self.best is not None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tuning is not pickled: to_dict() has the numbers, and save() writes the files")

    def __str__(self) -> str:
        return "\n".join(self._native.report) if self._native else str(self.refusal)

    def __repr__(self) -> str:
        if self.best is None:
            return "<fedsa.Tuning: nothing reaches the target; print() says why>"
        best = self.best
        return f"<fedsa.Tuning: {best['family']}, step_size={best['step_size']:.4g}, local_steps={best['local_steps']}>"

    def _repr_html_(self) -> str:
        return self.summary().to_html()


# Kinds of problems that experiment files cannot contain.
IN_MEMORY = ("arrays", "operator", "logs-in-memory", "logistic-in-memory", "least-squares-in-memory", "glm-in-memory")


def of_memory(e: InputError) -> InputError:
    """The error about a text, with an explanation if its problem had data in memory."""
    if e.key != "problem.kind" or e.code != "setting.unknown-name" or e.value not in IN_MEMORY:
        return e
    what = f"the data of a problem `{e.value}` are in the memory of Python, and not in this text"
    return InputError(what, e.code, e.key, "Experiment(problem, ..) with the problem itself, or a problem on files", e.value, e.file, e.line, e.column)


class Experiment:
    """Methods that are compared on a problem.

    Parameters
    ----------
    problem : Problem or mapping
        One of :mod:`fedsa.problems`, or a dictionary with ``kind`` and its keys.
    methods : Method or mapping, or a sequence of these
        Methods of :mod:`fedsa.methods`. Their labels are the keys of results.
    rounds : int
        The number of rounds.
    seeds : int or sequence of int
        The number of seeds, or the seeds.
    sampling : {"iid", "markov", "mean"} or mapping
        The law of samples, or a dictionary with ``kind``, ``batch`` and ``start``.
    start : str or array of shape (d,)
        The first iterate: ``"zero"``, ``"root"``, ``"root+1"``, ``"normal"``, ``"limit"``, numbers, or the name of a file.
    stop : mapping, optional
        Targets at which runs end: ``{"mse": 1e-4}``, ``residual``, ``relative_residual`` or ``gap``.
    record : mapping or sequence of int, optional
        The recorded rounds: ``{"every": 10}``, ``{"points": 200, "spacing": "log"}``, or a list of rounds.
    refused : {"error", "skip"}, optional
        Methods that cannot work over their link are an error, which is the default, or are skipped with the outcome ``"refused"``.
    figure : mapping, optional
        Keys of ``[figure]`` of experiment files.
    checks : sequence of mapping
        Tables ``[[check]]`` of experiment files.
    id, title : str, optional
        The name, and the title of the figure.
    base : path, optional
        The folder of relative paths; the working directory by default.

    Raises
    ------
    InputError
        When a setting cannot be used. :meth:`run` reads files and builds problems.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> experiment
    Experiment(Garnet(agents=5, states=10, features=3), [FedLSA(0.1, 10)], rounds=100)
    >>> experiment.labels
    ['fedlsa']
    """

    # Arguments of the constructor or of `from_text`, for repr, comparison and pickles.
    _made: dict[str, Any]
    _natives: dict[bool, _fedsa.Experiment]

    def __init__(
        self,
        problem: Problem | Table,
        methods: Method | Table | Sequence[Method | Table],
        *,
        rounds: int,
        seeds: int | Sequence[int] = 1,
        sampling: Literal["iid", "markov", "mean"] | Table = "iid",
        start: str | Sequence[float] | Any = "zero",
        stop: Table | None = None,
        record: Table | Sequence[int] | None = None,
        refused: str | None = None,
        figure: Table | None = None,
        checks: Sequence[Table] = (),
        id: str | None = None,
        title: str | None = None,
        base: Path | None = None,
    ) -> None:
        if isinstance(problem, str):
            raise InputError(f"{problem!r} is a text", "setting.wrong-type", "problem", "one of fedsa.problems, or a dictionary with `kind`")
        if isinstance(methods, str):
            what = f"{methods!r} is a text"
            raise InputError(what, "setting.wrong-type", "methods", f"methods.named({methods!r}, ..), one of fedsa.methods, or a list of these")
        listed = [methods] if isinstance(methods, (Method, Mapping)) else list(methods)
        given = dict(
            rounds=rounds, seeds=seeds, sampling=sampling, start=start, stop=stop, record=record, refused=refused, figure=figure,
            checks=list(checks), id=id, title=title, base=base,
        )  # fmt: skip
        self._make({"problem": problem, "methods": listed, **given})

    def _make(self, made: dict[str, Any]) -> None:
        self._made = made
        self._natives = {}
        self._native()

    def _table(self) -> dict[str, Any]:
        """The contents of the experiment file."""
        made = self._made
        table: dict[str, Any] = {key: made[key] for key in ("id", "title") if made[key] is not None}
        table["problem"] = plain(made["problem"])
        sampling = made["sampling"]
        if sampling != "iid":
            table["sampling"] = {"kind": sampling} if isinstance(sampling, str) else plain(sampling)
        table["method"] = [plain(method) for method in made["methods"]]
        table["run"] = {key: plain(made[key]) for key in RUN if made[key] is not None}
        if made["figure"] is not None:
            table["figure"] = plain(made["figure"])
        if made["checks"]:
            table["check"] = plain(made["checks"])
        return table

    def _native(self, quick: bool = False) -> _fedsa.Experiment:
        """The engine's experiment, with or without quick settings."""
        if quick not in self._natives:
            made = self._made
            base = _files.name_of(made["base"], "base") if made["base"] is not None else ""
            changes, sweeps = plain(in_keys(made.get("set", {}))), plain(swept_keys(made.get("sweep", {})))
            # Problems with data in memory, and rules in Python.
            held = (getattr(made.get("problem"), "_held", None), rules_in(made.get("methods", ())))
            if "text" in made:
                try:
                    native = _fedsa.Experiment.of_text(made["name"], made["text"], base, changes, sweeps, quick, held)
                except InputError as e:
                    raise of_memory(e) from None
            else:
                native = _fedsa.Experiment.of_table(self._table(), base, changes, sweeps, quick, held)
            self._natives[quick] = native
        return self._natives[quick]

    @classmethod
    def from_toml(cls, path: Path, *, set: Table | None = None) -> Experiment:
        """Read an experiment file.

        Parameters
        ----------
        path : path
            The file. Relative paths in it start at its folder.
        set : mapping, optional
            Values that replace those of the file, by dotted key: ``{"run.rounds": 100, "method.FedLSA.step_size": 0.1}``.

        Returns
        -------
        Experiment
            The experiment.

        Raises
        ------
        InputError
            When the file cannot be read or is not an experiment. The error has the line.
        """
        name = _files.name_of(path)
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read(16_000_001)
        except UnicodeDecodeError as e:
            raise InputError("this is not UTF-8", "data.unreadable", name, "an experiment file (TOML)") from e
        except OSError as e:
            code = "data.no-file" if isinstance(e, FileNotFoundError) else "data.unreadable"
            raise InputError(f"cannot be read: {e.strerror}", code, name, "the path of an experiment file (TOML)") from e
        return cls.from_text(text, name=name, base=os.path.dirname(name), set=set)

    @classmethod
    def from_text(cls, text: str, *, name: str = "experiment.toml", base: Path | None = None, set: Table | None = None) -> Experiment:
        """Read the text of an experiment file.

        Parameters
        ----------
        text : str
            TOML.
        name : str
            The name of the text in error messages.
        base : path, optional
            The folder of relative paths; the working directory by default.
        set : mapping, optional
            As in :meth:`from_toml`.

        Returns
        -------
        Experiment
            The experiment.

        Raises
        ------
        InputError
            When the text is not an experiment. The error has the line.
        """
        self = cls.__new__(cls)
        self._make({"name": name, "text": text, "base": base, "set": dict(set or {})})
        return self

    @classmethod
    def bundled(cls, id: str, *, set: Table | None = None) -> Experiment:
        """Return a bundled experiment.

        Parameters
        ----------
        id : str
            Source and figure: ``"scafflsa/fig1-high"``.
        set : mapping, optional
            As in :meth:`from_toml`.

        Returns
        -------
        Experiment
            The experiment.

        Raises
        ------
        InputError
            When no bundled experiment has this id.

        Examples
        --------
        >>> import fedsa
        >>> fedsa.Experiment.bundled("scafflsa/fig1-high").labels
        ['FedLSA', 'SCAFFLSA']
        """
        from fedsa._settings import nearest

        texts = dict(_fedsa.bundled_experiments())
        if id not in texts:
            what = f"there is no bundled experiment '{id}'{nearest(id, list(texts))}"
            raise InputError(what, "setting.unknown-name", "id", "an id of fedsa.bundled()", value=id)
        return cls.from_text(texts[id], name=f"experiments/{id}.toml", set=set)

    @property
    def id(self) -> str:
        """The name of the experiment."""
        return self._native().id

    @property
    def title(self) -> str:
        """The title of the figure."""
        return self._native().title

    @property
    def labels(self) -> list[str]:
        """The labels of the methods."""
        return self._native().labels()

    def sweep(self, values: Mapping[str, Sequence[Any]]) -> Experiment:
        """Make an experiment on all combinations of values.

        Parameters
        ----------
        values : mapping of str to sequence
            The values of each dotted key of experiment files: ``{"method.fedlsa.step_size": [0.01, 0.1]}``.

        Returns
        -------
        Experiment
            A new experiment with one point per combination. The key of a method at a point is ``"label [point]"``.

        Raises
        ------
        InputError
            When a key or a value cannot be used.

        Examples
        --------
        >>> import fedsa
        >>> from fedsa import methods, problems
        >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=10)
        >>> experiment.sweep({"method.fedlsa.step_size": [0.05, 0.1]}).run().labels
        ['fedlsa [step_size=0.05]', 'fedlsa [step_size=0.1]']
        """
        for key, of in values.items():
            if isinstance(of, (str, bytes)) or not hasattr(of, "__iter__"):
                help = f"a sequence of values: {{{key!r}: [{of!r}]}}"
                raise InputError(f"{of!r} is no sequence", "setting.wrong-type", f"sweep[{key!r}]", help, value=repr(of))
        swept = type(self).__new__(type(self))
        swept._make({**self._made, "sweep": {**self._made.get("sweep", {}), **{key: list(of) for key, of in values.items()}}})
        return swept

    def to_dict(self) -> dict[str, Any]:
        """Return the given settings, by the keys of experiment files."""
        table: dict[str, Any] = json.loads(self._native().table_json(False))
        return table

    def to_toml(self, *, defaults: bool = False) -> str:
        """Return the settings as an experiment file.

        Parameters
        ----------
        defaults : bool
            Whether to write defaults too, and absolute paths.

        Returns
        -------
        str
            TOML. A run of it has the same results, bit for bit. It stores only a hash of data in memory, and only the names of Python
            classes.
        """
        text = self._native().to_toml(defaults)
        # A text without an id would get its file's name as id.
        has_id = defaults or "id" in json.loads(self._native().table_json(False))
        return text if has_id else f"id = {json.dumps(self.id)}\n\n{text}"

    def run(
        self,
        *,
        out: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        quick: bool = False,
        force: bool = False,
        progress: ProgressLike = None,
        observer: Observer | None = None,
        cancel: _fedsa.CancelToken | None = None,
        checkpoint_every: float = 10.0,
        metrics: Mapping[str, Metric] | None = None,
        iterates: bool = False,
    ) -> Results:
        """Run all methods, points and seeds.

        Parameters
        ----------
        out : path, optional
            A folder for checkpoints and results. Without it nothing is written.
        resume : bool
            Whether to continue the run in the folder. Results of a finished run are read.
        overwrite : bool
            Whether to replace the run in the folder.
        quick : bool
            Whether to use the quick settings of an experiment file.
        force : bool
            Whether to run settings that are known to be unstable.
        progress : bool or callable, optional
            ``True`` shows a bar (needs tqdm), ``False`` shows none. A callable gets a :class:`Progress` some times a second. By default
            notebooks and interactive terminals show a bar.
        observer : callable, optional
            Called with a dictionary for each recorded round: ``method``, ``point``, ``seed``, ``round``, ``mse``.
        cancel : CancelToken, optional
            Lets another thread stop the run.
        checkpoint_every : float
            Seconds between checkpoints.
        metrics : mapping of str to callable, optional
            Metrics of your own: functions of theta, an array (d,), that return a float. They are called in this thread at each recorded round of
            each seed, and may use fedsa. NaN where theta is not finite. The results have them beside fedsa's metrics: ``trace()["return"]``, ``plot(y="return")``.
        iterates : bool
            Whether to keep theta at each recorded round, for :meth:`Results.iterates`.

        Returns
        -------
        Results
            The results. Divergence and missed targets are outcomes, not exceptions.

        Raises
        ------
        InputError
            When a setting or a file cannot be used. Nothing is then written.
        MachineError
            When the machine fails. Written files are kept.
        Cancelled
            When ``cancel`` is cancelled. As with ``KeyboardInterrupt``, checkpoints are kept, and a call with ``resume=True`` continues
            from them.
        Exception
            That of a metric, with a note that names metric, method, seed and round.

        Examples
        --------
        >>> import fedsa
        >>> from fedsa import methods, problems
        >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=10)
        >>> results = experiment.run(metrics={"largest": lambda theta: abs(theta).max()}, iterates=True)
        >>> results.iterates("fedlsa").shape
        (1, 11, 3)
        >>> bool(results.trace()["largest"][-1] == abs(results.theta("fedlsa")).max())
        True
        """
        if resume and overwrite:
            raise TypeError("resume and overwrite exclude each other")
        if out is None and (resume or overwrite):
            raise TypeError(f"{'resume' if resume else 'overwrite'} needs the folder of a run: out=..")
        native = self._native(quick)
        functions = checked({} if metrics is None else metrics, native.has_column)
        own = (list(functions), Measure(functions), bool(iterates)) if functions or iterates else None
        if_exists = "resume" if resume else "overwrite" if overwrite else "refuse"
        folder = None if out is None else (_files.name_of(out, "out"), if_exists)
        with Listener(native.id, progress, observer) as listener:
            return Results._of(native.run(listener, cancel, folder, force, seconds(checkpoint_every, "checkpoint_every"), own))

    def check(
        self,
        *,
        quick: bool = False,
        force: bool = False,
        progress: ProgressLike = None,
        cancel: _fedsa.CancelToken | None = None,
    ) -> Check:
        """Estimate time, memory and stability without a run.

        Parameters
        ----------
        quick, force, progress, cancel
            As in :meth:`run`.

        Returns
        -------
        Check
            Whether the experiment would run, its time, memory and stability.

        Raises
        ------
        InputError
            When a setting or a file cannot be used.
        """
        native = self._native(quick)
        with Listener(native.id, progress) as listener:
            text, refusal = _fedsa.check_experiment(native, listener, cancel, force)
        return Check(json.loads(text), refusal)

    def theory(
        self,
        *,
        target_mse: float | None = None,
        full: bool = False,
        progress: ProgressLike = None,
        cancel: _fedsa.CancelToken | None = None,
    ) -> Theory:
        """Compute floors, stable steps and costs before a run.

        Parameters
        ----------
        target_mse : float or None
            Mean-square error to reach: the report gives each method's rounds, samples and bits, or the
            obstacle.
        full : bool
            Also report constants, parts of floors and changes to them, other local steps, and theorems. Takes
            up to a minute per method, instead of about 10 seconds in all. By default ``False``.
        progress, cancel
            As in :meth:`run`.

        Returns
        -------
        Theory
            Predictions, each with its accuracy.

        Raises
        ------
        InputError
            When a setting or a file cannot be used, or the target is not positive.

        Examples
        --------
        >>> import fedsa
        >>> from fedsa import methods, problems
        >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
        >>> theory = experiment.theory(target_mse=2.0)
        >>> limits = theory.limits("fedlsa")
        >>> limits.accuracy.status, limits.bias < limits.floor
        ('exact', True)
        """
        settings: dict[str, Any] = dict(
            target_mse=target_mse,
            full=full,
        )  # fmt: skip
        native = self._native()
        with Listener(native.id, progress) as listener:
            return Theory(_fedsa.Theory.of(native, listener, cancel, settings))

    def tune(
        self,
        *,
        target_mse: float | None = None,
        epsilon: float | None = None,
        objective: Literal["rounds", "bits", "samples", "seconds"] = "bits",
        latency: float | None = None,
        bandwidth: float | None = None,
        methods: Sequence[str] = (),
        codecs: Sequence[str] = (),
        local_steps: Sequence[int] = (),
        max_local_steps: int = 1000,
        max_rounds: int = 100000,
        like: str | None = None,
        budget: float | str = 60.0,
        time_limit: float | str | None = None,
        out: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        progress: ProgressLike = None,
        cancel: _fedsa.CancelToken | None = None,
    ) -> Tuning:
        """Find the cheapest settings that reach an error.

        The search chooses the method, the step size, the local steps and the codec.

        Parameters
        ----------
        target_mse : float or None
            Mean-square error to reach.
        epsilon : float or None
            Epsilon of the agents' privacy, in place of the link's: finds the smallest error instead of a
            target's cost.
        objective : Literal["rounds", "bits", "samples", "seconds"]
            Cost to minimise; bits: of all messages; samples: of all agents; seconds: of messages without
            computation (`latency`, `bandwidth`). By default ``'bits'``.
        latency : float or None
            Seconds of an exchange of any size, for `objective = seconds`.
        bandwidth : float or None
            Bits per second of all messages, for `objective = seconds`.
        methods : Sequence[str]
            Candidate methods; by default fedlsa, scafflsa, fedhsa, and the experiment's methods with a step
            size.
        codecs : Sequence[str]
            Candidate uplink codecs, such as exact,float32,quantised:8,rand-k:0.5; by default the
            experiment's. auto: exact, float32, and quantised with 4, 6, 8 and 12 bits.
        local_steps : Sequence[int]
            Candidate local steps; by default all up to `max_local_steps`.
        max_local_steps : int
            Largest number of local steps. By default ``1000``.
        max_rounds : int
            Largest number of rounds. By default ``100000``.
        like : str or None
            Method whose link, start and output candidates get, if the experiment's methods differ.
        budget : float | str
            Search time in seconds or with a unit (90s, 10m, 2h), estimated for one core, independent of the
            machine. By default ``60.0``.
        time_limit : float | str or None
            Time limit by the clock; the answer then depends on the machine.
        out, resume, overwrite
            A folder for pilot runs and the answer, as in :meth:`run`.
        progress, cancel
            As in :meth:`run`.

        Returns
        -------
        Tuning
            The choice, or the reason why no candidate reaches the target.

        Raises
        ------
        InputError
            When a setting cannot be used.

        Examples
        --------
        >>> import fedsa
        >>> from fedsa import methods, problems
        >>> experiment = fedsa.Experiment(problems.Garnet(agents=3, states=6, features=2, seed=1), methods.FedLSA(0.1, 10), rounds=100)
        >>> tuning = experiment.tune(target_mse=0.05, methods=["fedlsa"], max_local_steps=20)
        >>> tuning.best["method"], tuning.best["mse"] <= 0.05, tuning.evidence["by"]
        ('fedlsa', True, 'theory')
        >>> tuning.experiment.run().floor("fedlsa").mean < 0.1
        True
        """
        if resume and overwrite:
            raise TypeError("resume and overwrite exclude each other")
        if out is None and (resume or overwrite):
            raise TypeError(f"{'resume' if resume else 'overwrite'} needs the folder of a tuning: out=..")
        settings: dict[str, Any] = dict(
            target_mse=target_mse,
            epsilon=epsilon,
            objective=objective,
            latency=latency,
            bandwidth=bandwidth,
            methods=methods,
            codecs=codecs,
            local_steps=local_steps,
            max_local_steps=max_local_steps,
            max_rounds=max_rounds,
            like=like,
            budget=budget,
            time_limit=time_limit,
        )  # fmt: skip
        settings["budget"] = most = seconds(budget, "budget")
        settings["time_limit"] = None if time_limit is None else seconds(time_limit, "time_limit")
        native = self._native()
        if_exists = "resume" if resume else "overwrite" if overwrite else "refuse"
        folder = None if out is None else (_files.name_of(out, "out"), if_exists)
        with Listener(native.id, progress) as listener:
            listener.total = most
            try:
                return Tuning(_fedsa.tune_experiment(native, listener, cancel, plain(settings), folder), None, self._tuned)
            except NotAvailable as e:
                return Tuning(None, e, self._tuned)
            except InputError as e:
                if e.code != "setting.target-not-reached":
                    raise
                return Tuning(None, e, self._tuned)

    def _tuned(self, text: str) -> Experiment:
        """The experiment that a tuning wrote, on this experiment's data."""
        problem = self._made.get("problem")
        if not hasattr(problem, "_held"):
            return Experiment.from_text(text, name="tuned.toml")
        # The text only names data in memory.
        made: dict[str, Any] = {"name": "tuned.toml", "text": text, "base": None, "set": {}, "problem": problem}
        experiment = Experiment.__new__(Experiment)
        experiment._make(made)
        return experiment

    def _resolved(self) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(self._native().table_json(True))
        return table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experiment):
            return NotImplemented
        held = [experiment._made.get("problem") for experiment in (self, other)]
        # Files name Python operators only by class, so the objects are compared too.
        if any(hasattr(problem, "_held") for problem in held) and held[0] != held[1]:
            return False
        rules = [[method for method in experiment._made.get("methods", ()) if hasattr(method, "_rules")] for experiment in (self, other)]
        if rules[0] != rules[1]:
            return False
        return self._resolved() == other._resolved()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        made = self._made
        if made.get("sweep"):
            base = {key: value for key, value in made.items() if key != "sweep"}
            return f"{_made_again(type(self), base)!r}.sweep({shown(made['sweep'])})"
        if "text" in made:
            place = "" if made.get("base") is None else f", base={os.fspath(made['base'])!r}"
            changes = f", set={made['set']!r}" if made["set"] else ""
            return f"Experiment.from_text({made['text']!r}, name={made['name']!r}{place}{changes})"
        methods = f"[{', '.join(shown(method) for method in made['methods'])}]"
        defaults = {"seeds": 1, "sampling": "iid", "start": "zero", "checks": []}
        rest = {k: v for k, v in made.items() if k not in ("problem", "methods") and v is not None and k != "sweep"}
        named = [f"{k}={shown(v)}" for k, v in rest.items() if k not in defaults or plain(v) != defaults[k]]
        return f"Experiment({', '.join([shown(made['problem']), methods, *named])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self._made)


def _made_again(cls: type[Experiment], made: dict[str, Any]) -> Experiment:
    self = cls.__new__(cls)
    self._make(made)
    return self


def bundled() -> list[str]:
    """List the bundled experiments.

    Returns
    -------
    list of str
        Ids, for :meth:`Experiment.bundled`.

    Examples
    --------
    >>> import fedsa
    >>> fedsa.bundled()[:2]
    ['scafflsa/fig1-low', 'scafflsa/fig1-high']
    """
    return [id for id, _ in _fedsa.bundled_experiments()]


