"""HTML reports on runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from fedsa import _fedsa, _files
from fedsa._files import Path
from fedsa.errors import InputError


class Kept(Protocol):
    """Interface of results that hold the files of their folder."""

    @property
    def id(self) -> str: ...

    def _all_files(self) -> Mapping[str, bytes]: ...


class Report:
    """An HTML page that works offline and in notebooks.

    Attributes
    ----------
    html : str
        The page.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> report = experiment.run().report()
    >>> report.html[:15]
    '<!doctype html>'
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the page.

        Parameters
        ----------
        path : path
            The file, such as ``report.html``. An existing report of fedsa is replaced.
        overwrite : bool
            Whether to replace any other file too.

        Raises
        ------
        InputError
            When the file exists and is not a report of fedsa.
        MachineError
            When the file cannot be written.
        """
        name = _files.name_of(path)
        if os.path.exists(name) and not overwrite and not _fedsa.is_report(name):
            what = f"{name} is there, and is not a report of fedsa"
            raise InputError(what, "setting.output-exists", "path", "another path, or overwrite=True", value=name)
        _files.write(name, self.html.encode())

    def __repr__(self) -> str:
        return f"<fedsa.Report of {len(self.html) / 1e6:.2f} MB; save it, or show it in a notebook>"

    def _repr_html_(self) -> str:
        import html

        return f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="900" title="report"></iframe>'


def report(runs: Kept | Path | Sequence[Kept | Path], out: Path | None = None, *, title: str | None = None, overwrite: bool = False) -> Report:
    """Make an HTML page on runs, with settings, results and interactive curves.

    Parameters
    ----------
    runs : Results or path, or a list of them
        Results, or folders of runs, fits, evaluations or tunings, at most 20.
    out : path, optional
        The file to write, such as ``"report.html"``.
    title : str, optional
        The title; by default the title of the run.
    overwrite : bool
        Whether to replace a file that is not a report.

    Returns
    -------
    Report
        The page.

    Raises
    ------
    InputError
        When a folder holds no results of fedsa or is damaged.

    Examples
    --------
    >>> import fedsa
    >>> from fedsa import methods, problems
    >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
    >>> "trace.parquet" in fedsa.report(experiment.run()).html
    False
    """
    import tempfile

    all = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, (str, bytes, os.PathLike)) else [runs]
    with tempfile.TemporaryDirectory() as temporary:
        folders = []
        copies = False
        for i, run in enumerate(all):
            if isinstance(run, (str, os.PathLike)) or not hasattr(run, "_all_files"):
                folders.append(_files.name_of(run, f"runs[{i}]"))
                continue
            copies = True
            folder = os.path.join(temporary, str(i + 1), run.id.replace("/", "-") or "run")
            _files.write_all(folder, run._all_files())
            folders.append(folder)
        page = Report(_fedsa.report_page(folders, title, not copies))
    if out is not None:
        page.save(out, overwrite=overwrite)
    return page
