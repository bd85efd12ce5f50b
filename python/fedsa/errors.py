"""Exceptions of fedsa.

All exceptions are subclasses of :class:`FedsaError`. Divergence and missed targets are an :class:`~fedsa.Outcome` of the results, not
exceptions.
"""

from __future__ import annotations

__all__ = ["Cancelled", "FedsaError", "FedsaWarning", "InputError", "InternalError", "MachineError", "MissedError", "NotAvailable", "OutOfMemory"]


class FedsaError(Exception):
    """The base of all exceptions: cause, place, and help.

    Attributes
    ----------
    what : str
        The cause, for people.
    code : str
        The cause, for programs: ``"setting.out-of-range"``. Codes never change; the reference lists them.
    key : str
        The setting, array, column or file at fault: ``"method[0].step_size"``. Empty if the whole input is at fault.
    help : str
        Accepted values, or how to continue.
    value : str or None
        The rejected value, as text.
    file, line, column : str or None, int or None, int or None
        The place in a file, if known. Lines and columns count from 1.

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
        # Pickles rebuild an exception from its args.
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
        # For a missing key, name the table that lacks it.
        key = self.key.rpartition(".")[0] if self.code == "setting.missing-key" else self.key
        about = f"{key}: " if key else ""
        help = f"\n  help: {self.help}" if self.help else ""
        return f"{at}{about}{self.what}{help}"


class InputError(FedsaError, ValueError):
    """A setting, argument, file or array is not accepted. Nothing was written.

    Examples
    --------
    >>> import fedsa
    >>> try:
    ...     fedsa.problems.Garnet(gamma=2.0)
    ... except ValueError as e:
    ...     print(e)
    gamma: 2 is not accepted
      help: in [0, 1)
    """


class NotAvailable(FedsaError):
    """Theory has no answer, or an estimate does not exist.

    Examples
    --------
    >>> import fedsa
    >>> issubclass(fedsa.NotAvailable, fedsa.FedsaError)
    True
    """


class OutOfMemory(FedsaError, MemoryError):
    """Not enough memory. Nothing was computed.

    Examples
    --------
    >>> import fedsa
    >>> issubclass(fedsa.OutOfMemory, MemoryError)
    True
    """


class MachineError(FedsaError, OSError):
    """The machine failed: disk, network, threads. Written files are kept.

    Examples
    --------
    >>> import fedsa
    >>> issubclass(fedsa.MachineError, OSError)
    True
    """


class Cancelled(FedsaError):
    """The ``cancel`` token stopped the call.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> token = fedsa.CancelToken()
    >>> token.cancel()
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> try:
    ...     experiment.run(cancel=token)
    ... except fedsa.Cancelled as e:
    ...     print(e.what)
    it was cancelled
    """


class MissedError(FedsaError):
    """A run did not end as expected. Only :meth:`fedsa.Results.raise_if_missed` raises it.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> short = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=9, stop={"mse": 1e-30})
    >>> try:
    ...     short.run().raise_if_missed()
    ... except fedsa.MissedError as e:
    ...     print(e.what)
    fedlsa: max-rounds: the mse is 372 at the end, the target is 1e-30
    """


class InternalError(FedsaError, RuntimeError):
    """A defect of fedsa. Please report it.

    Examples
    --------
    >>> import fedsa
    >>> issubclass(fedsa.InternalError, RuntimeError)
    True
    """


class FedsaWarning(UserWarning):
    """A part of a call failed and the call continued, or a result needs care.

    Examples
    --------
    >>> import warnings, fedsa
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fedsa.FedsaWarning)
    """

    code: str | None = None
    """The kind of the note, such as ``"rows.left-out"``; ``None`` where it is none of a result. See :attr:`Results.notes`."""
