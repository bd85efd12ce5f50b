"""Policies from logs of eight CartPoles and eight mountain cars that differ, tried in the environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedsa
import fedsa.gym

gymnasium = pytest.importorskip("gymnasium")


def pole(length: float) -> Any:
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    env.unwrapped.length = length
    return env


def car(gravity: float) -> Any:
    env = gymnasium.make("MountainCar-v0", max_episode_steps=200)
    env.unwrapped.gravity = gravity
    return env


def pushes(seed: int) -> Callable[[Any], int]:
    """To the side to which the pole falls, and wrong in two of five steps."""
    rng = np.random.default_rng(seed)
    return lambda s: int((s[2] + 0.3 * s[3] > 0) != (rng.random() < 0.4))


def swings(seed: int) -> Callable[[Any], int]:
    """At random in seven of ten steps, otherwise along the velocity."""
    rng = np.random.default_rng(seed)
    return lambda s: int(rng.integers(3)) if rng.random() < 0.7 else 2 * int(s[1] > 0)


def recorded(envs: list[Any], policy: Callable[[int], Callable[[Any], int]], episodes: int) -> dict[str, Any]:
    return {f"agent_{i}": fedsa.gym.record(env, policy(i), episodes=episodes, seed=i) for i, env in enumerate(envs)}


def returns(env: Any, found: fedsa.PolicyImprovement, episodes: int) -> float:
    """The mean return of a policy in an environment."""
    return float(fedsa.gym.record(env, found.q_.policy(), episodes=episodes, seed=70).returns(1.0).mean())


POLES = [pole(length) for length in np.linspace(0.3, 0.8, 8)]
OF_POLES: dict[str, Any] = {"actions": ["left", "right"], "gamma": 0.95, "features": "fourier:1", "ridge": 1e-3}


@pytest.mark.filterwarnings("ignore::fedsa.FedsaWarning")
def test_eight_poles_stay_up_longer_together_than_alone() -> None:
    logs = recorded(POLES, pushes, 12)
    acted = np.mean([log.returns(1.0).mean() for log in logs.values()])
    found = fedsa.PolicyImprovement(**OF_POLES).fit(logs)
    assert acted < 60.0 and found.bits_ < 8e6
    assert min(returns(env, found, 5) for env in POLES) >= 195.0
    few = recorded(POLES, pushes, 2)
    together = fedsa.PolicyImprovement(**OF_POLES, holdout=0.0).fit(few)
    alone = [fedsa.PolicyImprovement(**OF_POLES, holdout=0.0).fit({name: log}) for name, log in few.items()]
    of_all = np.mean([returns(env, together, 5) for env in POLES])
    assert of_all >= 195.0 and np.mean([returns(env, own, 5) for env, own in zip(POLES, alone)]) < of_all - 20.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedsa.FedsaWarning")
@pytest.mark.parametrize("ridge", [1e-6, None])
def test_eight_cars_reach_the_hill_although_few_logged_episodes_do(ridge: float | None) -> None:
    cars = [car(gravity) for gravity in np.linspace(0.0021, 0.0029, 8)]
    logs = recorded(cars, swings, 25)
    found = fedsa.PolicyImprovement(actions=["left", "none", "right"], gamma=0.99, features="fourier:3", ridge=ridge).fit(logs)
    assert np.mean([log.returns(1.0).mean() for log in logs.values()]) < -198.0 and found.bits_ < 8e6
    assert np.mean([returns(env, found, 10) for env in cars]) > -140.0
