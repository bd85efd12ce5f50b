"""Progress of long calls: tqdm bars, callbacks, warnings and logs."""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from fedsa._warn import as_keywords, warn
from fedsa.errors import InputError

logger = logging.getLogger("fedsa")

# Seconds before a bar appears.
PATIENCE = 0.5


@dataclass(frozen=True)
class Progress:
    """The progress of a call.

    Attributes
    ----------
    stage : str
        ``"building"``, ``"running"``, ``"comparing"`` (with theory), ``"computing roots"``, ``"computing predictions"``,
        ``"estimating the policy's value"``, or the current candidate of a search.
    done : float
        Finished work of the stage: local steps of all agents, predictions, or seconds of a budget.
    total : float or None
        All work of the stage, if known. Runs may end earlier, at their targets.
    seconds : float
        Seconds since the call began.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> stages = []
    >>> results = experiment.run(progress=lambda now: stages.append(now.stage))
    >>> stages[0]
    'building'
    """

    stage: str
    done: float
    total: float | None
    seconds: float


ProgressLike = Union[bool, Callable[[Progress], object], None]
Observer = Callable[[dict[str, Any]], object]


class Listener:
    """Receives the engine's events, some times a second, in the caller's thread."""

    def __init__(self, name: str, progress: ProgressLike, observer: Observer | None = None) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            help = "True, False, None for a bar where somebody sees it, or a function of a Progress"
            raise InputError(f"{progress!r} is not accepted", "setting.wrong-type", "progress", help, value=repr(progress))
        self.name, self.callback, self.observer = name, progress if callable(progress) else None, observer
        self.records = observer is not None
        self.began = time.monotonic()
        self.stage, self.done = "building", 0.0
        self.total: float | None = None
        self.bar: Any = None
        # By default a bar appears only in notebooks and interactive terminals.
        wants_bar = progress is True or (progress is None and is_interactive())
        self.tqdm = tqdm_class() if wants_bar else None

    def __call__(self, events: list[tuple[Any, ...]]) -> None:
        for event in events:
            kind = event[0]
            if kind == "stage":
                logger.info("%s: %s", self.name, event[1])
                self.show(event[1], 0.0, event[2] or None)
            elif kind == "done":
                if self.stage == "running":
                    self.show(self.stage, event[1], self.total)
            elif kind == "computing":
                logger.debug("%s: %s %d of %d", self.name, event[1], event[2], event[3])
                self.show(event[1], float(event[2] - 1), float(event[3]))
            elif kind == "searching":
                logger.debug("%s: %s", self.name, event[1])
                self.show(event[1], event[2], self.total)
            elif kind == "ended":
                logger.info("%s: %s%s, seed %d: %s after %d rounds", self.name, event[1], f" at {event[2]}" if event[2] else "", *event[3:])
            elif kind == "warned":
                text = as_keywords(event[1])
                logger.warning("%s: %s", self.name, text)
                warn(text)
            elif kind == "recorded" and self.observer is not None:
                self.observer(dict(zip(("method", "point", "seed", "round", "mse"), event[1:])))

    def show(self, stage: str, done: float, total: float | None) -> None:
        """Update the callback and the bar."""
        self.stage, self.done, self.total = stage, done, total
        seconds = time.monotonic() - self.began
        if self.callback is not None:
            self.callback(Progress(self.stage, self.done, self.total, seconds))
        if self.tqdm is not None and (self.bar is not None or seconds > PATIENCE):
            if self.bar is None:
                self.bar = self.tqdm(total=1.0, leave=False, bar_format="{desc}{percentage:3.0f}%|{bar}| {elapsed}")
            self.bar.set_description(f"{self.name}: {self.stage}", refresh=False)
            self.bar.n = min(self.done / self.total, 1.0) if self.total else 0.0
            self.bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_interactive() -> bool:
    """Whether Python runs in a notebook, or interactively on a terminal."""
    if "ipykernel" in sys.modules:
        return True
    return hasattr(sys, "ps1") and sys.stderr is not None and sys.stderr.isatty()


def tqdm_class() -> Any:
    """The tqdm class for this environment; ``None`` if tqdm is not installed."""
    if importlib.util.find_spec("tqdm") is None:
        return None
    import tqdm.auto

    return tqdm.auto.tqdm
