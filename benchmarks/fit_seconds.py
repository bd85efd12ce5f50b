"""Seconds of `fedsa fit` until the norm of the gradient is 1e-9, beside scikit-learn's lbfgs on the same objective.

    python benchmarks/fit_seconds.py PATH/TO/fedsa

Needs numpy, scipy and scikit-learn, and the public data in the folder that FEDSA_DATA names. The objective is the mean loss with ridge 1e-5,
without intercept; rows are dealt to 8 agents. Both sides read the data first; what reading takes is not in the seconds. Least squares has no
lbfgs in scikit-learn: that of SciPy stands for it, on the same loss. Each number is the least of three.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import scipy.optimize
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression

warnings.filterwarnings("ignore")
FEDSA, DATA, RIDGE, TIMES = sys.argv[1], os.environ["FEDSA_DATA"], 1e-5, 3


def idx(path):
    """An IDX file of bytes."""
    with gzip.open(path) as file:
        head = file.read(4)
        shape = np.frombuffer(file.read(4 * head[3]), ">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def write_idx(path, array):
    """An IDX file of doubles or bytes."""
    kind, array = (0x0D, array.astype(">f4")) if array.dtype == np.float32 else (0x0E, array.astype(">f8")) if array.dtype == float else (8, array)
    with open(path, "wb") as file:
        file.write(bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def libsvm(name):
    x, y = load_svmlight_file(os.path.join(DATA, "libsvm", name) if os.path.exists(os.path.join(DATA, "libsvm", name)) else found(name))
    return x, y == y.max(), [f"libsvm/{name}"]


def found(name):
    folder = os.path.join(DATA, "libsvm")
    return os.path.join(folder, next(f for f in sorted(os.listdir(folder)) if f.split(".")[0] == name and ".t." not in f and not f.endswith(".t")))


def images(name, images, labels, positive):
    x = idx(os.path.join(DATA, name.split("/")[0], images)).astype(float) / 255
    y = idx(os.path.join(DATA, name.split("/")[0], labels))
    return x.reshape(len(x), -1), y == positive, [name, "--positive", str(positive), "--divide-by", "255"]


def made(folder, n, d, decay, seed):
    """Rows of correlated columns whose scales fall by `decay` in all, with classes of a logistic model."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ np.linalg.qr(rng.standard_normal((d, d)))[0] * np.geomspace(1, decay, d)
    p = 1 / (1 + np.exp(-x @ rng.standard_normal(d) / np.linalg.norm(np.geomspace(1, decay, d)) * 2))
    y = rng.random(n) < p
    path = os.path.join(folder, f"made-{n}-{d}-images-idx2-ubyte")
    write_idx(path, x)
    write_idx(path.replace("images-idx2-ubyte", "labels-idx1-ubyte"), y.astype(np.uint8))
    return x, y, [path, "--positive", "1"]


def of_fedsa(args):
    """The seconds of the method and the norm of the gradient at the end."""
    best = np.inf
    with tempfile.TemporaryDirectory() as out:
        for _ in range(TIMES):
            line = [FEDSA, "fit", *args, "--ridge", str(RIDGE), "--tol", "1e-9", "--intercept=false", "--objective", "seconds", "--out", out, "--overwrite", "--quiet"]
            subprocess.run(line, check=True, capture_output=True)
            with open(os.path.join(out, "summary.json")) as file:
                result = json.load(file)["results"][0]
            if result["outcome"] != "converged":
                return np.nan, result["residual_mean"], result["kind"]
            best = min(best, result["seconds"])
    return best, result["residual_mean"], result["kind"]


def of_sklearn(x, y):
    """The seconds of `fit` and the norm of the gradient at the end, the gradient's largest entry at most 1e-10."""
    n, best = len(y), np.inf
    for _ in range(TIMES):
        model = LogisticRegression(C=1 / (n * RIDGE), fit_intercept=False, tol=1e-10, max_iter=20_000)
        began = time.perf_counter()
        model.fit(x, y)
        best = min(best, time.perf_counter() - began)
    theta = model.coef_[0]
    gradient = x.T @ (1 / (1 + np.exp(-(x @ theta))) - y) / n + RIDGE * theta
    return best, float(np.linalg.norm(gradient))


def main():
    print(f"{'data':<28} {'n':>7} {'d':>5} {'fedsa s':>9} {'gradient':>9} {'sklearn s':>9} {'gradient':>9} {'ratio':>6}  method")
    with tempfile.TemporaryDirectory() as folder:
        femnist = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
        sets = [
            ("w8a", lambda: libsvm("w8a")),
            ("a9a", lambda: libsvm("a9a")),
            ("phishing", lambda: libsvm("phishing")),
            ("femnist-digits, 3", lambda: images("femnist-digits", *femnist, 3)),
            ("Fashion-MNIST test, 3", lambda: images("fashion-mnist/t10k", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", 3)),
            ("made, 50,000 x 200", lambda: made(folder, 50_000, 200, 1e-1, 1)),
            ("made, 20,000 x 50", lambda: made(folder, 20_000, 50, 1e-2, 2)),
        ]
        for name, load in sets:
            try:
                x, y, args = load()
            except (OSError, StopIteration) as e:
                print(f"{name:<28} not there: {e}")
                continue
            mine, at, method = of_fedsa(args)
            theirs, at_theirs = of_sklearn(x, y)
            print(f"{name:<28} {x.shape[0]:>7} {x.shape[1]:>5} {mine:>9.3f} {at:>9.1e} {theirs:>9.3f} {at_theirs:>9.1e} {theirs / mine:>6.1f}  {method}", flush=True)


main()
