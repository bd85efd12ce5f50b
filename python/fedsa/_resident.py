"""Agents in another process of this machine. This module does not import the engine, so that a process for one message starts quickly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fedsa.errors import InputError, MachineError

if TYPE_CHECKING:
    from fedsa._files import Path


class Resident:
    """An agent in a local process ``fedsa agent``.

    Parameters
    ----------
    socket : path
        The socket of the process.
    timeout : float
        Seconds without data after which a call fails.

    Examples
    --------
    >>> from fedsa.federation import Resident
    >>> Resident("agent.sock", timeout=60.0).timeout
    60.0
    """

    def __init__(self, socket: Path, timeout: float = 600.0) -> None:
        self.socket, self.timeout = os.fspath(socket), timeout

    def handle(self, message: bytes) -> bytes | None:
        """Pass a message to the agent.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        bytes or None
            The answer, if the message needs one.

        Raises
        ------
        InputError
            When the agent refuses the message.
        MachineError
            When no process listens or answers, or the agent fails.
        """
        import socket

        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.settimeout(self.timeout)
                stream.connect(self.socket)
                stream.sendall(b"FA1" + len(message).to_bytes(4, "little") + message)
                head = received(stream, 5)
                body = received(stream, int.from_bytes(head[1:], "little"))
        except OSError as e:
            raise MachineError(f"the agent does not answer: {e}", "machine", self.socket, "fedsa agent SETTINGS DATA --state DIR") from e
        if head[0] == 2:
            raise InputError(body.decode(errors="replace"), "refused-message", self.socket)
        if head[0] > 2:
            raise MachineError(body.decode(errors="replace"), "machine", self.socket)
        return body if head[0] else None


def received(stream: Any, n: int) -> bytes:
    """Read exactly `n` bytes of a stream."""
    parts = bytearray()
    while len(parts) < n:
        part = stream.recv(min(n - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("it has gone")
        parts += part
    return bytes(parts)
