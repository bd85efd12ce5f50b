"""Files that the package itself reads and writes: atomically, or append-only."""

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
    """Whether a text can be a file name: UTF-8 without zero bytes."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def name_of(path: object, key: str = "path") -> str:
    """The name of a file or folder as text.

    Raises
    ------
    InputError
        When `path` is not a file name.
    """
    if isinstance(path, str) or hasattr(path, "__fspath__"):
        name = os.fspath(path)
        if isinstance(name, str) and is_name(name):
            return name
    raise InputError(f"{path!r} is no name of a file or folder", "setting.wrong-type", key, "a text or a pathlib.Path", value=repr(path))


def write(path: Path, contents: bytes, is_private: bool = False) -> None:
    """Write a file. An existing file is replaced. Only its owner can read a private one."""
    _fedsa.write_file(name_of(path), contents, is_private)


def append(path: Path, kept: int, contents: bytes) -> None:
    """Append to a file after its first `kept` bytes, and cut off the rest."""
    _fedsa.append_file(name_of(path), kept, contents)


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by name into a folder; created if missing."""
    os.makedirs(folder, exist_ok=True)
    for name, contents in files.items():
        write(os.path.join(folder, name), contents)


# Open lock files of this process, locked or not.
_OPEN: set[int] = set()


def _opened(path: Path) -> int:
    """Open the file of a lock; created if missing.

    Raises
    ------
    InputError
        When the file cannot be opened for writing.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as e:
        accepted = "a folder in which files can be made and written, or another one"
        raise InputError(f"{os.fspath(path)} cannot be locked: {e.strerror}", "setting.output-unusable", "state", accepted) from e
    _OPEN.add(file)
    return file


def _let_go(file: int, process: int) -> None:
    """Release a lock of this process, even if a forked process has a copy of the open file. A forked process does nothing here: the file
    number may belong to another of its files."""
    if process != os.getpid():
        return
    _OPEN.discard(file)
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        # Some network file systems do not support locks.
        pass
    finally:
        os.close(file)


class Lock:
    """The lock of a file. It ends with the last reference to this object, or with the process."""

    def __init__(self, file: int) -> None:
        self._process = os.getpid()
        weakref.finalize(self, _let_go, file, self._process)

    @property
    def is_ours(self) -> bool:
        """Whether this process took the lock; false in a process forked since."""
        return self._process == os.getpid()


# The locks of this process by file. Several objects may share one.
_LOCKS: weakref.WeakValueDictionary[str, Lock] = weakref.WeakValueDictionary()
_LOOKING = threading.Lock()


def _begin_fork() -> None:
    """Drop all locks in a forked process. Its copies of the lock files would keep the parent's locks if the parent is killed."""
    global _LOOKING
    # A thread of the parent may hold the old one.
    _LOOKING = threading.Lock()
    _LOCKS.clear()
    while _OPEN:
        os.close(_OPEN.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_fork)


def lock(path: Path, wait: float = 0.0) -> Lock | None:
    """Lock a file; created if missing. Returns ``None`` if another process still holds the lock after `wait` seconds.

    Raises
    ------
    InputError
        When the file cannot be opened for writing.
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
    """Try to lock an open file. False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            os.lseek(file, 0, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        # Some network file systems do not support locks: their files count as free.
        return e.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold the lock of a file; created if missing. Yields false if someone else holds it. The lock ends with the process at the latest."""
    file, process = _opened(path), os.getpid()
    try:
        yield _is_free(file)
    finally:
        _let_go(file, process)


def folder_of(path: Path) -> str:
    """The folder of a state; created for this user alone if missing.

    Raises
    ------
    InputError
        When the folder cannot be created.
    """
    name = name_of(path, "state")
    try:
        os.makedirs(name, mode=0o700, exist_ok=True)
    except OSError as e:
        accepted = "a folder, or a name of which nothing is there yet, in a folder that can be written"
        raise InputError(f"{name} is no folder, and none can be made: {e.strerror}", "setting.output-unusable", "state", accepted) from e
    return name


def read(path: Path) -> bytes:
    """The contents of a file."""
    with open(path, "rb") as file:
        return file.read()


def weights_file(path: Path) -> str:
    """The ``weights.json`` in a folder, or the given file."""
    name = name_of(path)
    return os.path.join(name, "weights.json") if os.path.isdir(name) else name


def format_of(path: Path, *formats: str) -> str:
    """The format of a file by its name's ending, one of `formats`."""
    name = name_of(path)
    format = os.path.splitext(name)[1].removeprefix(".").lower()
    if format not in formats:
        accepted = ", ".join(f".{one}" for one in formats[:-1]) + f" or .{formats[-1]}"
        raise InputError(f"'{name}' has no format", "setting.unknown-name", "path", f"a name that ends in {accepted}", value=name)
    return format
