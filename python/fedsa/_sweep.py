"""Sweeps in this process, or in other processes and machines through joblib."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedsa import _fedsa
from fedsa._files import Path
from fedsa._progress import Listener, ProgressLike
from fedsa._results import Results
from fedsa._settings import whole
from fedsa._settings import seconds as seconds_of
from fedsa.errors import Cancelled, InputError, MachineError

if TYPE_CHECKING:
    from fedsa._experiment import Experiment

Engine = Literal["local", "joblib"]

# Estimated seconds of a batch, at least and at most; and the number of batches per worker within these bounds.
LEAST, MOST, BATCHES = 0.5, 30.0, 8

# Seconds between attempts, and the longest wait in seconds until a lost worker has released its part.
LOOK, PATIENCE = 0.2, 60.0


@dataclass(frozen=True)
class Work:
    """The task of a worker, which is called with a batch of points."""

    # The pickled experiment. A worker reads it once.
    blob: bytes = field(repr=False)
    # The folder of the sweep; `None` if workers do not share it.
    out: str | None
    quick: bool
    force: bool
    checkpoint_every: float
    # The id of the leading process.
    leader: int

    def __call__(self, points: str) -> tuple[str, bytes | None]:
        """Run a batch. Returns its points, and its results if workers do not share the folder."""
        if os.getpid() != self.leader:
            _fedsa.set_threads(1)
        native = known(self.blob)._native(self.quick)
        if self.out is not None:
            self.run(native, self.out, points)
            return points, None
        with tempfile.TemporaryDirectory(prefix="fedsa-") as folder:
            self.run(native, folder, points)
            return points, _fedsa.part_bytes(folder, points)

    def run(self, native: _fedsa.Experiment, out: str, points: str, notify: Listener | None = None, cancel: _fedsa.CancelToken | None = None) -> None:
        """Run a batch in a folder. Waits for a part that a lost worker still holds."""
        began = time.monotonic()
        while True:
            try:
                _fedsa.run_part(native, notify, cancel, out, points, self.force, self.checkpoint_every)
                return
            except InputError as e:
                if e.code != "setting.output-busy" or time.monotonic() - began > PATIENCE:
                    raise
                time.sleep(LOOK)


# The last experiment of this process, by the digest of its pickle.
_known: dict[bytes, Experiment] = {}


def known(blob: bytes) -> Experiment:
    """The experiment of a pickle."""
    key = hashlib.sha256(blob).digest()
    if key not in _known:
        _known.clear()
        classes, experiment = pickle.loads(blob)
        # Classes pickled by value lose their qualified names, which experiment files need.
        for cls, name in pickle.loads(classes):
            cls.__qualname__ = name
        _known[key] = pickle.loads(experiment)
    return _known[key]


def packed(experiment: Experiment) -> bytes:
    """The pickle of an experiment for other processes, including the user's classes."""
    pickler = cloudpickle()
    kinds = [experiment._made.get("problem"), *experiment._made.get("methods", ())]
    given = [getattr(kind, "_given", {}) for kind in kinds]
    classes = {type(one[key]) for one in given for key in ("operator", "client", "server") if one.get(key) is not None}
    return pickle.dumps((pickler.dumps([(cls, cls.__qualname__) for cls in classes]), pickler.dumps(experiment)))


@dataclass(frozen=True)
class Options:
    """Options of joblib."""

    workers: int | None
    retries: int
    more: dict[str, Any]
    # Raises if the sweep was cancelled.
    look: Callable[[], None]


Ended = Generator[tuple[str, "bytes | None"], None, None]


def on_joblib(work: Work, batches: Sequence[str], options: Options) -> Ended:
    """Run the batches on joblib's processes, or on the backend of ``joblib.parallel_config``."""
    try:
        import_module("joblib")
    except ImportError as e:
        raise ImportError("sweep(on='joblib') needs the package joblib: pip install joblib", name="joblib") from e
    joblib, loky = import_module("joblib"), import_module("joblib.externals.loky")
    broken = import_module("joblib.externals.loky.process_executor").BrokenProcessPool
    left, lost = list(batches), 0
    try:
        while left:
            # A lost worker breaks the whole pool, so the remaining batches start again.
            try:
                parallel = joblib.Parallel(n_jobs=options.workers or -1, return_as="generator_unordered", batch_size=1, **options.more)
                for points, part in parallel(joblib.delayed(work)(points) for points in list(left)):
                    left.remove(points)
                    yield points, part
                    options.look()
            except broken as e:
                lost += 1
                if lost > options.retries:
                    raise lost_worker(lost) from e
    except BaseException:
        loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)
        raise


def lost_worker(times: int = 0) -> MachineError:
    """Make the error about workers that were lost too often."""
    often = f" {times} times" if times else " too often"
    help = "the same call again, which goes on from its folder; more retries, or workers with more memory"
    return MachineError(f"a worker was lost{often}", "machine", "", help)


def cloudpickle() -> Any:
    """The module that pickles a user's classes by value. joblib contains one."""
    for name in ("cloudpickle", "joblib.externals.cloudpickle"):
        with contextlib.suppress(ImportError):
            return import_module(name)
    return pickle


def points_of(text: str) -> list[int]:
    """The points of a list such as ``3,7-12``."""
    ranges = [part.split("-") for part in text.split(",")]
    return [point for ends in ranges for point in range(int(ends[0]), int(ends[-1]) + 1)]


def list_of(points: Sequence[int]) -> str:
    """The inverse of :func:`points_of`."""
    ends: list[list[int]] = []
    for point in points:
        if ends and ends[-1][1] == point - 1:
            ends[-1][1] = point
        else:
            ends.append([point, point])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def batches_of(points: Sequence[int], size: Callable[[int], float], most: float) -> list[str]:
    """Divide points into batches. A batch ends when its size reaches `most`."""
    batches: list[str] = []
    batch: list[int] = []
    total = 0.0
    for point in points:
        batch.append(point)
        total += size(point)
        if total >= most:
            batches.append(list_of(batch))
            batch, total = [], 0.0
    return [*batches, list_of(batch)] if batch else batches


def sweep(
    experiment: Experiment,
    on: Engine = "local",
    *,
    out: Path | None = None,
    workers: int | None = None,
    shared_disk: bool | None = None,
    batch: int | None = None,
    retries: int = 3,
    quick: bool = False,
    force: bool = False,
    progress: ProgressLike = None,
    cancel: _fedsa.CancelToken | None = None,
    checkpoint_every: float = 10.0,
    options: Mapping[str, Any] | None = None,
) -> Results:
    """Run a sweep in other processes or on other machines.

    The results equal those of :meth:`Experiment.run`, bit for bit. Finished points are kept in the folder: the same call, here or
    elsewhere, runs only the others. ``fedsa run --points`` works in the same folder.

    Parameters
    ----------
    experiment : Experiment
        An experiment with a sweep: from a file, or made by :meth:`Experiment.sweep`.
    on : {"local", "joblib"}
        ``"local"`` runs the points in this process with all threads. ``"joblib"`` runs them in processes of one thread each; inside
        ``joblib.parallel_config(backend="dask")`` or ``"ray"`` these are workers of a cluster.
    out : path, optional
        A folder, as in :meth:`Experiment.run`. Without it no file is kept.
    workers : int, optional
        The number of processes; by default the number of processors of joblib's backend.
    shared_disk : bool, optional
        Whether workers see the folder ``out`` under the same path; by default true if `out` is given. Otherwise workers send results to this
        process.
    batch : int, optional
        The number of points of a task. By default points are grouped by their estimated times.
    retries : int
        How often tasks of lost workers are repeated; 3 by default. With a shared disk they continue from checkpoints.
    quick, force, progress, cancel, checkpoint_every
        As in :meth:`Experiment.run`. A cancelled sweep leaves no process behind.
    options : mapping, optional
        Further arguments of ``joblib.Parallel``.

    Returns
    -------
    Results
        The results.

    Raises
    ------
    InputError
        When a setting or a file cannot be used, or the folder holds other files.
    MachineError
        When a worker was lost too often, or the machine fails. Finished points are kept in the folder.
    Cancelled
        When ``cancel`` is cancelled. As with ``KeyboardInterrupt``, finished points are kept.
    ImportError
        When joblib is not installed.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3, seed=1), methods.FedLSA(0.1, 10), rounds=100)
    >>> swept = experiment.sweep({"method.fedlsa.step_size": [0.01, 0.1]})
    >>> results = fedsa.sweep(swept, on="local")
    >>> bool((results.trace()["mse"] == swept.run().trace()["mse"]).all())
    True
    """
    if on not in get_args(Engine):
        raise InputError(f"{on!r} is not accepted", "setting.unknown-name", "on", "'local' or 'joblib'", value=repr(on))
    native = experiment._native(quick)
    every = seconds_of(checkpoint_every, "checkpoint_every")
    workers, batch = (None if n is None else whole(n, name, 1) for n, name in ((workers, "workers"), (batch, "batch")))
    retries = whole(retries, "retries", 0)
    if shared_disk is None or on == "local":
        shared_disk = on == "local" or out is not None

    def look() -> None:
        if cancel is not None and cancel.is_cancelled:
            raise Cancelled("it was cancelled", "cancelled", "", "the same call again, which goes on from its folder")

    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener(native.id, progress))
        place = os.path.abspath(out) if out is not None else stack.enter_context(tempfile.TemporaryDirectory(prefix="fedsa-"))
        if out is None:
            place = os.path.join(place, "sweep")
        if not os.path.exists(os.path.join(place, "summary.json")):
            # In this process all threads work on one batch.
            batches, size = plan(native, place, 1 if on == "local" else workers or os.cpu_count() or 1, batch, cancel)
            blob = b"" if on == "local" else packed(experiment)
            work = Work(blob, place if shared_disk else None, quick, force, every, os.getpid())
            total, done = sum(size.values()), 0.0
            listener.show("running", done, total)
            how = Options(workers, retries, dict(options or {}), look)
            # Close the generator at once on errors, so that no worker is left.
            with contextlib.closing(run(on, work, native, batches, how, cancel)) as ended:
                for points, part in ended:
                    if part is not None:
                        _fedsa.add_part(native, place, part)
                    done += size[points]
                    listener.show("running", done, total)
        return Results._of(_fedsa.merge_parts(native, listener, cancel, place))


def plan(native: _fedsa.Experiment, out: str, workers: int, batch: int | None, cancel: _fedsa.CancelToken | None) -> tuple[list[str], dict[str, float]]:
    """The batches to run, and their sizes: estimated seconds, or numbers of points if `batch` is given."""
    there = _fedsa.parts_in(out)
    taken = {point for points, _ in there for point in points_of(points)}
    begun = [points for points, is_done in there if not is_done]
    left = [point for point in range(len(native.points())) if point not in taken]
    if batch is not None:
        batches = [*begun, *batches_of(left, lambda _: 1.0, float(batch))]
        return batches, {points: float(len(points_of(points))) for points in batches}
    estimated = _fedsa.point_seconds(native, cancel) if left or begun else []
    most = min(max(sum(estimated[point] for point in left) / (BATCHES * workers), LEAST), MOST)
    batches = [*begun, *batches_of(left, estimated.__getitem__, most)]
    return batches, {points: sum(estimated[point] for point in points_of(points)) for points in batches}


def run(on: str, work: Work, native: _fedsa.Experiment, batches: Sequence[str], options: Options, cancel: _fedsa.CancelToken | None) -> Ended:
    """Run the batches in this process or through joblib."""
    if on != "local":
        yield from on_joblib(work, batches, options)
        return
    for points in batches:
        assert work.out is not None
        work.run(native, work.out, points, None, cancel)
        yield points, None
