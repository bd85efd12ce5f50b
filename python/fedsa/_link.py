"""Links between agents and server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from fedsa._settings import Settings, nearest, plain_number
from fedsa.errors import InputError


class Codec(Settings):
    """The coding of a message.

    Examples
    --------
    >>> from fedsa import links
    >>> isinstance(links.Quantised(4), links.Codec)
    True
    """

    __slots__ = ()
    _part = "codec"


class Medium(Settings):
    """A cause of losses, delays or noise of messages.

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

    Experiment files call it ``uplink``.

    Parameters
    ----------
    codec : Codec or str, optional
        A codec, or the name of a codec without settings, such as ``"float32"``; exact by default.
    media : Medium or sequence of Medium, optional
        The media that messages pass, in this order.
    error_feedback : bool
        Whether an agent adds the error of its codec to its next message.
    aggregation : str or dict
        How the server averages the answers: ``"mean"``, ``"median"`` or ``{"trimmed_mean": share}``. The method checks the share.

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

    Experiment files call it ``downlink``.

    Parameters
    ----------
    codec : Codec or str, optional
        A codec, or the name of a codec without settings, such as ``"float32"``; exact by default.

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
    """Convert to a codec. A text is the name of a codec without settings."""
    if isinstance(value, Codec):
        return value
    # Names are for codecs of the package; a user's own codecs are objects.
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

# Accepted values of each key of experiment files.
DIRECTIONS: dict[str, tuple[Any, str]] = {
    "uplink": ((Uplink, Codec, Medium), "a fedsa.links.Uplink, a codec or a medium"),
    "downlink": ((Downlink, Codec), "a fedsa.links.Downlink or a codec"),
}


def direction(key: str, value: Any) -> Any:
    """The value of the key ``uplink`` or ``downlink``. A single codec or medium becomes a link with it."""
    accepted, words = DIRECTIONS[key]
    if not isinstance(value, (accepted, Mapping)):
        raise _wrong(key, value, words)
    if isinstance(value, Codec):
        return {"codec": value}
    return {"media": [value]} if isinstance(value, Medium) else value


def in_keys(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert links in values of dotted keys to the form of experiment files."""
    return {key: direction(key.rpartition(".")[2], value) if isinstance(value, Settings) and key.rpartition(".")[2] in DIRECTIONS else value for key, value in changes.items()}


def swept_keys(sweeps: Mapping[str, Any]) -> dict[str, Any]:
    """Convert lists of values like :func:`in_keys`: one link for each point."""
    return {key: [in_keys({key: value})[key] for value in values] if isinstance(values, (list, tuple)) else values for key, values in sweeps.items()}
