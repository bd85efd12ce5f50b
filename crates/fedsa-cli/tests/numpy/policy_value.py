"""The value of the start states of logs in NumPy, against `policy_value` of summary.json.

Usage: policy_value.py SUMMARY GAMMA LAMBDA LOGS..
Features are a constant and the columns s_*. Episodes are numbered, and have more than 20 rows of each agent.
"""

import csv
import json
import sys

import numpy as np


def episodes(path):
    """Arrays phi, next (zeros after an end), reward, ratio of each episode, and whether it has ended."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    states = sorted(name for name in rows[0] if name.startswith("s_"))
    found = {}
    for row in rows:
        found.setdefault(row["episode"], []).append(row)
    for of_one in found.values():
        phi = np.array([[1.0] + [float(row[s]) for s in states] for row in of_one])
        following = np.array([[1.0] + [float(row["next_" + s[2:]]) for s in states] for row in of_one])
        done = np.array([float(row["done"]) for row in of_one])
        ratio = np.array([float(row.get("ratio") or 1.0) for row in of_one])
        yield phi, following * (1 - done)[:, None], np.array([float(row["reward"]) for row in of_one]), ratio, done[-1] == 1


def traces(phi, ratio, decay):
    z, all_of_them = np.zeros(phi.shape[1]), []
    for x, rho in zip(phi, ratio):
        z = rho * (decay * z + x)
        all_of_them.append(z)
    return np.array(all_of_them)


def main(summary, gamma, decay, paths):
    value = json.load(open(summary))["policy_value"]
    gamma, decay = float(gamma), float(gamma) * float(decay)
    agent, units = [], []
    for c, path in enumerate(paths):
        for unit in episodes(path):
            agent.append(c)
            units.append(unit)
    agent, n = np.array(agent), len(units)
    z = [traces(u[0], u[3], decay) for u in units]
    a = np.array([z.T @ (u[0] - gamma * u[1]) for z, u in zip(z, units)])
    b = np.array([z.T @ u[2] for z, u in zip(z, units)])
    starts = np.array([u[0][0] for u in units])

    def value_of(keep, of):
        theta = np.linalg.solve(a[keep].sum(axis=0), b[keep].sum(axis=0))
        return starts[keep & of].mean(axis=0) @ theta

    def check(name, found, expected):
        assert np.isclose(found, expected, rtol=1e-9, atol=1e-11), (name, found, expected)

    everything = np.ones(n, bool)
    without = lambda of: np.array([value_of(np.arange(n) != i, of) for i in range(n)])
    fitted = value["fitted"]
    assert fitted["interval"] == "jackknife", fitted
    estimate = value_of(everything, everything)
    check("value", fitted["all"]["estimate"], estimate)
    check("jackknife", fitted["all"]["se"], np.sqrt((n - 1) / n * ((estimate - without(everything)) ** 2).sum()))
    for c, name in enumerate(sorted(fitted["agents"])):
        of = agent == c
        own, estimate = of.sum(), value_of(everything, of)
        squares = (estimate - without(of)) ** 2
        check(name, fitted["agents"][name]["estimate"], estimate)
        check(name, fitted["agents"][name]["se"], np.sqrt((own - 1) / own * squares[of].sum() + n / (n - 1) * squares[~of].sum()))
        theta = np.linalg.solve(a[of].sum(axis=0), b[of].sum(axis=0))
        check(name, fitted["own"][name]["estimate"], starts[of].mean(axis=0) @ theta)
    plain = [(gamma ** np.arange(len(u[2])) * np.cumprod(u[3]) * u[2]).sum() for u in units]
    check("plain", value["importance"]["plain"], np.mean(plain))
    assert value["importance"]["cut_episodes"] == sum(not u[4] for u in units)
    print(f"{n} episodes agree")


main(*sys.argv[1:4], sys.argv[4:])
