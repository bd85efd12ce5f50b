"""Bad input: an exception of the right class with a helpful text, and nothing else."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, problems

GARNET = problems.Garnet(agents=5, states=10, features=3)
FEDLSA = methods.FedLSA(0.1, 10)


def experiment(**given: Any) -> fedsa.Experiment:
    return fedsa.Experiment(**{"problem": GARNET, "methods": FEDLSA, "rounds": 5, **given})


def linear(a: Any, b: Any) -> Any:
    return experiment(problem=problems.Linear(a, b)).run()


A, B = np.stack([np.eye(2)] * 3), np.ones((3, 2))
deep: list[Any] = []
for _ in range(100):
    deep = [deep]

endless: list[Any] = []
endless.append(endless)

# What is done, the exception, and what its text has.
CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "half a surrogate pair": (lambda: experiment(methods=methods.FedLSA(0.1, 2, label="\udc80")), fedsa.InputError, "half a surrogate pair"),
    "problem by name": (lambda: experiment(problem="garnet"), fedsa.InputError, "problem: 'garnet' is a text"),
    "method by name": (lambda: experiment(methods="fedlsa"), fedsa.InputError, "methods.named('fedlsa'"),
    "negative dim": (lambda: federation.Federation(FEDLSA, weights=[1.0], dim=-1), fedsa.InputError, "dim: -1"),
    "no dim": (lambda: federation.Federation(FEDLSA, weights=[1.0], dim=0), fedsa.InputError, "dim: 0"),
    "negative seed": (lambda: federation.Federation(FEDLSA, weights=[1.0], dim=2, seed=-1), fedsa.InputError, "seed: -1"),
    "weights of texts": (lambda: federation.Federation(FEDLSA, weights="a", dim=2), fedsa.InputError, "weights"),
    "more than all memory": (lambda: federation.Federation(FEDLSA, weights=[0.5, 0.5], dim=2**45), fedsa.OutOfMemory, "vectors of"),
    "more than all numbers": (lambda: federation.Federation(FEDLSA, weights=[0.5, 0.5], dim=2**62), fedsa.OutOfMemory, "vectors of"),
    "matrices beyond all memory": (
        lambda: federation.ServerNode(federation.Federation(methods.FedNL(), weights=[0.5, 0.5], dim=65_000)).open(),
        fedsa.OutOfMemory,
        "a server of 2 agents with d = 65000",
    ),
    "systems that messages cannot hold": (
        lambda: federation.Federation(methods.LSTD(), weights=[0.5, 0.5], dim=200_000),
        fedsa.InputError,
        "at most d = 65535",
    ),
    "negative threads": (lambda: fedsa.set_threads(-1), fedsa.InputError, "threads: -1"),
    "true threads": (lambda: fedsa.set_threads(True), fedsa.InputError, "threads: True"),
    "negative budget": (lambda: experiment().tune(target_mse=1.0, budget=-1), fedsa.InputError, "budget: -1 is no time"),
    "nan budget": (lambda: experiment().tune(target_mse=1.0, budget=float("nan")), fedsa.InputError, "budget: nan is no time"),
    "progress by text": (lambda: experiment().run(progress="yes"), fedsa.InputError, "progress: 'yes'"),
    "unknown keyword": (lambda: methods.FedLSA(0.1, local_step=10), TypeError, "did you mean 'local_steps'"),
    "missing argument": (lambda: methods.FedLSA(0.1), TypeError, "needs local_steps"),
    "too many positional": (lambda: methods.FedLSA(0.1, 10, 1.0), TypeError, "positional"),
    "twice": (lambda: methods.FedLSA(0.1, 10, step_size=0.1), TypeError, "twice"),
    "positional where there is none": (lambda: problems.Garnet(5), TypeError, "keyword"),
    "negative step": (lambda: methods.FedLSA(-0.1, 10), fedsa.InputError, "step_size"),
    "zero step": (lambda: methods.FedLSA(0.0, 10), fedsa.InputError, "positive"),
    "nan step": (lambda: methods.FedLSA(float("nan"), 10), fedsa.InputError, "step_size"),
    "infinite step": (lambda: methods.FedLSA(float("inf"), 10), fedsa.InputError, "step_size"),
    "text for a number": (lambda: methods.FedLSA("fast", 10), fedsa.InputError, "step_size"),
    "number for a count": (lambda: methods.FedLSA(0.1, 2.5), fedsa.InputError, "local_steps"),
    "huge count": (lambda: methods.FedLSA(0.1, 10**30), fedsa.InputError, "64 bits"),
    "bool for a count": (lambda: methods.FedLSA(0.1, True), fedsa.InputError, "local_steps"),
    "object": (lambda: methods.FedLSA(object(), 10), fedsa.InputError, "type `object`"),
    "function": (lambda: methods.FedLSA(lambda t: 0.1, 10), fedsa.InputError, "type `function`"),
    "complex": (lambda: methods.FedLSA(1j, 10), fedsa.InputError, "type `complex`"),
    "nested deeply": (lambda: problems.RandomLinear(a=deep), fedsa.InputError, "levels"),
    "endless": (lambda: problems.RandomLinear(a=endless), fedsa.InputError, "levels"),
    "keys that are no texts": (lambda: methods.FedLSA({1: 2}, 10), fedsa.InputError, "keys that are texts"),
    "unknown name": (lambda: problems.Garnet(heterogeneity="some"), fedsa.InputError, "identical, low"),
    "no agents": (lambda: experiment(problem=problems.Garnet(agents=0)).run(), fedsa.InputError, "agents"),
    "unknown kind": (lambda: methods.named("fedsla"), fedsa.InputError, "did you mean 'fedlsa'"),
    "unknown keyword of a preset": (lambda: methods.named("fib-shed", rh=1), TypeError, "did you mean 'rho'"),
    "no bits": (lambda: links.Quantised(0), fedsa.InputError, "bits"),
    "probability above 1": (lambda: links.Erasure(1.5), fedsa.InputError, "success"),
    "link of another type": (lambda: methods.FedLSA(0.1, 10, uplink="exact"), fedsa.InputError, "fedsa.links.Uplink"),
    "settings that change": (lambda: setattr(FEDLSA, "step_size", 1.0), AttributeError, "replace"),
    "a setting that is not there": (lambda: FEDLSA.stepsize, AttributeError, "did you mean 'step_size'"),
    "no rounds": (lambda: experiment(rounds=0), fedsa.InputError, "rounds"),
    "rounds of another type": (lambda: experiment(rounds="many"), fedsa.InputError, "rounds"),
    "no methods": (lambda: experiment(methods=[]), fedsa.InputError, "method"),
    "labels twice": (lambda: experiment(methods=[FEDLSA, FEDLSA]).run(), fedsa.InputError, "label"),
    "unknown argument": (lambda: experiment(round=5), TypeError, "keyword argument 'round'"),
    "unknown law": (lambda: experiment(sampling="iids"), fedsa.InputError, "iid"),
    "unknown target": (lambda: experiment(stop={"mze": 1.0}), fedsa.InputError, "mse"),
    "start of another length": (lambda: experiment(start=np.zeros(7)).run(), fedsa.InputError, "start"),
    "start with nan": (lambda: experiment(start=[np.nan, 0.0, 0.0]).run(), fedsa.InputError, "start"),
    "start of objects": (lambda: experiment(start=np.array([object()] * 3)), fedsa.InputError, "type `object`"),
    "participants beyond agents": (lambda: experiment(methods=FEDLSA.replace(participants=99)).run(), fedsa.InputError, "participants"),
    "unstable": (lambda: experiment(methods=methods.FedLSA(1e6, 10)).run(), fedsa.InputError, "step"),
    "other dimensions": (lambda: linear(np.ones((3, 2, 3)), B), fedsa.InputError, "a"),
    "other numbers of agents": (lambda: linear(A, np.ones((2, 2))), fedsa.InputError, "b"),
    "arrays of one dimension": (lambda: linear(np.ones(4), B), fedsa.InputError, "a"),
    "empty arrays": (lambda: linear(np.zeros((0, 2, 2)), np.zeros((0, 2))), fedsa.InputError, "a"),
    "arrays with nan": (lambda: linear(np.full((3, 2, 2), np.nan), B), fedsa.InputError, "a"),
    "arrays of texts": (lambda: linear(np.full((3, 2, 2), "x"), B), fedsa.InputError, "a"),
    "ragged lists": (lambda: linear([[[1.0, 0.0], [0.0]]], [[1.0, 1.0]]), fedsa.InputError, "a"),
    "arrays of objects": (lambda: linear(np.full((3, 2, 2), None), B), fedsa.InputError, "array of object"),
    "no file": (lambda: fedsa.Experiment.from_toml("nothing.toml"), fedsa.InputError, "nothing.toml"),
    "a folder as a file": (lambda: fedsa.Experiment.from_toml("."), fedsa.InputError, "cannot be read"),
    "not TOML": (lambda: fedsa.Experiment.from_text("a = ", name="x.toml"), fedsa.InputError, "x.toml:1"),
    "an unknown key of a file": (lambda: fedsa.Experiment.from_text("rouns = 1", name="x.toml"), fedsa.InputError, "x.toml:1"),
    "an unknown key of set": (lambda: fedsa.Experiment.bundled("scafflsa/slides", set={"run.rouns": 1}), fedsa.InputError, "set="),
    "an unknown experiment": (lambda: fedsa.Experiment.bundled("scafflsa/fig1"), fedsa.InputError, "did you mean"),
    "a sweep over one value": (lambda: experiment().sweep({"run.rounds": 5}), fedsa.InputError, "no sequence"),  # type: ignore[dict-item]
    "a sweep over a text": (lambda: experiment().sweep({"sampling.kind": "iid"}), fedsa.InputError, "no sequence"),
    "a sweep without values": (lambda: experiment().sweep({"run.rounds": []}), fedsa.InputError, "values"),
    "a problem without its file": (lambda: experiment(problem=problems.File("nothing.npz")).run(), fedsa.InputError, "nothing.npz"),
    "logs that are not there": (lambda: experiment(problem=problems.Logistic("nothing.csv", ridge=0.1)).run(), fedsa.InputError, "nothing.csv"),
    "a folder without a run": (lambda: fedsa.open("."), fedsa.InputError, "not the folder of a run"),
    "no folder": (lambda: fedsa.open("nothing"), fedsa.InputError, "no such folder"),
    "resume without a folder": (lambda: experiment().run(resume=True), TypeError, "out="),
    "resume and overwrite": (lambda: experiment().run(out="x", resume=True, overwrite=True), TypeError, "exclude"),
    "an unknown argument of run": (lambda: experiment().run(output="x"), TypeError, "keyword argument 'output'"),
    "a target below 0": (lambda: experiment().theory(target_mse=-1.0), fedsa.InputError, "target_mse"),
    "an unknown cost": (lambda: experiment().tune(target_mse=1.0, objective="money"), fedsa.InputError, "one of rounds, bits, samples, seconds"),
    "seconds of an unknown network": (lambda: experiment().tune(target_mse=1.0, objective="seconds"), fedsa.InputError, "latency"),
    "a budget that is no time": (lambda: experiment().tune(target_mse=1.0, budget="long"), fedsa.InputError, "'2m'"),
    "a time limit without a number": (lambda: experiment().tune(target_mse=1.0, time_limit=[1]), fedsa.InputError, "'2m'"),
    "no threads": (lambda: fedsa.set_threads(0), fedsa.InputError, "threads"),
    "weights that do not sum to 1": (lambda: federation.Federation(FEDLSA, weights=[0.5, 0.2], dim=2), fedsa.InputError, "weights"),
    "no weights": (lambda: federation.Federation(FEDLSA, weights=[], dim=2), fedsa.InputError, "weights"),
    "a start of another length": (
        lambda: federation.Federation(FEDLSA, weights=[0.5, 0.5], dim=2, start=[1.0]),
        fedsa.InputError,
        "start",
    ),
    "no such agent": (
        lambda: federation.ClientNode(federation.Federation(FEDLSA, weights=[0.2] * 5, dim=3), federation.AgentData(GARNET), 7),
        fedsa.InputError,
        "agent",
    ),
    "data of another dimension": (
        lambda: federation.ClientNode(federation.Federation(FEDLSA, weights=[0.2] * 5, dim=4), federation.AgentData(GARNET), 0),
        fedsa.InputError,
        "components",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    act, kind, said = CASES[name]
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    assert said in str(caught.value), str(caught.value)
    if isinstance(caught.value, fedsa.FedsaError):
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value) and again.code == caught.value.code
        assert caught.value.code and caught.value.what and caught.value.help
        # Words of the program and of files are not those of the package.
        assert "--" not in str(caught.value)
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(
    "a",
    [
        np.asfortranarray(A),
        np.repeat(A, 2, axis=2)[:, :, ::2],
        A.astype(">f8"),
        A.astype(np.float32),
        A.astype(int),
        np.broadcast_to(np.eye(2), (3, 2, 2)),
        A.tolist(),
        tuple(map(tuple, A)),
    ],
    ids=["fortran", "strided", "big-endian", "float32", "int", "broadcast", "lists", "tuples"],
)
def test_arrays_of_all_layouts_have_the_same_results(a: Any) -> None:
    expected = linear(A, B).theta("fedlsa")
    np.testing.assert_array_equal(linear(a, B).theta("fedlsa"), expected)


def test_an_array_that_is_read_only_is_taken_and_not_changed() -> None:
    a = A.copy()
    a.flags.writeable = False
    linear(a, B)
    np.testing.assert_array_equal(a, A)


def resident() -> int:
    """The memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("name", ["nan step", "no rounds", "object", "an unknown key of a file", "other dimensions"])
def test_refusals_leak_nothing(name: str) -> None:
    act, kind, _ = CASES[name]

    def many(n: int) -> None:
        for _ in range(n):
            with pytest.raises(kind):
                act()
        gc.collect()

    many(200)
    before = resident()
    many(2000)
    assert resident() - before < 8e6


@pytest.mark.slow
def test_runs_leak_nothing() -> None:
    def many(n: int) -> None:
        for _ in range(n):
            results = experiment().run(progress=False)
            results.trace().__arrow_c_stream__()
        gc.collect()

    many(300)
    before = resident()
    many(3000)
    assert resident() - before < 16e6
