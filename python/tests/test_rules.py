"""Client and server rules of one's own: twins of those of the engine, and of loops in NumPy."""

from __future__ import annotations

import copy
import pickle
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, operators, problems, rules

N, D, ETA, H = 21, 3, 0.05, 7
DRAWN = np.random.default_rng(7)
A = 0.3 * DRAWN.normal(size=(N, D, D)) + np.eye(D)
B = DRAWN.normal(size=(N, D))
NOISY = problems.Linear(A, B, noise=0.5)
EXACT = problems.Linear(A, B)


class Local:
    """FedLSA."""

    def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
        return (agents.steps() - theta) / agents.step_sum


class Controlled:
    """SCAFFLSA with ``rule="literal"`` and all agents."""

    memory = ("control", "own", "base")

    def __init__(self) -> None:
        self._heard: list[np.ndarray] = []

    def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
        control, own, base = (agents.memory[name] for name in self.memory)
        if agents.round > 0:
            # v of the round before, which the model tells.
            control += (theta - base) / agents.step_sum - own
        direction = (agents.steps(drift=control) - theta) / agents.step_sum
        own[:] = direction
        agents.memory["base"] = np.tile(theta, (len(agents.numbers), 1))
        return direction


class Average:
    """FedLSA's server."""

    def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        return theta + at.step_sum * mean


class AverageOfEach(Average):
    """The same from the answers one by one."""

    answers = True

    def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        assert at.answers is not None and at.agents is not None and at.weights is not None and at.rounds is not None
        assert at.answers.shape == (len(at.agents), D) and (at.rounds <= at.round).all()
        np.testing.assert_allclose((at.weights[:, None] * at.answers).sum(0) / at.asked, mean, rtol=1e-12, atol=1e-14)
        return super().step(theta, mean, at)


class Adam:
    """Adam on the mean direction."""

    def __init__(self, rate: float = 0.05) -> None:
        self.rate = rate

    def start(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {"first": np.zeros_like(theta), "second": np.zeros_like(theta)}

    def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        first = at.state["first"]
        first += 0.1 * (mean - first)
        at.state["second"] = 0.99 * at.state["second"] + 0.01 * mean**2
        k = at.round + 1
        return theta + self.rate * (first / (1 - 0.9**k)) / (np.sqrt(at.state["second"] / (1 - 0.99**k)) + 1e-8)


def custom(**given: Any) -> methods.Custom:
    return methods.Custom(ETA, H, label="own", **given)


def bits(method: methods.Method, problem: Any = NOISY, rounds: int = 12, **settings: Any) -> np.ndarray:
    results = fedsa.Experiment(problem, method, rounds=rounds, **{"seeds": 2, **settings}).run()
    theta = results.theta(results.labels[0])
    assert np.isfinite(theta).all() and theta.any()
    return np.asarray(theta)


LOSSY = links.Erasure(0.7)
QUANTISED = links.Uplink(codec=links.Quantised(4), error_feedback=True)
LATE = links.Late(law="uniform", min=0, max=3)
BUDGET = links.Uplink(codec=links.Quantised(4), media=[links.BitBudget(3.0, fading_snr=2.0)], error_feedback=True)
CLIPPED = links.Uplink(media=[links.Clip(0.5), links.Noise(0.1)])
UPLINKS = [LOSSY, links.Quantised(4), QUANTISED, LATE, links.Uplink(codec=links.TopK(k=2), media=[LOSSY]), BUDGET, links.OverTheAir(receiver_noise=0.1), CLIPPED]
LINKS: list[dict[str, Any]] = [{}, *({"uplink": uplink} for uplink in UPLINKS), {"downlink": links.Quantised(6)}]
SETTINGS: list[dict[str, Any]] = [{}, {"participants": 9}, {"global_step_size": 0.5}]


@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_plain_steps_are_those_of_fedlsa_to_the_bit(given: dict[str, Any], link: Any) -> None:
    twin = bits(methods.FedLSA(ETA, H, **link, **given))
    np.testing.assert_array_equal(bits(custom(client=Local(), **link, **given)), twin)
    if "global_step_size" not in given:
        np.testing.assert_array_equal(bits(custom(server=Average(), **link, **given)), twin)
        np.testing.assert_array_equal(bits(custom(client=Local(), server=Average(), **link, **given)), twin)


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_control_variates_are_those_of_scafflsa_to_the_bit(link: Any) -> None:
    twin = bits(methods.SCAFFLSA(ETA, H, rule="literal", **link))
    np.testing.assert_array_equal(bits(custom(client=Controlled(), **link)), twin)
    np.testing.assert_array_equal(bits(custom(client=Controlled(), server=Average(), **link)), twin)


def test_answers_one_by_one_have_the_mean_of_all() -> None:
    np.testing.assert_array_equal(bits(custom(server=AverageOfEach())), bits(methods.FedLSA(ETA, H)))
    for link in (LOSSY, LATE, links.GilbertElliott(0.2, 0.5)):
        bits(custom(server=AverageOfEach(), uplink=link))
    with pytest.raises(fedsa.InputError, match="only their sum arrives"):
        bits(custom(server=AverageOfEach(), uplink=links.OverTheAir()))


def test_stale_models_and_laws_of_samples() -> None:
    link = links.Delay(law="uniform", max=3)
    np.testing.assert_array_equal(bits(custom(client=Local(), uplink=link)), bits(methods.FedLSA(ETA, H, uplink=link)))
    with pytest.raises(fedsa.InputError, match="remember"):
        bits(custom(client=Controlled(), uplink=link))
    garnet = problems.Garnet(agents=10, states=8, features=3)
    for law in ("iid", "markov", "mean", {"kind": "iid", "batch": 3}):
        twin = bits(methods.SCAFFLSA(ETA, H), garnet, sampling=law)
        np.testing.assert_array_equal(bits(custom(client=Controlled()), garnet, sampling=law), twin)


def test_step_sizes_that_decay_are_those_of_the_round() -> None:
    for decay in ({"c": 0.5, "t0": 10, "per": "step"}, {"c": 0.5, "t0": 10}):
        own = methods.Custom(decay, H, client=Local(), server=Average())
        np.testing.assert_array_equal(bits(own), bits(methods.FedLSA(decay, H)))


class Points:
    """An operator of one's own."""

    agents, dim = 5, 2

    def sample(self, theta: np.ndarray, state: Any, rng: operators.Draws) -> np.ndarray:
        return rng.agents[:, None] - theta + rng.normal(2)


def test_rules_work_on_operators_of_ones_own() -> None:
    own = problems.Custom(Points())
    np.testing.assert_array_equal(bits(custom(client=Controlled()), own), bits(methods.SCAFFLSA(ETA, H), own))


def test_steps_and_samples_are_of_one_stream() -> None:
    class Halves:
        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            at = agents.steps(step_sizes=agents.step_sizes[:3])
            at = agents.steps(at, step_sizes=agents.step_sizes[3:])
            return (at - theta) / agents.step_sum

    class Sampled:
        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            at = np.tile(theta, (len(agents.numbers), 1))
            for eta in agents.step_sizes:
                at = at + eta * agents.sample(at)
            return (at - theta) / agents.step_sum

    twin = bits(methods.FedLSA(ETA, H))
    np.testing.assert_array_equal(bits(custom(client=Halves())), twin)
    # The kernel rounds once where NumPy rounds twice.
    np.testing.assert_allclose(bits(custom(client=Sampled())), twin, rtol=1e-12)


def in_numpy(rounds: int, server: str) -> np.ndarray:
    """Rounds on the mean operators, written from the formulas."""
    theta, first, second = np.zeros(D), np.zeros(D), np.zeros(D)
    for k in range(1, rounds + 1):
        ends = []
        for a, b in zip(A, B):
            at = theta.copy()
            for _ in range(H):
                at = at + ETA * (b - a @ at)
            ends.append((at - theta) / (ETA * H))
        mean = np.mean(ends, axis=0)
        if server == "median":
            theta = theta + ETA * H * np.median(ends, axis=0)
            continue
        first = 0.9 * first + 0.1 * mean
        second = 0.99 * second + 0.01 * mean**2
        theta = theta + 0.05 * (first / (1 - 0.9**k)) / (np.sqrt(second / (1 - 0.99**k)) + 1e-8)
    return theta


def test_adam_and_the_median_are_those_of_a_loop_in_numpy() -> None:
    class Median:
        answers = True

        def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            assert at.answers is not None
            return theta + at.step_sum * np.median(at.answers, axis=0)

    for server, rule in (("adam", Adam()), ("median", Median())):
        own = bits(custom(server=rule), EXACT, rounds=40, sampling="mean", seeds=[0])[0]
        np.testing.assert_allclose(own, in_numpy(40, server), rtol=1e-11)


BOTH = [dict(client=Controlled(), server=Adam()), dict(client=Local(), server=Adam(), participants=9), dict(server=Adam(), uplink=LOSSY)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = fedsa.get_threads()
    yield
    fedsa.set_threads(before)


@pytest.mark.parametrize("given", BOTH, ids=range(len(BOTH)))
def test_results_do_not_depend_on_threads_interruptions_or_who_carries_the_messages(given: dict[str, Any], threads: None, tmp_path: Path) -> None:
    whole = bits(custom(**given), rounds=30)
    for count in (1, 3):
        fedsa.set_threads(count)
        np.testing.assert_array_equal(bits(custom(**given), rounds=30), whole)
    calls = 0

    class Stopping(Adam):
        def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            nonlocal calls
            calls += 1
            if calls == 40:
                raise RuntimeError("no more")
            return super().step(theta, mean, at)

    experiment = fedsa.Experiment(NOISY, custom(**{**given, "server": Stopping()}), rounds=30, seeds=2)
    with pytest.raises(RuntimeError, match="no more") as e:
        experiment.run(out=tmp_path / "run", checkpoint_every=0.0)
    assert "in step" in "".join(traceback.format_tb(e.value.__traceback__))
    assert calls == 40, "no call after one that failed"
    resumed = experiment.run(out=tmp_path / "run", resume=True)
    assert calls < 40 + 60, "what was done before is not done again"
    np.testing.assert_array_equal(resumed.theta("own"), whole)
    server, agents = nodes(custom(**given), NOISY)
    for _ in range(30):
        carry(server, agents)
    np.testing.assert_array_equal(server.theta, whole[0])


def nodes(method: methods.Method, problem: Any, **sampling: Any) -> tuple[federation.ServerNode, list[federation.ClientNode]]:
    data = federation.AgentData(problem, **sampling)
    shared = federation.Federation(method, weights=data.weights, dim=data.dim)
    agents = [federation.ClientNode(shared, data, agent) for agent in range(data.agents)]
    return federation.ServerNode(shared), agents


def carry(server: federation.ServerNode, agents: list[federation.ClientNode]) -> None:
    todo = server.open()
    while not todo.is_over and todo.wants_answers:
        for agent, message in todo.messages.items():
            answer = agents[agent].handle(message)
            if answer is not None:
                server.take(agent, answer)
        todo = server.close()


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_nodes_have_the_numbers_of_the_engine_over_all_links(link: Any) -> None:
    method = custom(client=Controlled(), server=Average(), **link)
    server, agents = nodes(method, NOISY)
    for k in range(8):
        carry(server, agents)
        if k == 3:
            # A restart of all of them.
            states = server.save(), [agent.save() for agent in agents]
            server, agents = nodes(method, NOISY)
            server.restore(states[0])
            for agent, state in zip(agents, states[1]):
                agent.restore(state)
    np.testing.assert_array_equal(server.theta, bits(method, rounds=8, seeds=[0])[0])


def test_rules_hear_what_was_sent_where_links_alter_it() -> None:
    class Acknowledged(Controlled):
        def sent(self, sent: np.ndarray, agents: rules.Agents) -> None:
            heard.append((agents.round, agents.numbers.tolist(), sent.copy()))
            agents.memory["own"][:] = sent
            with pytest.raises(fedsa.InputError, match="have answered"):
                agents.steps()

    heard: list[Any] = []
    exact = bits(custom(client=Acknowledged()))
    assert not heard
    np.testing.assert_array_equal(exact, bits(methods.SCAFFLSA(ETA, H)))
    method = custom(client=Acknowledged(), uplink=links.Quantised(4))
    engine = bits(method, rounds=6, seeds=[0])[0]
    assert [round for round, _, _ in heard] == list(range(6)) and heard[0][1] == list(range(N))
    np.testing.assert_array_equal(engine, bits(methods.SCAFFLSA(ETA, H, rule="acknowledged", uplink=links.Quantised(4)), rounds=6, seeds=[0])[0])
    whole = [sent for _, _, sent in heard]
    heard.clear()
    server, agents = nodes(method, NOISY)
    for _ in range(6):
        carry(server, agents)
    np.testing.assert_array_equal(server.theta, engine)
    np.testing.assert_array_equal(np.concatenate([sent for _, _, sent in heard]), np.concatenate(whole))


def test_random_numbers_are_those_of_the_agent_wherever_it_runs() -> None:
    class Sparse(Local):
        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            return super().answer(theta, agents) * (agents.rng.random(D) < 0.5)

    method = custom(client=Sparse())
    server, agents = nodes(method, NOISY)
    for _ in range(4):
        carry(server, agents)
    np.testing.assert_array_equal(server.theta, bits(method, rounds=4, seeds=[0])[0])


def test_a_node_with_its_own_data_alone_is_who_it_is_in_the_federation() -> None:
    class Drawing(Controlled):
        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            return super().answer(theta, agents) + 0.1 * agents.rng.normal(D)

    method = custom(client=Drawing(), server=Average())
    shared = federation.Federation(method, weights=np.full(N, 1 / N), dim=D)
    own = [federation.AgentData(problems.Linear(A[c : c + 1], B[c : c + 1], noise=0.5)) for c in range(N)]
    agents = [federation.ClientNode(shared, data, c) for c, data in enumerate(own)]
    server = federation.ServerNode(shared)
    for _ in range(5):
        carry(server, agents)
    np.testing.assert_array_equal(server.theta, bits(method, rounds=5, seeds=[0])[0])


def test_what_a_node_raises_leaves_it_as_it_was() -> None:
    class Failing(Controlled):
        is_failing = False

        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            answer = super().answer(theta, agents)
            if self.is_failing:
                raise ValueError("an agent")
            return answer

    class FailingServer(Adam):
        is_failing = False

        def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            theta = super().step(theta, mean, at)
            if self.is_failing:
                raise ValueError("a server")
            return theta

    client, rule = Failing(), FailingServer()
    method = custom(client=client, server=rule)
    server, agents = nodes(method, NOISY)
    for _ in range(3):
        carry(server, agents)
    todo = server.open()
    client.is_failing = True
    state = agents[0].save()
    with pytest.raises(ValueError, match="an agent"):
        agents[0].handle(todo.messages[0])
    assert agents[0].save() == state
    client.is_failing = False
    for agent, message in todo.messages.items():
        answer = agents[agent].handle(message)
        assert answer is not None
        server.take(agent, answer)
    rule.is_failing = True
    state = server.save()
    for call in (server.close, server.open, server.close):
        with pytest.raises(ValueError, match="a server"):
            call()
        assert server.save() == state and server.rounds == 3
    rule.is_failing = False
    assert server.close().is_over and server.rounds == 4
    np.testing.assert_array_equal(server.theta, bits(method, rounds=4, seeds=[0])[0])


class Returning:
    """A rule with a method that returns a value."""

    memory = ("kept",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def answer(self, theta: np.ndarray, agents: rules.Agents) -> Any:
        return self._value(theta, agents) if callable(self._value) else self._value

    def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> Any:
        return self._value(theta, at) if callable(self._value) else self._value

    def start(self, theta: np.ndarray) -> Any:
        return {"kept": np.zeros(2)}


def keeping(value: Any) -> Any:
    """Puts a value into the memory or state."""

    def call(theta: np.ndarray, agents: Any) -> np.ndarray:
        (agents.memory if hasattr(agents, "memory") else agents.state)["kept"] = value
        return np.zeros((N, D)) if hasattr(agents, "memory") else theta

    return call


def run_another(theta: np.ndarray, agents: Any) -> Any:
    return fedsa.Experiment(problems.Garnet(agents=2), methods.FedLSA(0.1, 1), rounds=1).run()


WRONG: list[tuple[str, Any, str, str]] = [
    ("client", None, "Returning.answer returned None", "setting.wrong-type"),
    ("client", "text", "an array of <U4", "setting.wrong-type"),
    ("client", np.zeros(D), "shape (3,)", "setting.wrong-length"),
    ("client", np.zeros((N, D + 1)), "shape (21, 4)", "setting.wrong-length"),
    ("client", np.zeros((N, D), dtype=complex), "complex128", "setting.wrong-type"),
    ("client", np.zeros((N, D), dtype=object), "an array of object", "setting.wrong-type"),
    ("client", np.full((N, D), np.nan), "Returning.answer returned NaN for agent 0", "data"),
    ("client", keeping(np.zeros(3)), "the memory 'kept' of Returning.answer", "setting.wrong-length"),
    ("client", keeping(None), "the memory 'kept' of Returning.answer", "setting.wrong-type"),
    ("client", lambda theta, agents: agents.memory.update(other=1) or np.zeros((N, D)), "has put 'other'", "setting"),
    ("client", lambda theta, agents: agents.steps(np.zeros(2)), "shape (2,)", "setting.wrong-length"),
    ("client", lambda theta, agents: agents.steps(drift="x"), "drift", "setting.wrong-type"),
    ("client", lambda theta, agents: agents.steps(step_sizes=["x"]), "step_sizes", "setting.wrong-type"),
    ("client", lambda theta, agents: agents.sample(np.zeros((N, D, 1))), "shape (21, 3, 1)", "setting.wrong-length"),
    ("client", run_another, "cannot call the engine", "setting"),
    ("server", None, "Returning.step returned None", "setting.wrong-type"),
    ("server", np.zeros(D + 1), "shape (4,)", "setting.wrong-length"),
    ("server", np.full(D, np.inf), "Returning.step returned inf", "data"),
    ("server", ["a", "b", "c"], "an array of <U1", "setting.wrong-type"),
    ("server", keeping(np.zeros(3)), "the state 'kept' of Returning.step", "setting.wrong-length"),
    ("server", keeping(np.full(2, np.nan)), "Returning.step returned NaN", "data"),
    ("server", lambda theta, at: at.state.clear() or theta, "left a state of nothing", "setting.unknown-name"),
    ("server", run_another, "cannot call the engine", "setting"),
]


@pytest.mark.parametrize("half, value, text, code", WRONG, ids=range(len(WRONG)))
def test_wrong_returns_are_refused_by_the_name_of_the_method(half: str, value: Any, text: str, code: str) -> None:
    method = custom(**{half: Returning(value)})
    with pytest.raises(fedsa.InputError) as e:
        fedsa.Experiment(NOISY, method, rounds=3).run()
    assert text in str(e.value) and e.value.code == code, f"{e.value.code}: {e.value}"
    assert e.value.help
    # Nodes say the same.
    server, agents = nodes(method, NOISY)
    if half == "server":
        with pytest.raises(fedsa.InputError) as e:
            carry(server, agents)
        assert text in str(e.value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopIteration, MemoryError, fedsa.Cancelled])
@pytest.mark.parametrize("half", ["client", "server"])
def test_exceptions_of_all_sorts_reach_the_caller(half: str, kind: type[BaseException]) -> None:
    def raising(*args: Any) -> Any:
        raise kind("x")

    method = custom(**{half: Returning(raising)})
    with pytest.raises(kind):
        fedsa.Experiment(NOISY, method, rounds=3).run()
    server, agents = nodes(method, NOISY)
    with pytest.raises(kind):
        carry(server, agents)


def test_a_start_that_fails_is_raised_before_the_first_round() -> None:
    for value, text in ((None, "no return"), ({"a": "x"}, "the state 'a'"), ({1: np.zeros(1)}, "the name 1"), (3, "int")):
        rule = Returning(None)
        rule.start = lambda theta, value=value: value  # type: ignore[method-assign]
        with pytest.raises(fedsa.InputError) as e:
            fedsa.Experiment(NOISY, custom(server=rule), rounds=3).run()
        assert text in str(e.value), str(e.value)
        with pytest.raises(fedsa.InputError) as e:
            nodes(custom(server=rule), NOISY)
        assert text in str(e.value)


def test_iterates_that_diverge_are_an_outcome() -> None:
    for given in (dict(client=Local()), dict(server=Average()), dict(client=Controlled(), server=Average())):
        results = fedsa.Experiment(NOISY, methods.Custom(50.0, 200, label="own", **given), rounds=50).run()  # type: ignore[arg-type]
        assert results.outcomes["own"].name == "diverged"


def test_agents_are_of_no_use_after_their_call() -> None:
    kept: list[rules.Agents] = []

    class Keeping(Local):
        def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            kept.append(agents)
            return super().answer(theta, agents)

    bits(custom(client=Keeping()), rounds=1)
    for call in (lambda: kept[0].steps(), lambda: kept[0].sample(), lambda: kept[0].rng):
        with pytest.raises(fedsa.InputError, match="is over"):
            call()


def bare(**attributes: Any) -> Any:
    return type("Bare", (), attributes)()


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({}, "client"),
    ({"client": Local}, "client"),
    ({"client": object()}, "answer"),
    ({"server": object()}, "step"),
    ({"server": Local()}, "step"),
    ({"client": bare(answer=3)}, "answer"),
    ({"client": bare(answer=len, sent=3)}, "sent"),
    ({"client": bare(answer=len, memory="xi")}, "memory"),
    ({"client": bare(answer=len, memory=("a", "a"))}, "memory"),
    ({"client": bare(answer=len, memory=(1,))}, "memory"),
    ({"server": bare(step=len, start=3)}, "start"),
    ({"server": Average(), "global_step_size": 2.0}, "global_step_size"),
    ({"client": Local(), "participants": 0}, "participants"),
]


@pytest.mark.parametrize("given, key", UNFIT)
def test_unfit_rules_are_refused(given: dict[str, Any], key: str) -> None:
    with pytest.raises(fedsa.InputError) as e:
        fedsa.Experiment(NOISY, custom(**given), rounds=1).run()
    assert e.value.key.endswith(key) and e.value.help, f"{e.value.key}: {e.value}"


def test_rules_that_cannot_be_told_apart_are_refused() -> None:
    class Hidden(Local):
        def __init__(self, scale: np.ndarray) -> None:
            self.scale = scale

    both = [methods.Custom(ETA, H, client=Hidden(np.full(D, x)), label=f"own {x}") for x in (1.0, 2.0)]
    with pytest.raises(fedsa.InputError, match="two objects are"):
        fedsa.Experiment(NOISY, both, rounds=1)
    told = [methods.Custom(ETA, H, server=Adam(rate), label=f"own {k}") for k, rate in enumerate((0.01, 0.1))]
    results = fedsa.Experiment(NOISY, [*told, methods.FedLSA(ETA, H)], rounds=5).run()
    assert (results.theta("own 0") != results.theta("own 1")).all()
    swept = fedsa.Experiment(NOISY, told[0], rounds=5).sweep({"method.own 0.local_steps": [3, 7]}).run()
    np.testing.assert_array_equal(swept.theta("own 0 [local_steps=7]"), results.theta("own 0"))
    shared = [federation.Federation(method, weights=np.full(N, 1 / N), dim=D).digest for method in told]
    assert shared[0] != shared[1]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_what_is_copied_runs_the_same(copied: Any) -> None:
    method = custom(client=Local(), server=Adam())
    np.testing.assert_array_equal(bits(copied(method)), bits(method))
    experiment = fedsa.Experiment(NOISY, method, rounds=3)
    np.testing.assert_array_equal(copied(experiment).run().theta("own"), experiment.run().theta("own"))
    assert copy.copy(method) == method == custom(client=Local(), server=Adam()) != custom(client=Local(), server=Adam(0.1))
    assert custom(client=Controlled()) != custom(client=Controlled()), "a list is no setting"
    assert method.replace(participants=5).participants == 5
    assert "Adam" in repr(method) and "Adam(rate=0.05)" in experiment.to_toml()
    data = federation.Federation(method, weights=np.full(N, 1 / N), dim=D)
    assert copied(data) == data


def test_theory_knows_nothing_of_rules_and_figures_can_be_drawn_again(tmp_path: Path) -> None:
    experiment = fedsa.Experiment(NOISY, custom(server=Adam()), rounds=5)
    print(experiment.theory())
    assert experiment.check() is not None
    experiment.run(out=tmp_path / "run")
    assert fedsa.open(tmp_path / "run").labels == ["own"]


def test_nodes_in_threads_of_python_do_not_wait_for_each_other(threads: None) -> None:
    fedsa.set_threads(2)
    method = custom(client=Controlled(), server=Adam())
    server, agents = nodes(method, NOISY)
    for _ in range(5):
        todo = server.open()
        answers: dict[int, bytes | None] = {}

        def work(mine: list[int]) -> None:
            for agent in mine:
                answers[agent] = agents[agent].handle(todo.messages[agent])

        workers = [threading.Thread(target=work, args=(list(range(k, N, 4)),), daemon=True) for k in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60.0)
            assert not worker.is_alive(), "a deadlock"
        for agent, answer in answers.items():
            assert answer is not None
            server.take(agent, answer)
        server.close()
    np.testing.assert_array_equal(server.theta, bits(method, rounds=5, seeds=[0])[0])


def test_a_cancelled_run_goes_on(tmp_path: Path) -> None:
    token = fedsa.CancelToken()
    calls = 0

    class Cancelling(Adam):
        def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            nonlocal calls
            calls += 1
            if calls == 20:
                token.cancel()
            return super().step(theta, mean, at)

    experiment = fedsa.Experiment(NOISY, custom(client=Controlled(), server=Cancelling()), rounds=40, seeds=[0])
    with pytest.raises(fedsa.Cancelled):
        experiment.run(out=tmp_path / "run", cancel=token, checkpoint_every=0.0)
    resumed = experiment.run(out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.theta("own"), bits(custom(client=Controlled(), server=Adam()), rounds=40, seeds=[0]))
