"""Exceptions of fedsa.

All of them are a :class:`FedsaError`. A run that diverges or misses its target raises nothing: that is an
:class:`~fedsa.Outcome` of the results.
"""

from __future__ import annotations

__all__ = ["Cancelled", "FedsaError", "FedsaWarning", "InputError", "InternalError", "MachineError", "MissedError", "NotKnown", "OutOfMemory"]


class FedsaError(Exception):
    """Why something could not be done, and what would be accepted.

    Attributes
    ----------
    what : str
        What is wrong, in words.
    code : str
        What is wrong, for programs: ``"setting.out-of-range"``. Codes never change; the reference lists them.
    key : str
        The setting, array, column or file at fault: ``"method[0].step_size"``. Empty where it is the whole.
    help : str
        What would be accepted, or how to go on.
    value : str or None
        The value that is not accepted, as text.
    file, line, column : str or None, int or None, int or None
        The place in a file, where it is known; lines and columns count from 1.

    Examples
    --------
    >>> import fedsa
    >>> try:
    ...     fedsa.methods.FedLSA(step_size=-1.0, local_steps=10)
    ... except fedsa.InputError as e:
    ...     print(e.code, e.key, e.help, sep="; ")
    setting.out-of-range; step_size; a positive number
    """

    def __init__(
        self,
        what: str,
        code: str = "",
        key: str = "",
        help: str = "",
        value: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(what)
        # Pickled as they are.
        self.args = (what, code, key, help, value, file, line, column)
        self.what = what
        self.code = code
        self.key = key
        self.help = help
        self.value = value
        self.file = file
        self.line = line
        self.column = column

    def __str__(self) -> str:
        at = ""
        if self.file:
            at = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        # A table stands for a key that it lacks.
        key = self.key.rpartition(".")[0] if self.code == "setting.missing-key" else self.key
        about = f"{key}: " if key else ""
        help = f"\n  help: {self.help}" if self.help else ""
        return f"{at}{about}{self.what}{help}"


class InputError(FedsaError, ValueError):
    """A setting, an argument, a file or an array cannot be used. Nothing was written."""


class NotKnown(FedsaError):
    """Theory has no answer, or there is no estimate: separated classes, for example."""


class OutOfMemory(FedsaError, MemoryError):
    """It would need more memory than there is. Nothing was computed."""


class MachineError(FedsaError, OSError):
    """The machine failed: disk, network, threads. What was written until then is kept."""


class Cancelled(FedsaError):
    """The call was stopped by its ``cancel`` token."""


class MissedError(FedsaError):
    """A run did not end as its experiment says. Only :meth:`fedsa.Results.raise_if_missed` raises it."""


class InternalError(FedsaError, RuntimeError):
    """A defect of fedsa. Please report it with its text."""


class FedsaWarning(UserWarning):
    """Something failed, and the call went on without it; or a result is to be read with care."""
