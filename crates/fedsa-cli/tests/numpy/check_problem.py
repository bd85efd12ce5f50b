"""Recomputes with NumPy what `fedsa export` and `fedsa theory` say of a problem.

    check_problem.py make FOLDER                    writes problems as NumPy users do
    check_problem.py check SOURCE EXPORT THEORY     compares; SOURCE holds the problem itself

Every comparison is relative to the norm of the array and must hold to 1e-10.
"""

import json
import sys
from pathlib import Path

import numpy as np

TOLERANCE = 1e-10


def make(folder):
    rng = np.random.default_rng(7)
    agents, states, actions, d = 3, 6, 2, 3
    # Multiples of 1/64 are exact in four bytes too.
    p = rng.multinomial(64, np.full(states, 1 / states), size=(agents, states, actions)) / 64
    policy = rng.multinomial(8, [0.5, 0.5], size=(agents, states)) / 8
    phi = rng.integers(0, 16, size=(states, d)) / 16
    r = rng.integers(-3, 4, size=(agents, states, actions))
    mdp = {"P": p, "R": r / 2, "Phi": phi, "gamma": np.array([0.5, 0.75, 0.9]), "policy": policy}
    mrp = {"P": p[:, :, 0], "R": r[:, :, 0] / 2, "Phi": phi, "gamma": 0.9}
    np.savez(folder / "mdp.npz", **mdp)
    np.savez(folder / "shared_policy.npz", **{**mdp, "policy": policy[0], "gamma": 0.75})
    np.savez_compressed(folder / "compressed.npz", **mrp)
    np.savez(folder / "fortran.npz", **{name: np.asfortranarray(x) for name, x in mdp.items()})
    np.savez(folder / "float32.npz", **{name: np.asarray(x, np.float32) for name, x in {**mrp, "gamma": 0.875}.items()})
    np.savez(folder / "big_endian.npz", **{name: np.asarray(x, ">f8") for name, x in mrp.items()})
    own_features = rng.integers(0, 16, size=(agents, states, d))
    np.savez(folder / "ints.npz", **{**mrp, "R": r[:, :, 0].astype(np.int8), "Phi": own_features.astype(np.uint16)})
    by_successor = rng.normal(size=(agents, states, states))
    np.savez(folder / "successor.npz", **{**mrp, "R": by_successor})
    a = rng.normal(size=(agents, d, d)) * 0.3 + np.eye(d)
    np.savez(folder / "linear.npz", A=a, b=rng.normal(size=(agents, d)), noise_std=0.5)


def reward_process(source):
    """The transition matrices (N, S, S) and mean rewards (N, S) of the process under its policy."""
    p, r = source["P"].astype(float), source["R"].astype(float)
    agents, states = p.shape[:2]
    if "policy" not in source:
        return p, (r if r.ndim == 2 else np.sum(p * r, axis=-1))
    policy = np.broadcast_to(source["policy"], (agents, states, p.shape[2]))
    chain = np.einsum("csa,csat->cst", policy, p)
    if r.ndim == 2:
        return chain, r
    if r.shape[2] == p.shape[2]:
        return chain, np.sum(policy * r, axis=-1)
    return chain, np.einsum("csa,csat,cst->cs", policy, p, r)


def stationary_law(p):
    """The left eigenvector of eigenvalue 1."""
    values, vectors = np.linalg.eig(p.T)
    law = np.real(vectors[:, np.argmin(abs(values - 1))])
    return law / law.sum()


def systems(source):
    """What the problem comes to: `gbar_c(theta) = b_c - A_c theta`."""
    if "P" not in source:
        return {"A": source["A"], "b": source["b"]}
    p, r = reward_process(source)
    agents = len(p)
    phi = np.broadcast_to(source["Phi"].astype(float), (agents, p.shape[1], source["Phi"].shape[-1]))
    gamma = np.broadcast_to(source["gamma"].astype(float), (agents,))
    law = np.array([stationary_law(x) for x in p])
    a = np.array([f.T @ np.diag(q) @ (f - g * x @ f) for f, q, g, x in zip(phi, law, gamma, p)])
    b = np.array([f.T @ (q * y) for f, q, y in zip(phi, law, r)])
    return {"A": a, "b": b, "stationary": law}


def rounds(a, weights, eta, h):
    """Limit and radius of FedLSA's round, radius of SCAFFLSA's and of FedHSA's, alpha_g = 1."""
    agents, d = len(a), a.shape[-1]
    eye = np.eye(d)
    power = [np.linalg.matrix_power(eye - eta * x, h) for x in a]
    s = [sum(eta * np.linalg.matrix_power(eye - eta * x, k) for k in range(h)) for x in a]
    mean = lambda list_: sum(w * x for w, x in zip(weights, list_))
    radius = lambda m: max(abs(np.linalg.eigvals(m)))
    # The state (u, x_1 .. x_N): theta - theta*, xi_c - xi*_c, on sum_c p_c x_c = 0.
    project = np.eye((agents + 1) * d)
    block = lambda c: slice((c + 1) * d, (c + 2) * d)
    for c in range(agents):
        for k in range(agents):
            project[block(c), block(k)] -= weights[k] * eye
    change = np.zeros((agents, d, (agents + 1) * d))
    for c in range(agents):
        change[c][:, :d] = -s[c] @ a[c]
        change[c][:, block(c)] = s[c]
    average = np.einsum("c,cij->ij", weights, change)
    scafflsa = np.eye((agents + 1) * d)
    scafflsa[:d] += average
    for c in range(agents):
        scafflsa[block(c)] += (average - change[c]) / (eta * h)
    return {
        "limit": lambda b: np.linalg.solve(eye - mean(power), mean([x @ y for x, y in zip(s, b)])),
        "fedlsa": radius(mean(power)),
        "scafflsa": radius(scafflsa @ project),
        "fedhsa": radius(eye - mean(s) @ mean(a)),
    }


def check(source_path, export_path, theory_path):
    source, export = dict(np.load(source_path)), dict(np.load(export_path))
    theory = json.loads(Path(theory_path).read_text())
    weights = export["weights"]
    expected = systems(source)
    expected["theta_local"] = np.array([np.linalg.solve(a, b) for a, b in zip(expected["A"], expected["b"])])
    mean_a, mean_b = np.einsum("c,cij->ij", weights, expected["A"]), weights @ expected["b"]
    expected["theta_star"] = np.linalg.solve(mean_a, mean_b)
    pairs = {name: (export[name], x) for name, x in expected.items()}
    pairs["theory: theta_star"] = (theory["problems"][0]["theta_star"], expected["theta_star"])
    if "noise_std" in source:
        pairs["noise_std"] = (export["noise_std"], source["noise_std"])
    for method in theory["methods"]:
        # The label says the step size and the number of local steps: `scafflsa 0.1 5`.
        kind, eta, h = method["method"].split()
        known = rounds(expected["A"], weights, float(eta), int(h))
        pairs[f"{method['method']}: radius"] = (method["radius"], known[kind])
        if kind == "fedlsa":
            pairs[f"{method['method']}: limit"] = (method["limit"], known["limit"](expected["b"]))
    worst = 0.0
    for name, (got, want) in pairs.items():
        got, want = np.asarray(got, float), np.asarray(want, float)
        assert got.shape == want.shape, f"{name}: shape {got.shape} instead of {want.shape}"
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        worst = max(worst, error)
        assert error <= TOLERANCE, f"{name}: relative error {error:.2e}\n{got}\n{want}"
    print(f"{len(pairs)} comparisons, worst {worst:.1e}")


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"make": make, "check": check}[command](*map(Path, paths))
