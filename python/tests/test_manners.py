"""Interruptions, threads, forks, progress, warnings, panics: how long calls behave."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fedsa
from fedsa import methods, problems
from fedsa._progress import Listener


def long(rounds: int = 100_000_000) -> fedsa.Experiment:
    problem = problems.Garnet(agents=20, states=30, features=8, seed=1)
    return fedsa.Experiment(problem, methods.FedLSA(0.1, 10), rounds=rounds, record={"points": 50})


def small() -> fedsa.Experiment:
    return fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=50, seeds=2)


@contextlib.contextmanager
def in_a_second(act: Callable[[], object]) -> Iterator[None]:
    """Does something in a second, unless the block has ended before."""
    timer = threading.Timer(1.0, act)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also in a process that was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_call_soon_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    # It would take minutes.
    experiment = long()
    with pytest.raises(KeyboardInterrupt), in_a_second(lambda: os.kill(os.getpid(), signal.SIGINT)):
        experiment.run(out=tmp_path / "run", checkpoint_every=0.2)
    with pytest.raises(fedsa.InputError) as e:
        fedsa.open(tmp_path / "run")
    assert e.value.code == "format.unfinished"
    # The objects are usable, and the run goes on until it is stopped again.
    assert experiment.labels == ["fedlsa"]
    token = fedsa.CancelToken()
    with pytest.raises(fedsa.Cancelled) as cancelled, in_a_second(token.cancel):
        experiment.run(out=tmp_path / "run", resume=True, cancel=token)
    assert cancelled.value.code == "cancelled" and token.is_cancelled


def test_a_run_goes_on_after_an_interruption_with_the_same_bits(tmp_path: Path) -> None:
    experiment = long(rounds=40_000)
    seen: list[float] = []

    def stop(progress: fedsa.Progress) -> None:
        seen.append(progress.done)
        if progress.stage == "running" and progress.done > 0:
            raise StopIteration("that is enough")

    try:
        experiment.run(out=tmp_path / "run", checkpoint_every=0.01, progress=stop)
    except StopIteration:
        pass
    resumed = experiment.run(out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.theta("fedlsa"), experiment.run().theta("fedlsa"))
    assert seen


def test_other_threads_run_meanwhile() -> None:
    ticks = 0
    token = fedsa.CancelToken()

    def tick() -> None:
        nonlocal ticks
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            ticks += 1
            time.sleep(0.01)
        token.cancel()

    thread = threading.Thread(target=tick)
    thread.start()
    with pytest.raises(fedsa.Cancelled):
        long().run(cancel=token)
    thread.join()
    assert ticks > 20


def test_calls_of_several_threads_have_the_same_results() -> None:
    expected = small().run().theta("fedlsa")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(small().run().theta("fedlsa"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for theta in found:
        np.testing.assert_array_equal(theta, expected)


def test_results_do_not_depend_on_threads() -> None:
    try:
        fedsa.set_threads(1)
        one = small().run().theta("fedlsa")
        fedsa.set_threads(3)
        assert fedsa.get_threads() == 3
        np.testing.assert_array_equal(small().run().theta("fedlsa"), one)
    finally:
        fedsa.set_threads(None)
    for bad in (0, 100_000):
        with pytest.raises(fedsa.InputError):
            fedsa.set_threads(bad)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def test_the_environment_sets_the_number_of_threads() -> None:
    assert python("import fedsa; print(fedsa.get_threads())", FEDSA_THREADS="3").stdout.strip() == "3"
    refused = python("import fedsa; fedsa.get_threads()", FEDSA_THREADS="many")
    assert "FEDSA_THREADS" in refused.stderr and "InputError" in refused.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_computes() -> None:
    code = """
import os, warnings
import fedsa
from fedsa import methods, problems
warnings.simplefilter("ignore")
e = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=50)
before = e.run().theta("fedlsa")
child = os.fork()
if child == 0:
    os._exit(0 if (e.run().theta("fedlsa") == before).all() else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    run = python(code)
    assert run.stdout.strip() == "0", run.stderr


def test_importing_needs_numpy_only_and_leaves_the_rest_for_later() -> None:
    code = """
import sys
import numpy
before = set(sys.modules)
import fedsa
now = set(sys.modules) - before
print(*sorted({name.split(".")[0] for name in now}))
print(*sorted(name for name in now if name in ("fedsa.gym", "fedsa._fit", "fedsa._value", "fedsa.federation")))
fedsa.ValueFunction, fedsa.FederatedClassifier, fedsa.gym.record
print(all(hasattr(fedsa, name) and name in dir(fedsa) for name in fedsa.__all__))
"""
    foreign, later, is_whole = python(code).stdout.splitlines()
    assert not set(foreign.split()) - {"fedsa"} - set(sys.stdlib_module_names)
    assert later == "" and is_whole == "True"
    with pytest.raises(AttributeError, match="no attribute 'ValueFunktion'"):
        fedsa.ValueFunktion  # type: ignore[attr-defined]


def test_progress_goes_to_a_callback_and_an_observer() -> None:
    seen: list[fedsa.Progress] = []
    rows: list[dict[str, object]] = []
    small().run(progress=seen.append, observer=rows.append)
    assert [p.stage for p in seen][0] == "building" and "comparing" in {p.stage for p in seen}
    assert len(rows) == 2 * 51 and rows[0]["method"] == "fedlsa"


def test_exceptions_of_callbacks_are_raised() -> None:
    def broken(progress: fedsa.Progress) -> None:
        raise LookupError("of the callback")

    with pytest.raises(LookupError, match="of the callback"):
        small().run(progress=broken)


def test_a_callback_may_call_fedsa() -> None:
    found: list[float] = []
    small().run(progress=lambda progress: found.append(small().run(progress=False).floor("fedlsa").mean))
    assert len(set(found)) == 1


def test_what_the_engine_warns_of_is_a_warning_and_a_log(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener("name", False)
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.INFO, logger="fedsa"):
        warnings.simplefilter("always")
        listener([("warned", "a checkpoint could not be written")])
        small().run()
    assert [str(w.message) for w in caught] == ["a checkpoint could not be written"]
    assert issubclass(caught[0].category, fedsa.FedsaWarning)
    assert any("running" in record.getMessage() for record in caplog.records)


def test_results_show_themselves_in_notebooks(tmp_path: Path) -> None:
    results = small().run()
    figure = results.plot(theme="dark")
    assert "<svg" in figure._repr_svg_() and "<table" in results._repr_html_()
    for name, head in [("f.png", b"\x89PNG"), ("f.pdf", b"%PDF"), ("f.svg", b"<svg")]:
        figure.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    # What cannot be written is said, and nothing else is left behind.
    with pytest.raises(fedsa.MachineError, match="f.svg"):
        figure.save(tmp_path / "missing" / "f.svg")
    assert sorted(os.listdir(tmp_path)) == ["f.pdf", "f.png", "f.svg"]
    with pytest.raises(fedsa.InputError, match="ends in .svg, .png or .pdf"):
        figure.save(tmp_path / "f.jpg")
    summary = results.summary()
    assert summary.to_csv().splitlines()[0] == "method,outcome,no floor yet,rounds,bits"
    assert r"\begin{tabular}" in summary.to_latex()


def test_a_missed_target_is_an_outcome() -> None:
    problem = problems.Garnet(agents=5, states=10, features=3)
    results = fedsa.Experiment(problem, methods.FedLSA(0.1, 10), rounds=50, stop={"mse": 1e-9}).run()
    outcome = results.outcomes["fedlsa"]
    assert outcome.name == "max-rounds" and outcome.help and not outcome.as_expected
    with pytest.raises(fedsa.MissedError, match="max-rounds"):
        results.raise_if_missed()
    diverging = fedsa.Experiment(problem, methods.FedLSA(100.0, 10), rounds=50)
    with pytest.raises(fedsa.InputError):
        diverging.run()
    assert not diverging.check().accepted
    diverged = diverging.run(force=True)
    assert diverged.outcomes["fedlsa"].name == "diverged" and np.isnan(diverged.floor("fedlsa").mean)
