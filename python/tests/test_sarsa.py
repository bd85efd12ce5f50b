"""SARSA on problem S1, whose floors were predicted and simulated apart from this code, and on S2, which has several roots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import methods, problems

# The first stable root of S1 with two agents.
ROOT = [4.99634553399, 5.29756261282, 4.51100077766, 4.78274741541, 5.53229666041, 4.28624150571]


def arrays(shift: Any) -> tuple[Any, Any]:
    """P and R of three states, two actions, two environments, which differ by `shift` of a state and the next one."""
    p, r = np.zeros((2, 3, 2, 3)), np.zeros((2, 3, 2))
    for c, s, a in np.ndindex(2, 3, 2):
        row = np.array([1.0 + (2 * s + 3 * a + 4 * t + c * shift(s, t)) % 5 for t in range(3)])
        p[c, s, a], r[c, s, a] = row / row.sum(), (s + 2 * a + 2 * c) % 3 - a * c / 2
    return p, r


def problem(folder: Path, shift: Any, agents: int, **given: Any) -> problems.Sarsa:
    p, r = arrays(shift)
    np.savez(folder / "s.npz", P=p, R=r, gamma=np.float64(0.8))
    return problems.Sarsa(path=folder / "s.npz", agents=agents, exploration=0.1, **given)


def s1(folder: Path, agents: int, **given: Any) -> problems.Sarsa:
    return problem(folder, lambda s, t: s + 2 * t, agents, temperature=0.5, **given)


def test_without_noise_methods_end_where_numpy_says(tmp_path: Path) -> None:
    steps = {"step_size": 0.1, "local_steps": 10}
    three = [methods.FedLSA(**steps), methods.SCAFFLSA(**steps), methods.FedHSA(**steps)]
    results = fedsa.Experiment(s1(tmp_path, 2), three, rounds=3000, sampling="mean").run()
    assert np.linalg.norm(results.theta("fedlsa", seed=0) - ROOT) == pytest.approx(0.573510883216, rel=1e-9)
    for one in ("scafflsa", "fedhsa"):
        assert results.theta(one, seed=0) == pytest.approx(ROOT, abs=1e-10)


def frozen_rounds(mu: float, step_size: float, local_steps: int, rounds: int, corrects: bool = False) -> Any:
    """FedProx, or FedHSA, with a policy that stands still in a round, in NumPy."""
    p, r = arrays(lambda s, t: s + 2 * t)
    theta = np.zeros(6)
    for _ in range(rounds):
        q = theta.reshape(3, 2)
        soft = np.exp((q - q.max(1, keepdims=True)) / 0.5)
        pi = 0.9 * soft / soft.sum(1, keepdims=True) + 0.05


        def mean(c: int, own: Any, pi: Any = pi) -> Any:
            kernel = np.einsum("sa,sat->st", pi, p[c])
            law = np.linalg.solve(np.vstack([(kernel.T - np.eye(3))[:2], np.ones(3)]), [0.0, 0.0, 1.0])
            values = own.reshape(3, 2)
            errors = r[c] + 0.8 * p[c] @ (pi * values).sum(1) - values
            return (law[:, None] * pi * errors).ravel()

        ends, of_all = [], np.mean([mean(c, theta) for c in range(2)], axis=0)
        for c in range(2):
            own, drift = theta.copy(), of_all - mean(c, theta) if corrects else 0.0
            for _ in range(local_steps):
                own = own + step_size * (mean(c, own) + drift - mu * (own - theta))
            ends.append(own)
        theta = np.mean(ends, axis=0)
    return theta


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_policy_can_stand_still_in_a_round(tmp_path: Path, mu: float) -> None:
    steps = {"step_size": 0.1, "local_steps": 10}
    method = methods.FedProx(proximal_mu=mu, **steps) if mu > 0.0 else methods.FedLSA(**steps)
    results = fedsa.Experiment(s1(tmp_path, 2, improve_every="round"), method, rounds=30, sampling="mean").run()
    (label,) = results.labels
    assert results.theta(label, seed=0) == pytest.approx(frozen_rounds(mu, 0.1, 10, 30), abs=1e-12)


# More agents than are computed side by side.
@pytest.mark.parametrize("agents", [2, 40])
def test_a_policy_can_stand_still_in_a_round_with_two_exchanges(tmp_path: Path, agents: int) -> None:
    method = methods.FedHSA(step_size=0.1, local_steps=10)
    results = fedsa.Experiment(s1(tmp_path, agents, improve_every="round"), method, rounds=30, sampling="mean").run()
    assert results.theta("fedhsa", seed=0) == pytest.approx(frozen_rounds(0.0, 0.1, 10, 30, corrects=True), abs=1e-12)


# Longer than the pieces into which the engine cuts long phases.
def test_long_rounds_have_one_policy(tmp_path: Path) -> None:
    method = methods.FedLSA(step_size=1e-4, local_steps=20_000)
    results = fedsa.Experiment(s1(tmp_path, 2, improve_every="round"), method, rounds=1, sampling="mean").run()
    assert results.theta("fedlsa", seed=0) == pytest.approx(frozen_rounds(0.0, 1e-4, 20_000, 1), abs=1e-10)


# The leading order of the floor, and 15% for what it leaves out.
@pytest.mark.parametrize(("agents", "local_steps", "predicted"), [(1, 1, 0.03142), (2, 5, 0.03280)])
def test_floors_along_trajectories_are_the_predicted_ones(tmp_path: Path, agents: int, local_steps: int, predicted: float) -> None:
    method = methods.FedLSA(step_size=0.02, local_steps=local_steps)
    results = fedsa.Experiment(s1(tmp_path, agents), method, rounds=200_000 // local_steps, seeds=20, sampling="markov").run()
    floor = results.summary_dict()["results"][0]
    assert abs(floor["floor_mean"] - predicted) < 3.0 * floor["floor_se"] + 0.03 * predicted, floor


def test_several_roots_are_a_note(tmp_path: Path) -> None:
    several = problem(tmp_path, lambda s, t: t + 1, 2, temperature=0.02)
    results = fedsa.Experiment(several, methods.FedLSA(step_size=0.1, local_steps=1), rounds=2, sampling="mean").run()
    notes = [note for note in results.notes if note.code == "root.not-alone"]
    assert len(notes) == 1 and "stable" in notes[0].text


def alternating() -> tuple[Any, Any]:
    """Two Garnets of ten states and three actions, drawn by NumPy."""
    p, r = np.zeros((2, 10, 3, 10)), np.zeros((2, 10, 3))
    for c in range(2):
        g = np.random.default_rng(c)
        next_states = np.array([[g.choice(10, 2, replace=False) for _ in range(3)] for _ in range(10)])
        shares = g.uniform(size=(10, 3, 2))
        np.put_along_axis(p[c], next_states, shares / shares.sum(-1, keepdims=True), axis=-1)
        r[c] = g.uniform(size=(10, 3))
    return p, r


# Squared distances of limits without noise from the root, computed apart from this code.
@pytest.mark.parametrize(
    ("improve_every", "expected"),
    [
        ("step", {100: 0.000161, 1000: 0.01287}),
        ("round", {100: 0.0000438, 1000: 0.00379, 10_000: 0.0925}),
        pytest.param("step", {10_000: 0.2567}, marks=pytest.mark.slow),
    ],
)
def test_theory_knows_how_far_local_steps_lead(tmp_path: Path, improve_every: str, expected: dict[int, float]) -> None:
    p, r = alternating()
    np.savez(tmp_path / "m.npz", P=p, R=r, gamma=np.float64(0.9))
    own = problems.Sarsa(path=tmp_path / "m.npz", agents=2, temperature=2.0, improve_every=improve_every)
    for local_steps, bias in expected.items():
        theory = fedsa.Experiment(own, methods.FedLSA(step_size=0.01, local_steps=local_steps), rounds=1, sampling="mean").theory(full=True)
        assert theory.quantities("fedlsa")["bias2"] == pytest.approx(bias, rel=4e-3)


INSTANCES = [
    # Garnet's seed, states, actions, agents, temperature, exploration, features (None: tabular), next action, method, local steps.
    (11, 4, 2, 1, 0.5, 0.1, None, "carry", methods.FedLSA, 1),
    (12, 5, 3, 4, 1.0, 0.0, None, "redraw", methods.FedLSA, 10),
    (13, 6, 2, 3, 0.3, 0.2, None, "expected", methods.SCAFFLSA, 5),
    (14, 8, 2, 2, 1.0, 0.1, 6, "carry", methods.FedLSA, 20),
    (15, 4, 4, 6, 0.7, 0.0, None, "carry", methods.SCAFFLSA, 10),
    (16, 10, 2, 10, 2.0, 0.0, 8, "redraw", methods.FedLSA, 5),
]


@pytest.mark.slow
@pytest.mark.parametrize("instance", INSTANCES)
def test_floors_of_other_instances_are_the_predicted_ones(instance: tuple[Any, ...]) -> None:
    seed, states, actions, agents, temperature, exploration, features, next_action, method, local_steps = instance
    of_features = {"feature_law": "uniform", "features": features} if features else {}
    own = problems.Sarsa(
        agents=agents,
        states=states,
        actions=actions,
        temperature=temperature,
        exploration=exploration,
        next_action=next_action,
        seed=seed,
        **of_features,
    )
    rule = method(step_size=0.02, local_steps=local_steps, start="root")
    experiment = fedsa.Experiment(own, rule, rounds=200_000 // local_steps, seeds=20, sampling="markov")
    limits = experiment.theory().limits(rule.kind_name)
    floor = experiment.run().summary_dict()["results"][0]
    # The leading order, and 10% for what it leaves out.
    assert limits, limits
    assert abs(floor["floor_mean"] - limits.floor) < 3.0 * floor["floor_se"] + 0.1 * limits.floor, (floor, limits)


def test_drift_grows_with_step_size_times_local_steps(tmp_path: Path) -> None:
    """The drift of FedLSA's limit is (H - 1)/2 eta h to leading order: its square has the slope 2 in either."""
    settings = [(eta, h) for eta in (1e-4, 2e-4, 4e-4) for h in (5, 9, 17)]
    bias = []
    for eta, h in settings:
        theory = fedsa.Experiment(s1(tmp_path, 2), methods.FedLSA(step_size=eta, local_steps=h), rounds=1, sampling="mean").theory(full=True)
        bias.append(theory.quantities("fedlsa")["bias2"])
    logs = np.log(np.array([(eta, h - 1) for eta, h in settings]))
    columns = np.column_stack([np.ones(len(settings)), logs])
    slopes, residuals, *_ = np.linalg.lstsq(columns, np.log(bias), rcond=None)
    errors = np.sqrt(residuals[0] / (len(settings) - 3) * np.diag(np.linalg.inv(columns.T @ columns)))
    assert (errors < 0.02).all() and slopes[1:] == pytest.approx([2.0, 2.0], abs=0.05), (slopes, errors)
