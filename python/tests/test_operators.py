"""Problems from arrays, and operators of one's own."""

from __future__ import annotations

import copy
import pickle
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, operators, problems

N, D = 21, 3
DRAWN = np.random.default_rng(5)
SCALES = DRAWN.uniform(0.5, 1.5, (N, D))
# The kernel adds the first product to b without rounding it before, which NumPy cannot: this product is exact.
SCALES[:, 0] = DRAWN.choice([0.5, 1.0], N)
OFFSETS = DRAWN.normal(size=(N, D))
DIAGONAL = np.stack([np.diag(row) for row in SCALES])


class Twin:
    """Diagonal systems with white noise: the numbers of `problems.Linear`, bit for bit."""

    agents, dim = N, D

    def __init__(self, std: float = 0.5) -> None:
        self.std = std
        self.calls: list[int] = []

    def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
        self.calls.append(len(theta))
        g = self.mean(theta, rng.agents)
        return g + self.std * rng.normal(D) if self.std else g

    def mean(self, theta: np.ndarray, agents: np.ndarray) -> np.ndarray:
        return OFFSETS[agents] - SCALES[agents] * theta


class Walk:
    """Noise that forgets slowly: a state for each agent."""

    agents, dim = 5, 2
    failing = -1

    def __init__(self) -> None:
        self.calls = 0

    def start(self, rng: operators.Draws) -> np.ndarray:
        return rng.normal(2)

    def sample(self, theta: np.ndarray, state: np.ndarray, rng: operators.Draws) -> tuple[np.ndarray, np.ndarray]:
        self.calls += 1
        if self.calls == self.failing:
            raise RuntimeError("the walk has ended")
        state = 0.9 * state + rng.normal(2)
        return 1.0 + rng.agents[:, None] - theta + state, state


FIRST_ORDER = [
    methods.FedLSA(0.05, 7),
    methods.FedLSA({"c": 0.5, "t0": 10, "per": "step"}, 7, participants=9),
    methods.SCAFFLSA(0.05, 7),
    methods.SCAFFLSARandom(0.05, 0.2),
    methods.FedHSA(0.05, 7, participants=9),
    methods.SCAFFOLD(0.05, 7),
    methods.FedLin(0.05, 7),
    methods.FedTD(0.05),
    methods.ProjectedTD(0.05, 7, radius=0.5),
    methods.DelayedSA(0.05),
    methods.FedLSA(0.05, 7, uplink=links.Uplink(codec=links.Quantised(4), error_feedback=True)),
    methods.SCAFFLSA(0.05, 7, uplink=links.Erasure(0.7)),
    methods.FedLSA(0.05, 7, uplink=links.Delay(law="uniform", max=3)),
]


@pytest.mark.parametrize("law", ["iid", "mean"])
@pytest.mark.parametrize("method", FIRST_ORDER, ids=lambda method: type(method).__name__)
def test_an_operator_has_the_numbers_of_its_twin(method: methods.Method, law: str) -> None:
    std = 0.5 if law == "iid" else 0.0
    twin = Twin(std)
    settings: dict[str, Any] = dict(rounds=12, seeds=2, sampling=law)
    own = fedsa.Experiment(problems.Custom(twin), method, **settings).run()
    engine = fedsa.Experiment(problems.Linear(DIAGONAL, OFFSETS, noise=std or None), method, **settings).run()
    label = own.labels[0]
    np.testing.assert_array_equal(own.theta(label), engine.theta(label))
    costs = [{name: count for name, count in results.cost(label).items() if name != "seconds"} for results in (own, engine)]
    assert costs[0] == costs[1]
    assert own.outcomes[label].name == engine.outcomes[label].name
    if law == "iid" and not isinstance(method, methods.DelayedSA):
        assert max(twin.calls) == (N if "participants" not in repr(method) else 9), "one call for all participants"


def test_samples_are_averaged_over_batches() -> None:
    batch = {"kind": "iid", "batch": 3}
    own = fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[2], rounds=5, sampling=batch).run()
    engine = fedsa.Experiment(problems.Linear(DIAGONAL, OFFSETS, noise=0.5), FIRST_ORDER[2], rounds=5, sampling=batch).run()
    np.testing.assert_array_equal(own.theta("scafflsa"), engine.theta("scafflsa"))


def test_nodes_that_call_for_one_agent_have_the_numbers_of_the_engine() -> None:
    method = methods.SCAFFLSA(0.05, 7, uplink=links.Quantised(6))
    data = federation.AgentData(problems.Custom(Walk()), sampling="markov")
    shared = federation.Federation(method, weights=data.weights, dim=data.dim)
    agents = [federation.ClientNode(shared, data, agent) for agent in range(data.agents)]
    server = federation.ServerNode(shared)
    for _ in range(6):
        todo = server.open()
        while not todo.is_over and todo.wants_answers:
            for agent, message in todo.messages.items():
                answer = agents[agent].handle(message)
                assert answer is not None
                server.take(agent, answer)
            todo = server.close()
    results = fedsa.Experiment(problems.Custom(Walk()), method, rounds=6, seeds=[0], sampling="markov").run()
    np.testing.assert_array_equal(server.theta, results.theta("scafflsa", seed=0))


def test_means_switch_on_metrics_and_jacobians_and_roots_are_used() -> None:
    class Cubic(Twin):
        def mean(self, theta: np.ndarray, agents: np.ndarray) -> np.ndarray:
            return OFFSETS[agents] - SCALES[agents] * theta - theta**3 / 5

        def jacobian(self, theta: np.ndarray, agents: np.ndarray) -> np.ndarray:
            diagonal = -SCALES[agents] - 3 * theta**2 / 5
            return diagonal[:, :, None] * np.eye(D)

    experiment = fedsa.Experiment(problems.Custom(Cubic(0.0)), methods.FedHSA(0.2, 5), rounds=200, seeds=[0], sampling="mean", stop={"mse": 1e-20})
    results = experiment.run()
    assert results.outcomes["fedhsa"].name == "converged"
    theta = results.theta("fedhsa", seed=0)
    residual = Cubic(0.0).mean(np.tile(theta, (N, 1)), np.arange(N)).mean(0)
    assert np.abs(residual).max() < 1e-9

    class Known(Twin):
        root = np.linalg.solve(DIAGONAL.mean(0), OFFSETS.mean(0))
        mean = None  # type: ignore[assignment]

        def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
            return OFFSETS[rng.agents] - SCALES[rng.agents] * theta

    known = fedsa.Experiment(problems.Custom(Known()), methods.FedHSA(0.2, 5), rounds=300, stop={"mse": 1e-20}).run()
    assert known.outcomes["fedhsa"].name == "converged"


def test_weights_are_divided_by_their_sum() -> None:
    weights = np.arange(1.0, N + 1)
    twin = Twin()
    twin.weights = weights  # type: ignore[attr-defined]
    own = fedsa.Experiment(problems.Custom(twin), FIRST_ORDER[0], rounds=5).run()
    engine = fedsa.Experiment(problems.Linear(DIAGONAL, OFFSETS, noise=0.5, weights=weights), FIRST_ORDER[0], rounds=5).run()
    np.testing.assert_array_equal(own.theta("fedlsa"), engine.theta("fedlsa"))


def test_arrays_have_the_numbers_of_files(tmp_path: Path) -> None:
    A, b = DRAWN.normal(size=(4, 3, 3)) / 4 + np.eye(3), DRAWN.normal(size=(4, 3))
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    np.savez(tmp_path / "systems.npz", A=A, b=b, weights=weights)
    noise = {"std": 0.3, "radius": 0.5, "seed": 2}
    both = [
        fedsa.Experiment(problem, [methods.FedLSA(0.05, 5), methods.SCAFFLSA(0.05, 5)], rounds=20, sampling="markov")
        for problem in (problems.Linear(A, b, noise=noise, weights=weights), problems.File(path=tmp_path / "systems.npz", noise=noise))
    ]
    arrays, file = (experiment.run() for experiment in both)
    for label in arrays.labels:
        np.testing.assert_array_equal(arrays.theta(label), file.theta(label))
        assert both[0].theory().limits(label) == both[1].theory().limits(label)
    # Copies: what the caller does with arrays later has no effect.
    again = problems.Linear(A, b, noise=noise, weights=weights)
    A[:] = 0.0
    assert fedsa.Experiment(again, methods.FedLSA(0.05, 5), rounds=20, sampling="markov").run().theta("fedlsa").any()


def test_arrays_of_other_layouts_are_the_same() -> None:
    layouts: list[Callable[[np.ndarray], Any]] = [
        np.asfortranarray,
        lambda x: x.astype(">f8"),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x.tolist(),
        lambda x: np.ma.masked_array(x).data,
    ]
    plain = problems.Linear(DIAGONAL, OFFSETS)
    for layout in layouts:
        assert problems.Linear(layout(DIAGONAL), layout(OFFSETS)) == plain
    read_only = DIAGONAL.copy()
    read_only.setflags(write=False)
    assert problems.Linear(read_only, OFFSETS) == plain
    assert problems.Linear(np.rint(DIAGONAL).astype(np.int32) + 1, OFFSETS.astype(np.float32)) != plain


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_what_is_copied_is_equal(copied: Callable[[Any], Any]) -> None:
    linear = problems.Linear(DIAGONAL, OFFSETS, noise=0.5)
    assert copied(linear) == linear
    experiment = fedsa.Experiment(linear, FIRST_ORDER[0], rounds=3)
    again = copied(experiment)
    assert again == experiment
    results = experiment.run()
    np.testing.assert_array_equal(again.run().theta("fedlsa"), results.theta("fedlsa"))
    np.testing.assert_array_equal(copied(results).theta("fedlsa"), results.theta("fedlsa"))
    own = fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=3)
    np.testing.assert_array_equal(copied(own).run().theta("fedlsa"), results.theta("fedlsa"))
    assert own != fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=3), "another object"
    small = problems.Linear([[[1.0]]], [[2.0]], noise=0.1)
    assert eval(repr(small), {"Linear": problems.Linear}) == small


def test_results_show_themselves_and_are_kept(tmp_path: Path) -> None:
    experiment = fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=10, seeds=2)
    results = experiment.run(out=tmp_path / "run")
    assert results.plot().svg.startswith("<svg") or "<svg" in results.plot().svg
    again = fedsa.open(tmp_path / "run")
    np.testing.assert_array_equal(again.theta("fedlsa"), results.theta("fedlsa"))
    # A figure is drawn with what theory knows of the problem, which only this process has.
    with pytest.raises(fedsa.InputError, match="memory of a process"):
        again.plot()
    assert 'kind = "operator"' in experiment.to_toml()
    assert "Twin" in experiment.to_toml(defaults=True)
    assert experiment.check() is not None
    print(experiment.theory())


def test_what_a_callback_raises_is_raised_with_its_traceback_and_the_run_goes_on(tmp_path: Path) -> None:
    def experiment(walk: Walk) -> fedsa.Experiment:
        return fedsa.Experiment(problems.Custom(walk), methods.SCAFFLSA(0.05, 7), rounds=60, seeds=2, sampling="markov")

    whole = experiment(Walk()).run()
    failing = Walk()
    failing.failing = 500
    made = experiment(failing)
    with pytest.raises(RuntimeError, match="the walk has ended") as e:
        made.run(out=tmp_path / "run", checkpoint_every=0.0)
    assert "in sample" in "".join(traceback.format_tb(e.value.__traceback__))
    assert failing.calls == 500, "no call after one that failed"
    resumed = made.run(out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.theta("scafflsa"), whole.theta("scafflsa"))
    assert failing.calls < 500 + 2 * 60 * 7, "what was done before is not done again"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopIteration, MemoryError, fedsa.Cancelled])
def test_exceptions_of_all_sorts_reach_the_caller(kind: type[BaseException]) -> None:
    class Raising(Twin):
        def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
            raise kind("x")

    with pytest.raises(kind):
        fedsa.Experiment(problems.Custom(Raising()), FIRST_ORDER[0], rounds=5).run()


def returning(value: Any, function: str = "sample") -> problems.Custom:
    """An operator one of whose methods returns a value."""

    class Returning(Twin):
        pass

    def method(self: Any, theta: np.ndarray, *args: Any) -> Any:
        return value(theta, *args) if callable(value) else value

    setattr(Returning, function, method)
    return problems.Custom(Returning())


WRONG_RETURNS: list[tuple[Any, str, str]] = [
    (None, "no return", "setting.wrong-type"),
    ("text", "an array of <U4", "setting.wrong-type"),
    (1.0, "shape ()", "setting.wrong-length"),
    (np.zeros(D), "shape (3,)", "setting.wrong-length"),
    (np.zeros((N, D + 1)), "shape (21, 4)", "setting.wrong-length"),
    (np.zeros((N + 1, D)), "shape (22, 3)", "setting.wrong-length"),
    (np.zeros((N, D, 1)), "shape (21, 3, 1)", "setting.wrong-length"),
    (np.zeros((N, D), dtype=object), "an array of object", "setting.wrong-type"),
    (np.zeros((N, D), dtype=complex), "complex128", "setting.wrong-type"),
    (np.zeros((N, D), dtype="M8[s]"), "datetime64", "setting.wrong-type"),
    (np.full((N, D), np.nan), "NaN for agent 0", "data"),
    (np.full((N, D), np.inf), "inf for agent 0", "data"),
    ([[1.0], [1.0, 2.0]], "no array", "setting.wrong-type"),
    (lambda theta, state, rng: (theta, theta), "shape (2, 21, 3)", "setting.wrong-length"),
    (lambda theta, state, rng: rng, "an array of object", "setting.wrong-type"),
    (lambda theta, state, rng: fedsa.Experiment(problems.Garnet(agents=2), methods.FedLSA(0.1, 1), rounds=1).run(), "callback", "setting"),
    (lambda theta, state, rng: rng.normal(1 << 40), "numbers for each", "setting"),
]


@pytest.mark.parametrize("value, text, code", WRONG_RETURNS, ids=range(len(WRONG_RETURNS)))
def test_wrong_returns_are_refused_by_the_name_of_the_callback(value: Any, text: str, code: str) -> None:
    with pytest.raises(fedsa.InputError) as e:
        fedsa.Experiment(returning(value), FIRST_ORDER[0], rounds=5).run()
    assert text in str(e.value) and e.value.code == code, str(e.value)
    assert e.value.help


@pytest.mark.parametrize("value", [np.zeros((N, D), dtype=np.float32), np.zeros((N, D), dtype=int), np.zeros((N, D), dtype=">f8"),
                                   np.zeros((N, D), order="F"), np.zeros((N, 2 * D))[:, ::2], [[0.0] * D] * N])  # fmt: skip
def test_what_can_be_an_array_of_numbers_is_one(value: Any) -> None:
    results = fedsa.Experiment(returning(value), FIRST_ORDER[0], rounds=5).run()
    assert not results.theta("fedlsa").any()


def test_wrong_means_are_refused_too() -> None:
    for value in (np.zeros((N, D)), None, np.full((1, D), np.nan)):
        with pytest.raises(fedsa.InputError) as e:
            fedsa.Experiment(returning(value, "mean"), FIRST_ORDER[0], rounds=5).run()
        assert "Returning.mean returned" in str(e.value)


def bare(**attributes: Any) -> Any:
    """An object with these attributes."""
    base: dict[str, Any] = {"agents": 2, "dim": 1, "sample": lambda self, theta, state, rng: -theta}
    return type("Bare", (), {**base, **attributes})()


WRONG_OPERATORS: list[tuple[Any, str]] = [
    (object(), "dim"),
    (Twin, "operator"),
    (bare(dim=0), "dim"),
    (bare(dim=1.5), "dim"),
    (bare(dim="2"), "dim"),
    (bare(agents=-1), "agents"),
    (bare(agents=10**12), "agents"),
    (bare(sample=None), "sample"),
    (bare(sample=3), "sample"),
    (bare(mean=3), "mean"),
    (bare(jacobian=lambda self, theta, agents: 0), "mean"),
    (bare(weights=[1.0]), "weights"),
    (bare(weights=[1.0, 0.0]), "weights"),
    (bare(weights=[1.0, np.nan]), "weights"),
    (bare(weights=[[0.5, 0.5]]), "weights"),
    (bare(weights=["a", "b"]), "weights"),
    (bare(root=[1.0, 2.0]), "root"),
    (bare(root=np.inf), "root"),
]


@pytest.mark.parametrize("operator, key", WRONG_OPERATORS)
def test_wrong_operators_are_refused(operator: Any, key: str) -> None:
    with pytest.raises(fedsa.InputError) as e:
        problems.Custom(operator)
    assert e.value.key == key and e.value.help, str(e.value)


WRONG_ARRAYS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (np.zeros((2, 2)), np.zeros((2, 2)), {}, "A"),
    (np.zeros((2, 2, 3)), np.zeros((2, 2)), {}, "A"),
    (np.zeros((0, 2, 2)), np.zeros((0, 2)), {}, "A"),
    (np.zeros((2, 0, 0)), np.zeros((2, 0)), {}, "A"),
    (np.eye(2)[None], np.zeros((2, 2)), {}, "b"),
    (np.eye(2)[None], np.zeros((1, 3)), {}, "b"),
    (np.eye(2)[None], np.zeros(2), {}, "b"),
    (np.full((1, 2, 2), np.nan), np.zeros((1, 2)), {}, "A"),
    (np.eye(2)[None], [[0.0, np.inf]], {}, "b"),
    (np.eye(2, dtype=object)[None], np.zeros((1, 2)), {}, "A"),
    (np.eye(2, dtype=complex)[None], np.zeros((1, 2)), {}, "A"),
    ("text", np.zeros((1, 2)), {}, "A"),
    (None, np.zeros((1, 2)), {}, "A"),
    ([[[1.0], [1.0, 2.0]]], np.zeros((1, 2)), {}, "A"),
    (np.eye(2)[None], np.zeros((1, 2)), {"weights": [0.5, 0.5]}, "weights"),
    (np.eye(2)[None], np.zeros((1, 2)), {"weights": [-1.0]}, "weights"),
    (np.eye(2)[None], np.zeros((1, 2)), {"noise": -1.0}, "noise.std"),
    (np.eye(2)[None], np.zeros((1, 2)), {"noise": {"sd": 1.0}}, "noise.sd"),
    (np.eye(2)[None], np.zeros((1, 2)), {"noise": "loud"}, "noise.std"),
    (np.zeros((1, 2, 2)), np.zeros((1, 2)), {}, ""),
]


@pytest.mark.parametrize("A, b, more, key", WRONG_ARRAYS)
def test_wrong_arrays_are_refused(A: Any, b: Any, more: dict[str, Any], key: str) -> None:
    with pytest.raises((fedsa.InputError, TypeError)) as e:
        fedsa.Experiment(problems.Linear(A, b, **more), methods.FedLSA(0.1, 1), rounds=1).run()
    if isinstance(e.value, fedsa.InputError):
        assert e.value.key.endswith(key) and e.value.help, f"{e.value.key}: {e.value}"


def test_wrong_keywords_name_the_nearest() -> None:
    with pytest.raises(TypeError, match="did you mean 'noise'"):
        problems.Linear(DIAGONAL, OFFSETS, nose=1.0)  # type: ignore[call-arg]


def test_samplings_and_methods_that_cannot_work_are_refused() -> None:
    walk, twin = problems.Custom(Walk()), problems.Custom(Twin())
    for problem, sampling, text in [
        (walk, "iid", "depend on the state"),
        (walk, "mean", "means are not known"),
        (twin, "markov", "no state"),
        (walk, {"kind": "markov", "start": {"state": 1}}, "say themselves where they start"),
    ]:
        with pytest.raises(fedsa.InputError, match=text):
            fedsa.Experiment(problem, methods.FedLSA(0.1, 1), rounds=1, sampling=sampling).run()
    with pytest.raises(fedsa.InputError):
        fedsa.Experiment(twin, methods.SHED(), rounds=1).run()


@pytest.mark.parametrize(
    "start, after, text",
    [
        (lambda self, rng: np.zeros((3, 2)), None, "shape"),
        (lambda self, rng: 1.0, None, "shape"),
        (lambda self, rng: np.zeros((1, 0)), None, "shape"),
        (lambda self, rng: ["a"], None, "start returned an array of <U1"),
        (lambda self, rng: rng.normal(2), lambda state: state[:, :1], "the state of"),
        (lambda self, rng: np.zeros((1, 2), dtype=int), lambda state: state + 0.5, "integers"),
        (lambda self, rng: rng.normal(2), lambda state: None, "no return"),
    ],
)
def test_wrong_states_are_refused(start: Any, after: Any, text: str) -> None:
    def sample(self: Any, theta: np.ndarray, state: np.ndarray, rng: operators.Draws) -> Any:
        return -theta, (after(state) if after else state)

    operator = bare(start=start, sample=sample)
    with pytest.raises(fedsa.InputError) as e:
        fedsa.Experiment(problems.Custom(operator), methods.FedLSA(0.1, 1), rounds=2, sampling="markov").run()
    assert text in str(e.value), str(e.value)


def test_states_may_be_integers() -> None:
    def sample(self: Any, theta: np.ndarray, state: np.ndarray, rng: operators.Draws) -> Any:
        state = (state + (rng.random() < 0.5)) % 4
        return state[:, None] - theta, state

    operator = bare(start=lambda self, rng: (4 * rng.random()).astype(int), sample=sample)
    results = fedsa.Experiment(problems.Custom(operator), methods.FedLSA(0.01, 50), rounds=400, sampling="markov").run()
    assert abs(results.theta("fedlsa")[0, 0] - 1.5) < 0.3


def test_divergence_is_an_outcome() -> None:
    def sample(self: Any, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            cube: np.ndarray = theta**3 + 1.0
        return cube

    operator = bare(sample=sample)
    results = fedsa.Experiment(problems.Custom(operator), methods.FedLSA(1.0, 50), rounds=100).run()
    assert results.outcomes["fedlsa"].name == "diverged"


def test_calls_of_several_threads_do_not_wait_for_each_other() -> None:
    before = fedsa.get_threads()
    fedsa.set_threads(2)
    done: list[np.ndarray] = []

    def run() -> None:
        done.append(fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=50, seeds=3).run().theta("fedlsa"))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    fedsa.set_threads(before)
    assert len(done) == 4 and all((theta == done[0]).all() for theta in done)


def test_draws_are_those_of_each_agents_stream() -> None:
    together = operators.Draws(3, [0, 4, 7], 2)
    apart = [operators.Draws(3, [agent], 2) for agent in (0, 4, 7)]
    for draw in (lambda rng: rng.normal(3), lambda rng: rng.random(2), lambda rng: rng.random(), lambda rng: rng.normal(0)):
        np.testing.assert_array_equal(draw(together), np.concatenate([draw(one) for one in apart]))
    assert together.agents.tolist() == [0, 4, 7]
    many = operators.Draws(1, [0], 0)
    x = many.normal(100_000)
    assert x.shape == (1, 100_000) and abs(x.mean()) < 0.02 and abs(x.std() - 1.0) < 0.02
    u = many.random(100_000)
    assert 0.0 <= u.min() and u.max() < 1.0 and abs(u.mean() - 0.5) < 0.01


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_what_is_refused_leaves_no_memory_behind() -> None:
    bad = np.full((1, 50, 50), np.nan)
    raising = returning(None)
    experiment = fedsa.Experiment(raising, FIRST_ORDER[0], rounds=1)

    def refuse(times: int) -> None:
        for i in range(times):
            with pytest.raises(fedsa.InputError):
                problems.Linear(bad, np.zeros((1, 50)))
            with pytest.raises(fedsa.InputError):
                problems.Custom(bare(dim=0))
            if i % 20 == 0:
                with pytest.raises(fedsa.InputError):
                    experiment.run()

    refuse(500)
    before = resident()
    refuse(10_000)
    assert resident() - before < 20_000_000


def test_ctrl_c_ends_a_call_with_callbacks() -> None:
    import _thread

    # It would take hours to its end.
    experiment = fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=100_000_000)
    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert fedsa.Experiment(problems.Custom(Twin()), FIRST_ORDER[0], rounds=2).run().theta("fedlsa").any()


def test_a_token_ends_a_call_with_callbacks() -> None:
    token = fedsa.CancelToken()

    class Cancelling(Twin):
        def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
            if len(self.calls) == 100:
                token.cancel()
            return super().sample(theta, state, rng)

    with pytest.raises(fedsa.Cancelled):
        fedsa.Experiment(problems.Custom(Cancelling()), FIRST_ORDER[0], rounds=1_000_000).run(cancel=token)


def test_a_node_whose_callback_raises_is_unchanged() -> None:
    walk = Walk()
    data = federation.AgentData(problems.Custom(walk), sampling="markov")
    shared = federation.Federation(methods.SCAFFLSA(0.05, 7), weights=data.weights, dim=data.dim)
    node = federation.ClientNode(shared, data, 2)
    message = federation.ServerNode(shared).open().messages[2]
    before = node.save()
    walk.failing = walk.calls + 3
    with pytest.raises(RuntimeError, match="the walk has ended"):
        node.handle(message)
    assert node.save() == before
    answer = node.handle(message)
    assert answer is not None and answer == federation.ClientNode(shared, data, 2).handle(message)


def test_an_operator_of_one_agents_own_data_is_enough_for_its_node() -> None:
    class Own:
        agents, dim = 1, D

        def __init__(self, agent: int) -> None:
            self.agent = agent

        def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
            return OFFSETS[[self.agent]] - SCALES[[self.agent]] * theta + 0.5 * rng.normal(D)

    method = methods.SCAFFLSA(0.05, 7)
    shared = federation.Federation(method, weights=np.full(N, 1.0 / N), dim=D)
    nodes = [federation.ClientNode(shared, federation.AgentData(problems.Custom(Own(agent))), agent) for agent in range(N)]

    def carry(messages: Any) -> dict[int, bytes]:
        answers = {agent: nodes[agent].handle(message) for agent, message in messages.items()}
        return {agent: answer for agent, answer in answers.items() if answer is not None}

    server = federation.ServerNode(shared)
    data = federation.AgentData(problems.Custom(Twin()))
    session = federation.Session(server, carry, data=data)
    session.advance(5)
    results = fedsa.Experiment(problems.Custom(Twin()), method, rounds=5, seeds=[0]).run()
    np.testing.assert_array_equal(server.theta, results.theta("scafflsa", seed=0))
    assert session.history[-1]["residual"] < session.history[0]["residual"]


def test_sweeps_and_theory_take_operators() -> None:
    experiment = fedsa.Experiment(problems.Custom(Twin()), methods.FedLSA(0.05, 7), rounds=10)
    results = experiment.sweep({"method.fedlsa.step_size": [0.05, 0.1]}).run()
    assert len(results.labels) == 2
    assert "not linear" in str(experiment.theory())
    calls = fedsa.Experiment(problems.Linear(DIAGONAL, OFFSETS, noise=0.5), methods.FedLSA(0.05, 7), rounds=10)
    assert calls.theory(target_mse=0.1).limits("fedlsa").floor > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("problem", [problems.Custom(Twin()), problems.Linear(DIAGONAL, OFFSETS, noise=0.5)], ids=["class", "arrays"])
def test_tuning_takes_problems_in_memory(problem: problems.Problem) -> None:
    experiment = fedsa.Experiment(problem, methods.FedLSA(0.05, 7), rounds=10)
    tuning = experiment.tune(target_mse=0.02, budget=2.0, methods=["scafflsa"], local_steps=[7])
    assert tuning.best is not None and tuning.experiment is not None
    answer = copy.copy(tuning.experiment).run()
    assert answer.outcomes[answer.labels[0]].name in ("converged", "completed")


@pytest.mark.parametrize("agents", [1, 7])
def test_a_root_that_contradicts_the_means_is_refused(agents: int) -> None:
    class Points:
        dim = 2

        def __init__(self, root: Any) -> None:
            self.agents, self.root = agents, root
            self.points = 100.0 + np.arange(2.0 * agents).reshape(agents, 2)

        def sample(self, theta: Any, state: Any, rng: Any) -> Any:
            return self.mean(theta, rng.agents)

        def mean(self, theta: Any, agents: Any) -> Any:
            return self.points[agents] - theta

    def ran(root: Any) -> Any:
        return fedsa.Experiment(problems.Custom(Points(root)), methods.FedLSA(0.1, 5), rounds=3).run()

    right = Points(None).points.mean(0)
    for root in (right, right + 1e-3, None):
        assert ran(root).trace()["mse"][-1] > 0.0
    for wrong in (right + 30.0, np.zeros(2), -right):
        with pytest.raises(fedsa.InputError, match=r"Points\.root is no root of Points\.mean") as e:
            ran(wrong)
        assert e.value.key.endswith("root") and "computed with mean" in e.value.help
        with pytest.raises(fedsa.InputError, match="no root"):
            federation.AgentData(problems.Custom(Points(wrong)))


@pytest.mark.parametrize("k", [-1, 2.5, "two", 2**70, np.array([1, 2])])
def test_numbers_of_draws_are_checked(k: Any) -> None:
    draws = operators.Draws(0, [0, 1])
    for draw in (draws.normal, draws.random):
        with pytest.raises(fedsa.InputError, match="a whole number of at least 0") as e:
            draw(k)
        assert e.value.key == "k"
    assert draws.normal(np.int64(2)).shape == (2, 2) and draws.random(0).shape == (2, 0)
