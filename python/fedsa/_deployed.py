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
from fedsa._server import Server
from fedsa.errors import InputError


def serve(
    settings: Path,
    carrier: AgentCarrier,
    *,
    agents: int,
    out: Path,
    most: int | None = None,
    state: Path | None = None,
    connect: float | None = None,
    deadline: float | None = None,
    least_answers: int | None = None,
    least_share: float | None = None,
    repeats: int | None = None,
    missing: str | None = None,
    norm_limit: float | None = None,
    width_limit: float | None = None,
    leave_after: int | None = None,
    invite: float | None = None,
    overwrite: bool = False,
    report: Callable[[str], object] | None = None,
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

    An argument that is ``None`` has the value of the table ``[federation]`` of the settings. The defaults of that table are named below.

    Parameters
    ----------
    settings : path
        The shared settings: an experiment file with one method and one seed, without data.
    carrier : AgentCarrier
        Transports the messages.
    agents : int
        The least number of agents that founds the federation.
    out : path
        The folder for the results, with the same files as any run.
    most : int, optional
        The greatest number of agents, also of those that join later; by default `agents`.
    state : path, optional
        The folder for the state while the federation runs; by default `out` with ``.state``. A call with the state of a stopped server
        continues from it.
    connect : float, optional
        Seconds to wait for `most` agents. After that the federation begins with at least `agents`. By default 60.
    deadline : float, optional
        Seconds of an exchange. Later answers are missing, or late over a link with ``law = "network"`` if the carrier delivers them. By
        default 300.
    least_answers : int, optional
        The number of answers that an exchange needs; all, if fewer agents are asked. By default 1.
    least_share : float, optional
        The share of the asked agents' weight whose answers an exchange needs. By default 0.
    repeats : int, optional
        How often the server asks again if an exchange has too few answers. After that the round changes nothing, and the next one begins. By
        default 1.
    missing : {"zero", "reweighted"}, optional
        How missing answers count: as zero, which shortens the step, or as the mean of the others. Methods whose control variates must sum to
        zero refuse ``"reweighted"``. By default ``"zero"``.
    norm_limit : float, optional
        Excludes agents whose answers are not finite, or have a norm above this multiple of the others' median. By default a non-finite answer
        ends the federation.
    width_limit : float, optional
        Excludes agents whose last LIBSVM column is more than this many times as large as most agents', if three or more have come. By
        default 100.
    leave_after : int, optional
        Rounds in a row without an answer after which an agent has left for good. Rounds count in which it was asked or unreachable. By
        default only agents that say so leave.
    invite : float, optional
        Seconds between two rounds in which the server waits for applications of new agents, if there is room; 0 invites none. By default 20.
    overwrite : bool
        Whether to replace results in `out`.
    report : callable, optional
        Called with a line of text for each exchange.

    Returns
    -------
    Results
        The results, which are also in `out`.

    Raises
    ------
    InputError
        When settings cannot be used, `out` holds files that must not be replaced, or another server uses the state.
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
    folder = f"{os.fspath(out)}.state" if state is None else os.fspath(state)
    waiting: dict[str, Any] = dict(connect=connect, deadline=deadline, least_answers=least_answers, least_share=least_share, repeats=repeats)
    waiting |= dict(missing=missing, norm_limit=norm_limit, width_limit=width_limit, leave_after=leave_after, invite=invite)
    deployment = read_settings(settings, waiting)
    holds_results = os.path.exists(os.path.join(os.fspath(out), "summary.json")) and not overwrite
    refused = InputError(f"{os.fspath(out)} holds results", "setting.output-exists", "out", "another folder, or overwrite=True")
    if holds_results and not os.path.exists(os.path.join(folder, "server.state")):
        raise refused
    _files.folder_of(folder)
    with _files.held(os.path.join(folder, "server.lock")) as is_free:
        if not is_free:
            accepted = "another folder, or the same one once that server has ended"
            raise InputError(f"another server runs with its state in {folder}", "setting.output-busy", "state", accepted)
        server = Server(deployment, carrier, (agents, agents if most is None else most), folder, report or (lambda _: None))
        if holds_results and not server.wrote(out):
            raise refused
        server.enrol()
        server.run()
        results = server.results()
        server.write(results, out, overwrite)
    return results
