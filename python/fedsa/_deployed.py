"""Federations over any carrier, whose agents have their own data.

All ends share the settings: an experiment file without data. Each writes its state to disk before it sends, so each can be killed at
any time and continue.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fedsa import _files
from fedsa._agent import read_settings
from fedsa._carrier import AgentCarrier
from fedsa._files import Path
from fedsa._results import Results
from fedsa._server import Server, Waiting
from fedsa.errors import InputError


def serve(
    settings: Path, carrier: AgentCarrier, *, state: Path | None = None, report: Callable[[str], object] | None = None, **federation: Any
) -> Results:
    """Run the server of a federation, from enrolment to results.

    Agents join and leave between rounds:

    - The server invites reachable agents that do not take part, up to `most`.
    - Agents leave if they say so, are silent for too long, or are excluded.
    - A change begins a new epoch. Its weights are proportional to rows (equal with ``weighting = "equal"``), and its control variates sum
      to zero.

    With a residual target in ``[run] stop``, the federation ends after the first round that reaches it, like a run in one process. The
    server learns a round's residual from the first answers of the next round; if the target is reached, that next round changes nothing.
    After the last round it asks once more, so that the outcome says whether the target was reached. Methods that try points before they
    accept one need no further question.

    Parameters
    ----------
    settings : path
        The shared settings: an experiment file with one method and one seed, without data. Its table ``[federation]`` has the server's
        settings: numbers of agents, the deadline, the folder of the results.
    carrier : AgentCarrier
        Transports the messages.
    state : path, optional
        The folder for the state while the federation runs; by default `out` with ``.state``. A call with the state of a stopped server
        continues from it.
    report : callable, optional
        Called with a line of text for each exchange.
    **federation
        Keys of the table ``[federation]``, such as ``agents`` and ``out``, in place of those of the file; ``None`` keeps the file's.

    Returns
    -------
    Results
        The results, which are also in `out`.

    Raises
    ------
    InputError
        When settings cannot be used, `out` holds files, an agent's data do not fit, or another server uses the state.
    MachineError
        When too few agents come, none can be reached, or none answers in 3 rounds. The state is kept.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedsa import federation
    >>> folder = Path(tempfile.mkdtemp())
    >>> problem = 'problem = { kind = "garnet", agents = 3, states = 8, features = 3 }'
    >>> _ = (folder / "settings.toml").write_text(problem + '''
    ... method = [{ kind = "scafflsa", step_size = 0.1, local_steps = 4 }]
    ... run = { rounds = 5, seeds = [1] }
    ... ''')
    >>> class Here:
    ...     agents = {name: federation.Agent(folder / "settings.toml") for name in "abc"}
    ...     def reachable(self):
    ...         return list(self.agents)
    ...     def exchange(self, messages, deadline):
    ...         return {name: federation.Reply(self.agents[name].handle(message)) for name, message in messages.items()}
    >>> results = federation.serve(folder / "settings.toml", Here(), agents=3, out=folder / "out")
    >>> results.outcomes["scafflsa"].name, results.theta("scafflsa").shape
    ('completed', (1, 3))
    """
    deployment = read_settings(settings, {key: os.fspath(value) if key == "out" and value is not None else value for key, value in federation.items()})
    out = Waiting.of(deployment).out
    folder = f"{out}.state" if state is None else os.fspath(state)
    holds_results = os.path.exists(os.path.join(out, "summary.json"))
    refused = InputError(f"{out} holds results", "setting.output-exists", "out", "another folder, or this one without the results")
    if holds_results and not os.path.exists(os.path.join(folder, "server.state")):
        raise refused
    _files.folder_of(folder)
    with _files.held(os.path.join(folder, "server.lock")) as is_free:
        if not is_free:
            accepted = "another folder, or the same one once that server has ended"
            raise InputError(f"another server runs with its state in {folder}", "setting.output-busy", "state", accepted)
        server = Server(deployment, carrier, folder, report or (lambda _: None))
        if holds_results and not server.wrote(out):
            raise refused
        server.enrol()
        server.run()
        server.ask_sums()
        results = server.results()
        server.write(results, out)
    return results
