"""Threads of the engine."""

from __future__ import annotations

from fedsa import _fedsa
from fedsa._settings import whole


def set_threads(threads: int | None) -> None:
    """Set the number of threads of later calls.

    Results do not depend on it.

    Parameters
    ----------
    threads : int or None
        Between 1 and 1024. ``None`` uses the environment variable ``FEDSA_THREADS``, or else one thread per processor.

    Raises
    ------
    InputError
        When `threads` is out of range.

    Examples
    --------
    >>> import fedsa
    >>> fedsa.set_threads(2)
    >>> fedsa.get_threads()
    2
    >>> fedsa.set_threads(None)
    """
    _fedsa.set_threads(None if threads is None else whole(threads, "threads", 1))


def get_threads() -> int:
    """Return the number of threads of later calls.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    InputError
        When ``FEDSA_THREADS`` is not a number of threads.

    Examples
    --------
    >>> import fedsa
    >>> fedsa.get_threads() >= 1
    True
    """
    return _fedsa.get_threads()
