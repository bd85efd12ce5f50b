"""Sweeps whose points run in other processes: the bytes of a local run, whoever runs them and whatever is lost meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import _sweep, methods, problems

FILES = ("trace.parquet", "theta.npz", "figure.svg", "config.toml")


def swept(rounds: int = 200) -> fedsa.Experiment:
    garnet = problems.Garnet(agents=5, states=10, features=3, seed=1)
    experiment = fedsa.Experiment(garnet, [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, 10)], rounds=rounds, seeds=2)
    return experiment.sweep({"method.*.step_size": [0.01, 0.02, 0.05], "problem.seed": [1, 2, 3, 4]})


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    return swept().run()._all_files()


def same(results: fedsa.Results, files: dict[str, bytes]) -> None:
    again = results._all_files()
    for name in FILES:
        assert again[name] == files[name], name
    summaries = [json.loads(texts["summary.json"]) for texts in (again, files)]
    assert lasting(summaries[0]) == lasting(summaries[1])


def lasting(summary: Any) -> Any:
    if isinstance(summary, dict):
        return {key: lasting(value) for key, value in summary.items() if key not in ("seconds", "provenance")}
    return [lasting(item) for item in summary] if isinstance(summary, list) else summary


def children(of: int) -> dict[int, str]:
    """Processes below one, with their commands."""
    rows = [line.split(None, 2) for line in subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[1:]]
    found: dict[int, str] = {}
    below = {of}
    while below:
        below = {int(pid) for pid, parent, _ in rows if int(parent) in below}
        found.update({int(pid): args for pid, _, args in rows if int(pid) in below and not args.startswith("ps ")})
    return found


ENGINES = ["local", "joblib"]


def check_results(on: Any, whole: dict[str, bytes], tmp_path: Path) -> None:
    settings = {"workers": 2}
    same(fedsa.sweep(swept(), on, **settings), whole)
    out = tmp_path / "on-the-disk"
    same(fedsa.sweep(swept(), on, out=out, batch=5, **settings), whole)
    assert (out / "trace.parquet").read_bytes() == whole["trace.parquet"] and not (out / ".fedsa/parts").exists()
    same(fedsa.sweep(swept(), on, out=out, **settings), whole)
    same(fedsa.sweep(swept(), on, out=tmp_path / "through-this-process", shared_disk=False, batch=3, **settings), whole)


@pytest.mark.parametrize("on", ENGINES)
def test_results_are_those_of_a_local_run(on: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    if on != "local":
        pytest.importorskip("joblib")
    check_results(on, whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_of_joblib_gives_the_results_of_a_local_run(backend: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    if backend == "dask":
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, distributed.Client(cluster):
            with joblib.parallel_config(backend="dask"):
                check_results("joblib", whole, tmp_path)
        return
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        pytest.importorskip("ray.util.joblib").register_ray()
        with joblib.parallel_config(backend="ray"):
            check_results("joblib", whole, tmp_path)
    finally:
        ray.shutdown()


@pytest.mark.parametrize("on", ENGINES)
def test_a_problem_of_ones_own_runs_in_other_processes(on: Any) -> None:
    if on != "local":
        pytest.importorskip("joblib")
    scales = np.random.default_rng(3).uniform(0.5, 1.5, (4, 3))

    class Own:
        agents, dim = 4, 3

        def sample(self, theta: np.ndarray, state: Any, rng: Any) -> np.ndarray:
            return 1.0 - scales[rng.agents] * theta + 0.1 * rng.normal(3)

        def mean(self, theta: np.ndarray, agents: np.ndarray) -> np.ndarray:
            return 1.0 - scales[agents] * theta

    class Proximal:
        def __init__(self, pull: float) -> None:
            self.pull = pull

        def answer(self, theta: np.ndarray, agents: Any) -> np.ndarray:
            at = np.tile(theta, (len(agents.numbers), 1))
            for eta in agents.step_sizes:
                at = agents.steps(at, drift=self.pull * (theta - at), step_sizes=[eta])
            return (at - theta) / agents.step_sum

    own = methods.Custom(0.1, 3, client=Proximal(0.5), label="own")
    experiment = fedsa.Experiment(problems.Custom(Own()), [methods.FedLSA(0.1, 3), own], rounds=20, seeds=2)
    experiment = experiment.sweep({"method.fedlsa.step_size": [0.05, 0.1, 0.2]})
    if on == "local":
        same(fedsa.sweep(experiment, on), experiment.run()._all_files())
        return
    same(fedsa.sweep(experiment, on, batch=1, workers=2), experiment.run()._all_files())


def test_a_sweep_goes_on_with_another_engine(whole: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    token = fedsa.CancelToken()

    def stop(progress: fedsa.Progress) -> None:
        if progress.stage == "running" and progress.done >= 3:
            token.cancel()

    with pytest.raises(fedsa.Cancelled):
        fedsa.sweep(swept(), "local", out=tmp_path / "d", batch=1, progress=stop, cancel=token)
    done = sorted((tmp_path / "d/.fedsa/parts").glob("*.part"))
    assert 3 <= len(done) < 12
    asked: list[float] = []
    same(fedsa.sweep(swept(), "joblib", workers=2, out=tmp_path / "d", batch=2, progress=lambda p: p.stage == "running" and asked.append(p.total or 0.0)), whole)
    assert asked[0] == 12 - len(done), "what is done is not run again"


def test_workers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    experiment = swept(20000)
    files = experiment.run()._all_files()
    killed: list[int] = []
    stop = threading.Event()
    ours = "loky.backend.popen"

    def kill() -> None:
        while not stop.wait(0.02) and len(killed) < 3:
            if any((tmp_path / "d/.fedsa/parts").glob("*.part")) or killed:
                for pid in [pid for pid, args in children(os.getpid()).items() if ours in args and "resource_tracker" not in args][:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    stop.wait(0.5)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        same(fedsa.sweep(experiment, "joblib", out=tmp_path / "d", batch=1, retries=20, checkpoint_every=0.05, workers=2), files)
    finally:
        stop.set()
        thread.join()
    assert killed


def test_what_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    text = f"""
import sys, fedsa
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_sweep import swept
def stop(progress):
    if progress.stage == "running" and progress.done > 0:
        raise KeyboardInterrupt
if __name__ == "__main__":
    try:
        fedsa.sweep(swept(20000), "joblib", out={str(tmp_path / "d")!r}, batch=1, progress=stop, workers=2)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        sys.stdin.read()
"""
    program = tmp_path / "program.py"
    program.write_text(text)
    with subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None and leader.stdin is not None
        lines = iter(leader.stdout.readline, "")
        assert any("stopped" in line for line in lines)
        began = time.monotonic()
        while (left := {pid: args for pid, args in children(leader.pid).items() if "resource_tracker" not in args and "<defunct>" not in args}) and time.monotonic() - began < 20:
            time.sleep(0.1)
        leader.stdin.close()
        assert not left


def test_batches_have_all_points_in_order() -> None:
    for text, points in (("0", [0]), ("3,7-9", [3, 7, 8, 9])):
        assert _sweep.points_of(text) == points and _sweep.list_of(points) == text
    assert _sweep.batches_of(range(10), lambda _: 1.0, 4.0) == ["0-3", "4-7", "8-9"]
    assert _sweep.batches_of([0, 2, 3, 9], lambda point: float(point), 3.0) == ["0,2-3", "9"]
    native = swept()._native()
    seconds = fedsa._fedsa.point_seconds(native, None)
    assert len(seconds) == 12 and all(second > 0.0 for second in seconds)


def test_what_cannot_be_done_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fedsa.InputError, match="not accepted") as caught:
        fedsa.sweep(swept(), "spark")  # type: ignore[arg-type]
    assert "joblib" in caught.value.help
    for settings in ({"workers": 0}, {"batch": 0}, {"retries": -1}):
        with pytest.raises(fedsa.InputError) as caught:
            fedsa.sweep(swept(), **settings)
        assert caught.value.key in settings
    with pytest.raises(TypeError, match="keyword argument 'worker'"):
        fedsa.sweep(swept(), worker=2)  # type: ignore[call-arg]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "joblib", None)
        with pytest.raises(ImportError, match="pip install joblib"):
            fedsa.sweep(swept(), "joblib", out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    # One folder, one experiment.
    fedsa._fedsa.run_part(swept()._native(), None, None, str(tmp_path / "b"), "0-3", False, 10.0)
    with pytest.raises(fedsa.InputError, match="holds parts of another sweep: run.rounds was 200") as caught:
        fedsa.sweep(swept(300), out=tmp_path / "b")
    with pytest.raises(fedsa.FedsaError, match="points 4-11 of .* are not done"):
        fedsa._fedsa.merge_parts(swept()._native(), None, None, str(tmp_path / "b"))
    part = fedsa._fedsa.part_bytes(str(tmp_path / "b"), "0-3")
    for bytes_, words in ((part[:-1], "damaged"), (b"", "damaged")):
        with pytest.raises(fedsa.FedsaError, match=words):
            fedsa._fedsa.add_part(swept()._native(), str(tmp_path / "c"), bytes_)
    with pytest.raises(fedsa.FedsaError, match="is of another sweep"):
        fedsa._fedsa.add_part(swept(300)._native(), str(tmp_path / "c"), part)
    assert not (tmp_path / "c").exists()
    fedsa._fedsa.add_part(swept()._native(), str(tmp_path / "c"), part)
    assert fedsa._fedsa.parts_in(str(tmp_path / "c")) == [("0-3", True)]
