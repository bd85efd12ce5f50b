"""What the book says of the package."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from needs import needs

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_first_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/src/start/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) > 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert not list(tmp_path.iterdir()), "nothing is written unasked"


def test_the_examples_of_value_functions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("gymnasium")
    run_blocks("docs/src/guides/python-values.md", tmp_path, monkeypatch)
    assert sorted(one.name for one in (tmp_path / "robots").iterdir()) == ["weights.json", "weights.npz"]


def test_the_examples_of_fits_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("sklearn")
    run_blocks("docs/src/guides/python-fit.md", tmp_path, monkeypatch)


def run_blocks(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, least: int = 5) -> None:
    """The examples of a page, one after the other."""
    monkeypatch.chdir(folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(blocks) >= least
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)


def test_the_list_of_names_is_that_of_the_package() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "python/tools/reference.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.PAGE.read_text()
    assert text == tool.page(text), "python python/tools/reference.py writes it"


def test_every_public_name_has_documentation_with_an_example() -> None:
    import fedsa
    from fedsa import federation, operators, rules

    for module in (fedsa, federation, operators, rules, fedsa.gym, fedsa.methods, fedsa.problems, fedsa.links):
        for name in module.__all__:
            thing = getattr(module, name)
            if name.startswith("_") or not callable(thing):
                continue
            assert ">>>" in (thing.__doc__ or ""), f"{module.__name__}.{name} has no example"
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                if not member.startswith("_") and callable(value):
                    assert value.__doc__, f"{module.__name__}.{name}.{member}"


def test_the_examples_of_native_classes_run() -> None:
    import doctest

    import fedsa
    from fedsa import operators, rules

    # Those of Python are run as doctests of their modules.
    for native in (fedsa.CancelToken, fedsa.Table, operators.Draws, rules.Agents, rules.ServerRound):
        test = doctest.DocTestParser().get_doctest(native.__doc__ or "", {}, native.__name__, None, 0)
        assert test.examples and doctest.DocTestRunner().run(test).failed == 0, native.__name__


def test_the_carrier_of_the_rules_of_federations_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks("docs/src/reference/federation-rules.md", tmp_path, monkeypatch, least=1)
