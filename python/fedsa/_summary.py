"""Estimates, notes and tables of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsa._warn import as_keywords, warn


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error.

    Attributes
    ----------
    mean : float
        The mean over seeds.
    se : float
        The standard error; NaN with one seed.

    Examples
    --------
    >>> from fedsa import Estimate
    >>> print(Estimate(0.5, 0.01))
    0.5 ± 0.01
    """

    mean: float
    se: float

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if self.se != self.se else f"{self.mean:.4g} ± {self.se:.2g}"


@dataclass(frozen=True)
class Note:
    """A remark on a result. Warnings are also issued as :class:`FedsaWarning`.

    Attributes
    ----------
    code : str
        The kind of note, such as ``"rows.left-out"``. Codes never change; texts may.
    severity : str
        ``"warning"`` if the numbers could be misread, otherwise ``"info"``.
    text : str
        The fact, and what to do about it.

    Examples
    --------
    >>> from fedsa import Note
    >>> print(Note("rows.left-out", "warning", "2 rows of a.csv were left out"))
    warning: 2 rows of a.csv were left out
    """

    code: str
    severity: str
    text: str

    def __str__(self) -> str:
        return f"{'warning' if self.severity == 'warning' else 'note'}: {self.text}"


def warn_of(notes: Iterable[Note]) -> None:
    """Issue the warnings among the notes of a result."""
    for note in notes:
        if note.severity == "warning":
            warn(note.text, code=note.code)


def notes_of(summary: Mapping[str, Any]) -> list[Note]:
    """The notes of a ``summary.json``, with settings as keywords."""
    return [Note(one["code"], one["severity"], as_keywords(one["text"])) for one in summary.get("notes", [])]


def number(value: Any) -> float:
    """A number of JSON; NaN if unknown."""
    return float("nan") if value is None else float(value)


class Summary:
    """A table of results: text, HTML, CSV, LaTeX.

    Attributes
    ----------
    columns : list of str
        The names of the columns.
    rows : list of dict
        The cells by column name. Estimates are :class:`Estimate` objects.
    notes : list of str
        Lines below the table, such as checks and unknown values.

    Examples
    --------
    >>> print(Summary("two methods", ["method", "floor"], [{"method": "a", "floor": Estimate(0.5, 0.01)}]))
    two methods
    method  floor
    a       0.5 ± 0.01
    """

    def __init__(self, title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> None:
        self.title, self.columns, self.notes = title, list(columns), list(notes)
        self.rows = [dict(row) for row in rows]

    def _texts(self) -> list[list[str]]:
        return [[probability(row.get(column)) if column == "p" else cell_text(row.get(column)) for column in self.columns] for row in self.rows]

    def __str__(self) -> str:
        texts = self._texts()
        widths = [max(len(line[i]) for line in [self.columns, *texts]) for i in range(len(self.columns))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in [self.columns, *texts]]
        return "\n".join([self.title, *lines, *self.notes])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return HTML."""
        import html

        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line("td", cells) for cells in self._texts())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        head = f"<table><caption>{html.escape(self.title)}</caption><thead>{line('th', self.columns)}</thead>"
        return f"{head}<tbody>{body}</tbody></table>{notes}"

    def to_csv(self) -> str:
        """Return CSV with all digits.

        An estimate has two columns, the second its standard error.
        """
        import csv
        import io

        is_estimate = {c: any(isinstance(row.get(c), Estimate) for row in self.rows) for c in self.columns}
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for c in self.columns for name in ([c, f"{c} se"] if is_estimate[c] else [c])])
        for row in self.rows:
            cells: list[Any] = []
            for c in self.columns:
                value = row.get(c)
                if is_estimate[c]:
                    cells += [value.mean, value.se] if isinstance(value, Estimate) else ["", ""]
                else:
                    cells.append("" if value is None else value)
            writer.writerow(cells)
        return out.getvalue()

    def to_latex(self) -> str:
        """Return a LaTeX ``tabular``."""
        def line(cells: Sequence[str]) -> str:
            return " & ".join(latex(cell) for cell in cells) + r" \\"

        rows = "\n".join(line(cells) for cells in self._texts())
        return f"\\begin{{tabular}}{{{'l' * len(self.columns)}}}\n{line(self.columns)}\n\\hline\n{rows}\n\\end{{tabular}}\n"


def cell_text(value: Any) -> str:
    """The text of a cell."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def probability(value: Any) -> str:
    """The text of a probability; ``<1e-16`` for smaller ones, which rounding errors dominate."""
    return "<1e-16" if isinstance(value, float) and value < 1e-16 else cell_text(value)


def latex(text: str) -> str:
    """Escape the special characters of LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
