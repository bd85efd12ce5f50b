"""Agents with their own data, and the shared settings of a federation.

An agent writes its state to disk before it sends an answer. It can be killed at any time and continue from that state.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fedsa import _fedsa, _files
from fedsa._files import Path, name_of
from fedsa.errors import InputError


class Agent:
    """An agent with its own data: bytes in, bytes out.

    Parameters
    ----------
    settings : path
        The shared settings: an experiment file with one method and one seed, without data.
    data : path or sequence of path
        Files, globs, a folder, or the name of a data set. Generated problems need none.
    state : path, optional
        A folder for the agent's state; created if missing. A new agent with the same folder continues from the saved state. One process at
        a time holds the folder: until it ends, its agents of this folder are deleted, or they :meth:`release` it.
    number : int, optional
        The agent's number in the federation; by default the server chooses it. Later epochs may change it.
    rules : path, optional
        The agent's disclosure rules, a TOML file; by default the profile ``datashield``. Data that break a rule make the agent refuse every
        message with the rule. With a `state` folder, its file ``audit.jsonl`` records all that leaves the agent (``fedsa audit``).
    wait : float, optional
        Seconds to wait while another process holds the folder.

    Raises
    ------
    InputError
        When settings, data or the state cannot be used, or another process holds the folder.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from fedsa.federation import Agent
    >>> lines = ["problem = {kind = 'garnet', agents = 2}", "method = [{kind = 'fedlsa', step_size = 0.1, local_steps = 10}]", "run = {rounds = 9}"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "settings.toml").write_text(os.linesep.join(lines))
    ...     agent = Agent(f"{folder}/settings.toml", number=0)
    >>> agent.number is None
    True
    """

    def __init__(
        self,
        settings: Path,
        data: Path | Sequence[Path] = (),
        *,
        state: Path | None = None,
        number: int | None = None,
        rules: Path | None = None,
        wait: float = 0.0,
    ) -> None:
        listed = [data] if isinstance(data, str) or hasattr(data, "__fspath__") else list(data)
        deployment = read_settings(settings, {})
        self._native = deployment.agent([os.fspath(one) for one in listed], "", number, None if rules is None else name_of(rules, "rules"))
        self._file: str | None = None
        self._lock: _files.Lock | None = None
        self._wait = wait
        if state is not None:
            folder = _files.folder_of(state)
            self._file = os.path.join(folder, "agent.state")
            self._hold()
            self._native.record(os.path.join(folder, "audit.jsonl"))

    def _hold(self) -> None:
        """Lock the state's folder, and read what another process has saved there since. Two processes with one state would send
        inconsistent answers."""
        if self._file is None or (self._lock is not None and self._lock.is_ours):
            return
        folder = os.path.dirname(self._file)
        self._lock = _files.lock(os.path.join(folder, "agent.lock"), self._wait)
        if self._lock is None:
            raise InputError(f"{folder} is that of an agent that runs in another process", "setting.output-busy", "state", "another folder, or stop that agent")
        try:
            self._reread()
        except BaseException:
            # A caller may keep the exception, which keeps this object and its lock alive.
            self.release()
            raise

    def _reread(self) -> None:
        """Restore the saved state, if it differs from this agent's."""
        if self._file is None or not os.path.exists(self._file):
            return
        try:
            kept = _files.read(self._file)
        except OSError as e:
            accepted = "a file that can be read, or another folder, with which the agent applies anew"
            raise InputError(f"the state in {self._file} cannot be read: {e.strerror}", "data.unreadable", "state", accepted) from e
        if kept != self._native.save():
            self._restore(kept)

    def _restore(self, kept: bytes) -> None:
        try:
            self._native.restore(kept)
        except InputError as e:
            if e.code != "format":
                raise
            accepted = "the settings with which it was saved, an intact copy of it, or another folder, with which the agent applies anew"
            raise InputError(f"the state in {self._file} is damaged or not ours: {e.what}", "format", "state", accepted) from e

    @property
    def number(self) -> int | None:
        """The agent's number after admission; ``None`` before."""
        return self._native.number

    def leave(self) -> None:
        """Answer all further messages with a farewell. A restarted agent may join again."""
        self._native.leave()

    def saved(self) -> bytes:
        """Return the state."""
        return self._native.save()

    def catch_up(self) -> None:
        """Continue from the state that another process saved."""
        self._hold()
        self._reread()

    def release(self) -> None:
        """Release the state's folder until the next ``catch_up`` or ``handle``."""
        self._lock = None

    def handle(self, message: bytes) -> bytes | None:
        """Process a message of the server.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        bytes or None
            The answer, if the message needs one. With a `state` folder, the new state is on disk before this method returns.

        Raises
        ------
        InputError
            When the message is invalid for this agent now. The agent is then unchanged.
        """
        self._hold()
        try:
            answer = self._native.handle(message)
        except InputError as e:
            if self._file is None or e.code != "refused-message.other-state":
                raise
            accepted = f"messages that follow this state; or, to begin again without it, delete {self._file}"
            raise InputError(e.what, e.code, e.key, accepted) from e
        if self._file is not None:
            _files.write(self._file, self._native.save(), is_private=True)
        return answer


def read_settings(path: Path, waiting: Mapping[str, Any]) -> _fedsa.Deployment:
    """Read a settings file. Values of `waiting` that are not ``None`` replace those of its table ``[federation]``."""
    name = name_of(path, "settings")
    try:
        text = _files.read(name).decode()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot be read: {e}", "data.unreadable", name, "settings of a federation: an experiment file without data") from e
    return _fedsa.Deployment(text, name, {key: value for key, value in waiting.items() if value is not None})
