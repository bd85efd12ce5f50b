"""Federated stochastic approximation: many agents look for one parameter vector while they exchange little.

>>> import fedsa
>>> from fedsa import methods, problems
>>> experiment = fedsa.Experiment(
...     problems.Garnet(agents=5, states=10, features=3, heterogeneity="independent", seed=1),
...     [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, 10)],
...     rounds=3000,
...     seeds=3,
... )
>>> results = experiment.run()
>>> results.floor("scafflsa").mean < results.floor("fedlsa").mean
True

Settings have the names of experiment files. How a run ended is an :class:`Outcome`, not an exception.
"""

from __future__ import annotations

from fedsa import links, methods, problems
from fedsa._experiment import Experiment, bundled
from fedsa._fedsa import CancelToken, Table, __version__
from fedsa._progress import Progress
from fedsa._results import Comparison, Estimate, Figure, Outcome, Results, Summary, Verdict, compare, open
from fedsa._theory import Accuracy, Change, Check, Curve, Limits, StableStep, Target, Theory, Tuning, Unknown
from fedsa._threads import get_threads, set_threads
from fedsa.errors import Cancelled, FedsaError, FedsaWarning, InputError, InternalError, MachineError, MissedError, NotKnown, OutOfMemory

__all__ = [
    "Accuracy",
    "Change",
    "Curve",
    "Limits",
    "StableStep",
    "Target",
    "Theory",
    "Tuning",
    "Unknown",
    "Verdict",
    "CancelToken",
    "Cancelled",
    "Check",
    "Comparison",
    "Estimate",
    "Experiment",
    "FedsaError",
    "FedsaWarning",
    "Figure",
    "InputError",
    "InternalError",
    "MachineError",
    "MissedError",
    "NotKnown",
    "OutOfMemory",
    "Outcome",
    "Progress",
    "Results",
    "Summary",
    "Table",
    "__version__",
    "bundled",
    "compare",
    "get_threads",
    "links",
    "methods",
    "open",
    "problems",
    "set_threads",
]
