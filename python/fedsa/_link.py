"""The link between agents and server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from fedsa._settings import Settings


class Codec(Settings):
    """How a message is coded. The classes of this module with a number of bits or components are codecs."""

    __slots__ = ()
    _part = "codec"


class Medium(Settings):
    """What happens to messages on their way: losses, delays, noise."""

    __slots__ = ()
    _part = "medium"


class Link(Settings):
    """The link between agents and server, in both directions.

    Parameters
    ----------
    up : Codec, optional
        The codec of messages from agents to the server; exact by default.
    down : Codec, optional
        The codec of messages from the server to agents; exact by default.
    media : sequence of Medium, optional
        What messages to the server pass, in this order.
    error_feedback : bool
        Whether an agent adds the error of its codec to its next message.

    Examples
    --------
    >>> from fedsa import links
    >>> links.Link(up=links.Quantised(4), media=[links.Erasure(0.9)])
    Link(up=Quantised(4), media=[Erasure(0.9)])
    """

    __slots__ = ()

    def __init__(
        self, *, up: Codec | None = None, down: Codec | None = None, media: Sequence[Medium] = (), error_feedback: bool = False
    ) -> None: ...

    def _tables(self) -> dict[str, Any]:
        """The tables ``uplink`` and ``downlink`` of experiment files, as far as they are given."""
        given = dict(self._given)
        up: dict[str, Any] = {}
        for name, key in [("up", "codec"), ("media", "media"), ("error_feedback", "error_feedback")]:
            if name in given:
                up[key] = given[name]._table() if name == "up" else given[name]
        if "media" in up:
            up["media"] = [medium._table() for medium in up["media"]]
        tables: dict[str, Any] = {"uplink": up} if up else {}
        if "down" in given:
            tables["downlink"] = {"codec": given["down"]._table()}
        return tables


LinkLike = Union[Link, Codec, Medium]


def as_link(value: LinkLike) -> Link:
    """A link; a codec or a medium alone is that of the messages to the server."""
    if isinstance(value, Link):
        return value
    if isinstance(value, Codec):
        return Link(up=value)
    if isinstance(value, Medium):
        return Link(media=[value])
    raise TypeError(f"link is a {type(value).__name__}, and should be a fedsa.links.Link, a codec or a medium")
