"""The link between agents and server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

from fedsa._settings import Settings, nearest, plain_number
from fedsa.errors import InputError


class Codec(Settings):
    """How a message is coded. The classes of this module with a number of bits or components are codecs.

    Examples
    --------
    >>> from fedsa import links
    >>> isinstance(links.Quantised(4), links.Codec)
    True
    """

    __slots__ = ()
    _part = "codec"


class Medium(Settings):
    """What happens to messages on their way: losses, delays, noise.

    Examples
    --------
    >>> from fedsa import links
    >>> isinstance(links.Erasure(0.9), links.Medium)
    True
    """

    __slots__ = ()
    _part = "medium"


class Link(Settings):
    """The link between agents and server, in both directions.

    Parameters
    ----------
    up : Codec or str, optional
        The codec of messages from agents to the server, or the name of one without settings such as ``"float32"``; exact by default.
    down : Codec or str, optional
        The codec of messages from the server to agents, likewise; exact by default.
    media : Medium or sequence of Medium, optional
        What messages to the server pass, in this order.
    error_feedback : bool
        Whether an agent adds the error of its codec to its next message.

    Examples
    --------
    >>> from fedsa import links
    >>> links.Link(up=links.Quantised(4), media=[links.Erasure(0.9)])
    Link(up=Quantised(4), media=(Erasure(0.9),))
    """

    __slots__ = ()

    def __init__(
        self, *, up: Codec | str | None = None, down: Codec | str | None = None, media: Medium | Sequence[Medium] = (), error_feedback: bool = False
    ) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        for name in ("up", "down"):
            if name in given:
                given[name] = _codec(given[name], name)
        if "media" in given:
            given["media"] = _media(given["media"])
        if "error_feedback" in given:
            feedback = plain_number(given["error_feedback"])
            if not isinstance(feedback, bool):
                raise _wrong("error_feedback", feedback, "True or False")
            given["error_feedback"] = feedback
        super()._set(kind, given)

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


def _wrong(key: str, value: Any, accepted: str) -> InputError:
    return InputError(f"{value!r} is not accepted", "setting.wrong-type", key, accepted, value=repr(value))


def _codec(value: Any, key: str) -> Codec:
    """A codec; a text is the name of one that needs no settings."""
    if isinstance(value, Codec):
        return value
    # Those of the package; a user's own are given as objects.
    kinds = {kind.kind_name: kind for kind in Codec.__subclasses__() if kind.__module__ == "fedsa.links"}
    if not isinstance(value, str):
        raise _wrong(key, value, "a codec of fedsa.links, such as Quantised(4), or the name of one")
    if value not in kinds:
        what = f"there is no codec '{value}'{nearest(value, list(kinds))}"
        raise InputError(what, "setting.unknown-name", key, f"one of {', '.join(kinds)}", value=value)
    try:
        return kinds[value]()
    except (TypeError, InputError):
        name = kinds[value].__name__
        raise InputError(f"'{value}' needs settings", "setting.missing-key", key, f"fedsa.links.{name}(..)", value=value) from None


def _media(value: Any) -> tuple[Medium, ...]:
    media = [value] if isinstance(value, Medium) else value
    if not isinstance(media, Sequence) or isinstance(media, str):
        raise _wrong("media", value, "a medium of fedsa.links, such as Erasure(0.9), or a list of them")
    for i, medium in enumerate(media):
        if not isinstance(medium, Medium):
            raise _wrong(f"media[{i}]", medium, "a medium of fedsa.links, such as Erasure(0.9)")
    return tuple(media)


def in_keys(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys with values, in which links stand as files have them: ``method.NAME.uplink``, ``.downlink``, or ``.link`` for both."""
    out: dict[str, Any] = {}
    for key, value in changes.items():
        table, _, last = key.rpartition(".")
        if last not in ("link", "uplink", "downlink") or not isinstance(value, (Link, Codec, Medium)):
            out[key] = value
            continue
        link = Link(down=value) if last == "downlink" and isinstance(value, Codec) else as_link(value)
        tables = link._tables()
        if last != "link" and set(tables) - {last}:
            raise InputError(f"{value!r} is a link in both directions", "setting.bad-value", key, f"{table}.link")
        out.update({f"{table}.{direction}": given for direction, given in tables.items()} if last == "link" else {key: tables.get(last, {})})
    return out


def swept_keys(sweeps: Mapping[str, Any]) -> dict[str, Any]:
    """The same of lists of values: an uplink or a downlink for each point."""
    return {key: [in_keys({key: value}).get(key, value) for value in values] if isinstance(values, (list, tuple)) else values for key, values in sweeps.items()}


LinkLike = Union[Link, Codec, Medium]


def as_link(value: LinkLike) -> Link:
    """A link; a codec or a medium alone is that of the messages to the server."""
    if isinstance(value, Link):
        return value
    if isinstance(value, Codec):
        return Link(up=value)
    if isinstance(value, Medium):
        return Link(media=[value])
    raise _wrong("link", value, "a fedsa.links.Link, a codec or a medium")
