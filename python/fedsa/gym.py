"""Recordings of Gymnasium environments, and Minari data sets, as transitions for :class:`fedsa.ValueFunction`.

Optional packages (``pip install fedsa[gym]``), imported on use:

- Gymnasium, for ids of environments, and for observations that are dictionaries or tuples
- h5py or pyarrow, for Minari data sets
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsa import _fedsa, _files
from fedsa._arrays import refused
from fedsa._figure import Figure
from fedsa._files import Path
from fedsa._summary import Estimate, Summary
from fedsa.errors import FedsaWarning, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedsa._policy import PolicyImprovement

__all__ = ["Improvement", "Recording", "improve", "read_minari", "record"]

Policy = Callable[[Any], Any]
Probabilities = Callable[[Any, Any], "tuple[Any, Any]"]


@dataclass(frozen=True, eq=False)
class Recording:
    """Transitions of successive episodes.

    Attributes
    ----------
    name : str
        The source: the id or class of the environment, or the folder of the data set.
    states : ndarray of shape (n, k)
        The states.
    next_states : ndarray of shape (n, k)
        The next states.
    rewards : ndarray of shape (n,)
        The rewards.
    terminated : ndarray of shape (n,)
        Whether the transition ends the episode in a terminal state of value 0.
    truncated : ndarray of shape (n,)
        Whether the episode was cut short after the transition; the next state then still has a value. Never with `terminated`.
    episode : ndarray of shape (n,)
        The number of the episode, from 0.
    actions : ndarray of shape (n,) or (n, a), or None
        The actions.
    target, behaviour : ndarray of shape (n,) or None
        The probabilities of the action under the evaluated and the acting policy.

    Examples
    --------
    >>> from fedsa.gym import record
    >>> recording = record("CartPole-v1", lambda state: 0, 2, seed=0)
    >>> recording.episodes
    2
    """

    name: str
    states: NDArray[np.float64] = field(repr=False)
    next_states: NDArray[np.float64] = field(repr=False)
    rewards: NDArray[np.float64] = field(repr=False)
    terminated: NDArray[np.bool_] = field(repr=False)
    truncated: NDArray[np.bool_] = field(repr=False)
    episode: NDArray[np.int64] = field(repr=False)
    actions: NDArray[Any] | None = field(default=None, repr=False)
    target: NDArray[np.float64] | None = field(default=None, repr=False)
    behaviour: NDArray[np.float64] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return len(np.unique(self.episode))

    def __repr__(self) -> str:
        ends = f"{int(self.terminated.sum())} terminated, {int((self.truncated & ~self.terminated).sum())} truncated"
        return f"<fedsa.gym.Recording of {self.name}: {self.episodes} episodes ({ends}); states {self.states.shape}, rewards {self.rewards.shape}>"

    def columns_of_log(self) -> dict[str, Any]:
        """Return the columns for ``fedsa.ValueFunction.fit``.

        Returns
        -------
        dict of str to ndarray
            ``states``, ``next_states``, ``rewards``, ``terminated``, ``truncated``, ``episode``; if known, ``action`` (whole numbers only),
            ``behaviour``, and ``target`` beside it.
        """
        columns: dict[str, Any] = {
            "states": self.states,
            "next_states": self.next_states,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "episode": self.episode,
        }
        if self.actions is not None and self.actions.ndim == 1 and self.actions.dtype.kind in "iu":
            columns["action"] = self.actions
        if self.behaviour is not None:
            columns.update({} if self.target is None else {"target": self.target}, behaviour=self.behaviour)
        return columns

    def returns(self, gamma: float) -> NDArray[np.float64]:
        """Return discounted returns of episodes.

        Parameters
        ----------
        gamma : float
            The discount factor.

        Returns
        -------
        ndarray of shape (episodes,)
            Returns in the order of the episodes. A truncated episode counts up to its last reward.
        """
        starts = np.flatnonzero(np.r_[True, self.episode[1:] != self.episode[:-1]])
        ends = np.r_[starts[1:], len(self)]
        return np.array([float(np.sum(self.rewards[a:b] * gamma ** np.arange(b - a))) for a, b in zip(starts, ends)])

    def save(self, path: Path) -> None:
        """Write a log for ``fedsa evaluate``.

        Parameters
        ----------
        path : path
            A name that ends in ``.parquet`` or ``.csv``. An existing file is replaced.

        Raises
        ------
        InputError
            When the name has another ending.
        OSError
            When the file cannot be written.
        """
        format = _files.format_of(path, "parquet", "csv")
        columns: list[tuple[str, NDArray[np.float64]]] = []
        names = {"rewards": "reward", "terminated": "done"}
        for key, value in self.columns_of_log().items():
            if key in ("states", "next_states"):
                prefix = "s_" if key == "states" else "next_"
                columns += [(f"{prefix}{j}", np.ascontiguousarray(value[:, j])) for j in range(value.shape[1])]
            else:
                columns.append((names.get(key, key), np.ascontiguousarray(value, dtype=np.float64)))
        _files.write(path, _fedsa.table_bytes(columns, format))


class Steps:
    """The transitions of one environment, in lists."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {name: [] for name in ("s", "next", "reward", "terminated", "truncated", "episode", "action", "p")}
        self.episodes = 0

    def add(self, s: Any, action: Any, following: Any, reward: Any, ends: tuple[bool, bool], p: Any) -> None:
        """Add a transition."""
        values = {"s": s, "next": following, "reward": float(reward), "terminated": ends[0], "truncated": ends[1] and not ends[0]}
        # Copy the action, because a policy may reuse one array.
        for name, value in {**values, "episode": self.episodes, "action": copy.deepcopy(action), "p": p}.items():
            self.rows[name].append(value)
        self.episodes += any(ends)


def record(
    env: Any,
    policy: Policy | None,
    episodes: int,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    probabilities: Probabilities | None = None,
    num_envs: int | None = None,
    make: dict[str, Any] | None = None,
) -> Recording:
    """Record episodes of a policy in a Gymnasium environment.

    Parameters
    ----------
    env : str or Env or VectorEnv
        The id of an environment, which is made and closed; or an environment, which stays open. In a vector environment all copies record
        the same number of episodes, up to one, so that short episodes are not preferred. With ``NEXT_STEP``, steps that only reset a copy are
        omitted. With ``SAME_STEP``, the last observation comes from ``info["final_obs"]``.
    policy : callable or None
        Maps an observation to an action; for a vector environment, all observations to all actions. ``None`` acts at random.
    episodes : int
        The number of episodes.
    seed : int or None
        The seed of the environment, and of random actions.
    max_steps : int or None
        Truncates episodes after this many steps. Not for vector environments.
    probabilities : callable or None
        Maps an observation and an action to two probabilities: under the evaluated policy, and under `policy`; for a vector environment, to
        two arrays. Needed to evaluate another policy than `policy`.
    num_envs : int or None
        The number of copies of a vector environment. Only with an id.
    make : dict or None
        Arguments of ``gymnasium.make`` or ``gymnasium.make_vec``. Only with an id.

    Returns
    -------
    Recording
        The transitions.

    Raises
    ------
    InputError
        When an argument cannot be used, or the environment is closed.
    ImportError
        When Gymnasium is needed but not installed.

    Examples
    --------
    >>> import fedsa.gym
    >>> class Walk:  # any object with reset and step
    ...     def reset(self, *, seed=None, options=None):
    ...         self.x = 0.0
    ...         return [self.x], {}
    ...     def step(self, action):
    ...         self.x += action
    ...         return [self.x], -1.0, self.x >= 1.0, False, {}
    >>> fedsa.gym.record(Walk(), lambda state: 0.25, episodes=3)
    <fedsa.gym.Recording of Walk: 3 episodes (3 terminated, 0 truncated); states (12, 1), rewards (12,)>
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps), ("num_envs", num_envs)):
        is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1
        if not is_whole and not (value is None and name != "episodes"):
            raise InputError(f"{value!r} is not accepted", "setting.out-of-range", name, "a whole number of at least 1", value=repr(value))
    if seed is not None:
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise InputError(f"{seed!r} is not accepted", "setting.out-of-range", "seed", "a whole number of at least 0, or None", value=repr(seed))
        # Gymnasium refuses NumPy integers.
        seed = int(seed)
    for name, call in (("policy", policy), ("probabilities", probabilities)):
        if call is not None and not callable(call):
            what = f"a {type(call).__name__} is not callable"
            raise InputError(what, "setting.wrong-type", name, "a function of an observation" + (", or None" if name == "policy" else " and an action"))
    if isinstance(env, str):
        gymnasium = imported("gymnasium", "environments are named", "'fedsa[gym]'")
        make = dict(make or {})
        if num_envs is None:
            made = gymnasium.make(env, **make)
        else:
            made = gymnasium.make_vec(env, num_envs=int(num_envs), **{"vectorization_mode": "sync", **make})
        try:
            return recorded(made, env, policy, int(episodes), seed, max_steps, probabilities)
        finally:
            made.close()
    for name, given in (("num_envs", num_envs), ("make", make)):
        if given is not None:
            raise InputError("an environment is given, which is not made", "setting.bad-value", name, f"the id of an environment, or no {name}")
    for method in ("reset", "step"):
        if not hasattr(env, method):
            what = f"a {type(env).__name__} has no {method}"
            raise InputError(what, "setting.wrong-type", "env", "an environment of Gymnasium, or its id")
    spec = getattr(env, "spec", None)
    name = getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__
    return recorded(env, str(name), policy, int(episodes), seed, max_steps, probabilities)


@dataclass(frozen=True, eq=False)
class Improvement:
    """Policies that were found in turn, with the returns that they earned.

    Attributes
    ----------
    policy : PolicyImprovement
        The last policy.
    returns : list of dict of str to ndarray
        For each iteration, each agent's undiscounted returns of the recorded episodes. The first iteration is that of the first policy.
    bits : int
        Bits up and down of all iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsa.gym import Improvement
    >>> loop = Improvement(None, [{"robot": np.array([1.0, 3.0])}, {"robot": np.array([4.0, 4.0])}], bits=8000)
    >>> [row["all agents"].mean for row in loop.summary().rows]
    [2.0, 4.0]
    """

    policy: PolicyImprovement
    returns: list[dict[str, NDArray[np.float64]]] = field(repr=False)
    bits: int

    def summary(self) -> Summary:
        """Return the mean returns by iteration and agent, with standard errors over episodes.

        Returns
        -------
        Summary
            A table as text, HTML, CSV or LaTeX; its ``rows`` has the numbers.
        """

        def of(values: Any) -> Estimate:
            se = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
            return Estimate(float(np.mean(values)), se)

        rows: list[dict[str, Any]] = [
            {"iteration": i, **{name: of(values) for name, values in one.items()}, "all agents": of(np.concatenate(list(one.values())))}
            for i, one in enumerate(self.returns)
        ]
        return Summary("mean returns of recorded episodes", list(rows[0]), rows, [f"{self.bits / 8e6:.4g} MB up and down"])

    def plot(self) -> Figure:
        """Draw the mean returns by iteration: of each agent, and of all.

        Returns
        -------
        Figure
            It shows itself in notebooks. Bands are intervals of 95% over episodes, from Student's t: of the mean of all agents, and of each of
            up to three agents.

        Examples
        --------
        >>> import numpy as np
        >>> from fedsa.gym import Improvement
        >>> loop = Improvement(None, [{"robot": np.array([1.0, 3.0])}, {"robot": np.array([4.0, 4.0])}], bits=8000)
        >>> loop.plot().svg[:4]
        '<svg'
        """
        rows, names = self.summary().rows, [name for name in self.returns[0] if len(self.returns[0]) > 1]
        x, lines = [float(i) for i in range(len(rows))], []
        for name in ["all agents", *names]:
            means, counts = [row[name] for row in rows], [sum(len(one) for key, one in each.items() if name in (key, "all agents")) for each in self.returns]
            y = [mean.mean for mean in means]
            half = [_fedsa.t_quantile(0.95, n - 1.0) * mean.se for mean, n in zip(means, counts)]
            is_drawn = bool(np.isfinite(half).all()) and (name == "all agents" or len(names) <= 3)
            lines.append((name, x, y, ([a - b for a, b in zip(y, half)], [a + b for a, b in zip(y, half)]) if is_drawn else None))
        bands = " Bands: intervals of 95%." if any(line[3] for line in lines) else ""
        notes = [f"Iteration 0 is the first policy. {self.bits / 8e6:.4g} MB up and down in all."]
        texts = ("Returns of successive policies", "iteration", "return of an episode", f"Points: means over recorded episodes.{bands}", notes)
        return Figure(_fedsa.lines_figure(texts, lines))


def improve(
    envs: Any,
    *,
    actions: Sequence[str],
    iterations: int = 5,
    episodes: int = 10,
    first: Policy | None = None,
    exploration: float = 0.3,
    seed: int = 0,
    max_steps: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Improvement:
    """Record episodes, improve the policy from all agents' logs so far, and record again.

    Logs stay with their agents: only sums travel. The first policy acts at random unless one is given. Returns need not rise in every iteration.

    Parameters
    ----------
    envs : dict or list
        Each agent's environment of Gymnasium, or its id; the keys of a dictionary are the agents' names. Their actions are whole numbers.
    actions : sequence of str
        The names of the actions, in the order of their numbers.
    iterations : int
        The number of improvements. By default ``5``.
    episodes : int
        Episodes that each agent records in an iteration. By default ``10``.
    first : callable or None
        The first policy: maps an observation to an action. ``None`` acts at random. With a policy the logs of all iterations lack
        ``behaviour``: the probabilities of its actions are not known, and all transitions of an agent have the same columns. Values on
        held-out episodes are then fitted values only, without weighted ones.
    exploration : float
        The probability with which later policies take an arbitrary action while they record. By default ``0.3``.
    seed : int
        The seed of environments, actions and held-out episodes. By default ``0``.
    max_steps : int or None
        Truncates episodes after this many steps.
    progress : bool or None
        Whether to print a line for each iteration; by default where a terminal or a notebook shows it.
    **settings
        Settings of :class:`fedsa.PolicyImprovement`, such as ``gamma``, ``features`` and ``ridge``. Its ``soften`` concerns values on held-out
        episodes only, and `exploration` concerns recordings only.

    Returns
    -------
    Improvement
        The last policy, and all returns; those of the last policy itself, without `exploration`, are the last ones. Notes on policies are not
        issued as warnings; ``policy.results_.notes`` has those on the last one.

    Raises
    ------
    InputError
        When an argument cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsa.gym
    >>> class Walk:
    ...     def __init__(self, size):
    ...         self.size = size
    ...     def reset(self, *, seed=None, options=None):
    ...         self.x = 0.5
    ...         return [self.x], {}
    ...     def step(self, action):
    ...         self.x = min(max(self.x + (self.size if action else -self.size), 0.0), 1.0)
    ...         return [self.x], -1.0, self.x == 1.0, False, {}
    >>> rng = np.random.default_rng(0)
    >>> loop = fedsa.gym.improve(
    ...     {"slow": Walk(0.125), "fast": Walk(0.25)}, actions=["left", "right"], first=lambda _: int(rng.random() < 0.5),
    ...     iterations=1, episodes=20, max_steps=60, gamma=0.95, features="fourier:2",
    ... )
    >>> {name: float(returns.mean()) for name, returns in loop.returns[-1].items()}
    {'slow': -4.0, 'fast': -2.0}
    """
    from fedsa._policy import PolicyImprovement

    for name, value, least in (("iterations", iterations, 1), ("episodes", episodes, 1), ("seed", seed, 0)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value < 2**63:
            raise InputError(f"{value!r} is not accepted", "setting.out-of-range", name, f"a whole number of at least {least}", value=repr(value))
    if not isinstance(exploration, (int, float, np.integer, np.floating)) or isinstance(exploration, bool) or not 0.0 <= exploration <= 1.0:
        raise InputError(f"{exploration!r} is not accepted", "setting.out-of-range", "exploration", "from 0 to 1", value=repr(exploration))
    if isinstance(envs, (str, bytes)) or not isinstance(envs, (Mapping, Sequence)) or not envs:
        raise InputError(f"a {type(envs).__name__}", "setting.wrong-type", "envs", "a dictionary or a list of environments, one for each agent")
    given = dict(envs) if isinstance(envs, Mapping) else {f"agent_{c}": env for c, env in enumerate(envs)}
    own = {name: imported("gymnasium", "environments are named", "'fedsa[gym]'").make(env) if isinstance(env, str) else env for name, env in given.items()}
    found = PolicyImprovement(actions=actions, seed=int(seed), **settings)
    found._settings()
    logs: dict[str, list[dict[str, Any]]] = {}
    returns: list[dict[str, NDArray[np.float64]]] = []
    bits, rng = 0, np.random.default_rng(seed)
    shows = sys.stderr.isatty() if progress is None else progress
    try:
        for name, env in own.items():
            check_actions(env, name, len(found.actions))
        for iteration in range(iterations + 1):
            # The last policy records as it is.
            any_action = float(exploration) if iteration < iterations else 0.0
            recordings: dict[str, Recording] = {}
            for name, env in own.items():
                policy = first if iteration == 0 else acting(found, env, any_action, rng)
                recording = record(env, policy, episodes, seed=int(rng.integers(2**31)), max_steps=max_steps)
                check_taken(recording, name)
                recordings[name] = with_behaviour(recording, found, iteration, first, any_action)
            returns.append({name: recording.returns(1.0) for name, recording in recordings.items()})
            if shows:
                mean = float(np.mean(np.concatenate(list(returns[-1].values()))))
                print(f"iteration {iteration} of {iterations}: mean return {mean:.4g}, {bits / 8e6:.4g} MB", file=sys.stderr)
            if iteration == iterations:
                break
            for name, recording in recordings.items():
                logs.setdefault(name, []).append(recording.columns_of_log())
            with warnings.catch_warnings():
                # Later iterations show whether a policy is worse.
                warnings.simplefilter("ignore", FedsaWarning)
                found.fit({name: stacked(parts) for name, parts in logs.items()})
            bits += found.bits_
            if "q_" not in found.__dict__:
                raise InputError("the values of actions are not finite", "setting.bad-value", "ridge", "a larger ridge, or other features")
    finally:
        for name, env in given.items():
            if isinstance(env, str):
                own[name].close()
    return Improvement(found, returns, bits)


def check_actions(env: Any, name: str, count: int) -> None:
    """Check that an environment has these actions, numbered from 0, and one state at a time."""
    if hasattr(env, "num_envs"):
        raise InputError(f"{name} is a vector environment", "setting.wrong-type", "envs", "an environment for each agent")
    space = getattr(env, "action_space", None)
    n, start = getattr(space, "n", None), getattr(space, "start", 0)
    if space is not None and (n is None or getattr(space, "shape", ()) != ()):
        what = f"{name} has the actions {space}, which are not single numbers"
        raise InputError(what, "setting.wrong-type", "envs", "environments with numbered actions, such as gymnasium.spaces.Discrete")
    if n is not None and (int(n) != count or int(start) != 0):
        what = f"{name} has {n} actions from {start}"
        raise InputError(what, "setting.bad-value", "actions", f"a name for each action, and environments whose actions are 0 to {count - 1}")


def check_taken(recording: Recording, name: str) -> None:
    """Check that a policy took numbered actions."""
    if recording.actions is None or np.asarray(recording.actions).ndim != 1 or np.asarray(recording.actions).dtype.kind not in "iu":
        raise InputError(f"the policy of {name} does not take numbered actions", "setting.wrong-type", "first", "a function that returns a whole number from 0")


def acting(found: PolicyImprovement, env: Any, exploration: float, rng: np.random.Generator) -> Policy:
    """A policy as a function of one observation."""
    act, numbers = found.q_.policy(exploration, rng), flattener(getattr(env, "observation_space", None))
    return lambda observation: act(numbers(observation))


def with_behaviour(recording: Recording, found: PolicyImprovement, iteration: int, first: Policy | None, exploration: float) -> Recording:
    """A recording with the probabilities of its actions, if all recordings have them: the first policy must act at random."""
    if first is not None:
        return recording
    taken = np.asarray(recording.actions, dtype=np.int64)
    if iteration == 0:
        return replace(recording, behaviour=np.full(len(taken), 1.0 / len(found.actions)))
    return replace(recording, behaviour=found.q_.probabilities(recording.states, exploration)[np.arange(len(taken)), taken])


def stacked(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The logs of an agent, one after the other, with new numbers of episodes."""
    first, episodes = 0, []
    for part in parts:
        episodes.append(part["episode"] + first)
        first += int(part["episode"][-1]) + 1
    return {**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, "episode": np.concatenate(episodes)}


def recorded(env: Any, name: str, policy: Policy | None, episodes: int, seed: int | None, max_steps: int | None, p: Probabilities | None) -> Recording:
    """Record an open environment."""
    if getattr(env, "closed", False):
        raise closed(name)
    if policy is None:
        policy = random_policy(env, seed)
    try:
        if hasattr(env, "num_envs"):
            parts = record_many(env, policy, episodes, seed, max_steps, p)
        else:
            parts = [record_one(env, policy, episodes, seed, max_steps, p)]
    except Exception as e:
        if type(e).__name__ == "ClosedEnvironmentError":
            raise closed(name) from e
        raise
    return joined(name, parts)


def closed(name: str) -> InputError:
    """Make the error about a closed environment."""
    return InputError(f"{name} is closed", "setting.bad-value", "env", "an environment that is open: gymnasium.make(..) makes one")


def random_policy(env: Any, seed: int | None) -> Policy:
    """A policy that acts at random."""
    space = getattr(env, "action_space", None)
    if space is None:
        raise InputError("the environment has no action_space", "setting.missing-key", "policy", "a function of an observation, `first` of `gym.improve`")
    if seed is not None:
        space.seed(seed)
    return lambda _: space.sample()


def record_one(env: Any, policy: Policy, episodes: int, seed: int | None, max_steps: int | None, p: Probabilities | None) -> Steps:
    """Record one environment."""
    numbers = flattener(getattr(env, "observation_space", None))
    steps = Steps()
    while steps.episodes < episodes:
        # Only the first episode sets the seed.
        observation = reset(env, seed=seed) if steps.episodes == 0 else reset(env)
        count, ended = 0, False
        state = numbers(observation)
        while not ended:
            action = policy(observation)
            probability = None if p is None else checked_pair(p(observation, action))
            observation, reward, terminated, truncated, _ = step(env, action)
            count += 1
            ends = bool(terminated), bool(truncated) or count == max_steps
            following = numbers(observation)
            steps.add(state, action, following, reward, ends, probability)
            state, ended = following, any(ends)
    return steps


def record_many(env: Any, policy: Policy, episodes: int, seed: int | None, max_steps: int | None, p: Probabilities | None) -> list[Steps]:
    """Record each copy of a vector environment."""
    n = int(env.num_envs)
    mode = str(getattr(env, "metadata", {}).get("autoreset_mode", "NEXT_STEP")).rpartition(".")[2].upper().replace("-", "_").replace("NEXTSTEP", "NEXT_STEP")
    if mode not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise InputError(f"the autoreset mode {mode} is not known", "setting.bad-value", "env", "NEXT_STEP, SAME_STEP or DISABLED")
    if max_steps is not None:
        what = "a vector environment, whose copies cannot be cut short one by one"
        raise InputError(what, "setting.bad-value", "max_steps", "make={'max_episode_steps': ..}, or no max_steps")
    wanted = [episodes // n + (i < episodes % n) for i in range(n)]
    single = getattr(env, "single_observation_space", None)
    numbers = flattener(single)
    parts = [Steps() for _ in range(n)]
    observations = reset(env, seed=seed)
    resets = np.zeros(n, dtype=bool)
    states = [numbers(row(observations, i)) for i in range(n)]
    while any(part.episodes < count for part, count in zip(parts, wanted)):
        actions = policy(observations)
        probability = None if p is None else checked_pair(p(observations, actions), n)
        observations, rewards, terminations, truncations, info = step(env, actions)
        ends = np.logical_or(terminations, truncations)
        following = [numbers(row(observations, i)) for i in range(n)]
        for i in range(n):
            # With NEXT_STEP the step after an end only resets the copy, and ignores the action.
            if resets[i] or parts[i].episodes >= wanted[i]:
                continue
            last = following[i]
            if ends[i] and mode == "SAME_STEP":
                last = numbers(final(info, i))
            both = None if probability is None else (probability[0][i], probability[1][i])
            parts[i].add(states[i], row(actions, i), last, rewards[i], (bool(terminations[i]), bool(truncations[i])), both)
        states = following
        resets = ends if mode == "NEXT_STEP" else resets
        if mode == "DISABLED" and ends.any():
            observations = reset(env, options={"reset_mask": np.asarray(ends, dtype=np.bool_)})
            states = [numbers(row(observations, i)) for i in range(n)]
    return parts


def reset(env: Any, **given: Any) -> Any:
    """Reset an environment. Returns the first observation."""
    found = env.reset(**given)
    if not isinstance(found, tuple) or len(found) != 2:
        what = f"its reset returns a {type(found).__name__}" + (f" of {len(found)} parts" if isinstance(found, tuple) else "")
        raise InputError(what, "setting.wrong-type", "env", "an environment of Gymnasium, whose reset returns (observation, info); that of gym does not")
    return found[0]


def step(env: Any, action: Any) -> Any:
    """Make a step. Returns the five parts of Gymnasium."""
    found = env.step(action)
    if not isinstance(found, tuple) or len(found) != 5:
        what = f"its step returns a {type(found).__name__}" + (f" of {len(found)} parts" if isinstance(found, tuple) else "")
        help = "an environment of Gymnasium, whose step returns (observation, reward, terminated, truncated, info); that of gym has one flag for both ends"
        raise InputError(what, "setting.wrong-type", "env", help)
    return found


def checked_pair(given: Any, n: int | None = None) -> tuple[Any, Any]:
    """Check two probabilities or densities, under the evaluated and the acting policy; for n copies, two arrays."""
    shape = (2,) if n is None else (2, n)
    help = "two numbers of at least 0, of which that of the policy that acts is above 0" if n is None else f"two arrays of {n} numbers"
    try:
        pair = np.array([np.asarray(one, dtype=np.float64).reshape(shape[1:]) for one in given])
    except (TypeError, ValueError) as e:
        raise InputError(f"it returns a {type(given).__name__}: {e}", "setting.wrong-type", "probabilities", help) from e
    if pair.shape != shape:
        raise InputError(f"it returns an array of shape {pair.shape}", "setting.wrong-type", "probabilities", help)
    if not np.isfinite(pair).all() or (pair < 0).any() or (pair[1] == 0).any():
        raise InputError(f"it returns {given!r}", "setting.bad-value", "probabilities", help, value=repr(given))
    return pair[0], pair[1]


def row(batch: Any, i: int) -> Any:
    """The entry of copy `i` in a batch."""
    if isinstance(batch, dict):
        return {key: row(value, i) for key, value in batch.items()}
    if isinstance(batch, tuple) and not hasattr(batch, "dtype"):
        return tuple(row(value, i) for value in batch)
    return batch[i]


def final(info: Any, i: int) -> Any:
    """The last observation of copy `i` before its reset."""
    for key in ("final_obs", "final_observation"):
        if key in info and info[key] is not None:
            found = row(info[key], i)
            if found is not None:
                return found
    help = "an environment that puts it there, as Gymnasium's do, or AutoresetMode.NEXT_STEP"
    raise InputError("info['final_obs'] lacks the last observation of an episode", "data.bad-value", "env", help)


def flattener(space: Any) -> Callable[[Any], NDArray[np.float64]]:
    """A function from observations to vectors of numbers."""
    kind = type(space).__name__
    if kind in ("Dict", "Tuple", "OneOf", "Text", "Graph", "Sequence"):
        spaces = importlib.import_module("gymnasium.spaces.utils")
        if kind not in ("Dict", "Tuple"):
            what = f"observations of the space {kind}"
            raise InputError(what, "setting.wrong-type", "env", "observations of numbers: a wrapper of Gymnasium can transform them")
        return lambda observation: np.asarray(spaces.flatten(space, observation), dtype=np.float64).ravel()

    def numbers(observation: Any) -> NDArray[np.float64]:
        try:
            return np.array(observation, dtype=np.float64).ravel()
        except (TypeError, ValueError) as e:
            what = f"an observation of the type {type(observation).__name__}: {e}"
            raise InputError(what, "setting.wrong-type", "env", "observations of numbers: a wrapper of Gymnasium can transform them") from e

    return numbers


def joined(name: str, parts: list[Steps]) -> Recording:
    """Concatenate the steps of all copies."""
    rows: dict[str, list[Any]] = {key: [one for part in parts for one in part.rows[key]] for key in parts[0].rows}
    before = np.cumsum([0, *(part.episodes for part in parts)])
    episode = [number + before[i] for i, part in enumerate(parts) for number in part.rows["episode"]]
    try:
        states, following = np.array(rows["s"], dtype=np.float64), np.array(rows["next"], dtype=np.float64)
    except ValueError as e:
        raise refused(f"observations of different lengths: {e}", "env", "observations of one shape") from e
    actions: NDArray[Any] | None
    try:
        actions = np.array(rows["action"])
        actions = None if actions.dtype.kind == "O" else actions
    except ValueError:
        actions = None
    probabilities = None if rows["p"][0] is None else np.array(rows["p"], dtype=np.float64)
    return Recording(
        name,
        states,
        following,
        np.array(rows["reward"], dtype=np.float64),
        np.array(rows["terminated"], dtype=np.bool_),
        np.array(rows["truncated"], dtype=np.bool_),
        np.array(episode, dtype=np.int64),
        actions,
        None if probabilities is None else np.ascontiguousarray(probabilities[:, 0]),
        None if probabilities is None else np.ascontiguousarray(probabilities[:, 1]),
    )


def imported(name: str, why: str, install: str) -> Any:
    """Import an optional package."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise ImportError(f"{why}, and {name} is not installed: pip install {install}") from e


def read_minari(path: Path, *, episodes: int | None = None) -> Recording:
    """Read a Minari data set.

    Parameters
    ----------
    path : path
        The folder of the data set (``~/.minari/datasets/D4RL/door/human-v2``), the folder ``data`` in it, or ``main_data.hdf5``.
    episodes : int or None
        The largest number of episodes to read; all by default.

    Returns
    -------
    Recording
        The transitions. Dictionaries of observations become vectors, with keys in alphabetic order.

    Raises
    ------
    InputError
        When `path` is not a Minari data set.
    ImportError
        When h5py (for HDF5 data) or pyarrow (for Arrow data) is not installed.

    Examples
    --------
    >>> from fedsa.gym import read_minari
    >>> try:
    ...     read_minari("nowhere")
    ... except ValueError as e:
    ...     print(e)
    path: there is no 'nowhere'
      help: the folder of a data set of Minari, or its main_data.hdf5
    """
    name = os.path.expanduser(_files.name_of(path))
    data = os.path.join(name, "data") if os.path.isdir(os.path.join(name, "data")) else name
    file = os.path.join(data, "main_data.hdf5") if os.path.isdir(data) else data
    if os.path.isfile(file):
        found = hdf5_episodes(file, episodes)
    elif os.path.isdir(data):
        found = arrow_episodes(data, episodes)
    else:
        raise refused(f"there is no '{name}'", "path", "the folder of a data set of Minari, or its main_data.hdf5", "data.not-found")
    shown = os.path.basename(os.path.abspath(name).removesuffix(os.sep + "data"))
    rows: dict[str, list[Any]] = {key: [] for key in ("s", "next", "reward", "terminated", "truncated", "episode", "action")}
    for number, one in enumerate(found):
        observations, steps = one["observations"], len(one["rewards"])
        if len(observations) != steps + 1:
            what = f"episode {number} has {len(observations)} observations of {steps} steps"
            raise refused(what, "path", "one more than steps, as Minari writes them")
        for key, value in (("s", observations[:-1]), ("next", observations[1:]), ("reward", one["rewards"]), ("action", one["actions"])):
            rows[key].append(value)
        rows["terminated"].append(np.asarray(one["terminations"], dtype=np.bool_))
        rows["truncated"].append(np.asarray(one["truncations"], dtype=np.bool_) & ~rows["terminated"][-1])
        rows["episode"].append(np.full(steps, number, dtype=np.int64))
    if not rows["s"]:
        raise refused(f"'{name}' holds no episodes", "path", "a data set of Minari in HDF5 or Arrow")
    joined = {key: np.concatenate(value) for key, value in rows.items() if key != "action"}
    actions = np.concatenate(rows["action"]) if all(one is not None for one in rows["action"]) else None
    s, following, reward = (np.ascontiguousarray(joined[key], dtype=np.float64) for key in ("s", "next", "reward"))
    return Recording(shown, s, following, reward, joined["terminated"], joined["truncated"], joined["episode"], actions)


def hdf5_episodes(file: str, most: int | None) -> Any:
    """The episodes of an HDF5 file."""
    h5py = imported("h5py", "the data set is in HDF5", "'fedsa[gym]'")
    try:
        opened = h5py.File(file, "r")
    except OSError as e:
        raise refused(f"'{file}' cannot be read: {e}", "path", "main_data.hdf5 of a data set of Minari") from e
    with opened as data:
        names = sorted((key for key in data if key.startswith("episode_")), key=lambda key: int(key.rpartition("_")[2]))
        for name in names[:most]:
            group = data[name]
            missing = [key for key in ("observations", "rewards", "terminations", "truncations") if key not in group]
            if missing:
                raise refused(f"'{file}': {name} has no {missing[0]}", "path", "a data set of Minari")
            one = {key: np.asarray(group[key]) for key in ("rewards", "terminations", "truncations")}
            actions = np.asarray(group["actions"]) if "actions" in group and hasattr(group["actions"], "shape") else None
            yield {**one, "observations": hdf5_rows(group["observations"]), "actions": actions}


def hdf5_rows(node: Any) -> NDArray[np.float64]:
    """Convert observations to vectors. Entries of dictionaries are concatenated."""
    if hasattr(node, "shape"):
        array = np.asarray(node, dtype=np.float64)
        return array.reshape(len(array), -1)
    return np.concatenate([hdf5_rows(node[key]) for key in sorted(node)], axis=1)


def arrow_episodes(folder: str, most: int | None) -> Any:
    """The episodes of a folder that has one folder of Arrow files per episode."""
    names = sorted((one for one in os.listdir(folder) if one.isdigit()), key=int)
    if not names:
        raise refused(f"'{folder}' holds neither main_data.hdf5 nor episodes", "path", "a data set of Minari in HDF5 or Arrow")
    pyarrow = imported("pyarrow", "the data set is in Arrow", "pyarrow")
    ipc = importlib.import_module("pyarrow.ipc")
    for name in names[:most]:
        inside = os.path.join(folder, name)
        files = [os.path.join(inside, one) for one in sorted(os.listdir(inside)) if one.endswith(".arrow")]
        if not files:
            raise refused(f"'{inside}' holds no Arrow file", "path", "a data set of Minari")
        table = pyarrow.concat_tables([ipc.open_file(one).read_all() for one in files]).combine_chunks()
        flat = {key: table[key].to_numpy()[:-1] for key in ("rewards", "terminations", "truncations")}
        actions = arrow_rows(table["actions"])[:-1] if "actions" in table.column_names else None
        if actions is not None and actions.shape[1] == 1 and str(table["actions"].type).startswith("int"):
            actions = actions[:, 0].astype(np.int64)
        yield {**flat, "observations": arrow_rows(table["observations"]), "actions": actions}


def arrow_rows(column: Any) -> NDArray[np.float64]:
    """Convert a column of numbers, lists or structures to vectors. Fields of structures are concatenated."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    array = array.chunk(0) if hasattr(array, "chunk") else array
    kind = array.type
    if hasattr(kind, "num_fields") and str(kind).startswith("struct"):
        names = sorted(kind.field(i).name for i in range(kind.num_fields))
        return np.concatenate([arrow_rows(array.field(name)) for name in names], axis=1)
    if "list" in str(kind):
        return np.asarray(array.flatten().to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(array), -1)
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(len(array), -1)
