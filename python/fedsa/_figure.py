"""Figures."""

from __future__ import annotations

from typing import Any, Literal

from fedsa import _fedsa, _files
from fedsa._files import Path


class Figure:
    """A figure that shows itself in notebooks.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> experiment.run().plot(x="bits_up", theme="dark").svg[:4]
    '<svg'
    """

    def __init__(self, native: _fedsa.Figure) -> None:
        self._native = native

    @property
    def svg(self) -> str:
        """The figure as SVG."""
        return self._native.render("svg").decode()

    def _repr_svg_(self) -> str:
        return self.svg

    def render(self, format: Literal["svg", "png", "pdf"]) -> bytes:
        """Return the figure as bytes of a file.

        Parameters
        ----------
        format : {"svg", "png", "pdf"}
            The format.

        Returns
        -------
        bytes
            The contents of the file. Equal results give equal bytes.
        """
        return self._native.render(format)

    def save(self, path: Path) -> None:
        """Write the figure, in the format of the file name.

        Parameters
        ----------
        path : path
            A name that ends in ``.svg``, ``.png`` or ``.pdf``. An existing file is replaced.

        Raises
        ------
        InputError
            When the name has another ending.
        OSError
            When the file cannot be written.
        """
        _files.write(path, self._native.render(_files.format_of(path, "svg", "png", "pdf")))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("figures are not pickled; pickle the results, or save the figure")

    def __repr__(self) -> str:
        return "<fedsa.Figure: .save(path), .svg>"
