"""The ends of a federation over bytes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, problems

GARNET = problems.Garnet(agents=5, states=10, features=3, seed=1)
METHODS = [
    methods.FedLSA(0.1, 10, participants=3),
    methods.SCAFFLSA(0.1, 10, uplink=links.Quantised(8)),
    methods.FedHSA(0.05, 10),
    methods.FedTD(0.1, uplink=links.Erasure(0.7)),
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


def here(agents: list[federation.ClientNode], lost: float = 0.0) -> Any:
    """A carrier with a method `exchange`, which may lose messages."""
    drawn = np.random.default_rng(0)

    class Here:
        deadlines: list[float | None] = []

        def exchange(self, messages: Mapping[int, bytes], deadline: float | None) -> dict[int, bytes]:
            self.deadlines.append(deadline)
            arrived = {agent: message for agent, message in messages.items() if drawn.random() >= lost}
            answers: dict[int, bytes] = {}
            for agent, message in arrived.items():
                try:
                    answer = agents[agent].handle(message)
                except fedsa.InputError as e:
                    # The message before it was lost.
                    assert lost and e.code == "refused-message"
                    continue
                if answer is not None and drawn.random() >= lost:
                    answers[agent] = answer
            return answers

    return Here()


def test_a_session_measures_and_ends_at_a_target() -> None:
    data = federation.AgentData(GARNET, sampling="mean")
    method = methods.SCAFFLSA(0.5, 20)
    shared = federation.Federation(method, weights=data.weights, dim=data.dim)
    agents = [federation.ClientNode(shared, data, agent) for agent in range(5)]
    carrier = here(agents)
    session = federation.Session(federation.ServerNode(shared), carrier, patience=60.0, data=data, stop={"mse": 1e-8})
    assert session.advance(3) == "max-rounds" and len(session.history) == 4
    assert session.advance(10_000) == "converged"
    assert all(deadline is not None for deadline in carrier.deadlines)
    results = fedsa.Experiment(GARNET, method, rounds=10_000, sampling="mean", stop={"mse": 1e-8}, record={"every": 1}).run()
    trace = results.trace()
    assert results.outcomes["scafflsa"].name == "converged"
    assert session.history[-1]["round"] == len(trace) - 1
    assert session.history[-1]["bits_up"] == results.cost("scafflsa")["bits_up"]
    np.testing.assert_array_equal(session.server.theta, results.theta("scafflsa", seed=0))
    before = session.history[0]["mse"]
    assert session.history[-1]["mse"] <= 1e-8 < before


def test_a_session_that_cannot_measure_says_so() -> None:
    server, agents, _ = ends(METHODS[0])
    own = federation.AgentData(problems.Linear(np.eye(3)[None], np.zeros((1, 3))))
    for stop, data, text in [
        ({"mse": 1.0}, None, "no data"),
        ({"msee": 1.0}, None, "did you mean 'mse'"),
        ({}, own, "those of all 5 agents"),
    ]:
        with pytest.raises(fedsa.InputError, match=text):
            federation.Session(server, carried(agents), stop=stop, data=data)
    with pytest.raises(fedsa.InputError, match="the carrier returned"):
        federation.Session(server, lambda messages: None).advance(1)  # type: ignore[arg-type, return-value]


def test_lost_messages_and_failures_of_the_carrier_do_not_end_a_session() -> None:
    server, agents, _ = ends(methods.FedHSA(0.05, 10))
    assert federation.Session(server, here(agents, lost=0.3)).advance(50) == "completed"
    server, agents, _ = ends(METHODS[1])
    whole, others, _ = ends(METHODS[1])
    federation.Session(whole, carried(others)).advance(20)
    calls = 0
    inner = carried(agents)

    def breaking(messages: Mapping[int, bytes]) -> Mapping[int, bytes]:
        nonlocal calls
        calls += 1
        answers = inner(messages)
        if calls % 3 == 0:
            raise ConnectionError("the line is cut")
        return answers

    session = federation.Session(server, breaking)
    while server.rounds < 20:
        try:
            session.advance(20 - server.rounds)
        except ConnectionError:
            pass
    np.testing.assert_array_equal(server.theta, whole.theta)


def test_each_end_may_have_its_own_data_only() -> None:
    drawn = np.random.default_rng(3)
    A, b = np.eye(3) + 0.2 * drawn.normal(size=(4, 3, 3)), drawn.normal(size=(4, 3))
    method = methods.SCAFFLSA(0.05, 5, uplink=links.Quantised(6))
    shared = federation.Federation(method, weights=[0.25] * 4, dim=3)
    own = [federation.AgentData(problems.Linear(A[c : c + 1], b[c : c + 1], noise=0.5)) for c in range(4)]
    agents = [federation.ClientNode(shared, data, agent) for agent, data in enumerate(own)]
    server = federation.ServerNode(shared)
    for _ in range(5):
        federation.Session(server, carried(agents)).advance(3)
        # Every end is put together anew from its state, between two messages.
        states = [agent.save() for agent in agents]
        agents = [federation.ClientNode(shared, data, agent) for agent, data in enumerate(own)]
        for node, state in zip(agents, states):
            node.restore(state)
        saved, server = server.save(), federation.ServerNode(shared)
        server.restore(saved)
    results = fedsa.Experiment(problems.Linear(A, b, noise=0.5), method, rounds=15, seeds=[0]).run()
    np.testing.assert_array_equal(server.theta, results.theta("scafflsa", seed=0))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_hostile_bytes_are_refused_and_change_nothing(method: methods.Method, pytestconfig: pytest.Config) -> None:
    server, agents, _ = ends(method)
    todo = server.open()
    agent, question = next(iter(todo.messages.items()))
    node = agents[agent]
    fresh = node.save()
    answer = node.handle(question)
    assert answer is not None
    states = {"question": question, "answer": answer, "client": node.save(), "server": server.save()}
    drawn = np.random.default_rng(7)

    def mutated(good: bytes) -> bytes:
        bad = bytearray(good)
        for _ in range(int(drawn.integers(1, 4))):
            at = int(drawn.integers(0, len(bad) + 1))
            what = int(drawn.integers(0, 4))
            if what == 0 and at < len(bad):
                bad[at] ^= 1 << int(drawn.integers(0, 8))
            elif what == 1:
                del bad[at : at + int(drawn.integers(1, 9))]
            elif what == 2:
                bad[at:at] = drawn.bytes(int(drawn.integers(1, 9)))
            else:
                bad[at : at + 8] = drawn.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" * 8])
        return bytes(bad)

    calls = {"question": node.handle, "answer": lambda bad: server.take(agent, bad), "client": node.restore, "server": server.restore}
    times = 25_000 if pytestconfig.getoption("--all") else 1_500
    node.restore(fresh)
    for i in range(times):
        name = ("question", "answer", "client", "server")[i % 4]
        bad = mutated(states[name])
        if bad == states[name]:
            continue
        try:
            calls[name](bad)
        except fedsa.InputError as e:
            assert e.what and e.help
        else:
            # Numbers that a state may have. Messages have a checksum, and are never taken.
            assert name in ("client", "server"), name
            node.restore(fresh)
            server.restore(states["server"])
    node.restore(fresh)
    server.restore(states["server"])
    assert node.handle(question) == answer
    server.take(agent, answer)
    assert server.answered == 1


WRONG_CALLS: list[Any] = [
    lambda data, shared, server, node: federation.ClientNode(shared, data, 5),
    lambda data, shared, server, node: federation.ClientNode(shared, data, -1),
    lambda data, shared, server, node: federation.ClientNode(shared, data, 0, place=9),
    lambda data, shared, server, node: federation.ClientNode(federation.Federation(METHODS[0], weights=[0.2] * 5, dim=4), data, 0),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[0.5, 0.6], dim=3),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[], dim=3),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[np.nan, 1.0], dim=3),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[0.2] * 5, dim=0),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[0.2] * 5, dim=-1),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[0.2] * 5, dim=3, start=[1.0]),
    lambda data, shared, server, node: federation.Federation(METHODS[0], weights=[0.2] * 5, dim=3, start=[np.inf] * 3),
    lambda data, shared, server, node: node.handle("text"),
    lambda data, shared, server, node: node.handle(None),
    lambda data, shared, server, node: node.handle(np.zeros(3)),
    lambda data, shared, server, node: node.restore(server.save()),
    lambda data, shared, server, node: server.take(99, b"x"),
    lambda data, shared, server, node: server.take(0, "x"),
    lambda data, shared, server, node: server.restore(node.save()),
    lambda data, shared, server, node: server.open([77]),
    lambda data, shared, server, node: server.open(["a"]),
]


@pytest.mark.parametrize("call", WRONG_CALLS, ids=range(len(WRONG_CALLS)))
def test_wrong_arguments_are_refused(call: Any) -> None:
    server, agents, shared = ends(METHODS[0])
    with pytest.raises((fedsa.InputError, TypeError, OverflowError)) as e:
        call(federation.AgentData(GARNET), shared, server, agents[0])
    assert str(e.value)


def test_a_damaged_state_is_refused_and_nothing_changes() -> None:
    server, agents, _ = ends(METHODS[1])
    federation.Session(server, carried(agents)).advance(3)
    for end in (server, agents[0]):
        good = end.save()
        for bit in range(8 * len(good)):
            damaged = bytearray(good)
            damaged[bit // 8] ^= 1 << (bit % 8)
            with pytest.raises(fedsa.InputError) as refused:
                end.restore(bytes(damaged))
            assert refused.value.code == "format"
        assert end.save() == good
        with pytest.raises(fedsa.InputError, match=r"layout 3; this version has \d+"):
            end.restore(b"\x03" + good[1:-4])


def test_numbers_of_agents_and_bytes_are_checked() -> None:
    server, agents, shared = ends(METHODS[2])
    todo = server.open(np.arange(5))
    answer = agents[1].handle(bytearray(todo.messages[1]))
    assert answer is not None
    with pytest.raises(fedsa.InputError, match="agent: -1"):
        server.take(-1, answer)
    server.take(np.int64(1), memoryview(answer))
    # A copy changes nothing.
    server.take(1, answer)
    assert server.answered == 1
    for call, key in (
        (lambda: server.open([-1]), "available"),
        (lambda: federation.ClientNode(shared, federation.AgentData(GARNET), -1), "agent"),
        (lambda: agents[0].handle("text"), "message"),
        (lambda: federation.Session(server, carried(agents)).advance(1.5), "rounds"),
        (lambda: federation.Session(server, carried(agents)).advance(-1), "rounds"),
    ):
        with pytest.raises(fedsa.InputError) as refused:
            call()
        assert refused.value.key == key


def cut(agents: list[federation.ClientNode], look: Any) -> federation.Carrier:
    """A carrier that looks around before it carries."""
    inner = carried(agents)

    def carry(messages: Mapping[int, bytes]) -> Mapping[int, bytes | None]:
        look(messages)
        return inner(messages)

    return carry


def test_a_server_is_read_and_saved_while_its_session_waits() -> None:
    server, agents, shared = ends(METHODS[1])
    states: list[tuple[int, bytes, bytes]] = []

    def look(messages: Mapping[int, bytes]) -> None:
        assert server.todo.messages == messages and server.theta.shape == (3,) and server.answered == 0
        states.append((server.rounds, server.save(), agents[0].save()))
        for call in (lambda: server.open(), lambda: server.close(), lambda: server.take(0, b""), lambda: server.restore(b""), lambda: session.advance(1)):
            with pytest.raises(fedsa.InputError, match="goes on"):
                call()
        with pytest.raises(fedsa.InputError, match="goes on"):
            federation.Session(server, carried(agents)).advance(1)
        assert len(session.history) == server.rounds + 1

    session = federation.Session(server, cut(agents, look))
    assert session.advance(4) == "completed" and server.rounds == 4
    # What was saved before a message left goes on to the same bits.
    rounds, state, _ = states[2]
    assert rounds == 2
    again = federation.ServerNode(shared)
    again.restore(state)
    others = [federation.ClientNode(shared, federation.AgentData(GARNET), agent) for agent in range(5)]
    fresh = federation.ServerNode(shared)
    federation.Session(fresh, carried(others)).advance(2)
    federation.Session(again, carried(others)).advance(2)
    np.testing.assert_array_equal(again.theta, server.theta)


def test_other_threads_read_a_server_of_a_session() -> None:
    server, agents, _ = ends(methods.FedLSA(0.1, 2000))
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.append(server.rounds)
            assert np.isfinite(server.theta).all() and server.counts["exchanges"] >= 0

    reader = threading.Thread(target=read)
    reader.start()
    try:
        federation.Session(server, carried(agents)).advance(200)
    finally:
        stop.set()
        reader.join()
    assert seen == sorted(seen) and max(seen) <= 200


def test_refused_answers_are_told_and_do_not_count() -> None:
    server, agents, _ = ends(methods.FedLSA(0.1, 10))
    told: list[tuple[int, str]] = []

    def carry(messages: Mapping[int, bytes]) -> dict[Any, Any]:
        answers: dict[Any, Any] = {agent: agents[agent].handle(message) for agent, message in messages.items()}
        return {**answers, 1: b"damaged", 2: "no bytes", 3: None, 9: b"nobody", -4: b"nobody"}

    session = federation.Session(server, carry, refused=lambda agent, e: told.append((agent, type(e).__name__)))
    assert session.advance(1) == "completed"
    assert sorted(told) == [(-4, "InputError"), (1, "InputError"), (2, "InputError"), (9, "InputError")]
    assert session.history[-1]["messages"] == 5 + 2

    def complains(agent: int, e: Exception) -> None:
        raise RuntimeError(f"agent {agent}")

    with pytest.raises(RuntimeError, match="agent"):
        federation.Session(server, carry, refused=complains).advance(1)
    assert federation.Session(server, carried(agents)).advance(1) == "completed"


def test_a_round_without_enough_answers_is_given_up() -> None:
    server, agents, _ = ends(methods.FedLSA(0.1, 10))
    asked: list[int] = []

    def two(messages: Mapping[int, bytes]) -> dict[int, bytes | None]:
        asked.append(len(messages))
        return {agent: agents[agent].handle(messages[agent]) for agent in list(messages)[:2]}

    start = server.theta
    assert federation.Session(server, two, least_answers=5, repeats=1).advance(1) == "completed"
    assert asked == [5, 3] and server.rounds == 1
    np.testing.assert_array_equal(server.theta, start)
    assert federation.Session(server, two, least_answers=4, repeats=1).advance(1) == "completed"
    assert (server.theta != start).any()
    for wrong, key in (({"least_answers": 6}, "least_answers"), ({"repeats": -1}, "repeats"), ({"patience": 0.0}, "patience"), ({"patience": "x"}, "patience")):
        with pytest.raises(fedsa.InputError) as e:
            federation.Session(server, two, **wrong)
        assert e.value.key == key


def test_only_available_agents_are_asked() -> None:
    server, agents, _ = ends(methods.FedLSA(0.1, 10))
    asked: list[list[int]] = []
    session = federation.Session(server, cut(agents, lambda messages: asked.append(list(messages))))
    session.advance(1, available=[3, 1])
    assert asked == [[1, 3]]
    with pytest.raises(fedsa.InputError, match="agents below 5"):
        session.advance(1, available=[7])
    with pytest.raises(fedsa.MachineError, match="no agent can be reached"):
        session.advance(1, available=[])
    assert session.advance(1) == "completed"


def test_one_thread_is_enough_for_a_session() -> None:
    code = """
import fedsa
from fedsa import federation, methods, problems
data = federation.AgentData(problems.Garnet(agents=3, states=6, features=2, seed=1))
shared = federation.Federation(methods.FedHSA(0.1, 10), weights=data.weights, dim=data.dim)
agents = [federation.ClientNode(shared, data, agent) for agent in range(3)]
server = federation.ServerNode(shared)
def carry(messages):
    server.save()
    return {agent: agents[agent].handle(message) for agent, message in messages.items()}
print(federation.Session(server, carry, data=data, stop={"mse": 1e-30}).advance(50))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, "FEDSA_THREADS": "1"})
    assert ran.stdout.strip() == "max-rounds", ran.stderr


def test_arguments_of_other_types_are_named() -> None:
    server, agents, shared = ends(METHODS[0])
    session, anything = federation.Session(server, carried(agents)), object()
    data: Any = anything
    calls: list[tuple[Any, str]] = [
        (lambda: federation.Session(data, print), "server"),
        (lambda: federation.Session(server, data), "carrier"),
        (lambda: federation.Session(server, print, data=data), "data"),
        (lambda: federation.Session(server, print, stop=data), "stop"),
        (lambda: federation.Session(server, print, refused=data), "refused"),
        (lambda: session.advance(1, available=data), "available"),
        (lambda: server.open("12"), "available"),  # type: ignore[arg-type]
        (lambda: server.metrics(data), "data"),
        (lambda: federation.ServerNode(data), "federation"),
        (lambda: federation.ClientNode(data, data, 0), "federation"),
        (lambda: federation.ClientNode(shared, data, 0), "data"),
    ]
    for call, key in calls:
        with pytest.raises(fedsa.InputError) as refused:
            call()
        assert refused.value.key == key and refused.value.code == "setting.wrong-type"
    assert repr(session) == "<fedsa.federation.Session of <fedsa.federation.ServerNode after 0 rounds>>"
    assert repr(agents[2]) == "<fedsa.federation.ClientNode of agent 2>"
