"""Agents that another process of this machine keeps: what a carrier needs of them, without the engine, so that a process for a message is quick."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fedsa.errors import InputError, MachineError

if TYPE_CHECKING:
    from fedsa._files import Path


class Resident:
    """A local process ``fedsa agent``.

    Parameters
    ----------
    socket : path
        Its socket.
    timeout : float
        The seconds for which it may be silent.

    Examples
    --------
    >>> from fedsa.federation import Resident
    >>> Resident("agent.sock", timeout=60.0).timeout
    60.0
    """

    def __init__(self, socket: Path, timeout: float = 600.0) -> None:
        self.socket, self.timeout = os.fspath(socket), timeout

    def handle(self, message: bytes) -> bytes | None:
        """Pass a message on.

        Parameters
        ----------
        message : bytes
            The message.

        Returns
        -------
        bytes or None
            The answer, if the message wants one.

        Raises
        ------
        InputError
            When the agent refuses the message.
        MachineError
            When nobody listens, or the agent has failed.
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
            raise InputError(body.decode(errors="replace"), "message.refused", self.socket)
        if head[0] > 2:
            raise MachineError(body.decode(errors="replace"), "machine", self.socket)
        return body if head[0] else None


def received(stream: Any, n: int) -> bytes:
    """So many bytes of a stream."""
    parts = bytearray()
    while len(parts) < n:
        part = stream.recv(min(n - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("it has gone")
        parts += part
    return bytes(parts)
