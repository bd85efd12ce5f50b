"""Files that the package itself writes and reads. They are written as a whole or not at all, or only grow."""

from __future__ import annotations

import errno
import os
import sys
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


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is made where there is none; whether nobody else holds it. It ends with its process, however that ends."""
    with open(path, "ab") as file:
        try:
            if sys.platform == "win32":
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except OSError as e:
            # Some network file systems have no locks.
            is_free = e.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
        yield is_free


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
