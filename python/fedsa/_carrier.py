"""Carriers: interfaces that transport messages between the server and the agents of a federation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, overload


# The most characters shown of a text from another machine.
MAX_SHOWN = 500


@overload
def shown(text: None) -> None: ...


@overload
def shown(text: str) -> str: ...


def shown(text: str | None) -> str | None:
    """Make a text from another machine safe for files and terminals: about 500 characters, one line, no control characters."""
    if text is None:
        return None
    cut = "".join(one if one.isprintable() else " " if one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text[:MAX_SHOWN])
    return cut + (".." if len(text) > MAX_SHOWN else "")


@dataclass(frozen=True)
class Reply:
    """The outcome of a message.

    Attributes
    ----------
    body : bytes or None
        The answer; ``None`` if the message needs none.
    refused : str or None
        Why the agent refuses the message.
    lost : str or None
        Why no answer came, if the carrier knows. The agent may still have received the message.
    wire_bytes : int
        Transported bytes, with the carrier's overhead; 0 if unknown.

    Examples
    --------
    >>> from fedsa.federation import Reply
    >>> Reply(lost="no answer within 60 s").body is None
    True
    """

    body: bytes | None = None
    refused: str | None = None
    lost: str | None = None
    wire_bytes: int = 0


class AgentCarrier(Protocol):
    """Carries messages to agents, and authenticates the senders of answers.

    Examples
    --------
    >>> from fedsa.federation import Reply
    >>> class Local:
    ...     def __init__(self, agents):
    ...         self.agents = agents
    ...     def reachable(self):
    ...         return list(self.agents)
    ...     def exchange(self, messages, deadline):
    ...         return {name: Reply(self.agents[name].handle(message)) for name, message in messages.items()}
    >>> Local({}).reachable()
    []
    """

    def reachable(self) -> Collection[str]:
        """Return the names of the reachable agents."""
        ...

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Send messages to agents; return the answers that arrive by the deadline.

        Parameters
        ----------
        messages : mapping of str to bytes
            Messages by agent.
        deadline : float
            The end of the wait, as a time of :func:`time.monotonic`.

        Returns
        -------
        mapping of str to Reply
            Replies by agent. Agents without a reply are absent.
        """
        ...
