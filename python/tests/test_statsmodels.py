"""Five sites that keep their rows have the coefficients, standard errors and deviance that statsmodels has on all rows together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs
from test_deployed import Sites

from fedsa import federation

sm = needs("statsmodels.api")

ROWS = (90, 140, 60, 110, 200)

# Of each number that an agent sends. With the larger bound the grid of sums has steps of 2e-12.
BOUNDS = {"model": 100.0, "sandwich": 1e3}

# Relative differences to statsmodels 0.15.0, at most: coefficients 3e-10 (the fits end at a gradient norm of 1e-9), standard errors 4e-11, deviance
# 2e-16. Least squares has 3e-15 without, and 1.5e-12 with secure sums, whose grid has steps of 2e-13.
CLOSE, CLOSE_DEVIANCE = 1e-9, 1e-13


def site(number: int, model: str) -> tuple[Any, Any]:
    """The columns and targets of a site; sites differ in the mean and spread of a."""
    draw, n = np.random.default_rng(number), ROWS[number]
    a = draw.normal(0.3 * number - 0.5, 1.0 + 0.2 * number, n)
    x = np.column_stack([a, draw.uniform(-1.0, 1.0, n), draw.integers(0, 2, n)])
    eta = 0.2 + x @ [0.6, -0.8, 0.3]
    if model == "logistic":
        y = (draw.uniform(size=n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    else:
        y = eta + draw.normal(0.0, 0.5, n) if model == "least-squares" else draw.poisson(np.exp(0.5 * eta)).astype(float)
    return x, y


def pooled(model: str, covariance: str, sites: list[tuple[Any, Any]]) -> Any:
    """The fit of statsmodels on the rows of all sites."""
    x, y = sm.add_constant(np.vstack([x for x, _ in sites])), np.concatenate([y for _, y in sites])
    kind = "nonrobust" if covariance == "model" else "HC0"
    if model == "least-squares":
        return sm.OLS(y, x).fit(cov_type=kind)
    family = sm.families.Binomial() if model == "logistic" else sm.families.Poisson()
    return sm.GLM(y, x, family=family).fit(tol=1e-14, maxiter=100, cov_type=kind)


@pytest.mark.parametrize(("covariance", "is_secure"), [("model", False), ("model", True), ("sandwich", True)])
@pytest.mark.parametrize("model", ["logistic", "least-squares", "poisson"])
def test_five_sites_infer_what_statsmodels_does(tmp_path: Path, model: str, covariance: str, is_secure: bool) -> None:
    sites, files = [site(number, model) for number in range(5)], []
    for number, (x, y) in enumerate(sites):
        rows = "".join(",".join(repr(float(value)) for value in (*row, target)) + "\n" for row, target in zip(x, y))
        (tmp_path / f"site_{number}.csv").write_text(f"a,b,c,y\n{rows}")
        files.append(str(tmp_path / f"site_{number}.csv"))
    secure = ["--secure-sums", str(BOUNDS[covariance])] if is_secure else []
    command = [sys.executable, "-m", "fedsa", "fit", *files, "--model", model, "--target", "y", "--partition", "files", f"--inference={covariance}", *secure]
    subprocess.run([*command, "--federation", str(tmp_path / "app")], check=True)
    settings = (tmp_path / "app/settings.toml").read_text()
    assert ("secure-sum" in settings) == is_secure and f'inference = "{covariance}"' in settings
    here = Sites(tmp_path, tmp_path / "app/settings.toml", files)
    results = federation.serve(here.settings, here, agents=5, out=tmp_path / "out", deadline=5.0)
    assert [one.name for one in results.outcomes.values()] == ["converged"]

    told, expected = json.loads((tmp_path / "out/summary.json").read_text())["inference"], pooled(model, covariance, sites)
    assert [one["name"] for one in told["coefficients"]] == ["intercept", "a", "b", "c"] and told["n"] == sum(ROWS)
    assert [one["estimate"] for one in told["coefficients"]] == pytest.approx(expected.params, rel=CLOSE, abs=0.0)
    assert [one["se"] for one in told["coefficients"]] == pytest.approx(expected.bse, rel=CLOSE, abs=0.0)
    assert told["deviance"] == pytest.approx(expected.ssr if model == "least-squares" else expected.deviance, rel=CLOSE_DEVIANCE, abs=0.0)
