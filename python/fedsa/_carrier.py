"""What carries messages between the server and the agents of a federation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, overload


# The most characters of a text of others.
MAX_SHOWN = 500


@overload
def shown(text: None) -> None: ...


@overload
def shown(text: str) -> str: ...


def shown(text: str | None) -> str | None:
    """What others say, for files and terminals: some 500 characters at most, on one line, without control characters."""
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
        The answer; ``None`` where the message wants none.
    refused : str or None
        Why the agent refuses the message.
    lost : str or None
        Why nothing came of it, where whoever carries messages knows: the agent may have got it, or not.
    wire_bytes : int
        The bytes that were carried for it, with what the carrier adds; 0 if that is not known.

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
    """Carries messages to agents, and vouches for senders.

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
        """Return the reachable agents."""
        ...

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Carry messages to agents; return the answers in time.

        Parameters
        ----------
        messages : mapping of str to bytes
            Messages by agent.
        deadline : float
            The time of :func:`time.monotonic` at which waiting ends.

        Returns
        -------
        mapping of str to Reply
            By agent; those of whom nothing came are missing.
        """
        ...


class LateCarrier(AgentCarrier, Protocol):
    """A carrier that also has answers after their deadline.

    Examples
    --------
    >>> from fedsa.federation import Reply
    >>> class Queue:
    ...     def __init__(self):
    ...         self.came = []
    ...     def reachable(self):
    ...         return []
    ...     def exchange(self, messages, deadline):
    ...         return {}
    ...     def late(self):
    ...         came, self.came = self.came, []
    ...         return came
    >>> Queue().late()
    []
    """

    def late(self) -> Sequence[tuple[str, bytes]]:
        """Return late answers since the last call."""
        ...
