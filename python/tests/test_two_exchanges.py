"""Rules of one's own with two exchanges a round: twins of FedHSA and of loops in NumPy, in the engine and at nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, problems, rules
from test_rules import ETA, EXACT, H, LINKS, LOSSY, NOISY, QUANTISED, A, Average, B, N, bits, custom

GARNET = problems.Garnet(agents=21, states=8, features=3, seed=4)


class GlobalMemory:
    """FedHSA."""

    memory = ("operator",)

    def report(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
        assert agents.exchange == 0 and agents.reply is None
        agents.memory["operator"] = agents.sample()
        return agents.memory["operator"]

    def answer(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
        assert agents.exchange == 1 and agents.reply is not None
        return (agents.steps(drift=agents.reply - agents.memory["operator"]) - theta) / agents.step_sum


class Replying(Average):
    """The average of both exchanges, by hand."""

    def reply(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        return mean


class ReplyingToEach(Replying):
    """The same from reports one by one."""

    answers = True

    def reply(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        assert at.answers is not None and at.weights is not None
        np.testing.assert_allclose((at.weights[:, None] * at.answers).sum(0) / at.asked, mean, rtol=1e-12, atol=1e-14)
        return mean


@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize("given", [{}, {"participants": 9}], ids=str)
def test_a_global_memory_is_that_of_fedhsa_to_the_bit(given: dict[str, Any], link: Any) -> None:
    twin = bits(methods.FedHSA(ETA, H, **link, **given))
    np.testing.assert_array_equal(bits(custom(client=GlobalMemory(), **link, **given)), twin)
    np.testing.assert_array_equal(bits(custom(client=GlobalMemory(), server=Replying(), **link, **given)), twin)


@pytest.mark.parametrize("sampling", ["iid", "markov", "mean"])
@pytest.mark.parametrize("link", [None, LOSSY, QUANTISED], ids=str)
def test_every_law_of_samples_has_those_of_fedhsa(sampling: str, link: Any) -> None:
    twin = bits(methods.FedHSA(ETA, H, uplink=link), GARNET, sampling=sampling)
    np.testing.assert_array_equal(bits(custom(client=GlobalMemory(), uplink=link), GARNET, sampling=sampling), twin)


def test_costs_are_those_of_fedhsa() -> None:
    own = custom(client=GlobalMemory(), uplink=links.Quantised(4))
    results = fedsa.Experiment(NOISY, [own, methods.FedHSA(ETA, H, uplink=links.Quantised(4))], rounds=10).run()
    mine, theirs = results.cost("own"), results.cost("fedhsa")
    for name in ("bits_up", "bits_down", "messages", "exchanges", "samples"):
        assert mine[name] == theirs[name], name


def test_reports_may_be_seen_one_by_one() -> None:
    each = bits(custom(client=GlobalMemory(), server=ReplyingToEach(), uplink=LOSSY), rounds=30)
    np.testing.assert_allclose(each, bits(custom(client=GlobalMemory(), server=Replying(), uplink=LOSSY), rounds=30), rtol=1e-9)


class Halved:
    """A server whose reply keeps a running mean, in its state."""

    def start(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        return {"mean": np.zeros_like(theta)}

    def reply(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        at.state["mean"] = 0.5 * at.state["mean"] + 0.5 * mean
        return at.state["mean"]

    def step(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
        return theta + at.step_sum * mean + 0.01 * at.state["mean"]


def test_a_reply_of_ones_own_is_that_of_a_loop_in_numpy() -> None:
    theta, kept = np.zeros(3), np.zeros(3)
    for _ in range(20):
        operators = B - A @ theta
        kept = 0.5 * kept + 0.5 * operators.mean(0)
        local = np.tile(theta, (N, 1))
        for _ in range(H):
            local = local + ETA * (B - np.einsum("nij,nj->ni", A, local) + kept - operators)
        theta = theta + (local - theta).mean(0) + 0.01 * kept
    own = bits(custom(client=GlobalMemory(), server=Halved()), EXACT, rounds=20, seeds=1, sampling="mean")
    np.testing.assert_allclose(own[0], theta, rtol=1e-10)


@pytest.mark.parametrize("link", [None, LOSSY, QUANTISED], ids=str)
def test_nodes_and_interrupted_runs_have_the_numbers_of_the_engine(link: Any, tmp_path: Path) -> None:
    method = custom(client=GlobalMemory(), server=Halved(), uplink=link, participants=8)
    twin = bits(method, GARNET, rounds=12, seeds=[0], sampling="markov")
    data = federation.AgentData(GARNET, sampling="markov")
    shared = federation.Federation(method, weights=data.weights, dim=data.dim)
    agents = [federation.ClientNode(shared, data, agent) for agent in range(data.agents)]
    server = federation.ServerNode(shared)

    def carry(messages: Any) -> Any:
        # Every end is put together anew between two exchanges.
        for agent in messages:
            state, agents[agent] = agents[agent].save(), federation.ClientNode(shared, data, agent)
            agents[agent].restore(state)
        return {agent: agents[agent].handle(message) for agent, message in messages.items()}

    for _ in range(12):
        saved, server = server.save(), federation.ServerNode(shared)
        server.restore(saved)
        federation.Session(server, carry).advance(1)
    np.testing.assert_array_equal(server.theta, twin[0])

    calls = 0

    class Stopping(Halved):
        """The same, which fails once, between the exchanges of a round."""

        def reply(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            nonlocal calls
            calls += 1
            if calls == 8:
                raise RuntimeError("no more")
            return np.asarray(super().reply(theta, mean, at))

    method = custom(client=GlobalMemory(), server=Stopping(), uplink=link, participants=8)
    experiment = fedsa.Experiment(GARNET, method, rounds=12, seeds=[0], sampling="markov")
    with pytest.raises(RuntimeError, match="no more"):
        experiment.run(out=tmp_path / "run", checkpoint_every=0.0)
    again = experiment.run(out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.theta("own"), twin)


def test_rules_with_two_exchanges_that_cannot_work_say_so() -> None:
    with pytest.raises(fedsa.InputError, match="rounds have one exchange"):
        fedsa.Experiment(NOISY, custom(server=Replying()), rounds=1).run()
    with pytest.raises(fedsa.InputError, match="agents remember"):
        fedsa.Experiment(NOISY, custom(client=GlobalMemory(), uplink=links.Delay("constant", rounds=3)), rounds=1).run()

    class Wrong(GlobalMemory):
        def report(self, theta: np.ndarray, agents: rules.Agents) -> np.ndarray:
            return theta

    with pytest.raises(fedsa.InputError, match=r"Wrong\.report returned an array of shape \(3,\)"):
        fedsa.Experiment(NOISY, custom(client=Wrong()), rounds=1).run()

    class Raising(Replying):
        def reply(self, theta: np.ndarray, mean: np.ndarray, at: rules.ServerRound) -> np.ndarray:
            if at.round == 3:
                raise KeyError("round 3")
            return mean

    with pytest.raises(KeyError, match="round 3"):
        fedsa.Experiment(NOISY, custom(client=GlobalMemory(), server=Raising()), rounds=5).run()
    shared_data = federation.AgentData(NOISY)
    shared = federation.Federation(custom(client=GlobalMemory(), server=Raising()), weights=shared_data.weights, dim=3)
    agents = [federation.ClientNode(shared, shared_data, agent) for agent in range(N)]
    server = federation.ServerNode(shared)
    session = federation.Session(server, lambda messages: {agent: agents[agent].handle(message) for agent, message in messages.items()})
    with pytest.raises(KeyError, match="round 3"):
        session.advance(5)
    assert server.rounds == 3
