"""Federations whose agents have data of their own, whoever carries the messages.

Both ends have the same settings, an experiment file without data. Their states are on the disk before anything leaves, so that each can be
killed at any time and go on.
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

    Between two rounds agents join and leave: those that can be reached and do not take part are invited where there is room, those that say
    that they leave, are silent for too long, or are excluded, leave. Whenever that changes who takes part, an epoch begins: with weights by
    rows (or equal ones where the settings say ``weighting = "equal"``), and control variates that sum to zero.

    With a target for the residual in ``[run] stop`` the federation ends, as a run in one process does, after the first round at whose end the
    residual is small enough. The server learns the residual from the first answers of the next round, which then changes nothing; it asks once more after the
    last round, and the outcome says whether the target was reached.

    What is ``None`` here is as the table ``[federation]`` of the settings says, whose defaults are named below.

    Parameters
    ----------
    settings : path
        The settings that all ends have: an experiment file with one method and one seed, without data.
    carrier : AgentCarrier
        What carries messages.
    agents : int
        The least number of agents. There is no federation of fewer.
    out : path
        The folder for the results: files like those of any run.
    most : int, optional
        The greatest number of agents, up to which others may join later; by default `agents`.
    state : path, optional
        The folder for the state while the federation goes on; by default `out` with ``.state``. A call with the state of a server
        that was stopped goes on from there.
    connect : float, optional
        The seconds for which agents are waited for: until there are `most`, and afterwards the federation begins if there are `agents`. 60.
    deadline : float, optional
        The seconds of an exchange. Answers that have not come by then are missing, or late over a link with ``law = "network"`` if the
        carrier has them later. 300.
    least_answers : int, optional
        How many answers an exchange needs, or all where fewer are asked. 1.
    least_share : float, optional
        The share of the weight of those who were asked, whose answers an exchange needs. 0.
    repeats : int, optional
        How often those who may still answer are asked again where an exchange has too few answers. Then the round is given up, which changes
        nothing, and the next one begins. 1.
    missing : {"zero", "reweighted"}, optional
        What a missing answer counts as: zero, which shortens the step, or the mean of the others, which methods whose control variates
        must sum to zero cannot have. Zero.
    norm_limit : float, optional
        Agents are excluded, and leave, whose answers are no longer finite, or have a norm above this many times the median of the others'.
        By default answers are believed, and the federation ends where an agent's numbers are no longer finite.
    width_limit : float, optional
        Agents are excluded whose LIBSVM rows end with a column more than this many times as far as those of most agents. 100.
    leave_after : int, optional
        After so many rounds in a row in which it was asked or could not be reached, and did not answer, an agent has left for good. By
        default only those leave that say so.
    invite : float, optional
        The seconds for which applications of others are waited for between two rounds, where there is room; 0 for nobody. 20.
    overwrite : bool
        Whether results that are in `out` are replaced.
    report : callable, optional
        Gets a line of text for each exchange; by default nothing is told.

    Returns
    -------
    Results
        The results, which are in `out` as well.

    Raises
    ------
    InputError
        When settings cannot be used, or `out` holds something that must not be replaced.
    MachineError
        When too few agents come, or none can be reached. The state is kept.

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
