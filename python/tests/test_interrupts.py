"""Ctrl-C at any time of a long call: the call ends soon, with KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

# Seconds from the signal until the exception: generous, because tests run beside others on busy machines.
SOON = 5.0

HEAD = """
import numpy as np
import fedsa
from fedsa import methods, problems
rng = np.random.default_rng(0)
"""

# A call that takes long, and what it needs.
CALLS = {
    "classifier": (
        "X = rng.normal(size=(200_000, 100)); y = X[:, 0] + rng.normal(size=200_000) > 0",
        "fedsa.FederatedClassifier(standardise=True, inference='sandwich').fit(X, y, agents=8)",
    ),
    "regressor": (
        "X = rng.normal(size=(200_000, 100)); y = X[:, 0] + rng.normal(size=200_000)",
        "fedsa.FederatedRegressor(method='fedlsa', step_size=1e-4, local_steps=10, max_rounds=10**6, tol=1e-9).fit(X, y, agents=8)",
    ),
    "values": (
        "S = np.cumsum(rng.normal(size=(200_001, 2)), 0) % 1.0\n"
        "table = {'s_0': S[:-1, 0], 's_1': S[:-1, 1], 'reward': rng.normal(size=200_000), 'next_0': S[1:, 0], 'next_1': S[1:, 1], "
        "'terminated': np.zeros(200_000)}\n"
        "agents = [table] * 8",
        "fedsa.ValueFunction(features='fourier:5', gamma=0.9).fit(agents)",
    ),
    "arrays of a file": (
        "import tempfile, os\n"
        "P = rng.random((60, 300, 300)); P /= P.sum(2, keepdims=True)\n"
        "path = os.path.join(tempfile.mkdtemp(), 'big.npz')\n"
        "np.savez(path, P=P, R=rng.random((60, 300)), Phi=rng.random((300, 20)), gamma=0.9)",
        "fedsa.Experiment(problems.File(path), methods.FedLSA(0.1, 10), rounds=10**8).run()",
    ),
    "theory": (
        "experiment = fedsa.Experiment(problems.Garnet(agents=100, states=200, features=12), methods.SCAFFLSA(0.1, 10), rounds=2000, sampling='markov')",
        "experiment.theory()",
    ),
}


def seconds_until_stopped(setup: str, call: str, delay: float) -> float | None:
    """The seconds from a signal to the exception; ``None`` if the call was over before."""
    body = f"""
print("ready", flush=True)
try:
    {call}
    print("done", flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", HEAD + setup + body], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        try:
            assert child.stdout.readline().strip() == "ready", child.stderr.read()
            time.sleep(delay)
            child.send_signal(signal.SIGINT)
            since = time.monotonic()
            said = child.stdout.readline().strip()
            took = time.monotonic() - since
            assert said in ("stopped", "done"), child.stderr.read()
            return took if said == "stopped" else None
        finally:
            child.kill()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", list(CALLS))
def test_a_signal_ends_a_call_soon_whenever_it_comes(name: str, pytestconfig: pytest.Config) -> None:
    setup, call = CALLS[name]
    delays = [0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 3.0, 5.0] if pytestconfig.getoption("--all") else [0.1, 0.7]
    taken = [seconds_until_stopped(setup, call, delay) for delay in delays]
    # Most calls are over before the last of the delays.
    assert taken[0] is not None
    assert all(seconds is None or seconds < SOON for seconds in taken), dict(zip(delays, taken))
