"""Policies from logs with actions."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
import fedsa.gym
from fedsa.errors import InputError, NotAvailable



def program(*arguments: Any) -> str:
    return subprocess.run([sys.executable, "-m", "fedsa", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def l1(c: int) -> dict[str, Any]:
    """Eight transitions of one agent, on the line from 0 to 1."""
    states, actions, next_states, rewards = [], [], [], []
    s = 0.2 + 0.3 * c
    for i in range(8):
        a = (i * (i + 1) // 2 + c) % 2
        following = min(1.0, max(0.0, s + (2 * a - 1) / 4 + c / 20 - (i % 3) / 20))
        states.append(s)
        actions.append(a)
        next_states.append(following)
        rewards.append(1 - abs(following - 0.6) - a / 10)
        s = following
    ends = np.arange(8) == 7
    return {
        "states": np.array(states)[:, None],
        "next_states": np.array(next_states)[:, None],
        "rewards": np.array(rewards),
        "terminated": ends & (c == 0),
        "truncated": ends & (c == 1),
        "episode": np.zeros(8, dtype=int),
        "action": np.array(actions),
    }


L1 = {"actions": ["left", "right"], "gamma": 0.9, "features": "polynomial:1", "ranges": {"s_0": (0.0, 1.0)}, "holdout": 0.0}


# Computed apart from this code.
@pytest.mark.parametrize("method", ["lspi", "fqi"])
def test_weights_are_those_of_numpy(method: Any) -> None:
    with pytest.warns(fedsa.FedsaWarning, match="nothing says whether"):
        found = fedsa.PolicyImprovement(**L1, ridge=0.05, method=method, tol=1e-12).fit([l1(0), l1(1)])
    # Features 1 and s of length 1 in all are scaled by a square root of 2, and so is the ridge, twice.
    expected = [[1.99314957911, 1.0951731905], [2.70594400708, 0.744398378907]]
    assert found.q_.weights_ == pytest.approx(np.array(expected) * np.sqrt(2), abs=1e-8)
    assert found.ending_ == "settled"
    with pytest.raises(NotAvailable):
        found.value()


def test_a_summary_needs_no_held_out_episodes() -> None:
    with pytest.raises(InputError, match="no policy"):
        fedsa.PolicyImprovement(**L1).summary()
    with pytest.warns(fedsa.FedsaWarning, match="nothing says whether"):
        found = fedsa.PolicyImprovement(**L1, ridge=0.05).fit({"left": l1(0), "right": l1(1)})
    table = found.summary()
    assert table.columns == ["agent", "transitions", "rare"]
    assert table.rows == [{"agent": name, "transitions": 8, "rare": found.rare_[name]} for name in ("left", "right")]
    assert table.notes[0].startswith("settled after ") and "4 weights, ridge 0.05" in table.notes[0]
    assert [str(note) for note in found.results_.notes] == table.notes[2:] and "nothing says whether" in str(table)
    assert str(pickle.loads(pickle.dumps(found)).summary()) == str(table)


def test_a_cycle_is_an_outcome() -> None:
    with pytest.warns(fedsa.FedsaWarning, match="cycle of 2"):
        found = fedsa.PolicyImprovement(**L1, ridge=0.0005).fit([l1(0), l1(1)])
    assert found.ending_ == "cycle"


def walks(step: float, seed: int, episodes: int = 60, with_behaviour: bool = True) -> dict[str, Any]:
    """Random walks from 0.5 on the line; the right end pays 1 and ends the episode."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        x = 0.5
        for t in range(40):
            action = int(rng.random() < 0.5)
            new = min(max(x + (step if action else -step), 0.0), 1.0)
            rows.append((x, new, float(new == 1.0), new == 1.0, t == 39 and new < 1.0, episode, action, 0.5))
            x = new
            if x == 1.0:
                break
    names = ["states", "next_states", "rewards", "terminated", "truncated", "episode", "action", "behaviour"]
    return {name: np.array(column) for name, column in zip(names, zip(*rows)) if with_behaviour or name != "behaviour"}


def test_a_better_policy_is_found_and_judged_on_other_episodes() -> None:
    found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:3")
    found.fit({"slow": walks(0.1, 0), "fast": walks(0.2, 1)})
    value = found.value()
    # From 0.5 the right end is 5 or 3 steps away.
    truth = (0.9**4 + 0.9**2) / 2
    assert not value.may_be_worse and value.difference.low > 0.0
    assert abs(value.new.mean - truth) < 4 * value.new.se + 0.05, (value, truth)
    assert found.act([[0.3], [0.9]]).tolist() == [1, 1]
    assert found.probabilities([[0.3]], soften=0.5) == pytest.approx(np.array([[0.25, 0.75]]))
    draws = found.act(np.full((4000, 1), 0.3), soften=0.5, rng=1)
    assert abs(draws.mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 4000)
    rows = {row["agent"]: row for row in found.summary().rows}
    assert list(rows) == ["all agents", "slow", "fast"] and set(value.new_by_agent) == {"slow", "fast"}
    assert rows["all agents"]["difference"].mean == value.difference.mean and rows["all agents"]["rare"] is None
    slow, new, acted = rows["slow"], value.new_by_agent["slow"], value.acted_by_agent["slow"]
    assert (slow["difference"].mean, slow["rare"], slow["episodes"]) == (new.mean - acted.mean, found.rare_["slow"], new.episodes)
    assert slow["difference"].se == pytest.approx((new.se**2 + acted.se**2) ** 0.5)
    assert found.bits_ < 8e6


def test_policies_are_kept(tmp_path: Path) -> None:
    found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:2", ridge=1e-4).fit([walks(0.2, 3)])
    states = np.linspace(0, 1, 7)[:, None]
    found.save(tmp_path / "kept")
    again = fedsa.ActionValueFunction.load(tmp_path / "kept")
    for q in (again, pickle.loads(pickle.dumps(found.q_))):
        assert (q.q(states) == found.q_.q(states)).all() and (q.greedy(states) == found.q_.greedy(states)).all()
    with pytest.raises(InputError, match="a policy"):
        fedsa.ValueFunction.load(tmp_path / "kept" / "policy.json")


def test_the_program_and_python_give_the_same_policy(tmp_path: Path) -> None:
    files = [csv(tmp_path / f"agent_{c}.csv", walks(step, c)) for c, step in enumerate((0.1, 0.2))]
    out = tmp_path / "out"
    said = program("improve", *files, "--actions", "left,right", "--gamma", "0.9", "--features", "fourier:3", "--out", out)
    of_program = json.loads((out / "policy.json").read_text())
    found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:3").fit(files)
    assert found.q_.weights_.ravel().tolist() == of_program["theta"]
    assert of_program["value"] == found._data["value"]
    notes, printed = found.summary().notes, [line.strip() for line in said.splitlines()]
    ridges = notes[notes.index("ridges that were tried:") :]
    assert sum("settled, chosen" in line for line in ridges) == 1 and all(line.strip() in printed for line in ridges[:9])
    assert any(line.startswith("the difference is from") and line in printed for line in notes)
    applied = program("predict", out, files[0], "--out", tmp_path / "actions.csv")
    header, first, *_ = (tmp_path / "actions.csv").read_text().splitlines()
    assert {"q_left", "q_right", "policy"} <= set(header.split(",")) and first.endswith("right"), applied


def csv(path: Path, log: dict[str, Any]) -> str:
    """The file of a log."""
    rows = np.column_stack([log[name].astype(float) for name in log])
    header = "s_0,next_0,reward,done,truncated,episode,action,behaviour"
    np.savetxt(path, rows, delimiter=",", header=",".join(header.split(",")[: len(log)]), comments="")
    return str(path)


def test_policies_are_evaluated_on_other_episodes(tmp_path: Path) -> None:
    old = [csv(tmp_path / f"old_{c}.csv", walks(step, c)) for c, step in enumerate((0.1, 0.2))]
    new = [csv(tmp_path / f"new_{c}.csv", walks(step, 10 + c, 400)) for c, step in enumerate((0.1, 0.2))]
    settings = {"gamma": 0.9, "features": "fourier:3"}
    found = fedsa.PolicyImprovement(actions=["left", "right"], **settings).fit(old)
    found.save(tmp_path / "better")
    policy = str(tmp_path / "better/policy.json")
    value = fedsa.ValueFunction(policy=policy, **settings).fit(new)
    # From 0.5 the right end is 5 or 3 steps away.
    truth = (0.9**4 + 0.9**2) / 2
    both = [value.value().all, value.value("importance").all]
    assert all(abs(one.mean - truth) < 4 * one.se + 0.03 for one in both), (both, truth)
    # Without `behaviour` the policy that acted is evaluated.
    acting = [csv(tmp_path / f"acting_{c}.csv", walks(step, 10 + c, 400, with_behaviour=False)) for c, step in enumerate((0.1, 0.2))]
    acted = fedsa.ValueFunction(**settings).fit(acting).value().all
    assert acted.mean < truth - 0.2
    out = tmp_path / "out"
    program("evaluate", *new, "--policy", policy, "--gamma", "0.9", "--features", "fourier:3", "--out", out, "-q")
    assert json.loads((out / "weights.json").read_text())["theta"] == value.weights_.tolist()
    # Files and arrays are the same.
    arrays = [walks(step, 10 + c, 400) for c, step in enumerate((0.1, 0.2))]
    assert fedsa.ValueFunction(policy=policy, **settings).fit(arrays).value("importance").all == value.value("importance").all
    with pytest.raises(InputError, match="found from .* of the 60 episodes"):
        fedsa.ValueFunction(policy=policy, **settings).fit(old)
    without = walks(0.1, 10, with_behaviour=False)
    with pytest.raises(InputError, match="behaviour"):
        fedsa.ValueFunction(policy=policy, **settings).fit(csv(tmp_path / "without.csv", without))


def test_pessimistic_policies_are_kept(tmp_path: Path) -> None:
    log = walks(0.2, 0)
    settings: dict[str, Any] = {"actions": ["left", "right"], "gamma": 0.9, "features": "fourier:3", "ridge": 1e-4}
    states = np.linspace(0, 1, 200)[:, None]
    # Right is a rare action here.
    rare = {name: column[(log["action"] == 0) | (log["episode"] < 2)] for name, column in log.items()}
    plain = fedsa.PolicyImprovement(**settings).fit([rare])
    careful = fedsa.PolicyImprovement(**settings, pessimism="support:20").fit([rare])
    assert careful.q_.greedy(states).sum() < plain.q_.greedy(states).sum()
    careful.save(tmp_path)
    again = fedsa.ActionValueFunction.load(tmp_path)
    assert (again.greedy(states) == careful.q_.greedy(states)).all()
    program("predict", tmp_path, csv(tmp_path / "log.csv", rare), "--out", tmp_path / "actions.csv")
    actions = [line.rsplit(",", 1)[1] for line in (tmp_path / "actions.csv").read_text().splitlines()[1:]]
    assert actions == [("left", "right")[a] for a in careful.q_.greedy(rare["states"][:, None])]
    with pytest.raises(InputError, match="lcb:KAPPA"):
        fedsa.PolicyImprovement(**settings, pessimism="lcb:-1").fit([rare])


def test_policies_are_functions_and_have_values() -> None:
    found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:2").fit([walks(0.2, 3)])
    q, states = found.q_, np.linspace(0, 1, 7)[:, None]
    act = q.policy()
    assert [act(state) for state in states] == q.greedy(states).tolist()
    soft = q.policy(soften=0.5, rng=0)
    assert 0 < sum(soft(0.3) == q.greedy([[0.3]])[0] for _ in range(200)) < 200
    assert q.value(states) == pytest.approx(q.q(states).max(axis=1))
    assert q.value(states, lambda states: np.full((len(states), 2), 0.5)) == pytest.approx(q.q(states).mean(axis=1))
    with pytest.raises(InputError, match="shape"):
        q.value(states, lambda states: np.ones(len(states)))
    for wrong in (0.7, -1.0):
        with pytest.raises(InputError, match="no probabilities"):
            q.value(states, lambda states: np.full((len(states), 2), wrong))


def test_policies_have_pictures() -> None:
    found = fedsa.PolicyImprovement(actions=["left", "right"], gamma=0.9, features="fourier:2").fit([walks(0.2, 3)])
    ridges = found.plot("ridges").svg
    assert "number of the chosen action" in found.plot().svg and "held-out" in ridges
    # The band of the intervals.
    assert "fill-opacity" in ridges
    with pytest.raises(NotAvailable):
        pickle.loads(pickle.dumps(found)).plot()
    with pytest.raises(InputError, match="policy, ridges"):
        found.plot("values")  # type: ignore[arg-type]


def test_wrong_actions_are_refused() -> None:
    log = walks(0.2, 0)
    with pytest.raises(InputError, match="no row has this action"):
        fedsa.PolicyImprovement(actions=["left", "right", "jump"]).fit([log])
    for names, what in (("left,right", "left,right"), (["left", 1], "left"), ([], "no names")):
        with pytest.raises(InputError, match=what):
            fedsa.PolicyImprovement(actions=names).fit([log])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="action"):
        fedsa.PolicyImprovement(actions=["only"]).fit([log])
    with pytest.raises(InputError, match="2 is none of the 2 actions"):
        fedsa.PolicyImprovement(actions=["a", "b"]).fit([{**log, "action": log["action"] * 2}])
    with pytest.raises(InputError, match="action"):
        fedsa.PolicyImprovement(actions=["a", "b"]).fit([{name: column for name, column in log.items() if name != "action"}])


class Walk:
    """The walk as an environment."""

    def __init__(self, step: float) -> None:
        self.size = step

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[list[float], dict[str, Any]]:
        self.x = 0.5
        return [self.x], {}

    def step(self, action: int) -> tuple[list[float], float, bool, bool, dict[str, Any]]:
        self.x = min(max(self.x + (self.size if action else -self.size), 0.0), 1.0)
        return [self.x], -1.0, self.x == 1.0, False, {}


def test_the_loop_improves_in_environments() -> None:
    rng = np.random.default_rng(0)
    loop = fedsa.gym.improve(
        {"slow": Walk(0.125), "fast": Walk(0.25)},
        actions=["left", "right"],
        first=lambda _: int(rng.random() < 0.5),
        iterations=2,
        episodes=20,
        max_steps=60,
        gamma=0.95,
        features="fourier:2",
    )
    first, last = loop.returns[0], loop.returns[-1]
    assert last["slow"].mean() == -4.0 and last["fast"].mean() == -2.0, last
    assert first["slow"].mean() < -10.0 and len(loop.summary().rows) == 3 and loop.bits > 0
    assert "behaviour" in loop.policy._data["value"]["weighted"]["missing"], "the probabilities of the first policy are not known"


def test_exploration_concerns_recordings_and_softening_concerns_values() -> None:
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {"actions": ["left", "right"], "max_steps": 60, "gamma": 0.95, "features": "fourier:2", "soften": 0.25, "seed": 3}
    envs = {"slow": Walk(0.125), "fast": Walk(0.25)}
    loop = fedsa.gym.improve(envs, first=lambda _: int(rng.random() < 0.5), iterations=2, episodes=20, exploration=0.0, **settings)
    # Without exploration all episodes of a later policy are the same.
    assert all(len(np.unique(returns)) == 1 for returns in loop.returns[1].values())
    assert (loop.policy.soften, loop.policy.seed, loop.policy._data["soften"]) == (0.25, 3, 0.25)


@pytest.mark.parametrize("exploration", [1.5, -0.1, float("nan"), True, "0.3", None])
def test_exploration_is_a_probability(exploration: Any) -> None:
    with pytest.raises(InputError, match="exploration.*\n.*from 0 to 1"):
        fedsa.gym.improve([Walk(0.25)], actions=["left", "right"], exploration=exploration)
