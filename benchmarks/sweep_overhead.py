"""What joblib adds to a sweep: its seconds over those of one run of the same points with all threads.

    python benchmarks/sweep_overhead.py [--points 12] [--seconds 1] [--workers 2] [--pairs 5] [--json FILE]

The environment has fedsa and joblib. Rounds are chosen so that a point takes `--seconds` of one core. Runs by joblib and runs in one
process come in turn, so that other work on the machine meets both; each pair gives a ratio, and the table has their median. The load of
the machine is said, because figures at a load of others mean little. The results are compared with those of the one run, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fedsa
from fedsa import methods, problems

# Rounds of the run by which a point's time is measured.
TRIAL = 2_000


def swept(points: int, rounds: int) -> fedsa.Experiment:
    """A sweep of so many points of equal cost."""
    garnet = problems.Garnet(agents=5, states=10, features=3, seed=1)
    experiment = fedsa.Experiment(garnet, [methods.FedLSA(0.1, 10)], rounds=rounds, seeds=1)
    return experiment.sweep({"problem.seed": list(range(points))})


def rounds_for(seconds: float) -> int:
    """The rounds with which a point takes so many seconds of a core."""
    rounds = TRIAL
    while True:
        began = time.perf_counter()
        swept(2, rounds).run()
        took = (time.perf_counter() - began) / 2
        if took > 0.2 * seconds:
            # Two points of five agents use two threads: each point has one.
            return max(1, round(rounds * seconds / (2 * took)))
        rounds *= 4


def lasting(results: fedsa.Results) -> list[bytes]:
    """What does not depend on the machine."""
    files = results._all_files()
    return [files[name] for name in ("trace.parquet", "theta.npz", "config.toml")]


def timed(run: Callable[[], fedsa.Results]) -> tuple[float, list[bytes]]:
    began = time.perf_counter()
    results = run()
    return time.perf_counter() - began, lasting(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rounds = rounds_for(asked.seconds)
    experiment = swept(asked.points, rounds)
    print(f"{asked.points} points of {rounds} rounds, {asked.workers} workers, load {os.getloadavg()[0]:.1f} at the start")
    one, other, ratios = [], [], []
    fedsa.sweep(swept(asked.workers, 1), "joblib", workers=asked.workers, batch=1)  # workers load the package
    for _ in range(asked.pairs):
        seconds, files = timed(lambda: fedsa.sweep(experiment, "joblib", workers=asked.workers, batch=1))
        alone, expected = timed(experiment.run)
        if files != expected:
            sys.exit("the results differ from those of one run")
        one.append(alone)
        other.append(seconds)
        ratios.append(seconds / alone)
    row = {"one": statistics.median(one), "seconds": statistics.median(other), "ratio": statistics.median(ratios), "ratios": ratios}
    print("| one run, s | joblib, s | ratio, median of pairs | pairs |\n| --- | --- | --- | --- |")
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"| {row['one']:.2f} | {row['seconds']:.2f} | {row['ratio']:.3f} | {shown} |", flush=True)
    said = {"points": asked.points, "rounds": rounds, "workers": asked.workers, "load": os.getloadavg(), **row}
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if asked.json:
        asked.json.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
