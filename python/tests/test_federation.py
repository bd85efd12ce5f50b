"""The ends of a federation over bytes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, problems

GARNET = problems.Garnet(agents=5, states=10, features=3, seed=1)
METHODS = [
    methods.FedLSA(0.1, 10, participants=3),
    methods.SCAFFLSA(0.1, 10, link=links.Quantised(8)),
    methods.FedHSA(0.05, 10),
    methods.FedTD(0.1, link=links.Erasure(0.7)),
]


def ends(method: methods.Method, seed: int = 0) -> tuple[federation.ServerNode, list[federation.ClientNode], federation.Federation]:
    data = federation.AgentData(GARNET)
    shared = federation.Federation(method, weights=data.weights, dim=data.dim, seed=seed)
    return federation.ServerNode(shared), [federation.ClientNode(shared, data, agent) for agent in range(data.agents)], shared


def carried(agents: list[federation.ClientNode]) -> federation.Carrier:
    def carry(messages: Mapping[int, bytes]) -> dict[int, bytes]:
        answers = {agent: agents[agent].handle(message) for agent, message in messages.items()}
        return {agent: answer for agent, answer in answers.items() if answer is not None}

    return carry


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_the_numbers_are_those_of_the_engine(method: methods.Method) -> None:
    server, agents, _ = ends(method, seed=0)
    assert federation.Session(server, carried(agents)).advance(20) == "completed"
    results = fedsa.Experiment(GARNET, method, rounds=20, seeds=[0]).run()
    np.testing.assert_array_equal(server.theta, results.theta(results.labels[0], seed=0))
    for name, count in results.cost(results.labels[0]).items():
        if name in ("bits_up", "bits_down", "messages", "exchanges"):
            assert server.counts[name] == count, name


def test_nodes_go_on_from_saved_states() -> None:
    server, agents, shared = ends(METHODS[1])
    federation.Session(server, carried(agents)).advance(7)
    saved, states = server.save(), [agent.save() for agent in agents]
    federation.Session(server, carried(agents)).advance(7)
    again, others, _ = ends(METHODS[1])
    again.restore(saved)
    for agent, state in zip(others, states):
        agent.restore(state)
    federation.Session(again, carried(others)).advance(7)
    np.testing.assert_array_equal(again.theta, server.theta)
    assert pickle.loads(pickle.dumps(shared)) == shared
    with pytest.raises(fedsa.InputError) as e:
        again.restore(states[0])
    assert e.value.code.startswith("format")


def test_foreign_damaged_and_late_messages_are_refused() -> None:
    server, agents, _ = ends(METHODS[0])
    todo = server.open()
    agent, message = next(iter(todo.messages.items()))
    answer = agents[agent].handle(message)
    assert answer is not None
    for bad in [b"", message[:-1], bytes(len(message)), message + b"x"]:
        with pytest.raises(fedsa.InputError) as e:
            agents[agent].handle(bad)
        assert e.value.code == "refused-message"
    assert agents[agent].handle(message) == answer
    with pytest.raises(fedsa.InputError):
        agents[(agent + 1) % 5].handle(message)
    server.take(agent, answer)
    server.take(agent, answer)
    assert server.answered == 1, "a copy counts once"
    other, _, _ = ends(METHODS[0], seed=1)
    other.open()
    with pytest.raises(fedsa.InputError):
        other.take(agent, answer)
