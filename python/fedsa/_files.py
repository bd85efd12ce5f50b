"""Files that the package itself writes and reads. They are written as a whole or not at all, or only grow."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Union

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

from fedsa import _fedsa
from fedsa.errors import InputError

Path = Union[str, os.PathLike[str]]


def is_name(text: str) -> bool:
    """Whether a text can be the name of a file: without zeros, and in UTF-8."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def name_of(path: object, key: str = "path") -> str:
    """The name of a file or folder as text.

    Raises
    ------
    InputError
        When it is no name.
    """
    if isinstance(path, str) or hasattr(path, "__fspath__"):
        name = os.fspath(path)  # type: ignore[arg-type]
        if isinstance(name, str) and is_name(name):
            return name
    raise InputError(f"{path!r} is no name of a file or folder", "setting.wrong-type", key, "a text or a pathlib.Path", value=repr(path))


def write(path: Path, contents: bytes) -> None:
    """Write a file; one of this name is replaced."""
    _fedsa.write_file(name_of(path), contents)


def append(path: Path, kept: int, contents: bytes) -> None:
    """Append to a file after its first `kept` bytes; what it has behind them is cut off."""
    _fedsa.append_file(name_of(path), kept, contents)


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by name into a folder, which is made where there is none."""
    os.makedirs(folder, exist_ok=True)
    for name, contents in files.items():
        write(os.path.join(folder, name), contents)


# The open files of locks that this process has, or asks for.
_OPEN: set[int] = set()


def _opened(path: Path) -> int:
    """The file of a lock, which is made where there is none.

    Raises
    ------
    InputError
        When it is no file that can be written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as e:
        accepted = "a folder in which files can be made and written, or another one"
        raise InputError(f"{os.fspath(path)} cannot be locked: {e.strerror}", "setting.output-unusable", "state", accepted) from e
    _OPEN.add(file)
    return file


def _let_go(file: int, process: int) -> None:
    """Give up a lock that this process has taken, also where a process that it was forked into has a copy of the open file. What was taken by
    another one is not ours: a number of a file may be that of another file here."""
    if process != os.getpid():
        return
    _OPEN.discard(file)
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        # Some network file systems have no locks.
        pass
    finally:
        os.close(file)


class Lock:
    """The lock of a file, which this process has until nobody refers to this any more, or it ends, however it ends."""

    def __init__(self, file: int) -> None:
        self._process = os.getpid()
        weakref.finalize(self, _let_go, file, self._process)

    @property
    def is_ours(self) -> bool:
        """Whether this process has it: not one that was forked since."""
        return self._process == os.getpid()


# The locks of this process, by file: several objects of it may have the same one.
_LOCKS: weakref.WeakValueDictionary[str, Lock] = weakref.WeakValueDictionary()
_LOOKING = threading.Lock()


def _begin_fork() -> None:
    """A process that was forked has no locks. Its copies of their files would keep those of one that is killed."""
    global _LOOKING
    # A thread that is not here may have it.
    _LOOKING = threading.Lock()
    _LOCKS.clear()
    while _OPEN:
        os.close(_OPEN.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_fork)


def lock(path: Path, wait: float = 0.0) -> Lock | None:
    """The lock of a file, which is made where there is none; ``None`` if another process still has it after so many seconds.

    Raises
    ------
    InputError
        When it is no file that can be written.
    """
    ends = time.monotonic() + wait
    key = os.path.realpath(name_of(path))
    while True:
        with _LOOKING:
            known = _LOCKS.get(key)
            if known is not None:
                return known
            file = _opened(path)
            if _is_free(file):
                _LOCKS[key] = made = Lock(file)
                return made
            _let_go(file, os.getpid())
        if time.monotonic() >= ends:
            return None
        time.sleep(0.02)


def _is_free(file: int) -> bool:
    """Lock an open file; whether no other process has it."""
    try:
        if sys.platform == "win32":
            os.lseek(file, 0, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        # Some network file systems have no locks.
        return e.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is made where there is none; whether nobody else holds it. It ends with its process, however that ends."""
    file, process = _opened(path), os.getpid()
    try:
        yield _is_free(file)
    finally:
        _let_go(file, process)


def folder_of(path: Path, mode: int = 0o777) -> str:
    """A folder for a state, which is made where there is none.

    Raises
    ------
    InputError
        When there is none and none can be made.
    """
    name = name_of(path, "state")
    try:
        os.makedirs(name, mode=mode, exist_ok=True)
    except OSError as e:
        accepted = "a folder, or a name of which nothing is there yet, in a folder that can be written"
        raise InputError(f"{name} is no folder, and none can be made: {e.strerror}", "setting.output-unusable", "state", accepted) from e
    return name


def read(path: Path) -> bytes:
    """The contents of a file."""
    with open(path, "rb") as file:
        return file.read()


def weights_file(path: Path) -> str:
    """The ``weights.json`` of a folder, or the file itself."""
    name = name_of(path)
    return os.path.join(name, "weights.json") if os.path.isdir(name) else name


def format_of(path: Path, *formats: str) -> str:
    """The format that the name of a file says, one of `formats`."""
    name = name_of(path)
    format = os.path.splitext(name)[1].removeprefix(".").lower()
    if format not in formats:
        accepted = ", ".join(f".{one}" for one in formats[:-1]) + f" or .{formats[-1]}"
        raise InputError(f"'{name}' has no format", "setting.unknown-name", "path", f"a name that ends in {accepted}", value=name)
    return format
