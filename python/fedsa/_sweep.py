"""Sweeps whose points run in other processes: on this machine, on a cluster."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from fedsa import _fedsa
from fedsa._files import Path
from fedsa._progress import Listener, ProgressLike
from fedsa._results import Results
from fedsa._settings import checked_keywords, whole
from fedsa._settings import seconds as seconds_of
from fedsa.errors import Cancelled, InputError, MachineError

if TYPE_CHECKING:
    from fedsa._experiment import Experiment

Engine = Literal["local", "joblib", "ray", "dask", "submitit"]

# The seconds that a batch of points takes at least and at most, as estimated, and the number of batches for each worker between them.
LEAST, MOST, BATCHES = 0.5, 30.0, 8

# The seconds between looks at what is done, and those for which a task waits until a worker that was lost has given up its part.
LOOK, PATIENCE = 0.2, 60.0


@dataclass(frozen=True)
class Work:
    """What a worker does with each batch of points. It travels to the workers once, or with each batch."""

    # The experiment, pickled: a worker that knows it does not read it again.
    blob: bytes = field(repr=False)
    # The folder of the sweep, or none where workers do not see it.
    out: str | None
    quick: bool
    force: bool
    checkpoint_every: float
    # The process that leads.
    leader: int

    def __call__(self, points: str) -> tuple[str, bytes | None]:
        """Run a batch; its points, and what they have come to where that does not travel by the disk."""
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
        """Run a batch in a folder. A part that a lost worker still holds is waited for."""
        began = time.monotonic()
        while True:
            try:
                _fedsa.run_part(native, notify, cancel, out, points, self.force, self.checkpoint_every)
                return
            except InputError as e:
                if e.code != "setting.output-busy" or time.monotonic() - began > PATIENCE:
                    raise
                time.sleep(LOOK)


# The experiment that this process has run last, by the digest of its pickle.
_known: dict[bytes, Experiment] = {}


def known(blob: bytes) -> Experiment:
    """The experiment of a pickle."""
    key = hashlib.sha256(blob).digest()
    if key not in _known:
        _known.clear()
        classes, experiment = pickle.loads(blob)
        # Classes that are pickled by their contents forget where they were defined, which files name.
        for cls, name in pickle.loads(classes):
            cls.__qualname__ = name
        _known[key] = pickle.loads(experiment)
    return _known[key]


def packed(experiment: Experiment) -> bytes:
    """The pickle of an experiment for other processes, with classes of the user's own program."""
    pickler = cloudpickle()
    kinds = [experiment._made.get("problem"), *experiment._made.get("methods", ())]
    given = [getattr(kind, "_given", {}) for kind in kinds]
    classes = {type(one[key]) for one in given for key in ("operator", "client", "server") if one.get(key) is not None}
    return pickle.dumps((pickler.dumps([(cls, cls.__qualname__) for cls in classes]), pickler.dumps(experiment)))


@dataclass(frozen=True)
class Options:
    """How an engine is used."""

    workers: int | None
    address: str | None
    retries: int
    more: dict[str, Any]
    # Raises where the sweep was cancelled.
    look: Callable[[], None]
    # A folder for what the engine itself writes.
    logs: str


Ended = Generator[tuple[str, "bytes | None"], None, None]


def on_joblib(work: Work, batches: Sequence[str], options: Options) -> Ended:
    """Processes of joblib, or what ``joblib.parallel_config`` names."""
    joblib, loky = import_module("joblib"), import_module("joblib.externals.loky")
    broken = import_module("joblib.externals.loky.process_executor").BrokenProcessPool
    left, lost = list(batches), 0
    try:
        while left:
            # A worker that is lost takes all others with it.
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


class Pool:
    """Workers to which batches are given as tasks."""

    # What is raised for a task whose worker was lost, where the engine does not repeat it itself.
    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, most: int) -> None:
        # The most tasks that wait or run at a time.
        self.most = most

    def submit(self, batches: list[str]) -> list[Any]:
        raise NotImplementedError

    def ready(self, tasks: list[Any]) -> Iterable[Any]:
        """Those tasks that have ended, after a moment at most."""
        raise NotImplementedError

    def result(self, task: Any) -> tuple[str, bytes | None]:
        raise NotImplementedError

    def close(self, tasks: list[Any]) -> None:
        """Stop these tasks, and all workers that were started for them."""
        raise NotImplementedError


class RayPool(Pool):
    """Plain tasks of Ray, one processor each."""

    def __init__(self, work: Work, options: Options) -> None:
        ray = import_module("ray")
        self.ray, self.is_ours = ray, not ray.is_initialized()
        if self.is_ours:
            here = {} if options.address else {"num_cpus": options.workers, "include_dashboard": False}
            ray.init(address=options.address, log_to_driver=False, **{**here, **options.more})
        super().__init__(4 * max(16, options.workers or int(ray.cluster_resources().get("CPU", 1))))
        self.work = ray.put(work)
        self.run = ray.remote(num_cpus=1, max_retries=options.retries)(run_batch)

    def submit(self, batches: list[str]) -> list[Any]:
        return [self.run.remote(self.work, points) for points in batches]

    def ready(self, tasks: list[Any]) -> Iterable[Any]:
        ready: list[Any] = self.ray.wait(tasks, num_returns=1, timeout=LOOK)[0]
        return ready

    def result(self, task: Any) -> tuple[str, bytes | None]:
        try:
            result: tuple[str, bytes | None] = self.ray.get(task)
            return result
        except self.ray.exceptions.RayTaskError as e:
            raise e.cause from None
        except self.ray.exceptions.RayError as e:
            raise lost_worker() from e

    def close(self, tasks: list[Any]) -> None:
        for task in tasks:
            self.ray.cancel(task, force=True)
        if self.is_ours:
            self.ray.shutdown()


class DaskPool(Pool):
    """Tasks of Dask on processes of one thread."""

    def __init__(self, work: Work, options: Options) -> None:
        dask, distributed = import_module("dask"), import_module("distributed")
        self.wait, self.broken, self.retries = distributed.wait, distributed.KilledWorker, options.retries
        self.cluster = None
        if options.address is None:
            here = {"n_workers": options.workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None, **options.more}
            with dask.config.set({"distributed.scheduler.allowed-failures": options.retries}):
                self.cluster = distributed.LocalCluster(**here)
        self.client = distributed.Client(options.address or self.cluster, **({} if options.address is None else options.more))
        super().__init__(4 * max(16, len(self.client.scheduler_info()["workers"])))
        self.work = work

    def submit(self, batches: list[str]) -> list[Any]:
        tasks: list[Any] = self.client.map(functools.partial(run_batch, self.work), batches, pure=False, retries=self.retries)
        return tasks

    def ready(self, tasks: list[Any]) -> Iterable[Any]:
        with contextlib.suppress(TimeoutError):
            self.wait(tasks, timeout=LOOK, return_when="FIRST_COMPLETED")
        return [task for task in tasks if task.done()]

    def result(self, task: Any) -> tuple[str, bytes | None]:
        try:
            result: tuple[str, bytes | None] = task.result()
            return result
        except self.broken as e:
            raise lost_worker() from e

    def close(self, tasks: list[Any]) -> None:
        self.client.cancel(tasks, force=True)
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()


class SubmititPool(Pool):
    """Jobs of submitit: arrays of Slurm, or processes of this machine."""

    def __init__(self, work: Work, options: Options) -> None:
        submitit = import_module("submitit")
        self.lost = (submitit.core.utils.UncompletedJobError,)
        self.executor = submitit.AutoExecutor(folder=options.logs, cluster=options.address)
        self.executor.update_parameters(**{"cpus_per_task": 1, "timeout_min": 60, "name": "fedsa", **options.more})
        workers = options.workers or os.cpu_count() or 1
        self.is_slurm = self.executor.cluster == "slurm"
        if self.is_slurm and options.workers:
            self.executor.update_parameters(slurm_array_parallelism=workers)
        # Slurm takes arrays of a thousand jobs; elsewhere all jobs begin at once.
        super().__init__(1000 if self.is_slurm else workers)
        self.work = work

    def submit(self, batches: list[str]) -> list[Any]:
        jobs: list[Any] = self.executor.map_array(functools.partial(run_batch, self.work), batches)
        return jobs

    def ready(self, tasks: list[Any]) -> Iterable[Any]:
        ready = [job for job in tasks if job.done()]
        if not ready:
            time.sleep(LOOK)
        return ready

    def result(self, task: Any) -> tuple[str, bytes | None]:
        raised = task.exception()
        if raised is None:
            result: tuple[str, bytes | None] = task.result()
            return result
        # A job that has raised names its exception as text: here it is raised again.
        if isinstance(raised, self.lost):
            raise raised
        raise MachineError(str(raised), "machine", "", "the log of the job says more")

    def close(self, tasks: list[Any]) -> None:
        for job in tasks:
            job.cancel(check=False)
        began = time.monotonic()
        while any(not job.done() for job in tasks) and time.monotonic() - began < PATIENCE and not self.is_slurm:
            time.sleep(LOOK)


def run_batch(work: Work, points: str) -> tuple[str, bytes | None]:
    """A task."""
    return work(points)


def lost_worker(times: int = 0) -> MachineError:
    """The error about workers that were lost too often."""
    often = f" {times} times" if times else " too often"
    help = "the same call again, which goes on from its folder; more retries, or workers with more memory"
    return MachineError(f"a worker was lost{often}", "machine", "", help)


def on_pool(make: Callable[[Work, Options], Pool], work: Work, batches: Sequence[str], options: Options) -> Ended:
    """Give batches to a pool, not all at once."""
    pool = make(work, options)
    left, running, lost = list(reversed(batches)), dict[Any, str](), dict[str, int]()
    try:
        while left or running:
            if left and len(running) <= pool.most // 2:
                some = [left.pop() for _ in range(min(len(left), pool.most - len(running)))]
                running.update(zip(pool.submit(some), some))
            options.look()
            for task in pool.ready(list(running)):
                points = running.pop(task)
                try:
                    yield pool.result(task)
                except pool.lost as e:
                    lost[points] = lost.get(points, 0) + 1
                    if lost[points] > options.retries:
                        raise lost_worker(lost[points]) from e
                    left.append(points)
    finally:
        pool.close(list(running))


def cloudpickle() -> Any:
    """What pickles operators of a user's own program: the engines bring it."""
    for name in ("cloudpickle", "joblib.externals.cloudpickle", "ray.cloudpickle"):
        with contextlib.suppress(ImportError):
            return import_module(name)
    return pickle


ENGINES: dict[str, tuple[str, Callable[[Work, Sequence[str], Options], Ended]]] = {
    "joblib": ("joblib", on_joblib),
    "ray": ("ray", functools.partial(on_pool, RayPool)),
    "dask": ("distributed", functools.partial(on_pool, DaskPool)),
    "submitit": ("submitit", functools.partial(on_pool, SubmititPool)),
}


def points_of(text: str) -> list[int]:
    """The points of a list such as ``3,7-12``."""
    ranges = [part.split("-") for part in text.split(",")]
    return [point for ends in ranges for point in range(int(ends[0]), int(ends[-1]) + 1)]


def list_of(points: Sequence[int]) -> str:
    """The list of these points, in order."""
    ends: list[list[int]] = []
    for point in points:
        if ends and ends[-1][1] == point - 1:
            ends[-1][1] = point
        else:
            ends.append([point, point])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def batches_of(points: Sequence[int], size: Callable[[int], float], most: float) -> list[str]:
    """The points in batches whose sizes come to `most`, or just above."""
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


@checked_keywords
def sweep(
    experiment: Experiment,
    on: Engine = "local",
    *,
    out: Path | None = None,
    workers: int | None = None,
    address: str | None = None,
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
    """Run the points of a sweep in other processes, also of other machines.

    The results are those of :meth:`Experiment.run`, bit for bit. Points that are done are kept in the folder: the same call again, with this
    engine or another, runs the others only. ``fedsa run --points`` works in the same folder.

    Parameters
    ----------
    experiment : Experiment
        An experiment with a sweep: of a file, or made by :meth:`Experiment.sweep`.
    on : {"local", "joblib", "ray", "dask", "submitit"}
        Who runs the points: this process with all its threads, or processes of one thread each that another package leads.
    out : path, optional
        A folder, as for :meth:`Experiment.run`. Without one nothing is left on the disk.
    workers : int, optional
        The number of processes; as many as this machine, or the cluster, has processors by default.
    address : str, optional
        A cluster: the address of Ray or of Dask's scheduler; for submitit ``"slurm"`` or ``"local"``. By default processes of this machine,
        and for submitit what it finds.
    shared_disk : bool, optional
        Whether workers see the folder ``out`` under the same path. Otherwise results travel through this process. By default they see it, where
        there is one.
    batch : int, optional
        The number of points of a task. By default small points are put together by their estimated times.
    retries : int
        How often a task is run again whose worker was lost. It goes on from its checkpoints where the disk is shared.
    quick, force, progress, cancel, checkpoint_every
        As in :meth:`Experiment.run`. What is cancelled leaves no process behind.
    options : mapping, optional
        Further arguments of the engine: of ``joblib.Parallel``, ``ray.init``, Dask's ``LocalCluster`` (with an address of its ``Client``), or of
        submitit's ``update_parameters``, such as ``{"slurm_partition": "cpu", "timeout_min": 240}``.

    Returns
    -------
    Results
        The results.

    Raises
    ------
    InputError
        When a setting or a file cannot be used, or the folder holds something else.
    MachineError
        When a worker was lost too often, or the machine fails. What was done until then is kept in the folder.
    Cancelled
        When ``cancel`` is cancelled. So it is with ``KeyboardInterrupt``.
    ImportError
        When the package of the engine is not installed.

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
    if on != "local" and on not in ENGINES:
        raise InputError(f"{on!r} is no engine", "setting.unknown-name", "on", f"one of local, {', '.join(ENGINES)}", value=repr(on))
    native = experiment._native(quick)
    every = seconds_of(checkpoint_every, "checkpoint_every")
    workers, batch = (None if n is None else whole(n, name, 1) for n, name in ((workers, "workers"), (batch, "batch")))
    retries = whole(retries, "retries", 0)
    if shared_disk is None or on == "local":
        shared_disk = on == "local" or out is not None or (address is None and on != "submitit")

    def look() -> None:
        if cancel is not None and cancel.is_cancelled:
            raise Cancelled("it was cancelled", "cancelled", "", "the same call again, which goes on from its folder")

    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener(native.id, progress))
        place = os.path.abspath(out) if out is not None else stack.enter_context(tempfile.TemporaryDirectory(prefix="fedsa-"))
        if out is None:
            place = os.path.join(place, "sweep")
        if not os.path.exists(os.path.join(place, "summary.json")):
            # In this process all threads share a batch.
            batches, size = plan(native, place, 1 if on == "local" else workers or os.cpu_count() or 1, batch, cancel)
            blob = b"" if on == "local" else packed(experiment)
            work = Work(blob, place if shared_disk else None, quick, force, every, os.getpid())
            total, done = sum(size.values()), 0.0
            listener.show("running", done, total)
            how = Options(workers, address, retries, dict(options or {}), look, f"{place}-submitit")
            # Closed at once where this fails, not when it is collected.
            with contextlib.closing(run(on, work, native, batches, how, cancel)) as ended:
                for points, part in ended:
                    if part is not None:
                        _fedsa.add_part(native, place, part)
                    done += size[points]
                    listener.show("running", done, total)
        return Results._of(_fedsa.merge_parts(native, listener, cancel, place))


def plan(native: _fedsa.Experiment, out: str, workers: int, batch: int | None, cancel: _fedsa.CancelToken | None) -> tuple[list[str], dict[str, float]]:
    """The batches that are to run, and their sizes: seconds, or points where these are counted."""
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
    """Run the batches on an engine."""
    if on != "local":
        package, engine = ENGINES[on]
        try:
            import_module(package)
        except ImportError as e:
            raise ImportError(f"sweep(on={on!r}) needs the package {package}: pip install {package}", name=package) from e
        yield from engine(work, batches, options)
        return
    for points in batches:
        assert work.out is not None
        work.run(native, work.out, points, None, cancel)
        yield points, None
