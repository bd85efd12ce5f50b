"""Federated stochastic approximation: N agents find one parameter vector with few messages.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsa import errors
from fedsa.errors import Cancelled, FedsaError, FedsaWarning, InputError, InternalError, MachineError, MissedError, NotAvailable, OutOfMemory

if TYPE_CHECKING:
    from fedsa import federation, gym, links, methods, operators, problems, rules
    from fedsa._estimator import Inference, Spending
    from fedsa._experiment import Experiment, Tuning, bundled
    from fedsa._fedsa import CancelToken, Table, __version__
    from fedsa._figure import Figure
    from fedsa._fit import FederatedClassifier, FederatedRegressor
    from fedsa._policy import ActionValueFunction, ImprovedValue, PolicyImprovement
    from fedsa._progress import Progress
    from fedsa._reports import Report, report
    from fedsa._results import CheckResult, Comparison, Outcome, Results, compare, open
    from fedsa._summary import Estimate, Note, Summary
    from fedsa._sweep import sweep
    from fedsa._theory import Accuracy, Change, Check, Curve, Limits, StableStep, Target, Theory, Unknown
    from fedsa._threads import get_threads, set_threads
    from fedsa._value import PolicyValue, ValueEstimate, ValueFunction

# A module is imported when one of its names is first used. Flower starts a process for each message, and that process needs few modules.
_MODULES = {
    "_estimator": ["Inference", "Spending"],
    "_experiment": ["Experiment", "Tuning", "bundled"],
    "_fedsa": ["CancelToken", "Table", "__version__"],
    "_figure": ["Figure"],
    "_fit": ["FederatedClassifier", "FederatedRegressor"],
    "_policy": ["ActionValueFunction", "ImprovedValue", "PolicyImprovement"],
    "_progress": ["Progress"],
    "_reports": ["Report", "report"],
    "_results": ["CheckResult", "Comparison", "Outcome", "Results", "compare", "open"],
    "_summary": ["Estimate", "Note", "Summary"],
    "_sweep": ["sweep"],
    "_theory": ["Accuracy", "Change", "Check", "Curve", "Limits", "StableStep", "Target", "Theory", "Unknown"],
    "_threads": ["get_threads", "set_threads"],
    "_value": ["PolicyValue", "ValueEstimate", "ValueFunction"],
}
_PUBLIC_MODULES = {"federation", "gym", "links", "methods", "operators", "problems", "rules"}
_LATER = {name: module for module, names in _MODULES.items() for name in names} | {name: name for name in _PUBLIC_MODULES}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'fedsa' has no attribute {name!r}", name=name, obj=__import__(__name__))
    module = import_module(f"fedsa.{_LATER[name]}")
    value = module if name in _PUBLIC_MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "Accuracy",
    "ActionValueFunction",
    "Change",
    "Curve",
    "Limits",
    "StableStep",
    "Target",
    "Theory",
    "Tuning",
    "Unknown",
    "ValueEstimate",
    "ValueFunction",
    "CancelToken",
    "Cancelled",
    "Check",
    "CheckResult",
    "Comparison",
    "Estimate",
    "Experiment",
    "FederatedClassifier",
    "FederatedRegressor",
    "FedsaError",
    "FedsaWarning",
    "Figure",
    "ImprovedValue",
    "Inference",
    "InputError",
    "InternalError",
    "MachineError",
    "MissedError",
    "NotAvailable",
    "Note",
    "OutOfMemory",
    "Outcome",
    "PolicyImprovement",
    "PolicyValue",
    "Progress",
    "Report",
    "Results",
    "Spending",
    "Summary",
    "Table",
    "__version__",
    "bundled",
    "compare",
    "errors",
    "federation",
    "get_threads",
    "gym",
    "links",
    "methods",
    "open",
    "operators",
    "problems",
    "report",
    "rules",
    "set_threads",
    "sweep",
]
