"""The link between agents and server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from fedsa._settings import Settings, nearest, plain_number
from fedsa.errors import InputError


class Codec(Settings):
    """The coding of a message.

    The classes of this module with a number of bits or components are codecs.

    Examples
    --------
    >>> from fedsa import links
    >>> isinstance(links.Quantised(4), links.Codec)
    True
    """

    __slots__ = ()
    _part = "codec"


class Medium(Settings):
    """Losses, delays or noise on the way of messages.

    Examples
    --------
    >>> from fedsa import links
    >>> isinstance(links.Erasure(0.9), links.Medium)
    True
    """

    __slots__ = ()
    _part = "medium"


class Uplink(Settings):
    """The link from agents to the server.

    It is the key ``uplink`` of experiment files.

    Parameters
    ----------
    codec : Codec or str, optional
        How a message is coded, or the name of a codec without settings such as ``"float32"``; exact by default.
    media : Medium or sequence of Medium, optional
        What messages pass, in this order.
    error_feedback : bool
        Whether an agent adds the error of its codec to its next message.
    aggregation : str or dict
        The mean that the server takes of the answers: ``"mean"``, ``"median"`` or ``{"trimmed_mean": share}``, of which a method checks the share.

    Examples
    --------
    >>> from fedsa import links
    >>> links.Uplink(codec=links.Quantised(4), media=[links.Erasure(0.9)])
    Uplink(codec=Quantised(4), media=(Erasure(0.9),))
    >>> links.Uplink(aggregation={"trimmed_mean": 0.1})
    Uplink(aggregation={'trimmed_mean': 0.1})
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        codec: Codec | str | None = None,
        media: Medium | Sequence[Medium] = (),
        error_feedback: bool = False,
        aggregation: Literal["mean", "median"] | Mapping[str, float] = "mean",
    ) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        if "codec" in given:
            given["codec"] = _codec(given["codec"], "codec")
        if "media" in given:
            given["media"] = _media(given["media"])
        if "error_feedback" in given:
            feedback = plain_number(given["error_feedback"])
            if not isinstance(feedback, bool):
                raise _wrong("error_feedback", feedback, "True or False")
            given["error_feedback"] = feedback
        super()._set(kind, given)


class Downlink(Settings):
    """The link from the server to agents.

    It is the key ``downlink`` of experiment files.

    Parameters
    ----------
    codec : Codec or str, optional
        How a message is coded, or the name of a codec without settings such as ``"float32"``; exact by default.

    Examples
    --------
    >>> from fedsa import links
    >>> links.Downlink(codec="float32")
    Downlink(codec=Float32())
    """

    __slots__ = ()

    def __init__(self, *, codec: Codec | str | None = None) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        if "codec" in given:
            given["codec"] = _codec(given["codec"], "codec")
        super()._set(kind, given)


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


UplinkLike = Union[Uplink, Codec, Medium]
DownlinkLike = Union[Downlink, Codec]

# What stands for each key of files: settings of that direction, or a part of them alone.
DIRECTIONS: dict[str, tuple[Any, str]] = {
    "uplink": ((Uplink, Codec, Medium), "a fedsa.links.Uplink, a codec or a medium"),
    "downlink": ((Downlink, Codec), "a fedsa.links.Downlink or a codec"),
}


def direction(key: str, value: Any) -> Any:
    """The value of a key ``uplink`` or ``downlink``; a codec or a medium alone is one in it."""
    accepted, words = DIRECTIONS[key]
    if not isinstance(value, (accepted, Mapping)):
        raise _wrong(key, value, words)
    if isinstance(value, Codec):
        return {"codec": value}
    return {"media": [value]} if isinstance(value, Medium) else value


def in_keys(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys with values, in which links stand as files have them."""
    return {key: direction(key.rpartition(".")[2], value) if isinstance(value, Settings) and key.rpartition(".")[2] in DIRECTIONS else value for key, value in changes.items()}


def swept_keys(sweeps: Mapping[str, Any]) -> dict[str, Any]:
    """The same of lists of values: an uplink or a downlink for each point."""
    return {key: [in_keys({key: value})[key] for value in values] if isinstance(values, (list, tuple)) else values for key, values in sweeps.items()}
