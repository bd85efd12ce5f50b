"""A program that type checkers accept in their strict modes; tests also run it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import fedsa
from fedsa import federation, gym, links, methods, operators, problems, rules


def compared() -> fedsa.Results:
    """Two methods on a problem."""
    problem = problems.Garnet(agents=5, states=10, features=3, seed=1)
    link = links.Uplink(codec=links.Quantised(8), media=[links.Erasure(0.9)])
    both: list[methods.Method] = [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, local_steps=10, uplink=link, label="coded")]
    experiment = fedsa.Experiment(problem, both, rounds=50, seeds=2, sampling="markov", stop={"mse": 1e-9})
    limits = experiment.theory().limits("fedlsa")
    if isinstance(limits, fedsa.Limits):
        floor: float = limits.floor
        assert floor > 0.0
    return experiment.run(progress=False)


def stages() -> list[str]:
    """What a run says of its progress."""
    seen: list[str] = []

    def told(progress: fedsa.Progress) -> None:
        seen.append(progress.stage)

    problem = problems.Garnet(agents=5, states=10, features=3)
    fedsa.Experiment(problem, methods.FedLSA(0.1, 10), rounds=10).run(progress=told)
    return seen


class Points:
    """Points whose mean is looked for."""

    agents, dim = 3, 2

    def sample(self, theta: NDArray[np.float64], state: None, rng: operators.Draws) -> NDArray[np.float64]:
        """A sample of each agent."""
        return rng.agents[:, None] - theta + rng.normal(2)


def own() -> NDArray[np.float64]:
    """Operators of one's own: a class, and arrays."""
    arrays = problems.Linear(np.stack([np.eye(2)] * 3), np.ones((3, 2)), noise=0.1, weights=[0.2, 0.3, 0.5])
    for problem in (arrays, problems.Custom(Points())):
        theta = fedsa.Experiment(problem, methods.FedLSA(0.1, 10), rounds=10).run().theta("fedlsa", seed=0)
    return theta


class Local:
    """Plain local steps, of which agents remember the last direction."""

    memory = ("last",)

    def answer(self, theta: NDArray[np.float64], agents: rules.Agents) -> NDArray[np.float64]:
        """The directions of the agents of a call."""
        direction: NDArray[np.float64] = (agents.steps(drift=np.zeros_like(theta)) - theta) / agents.step_sum
        agents.memory["last"][:] = direction
        return direction


class Momentum:
    """A running mean of directions."""

    def start(self, theta: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Nothing yet."""
        return {"velocity": np.zeros_like(theta)}

    def step(self, theta: NDArray[np.float64], mean: NDArray[np.float64], at: rules.ServerRound) -> NDArray[np.float64]:
        """The next iterate."""
        at.state["velocity"] += 0.1 * (mean - at.state["velocity"])
        return theta + at.step_sum * at.state["velocity"]


def ruled() -> NDArray[np.float64]:
    """Rules of one's own."""
    method = methods.Custom(0.1, 10, client=Local(), server=Momentum(), participants=2)
    return fedsa.Experiment(problems.Custom(Points()), method, rounds=10).run().theta("custom", seed=0)


def measured() -> NDArray[np.float64]:
    """Metrics of one's own, and iterates."""

    def norm(theta: NDArray[np.float64]) -> float:
        return float(np.linalg.norm(theta))

    experiment = fedsa.Experiment(problems.Custom(Points()), methods.FedLSA(0.1, 10), rounds=10)
    results = experiment.run(metrics={"norm": norm, "largest": lambda theta: np.abs(theta).max()}, iterates=True)
    rounds: NDArray[np.int64] = results.rounds("fedlsa")
    theta: NDArray[np.float64] = results.iterates("fedlsa", seed=0)
    assert theta.shape == (len(rounds), 2)
    return theta


def returns() -> fedsa.Figure:
    """The figure of a loop in environments."""

    class Walk:
        def reset(self, *, seed: int | None = None, options: object = None) -> tuple[list[float], dict[str, object]]:
            self.x = 0.5
            return [self.x], {}

        def step(self, action: int) -> tuple[list[float], float, bool, bool, dict[str, object]]:
            self.x = min(max(self.x + (0.25 if action else -0.25), 0.0), 1.0)
            return [self.x], -1.0, self.x == 1.0, False, {}

    rng = np.random.default_rng(0)
    loop: gym.Improvement = gym.improve(
        [Walk()], actions=["left", "right"], first=lambda _: int(rng.random() < 0.5), iterations=1, max_steps=60, gamma=0.9, features="fourier:2"
    )
    return loop.plot()


def main() -> None:
    """All of it."""
    results = compared()
    theta: NDArray[np.float64] = results.theta("coded", seed=0)
    estimate: fedsa.Estimate = results.floor("fedlsa")
    outcome: fedsa.Outcome = results.outcomes["coded"]
    svg: str = results.plot(x="bits_up").svg
    assert theta.shape == (3,) and estimate.mean > 0.0 and outcome.name == "max-rounds" and "<svg" in svg
    assert "running" in stages()
    data = federation.AgentData(problems.Garnet(agents=3, states=6, features=2))
    shared = federation.Federation(methods.named("fedlsa", step_size=0.1, local_steps=5), weights=data.weights, dim=data.dim)
    message = federation.ServerNode(shared).open().messages[0]
    answer: bytes | None = federation.ClientNode(shared, data, 0).handle(message)
    assert answer is not None
    assert own().shape == (2,) and ruled().shape == (2,) and measured().shape == (11, 2) and "<svg" in returns().svg
    session = federation.Session(federation.ServerNode(shared), lambda messages: {}, data=data)
    ended: str = session.advance(1)
    assert ended == "completed" and session.history[-1]["round"] == 1
    estimators()


def estimators() -> None:
    """Rows and transitions."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    model: fedsa.FederatedClassifier = fedsa.FederatedClassifier(ridge=1e-2).fit(x, x[:, 0] > 0.1, agents=3)
    proba: NDArray[np.float64] = model.predict_proba(x)
    spent: fedsa.Spending = model.costs_["auto"]
    assert proba.shape == (60, 2) and spent.rounds == model.n_iter_
    log = {"states": x, "next_states": x, "rewards": x[:, 0], "terminated": x[:, 1] > 0.0}
    value: fedsa.ValueFunction = fedsa.ValueFunction(gamma=0.5, features="identity:bias").fit([log])
    values, se = value.predict(x, return_std=True)
    low, high = value.value("importance").interval
    assert values.shape == se.shape == (60,) and low < high


if __name__ == "__main__":
    main()
