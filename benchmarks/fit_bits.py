"""Bits of `fedsa fit --method auto` over those of the best of other methods, on public data and on generated problems.

    python benchmarks/fit_bits.py PATH/TO/fedsa [WORD ..]

Needs numpy, and the public data in the folder that FEDSA_DATA names. Words select sets by their names. Bits are up and down, of all agents,
until the norm of the gradient is 1e-9, with what the method probes. A method that takes more than four minutes, or more than 1500 rounds, has none.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

FEDSA, WORDS = sys.argv[1], sys.argv[2:]
METHODS = ["auto", "giant", "newton", "lbfgs", "fednl", "fib-shed", "shed-ls"]
# Fewer bits than with the largest entries, where it gets there.
SETTINGS = {"fednl": ["--set", 'method.*.compressor="rank-1"']}
SECONDS = 240


def write_idx(path, array):
    """An IDX file of doubles or bytes."""
    kind, array = (0x0E, array.astype(">f8")) if array.dtype == float else (8, array.astype(np.uint8))
    with open(path, "wb") as file:
        file.write(bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def made(folder, n, d, decay, kind, seed):
    """Rows of correlated columns whose scales fall by `decay` in all, with targets of a model."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1, decay, d)
    x = (rng.standard_normal((n, d)) * scale) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    eta = x @ rng.standard_normal(d) / np.linalg.norm(scale)
    y = rng.poisson(np.exp(0.5 * eta)).clip(max=255) if kind == "poisson" else rng.random(n) < 1 / (1 + np.exp(-2 * eta))
    path = os.path.join(folder, f"made-{seed}-images-idx2-ubyte")
    write_idx(path, x)
    write_idx(path.replace("images-idx2-ubyte", "labels-idx1-ubyte"), y)
    return [path] + (["--model", "poisson"] if kind == "poisson" else ["--positive", "1"])


def bits(args, method):
    """The bits up and down, the rounds and the seconds; the outcome where it is not `converged`."""
    with tempfile.TemporaryDirectory() as out:
        line = [FEDSA, "fit", *args, "--ridge", "1e-5", "--tol", "1e-9", "--method", method, *SETTINGS.get(method, []), "--max-rounds", "1500", "--out", out, "--overwrite", "--quiet"]
        try:
            ran = subprocess.run(line, capture_output=True, timeout=SECONDS, text=True)
        except subprocess.TimeoutExpired:
            return None, "long"
        try:
            with open(os.path.join(out, "summary.json")) as file:
                result = json.load(file)["results"][0]
        except OSError:
            return None, ran.stderr.strip().split("\n")[0][:60]
        ledger = result["ledger"]
        if result["outcome"] != "converged":
            return None, result["outcome"]
        return ledger["bits_up"] + ledger["bits_down"], result["rounds"]


def main():
    image = ["--divide-by", "255"]
    femnist, fashion = ["femnist-digits", *image], ["fashion-mnist/t10k", *image]
    with tempfile.TemporaryDirectory() as folder:
        sets = {
            "femnist by writer, 3, 50 components": lambda: [*femnist, "--group", "writers", "--agents", "12", "--positive", "3", "--pca", "50"],
            "femnist by writer, 8, 50 components": lambda: [*femnist, "--group", "writers", "--agents", "12", "--positive", "8", "--pca", "50"],
            "femnist by writer, 3, 100 components": lambda: [*femnist, "--group", "writers", "--agents", "12", "--positive", "3", "--pca", "100"],
            "fashion Dirichlet 0.1, 0, 100 components": lambda: [*fashion, "--partition", "dirichlet:0.1", "--positive", "0", "--pca", "100"],
            "fashion Dirichlet 0.3, 0, 100 components": lambda: [*fashion, "--partition", "dirichlet:0.3", "--positive", "0", "--pca", "100"],
            "fashion Dirichlet 1, 3, 100 components": lambda: [*fashion, "--partition", "dirichlet:1", "--positive", "3", "--pca", "100"],
        }
        problems = [
            (1000, 10, 1, "logistic"),
            (1000, 10, 1e-2, "logistic"),
            (5000, 50, 1, "logistic"),
            (5000, 50, 1e-2, "logistic"),
            (500, 100, 1, "logistic"),
            (20000, 100, 1e-1, "logistic"),
            (2000, 200, 1, "logistic"),
            (50000, 200, 1, "logistic"),
            (50000, 200, 1e-1, "logistic"),
            (5000, 30, 1e-1, "poisson"),
        ]
        for seed, (n, d, decay, kind) in enumerate(problems):
            sets[f"{n} x {d}, scales 1 to {decay:g}, {kind}"] = lambda of=(n, d, decay, kind, seed): made(folder, *of)
        print("| data | " + " | ".join(METHODS) + " | auto over the best |")
        print("| --- |" + " --- |" * (len(METHODS) + 1))
        for name, load in sets.items():
            if WORDS and not any(word in name for word in WORDS):
                continue
            args = load()
            found = [bits(args, method) for method in METHODS]
            best = min((b for b, _ in found[1:] if b is not None), default=None)
            ratio = f"{found[0][0] / best:.2f}" if best and found[0][0] else "-"
            cells = [f"{b / 1e6:.3g}" if b is not None else str(why) for b, why in found]
            print(f"| {name} | " + " | ".join(cells) + f" | {ratio} |", flush=True)


main()
