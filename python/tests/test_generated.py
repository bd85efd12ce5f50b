"""The classes of kinds are those of the engine."""

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import fedsa
from fedsa import _fedsa, _results, links, methods, problems

TOOL = Path(__file__).parents[1] / "tools/generate.py"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_modules_are_those_of_the_schema() -> None:
    for name, text in generator().generated().items():
        committed = (TOOL.parents[1] / "fedsa" / name).read_text()
        assert committed == text, f"python python/tools/generate.py writes {name}"


def test_every_kind_has_a_class_whose_keywords_are_its_keys() -> None:
    schema = json.loads(_fedsa.schema_json())["properties"]
    of: dict[Any, dict[str, Any]] = {}
    for module in (problems, methods, links):
        classes = [vars(module)[name] for name in module.__all__ if inspect.isclass(vars(module)[name])]
        of[module] = {cls.kind_name: cls for cls in classes}
    for tables, module, others in [
        (schema["problem"]["anyOf"], problems, set()),
        (schema["method"]["items"]["anyOf"], methods, {"uplink", "downlink"}),
    ]:
        for table in tables:
            keys = set(table["properties"]) - {"kind"} - others
            if table["properties"]["kind"]["enum"] == ["elsewhere"]:
                # Only results of federations have it.
                continue
            cls = of[module][table["properties"]["kind"]["enum"][0]]
            assert keys <= {cls._keys.get(name, name) for name in inspect.signature(cls).parameters}


def test_plot_has_the_keys_of_figures() -> None:
    keys = set(json.loads(_fedsa.schema_json())["$defs"]["Figure"]["properties"])
    names = set(inspect.signature(fedsa.Results.plot).parameters) - {"self", "title"}
    # Formats are those of `Figure.save`.
    assert names == keys - {"formats"}


def test_an_experiment_has_the_keys_of_runs() -> None:
    keys = set(json.loads(_fedsa.schema_json())["properties"]["run"]["properties"])
    assert keys <= set(inspect.signature(fedsa.Experiment.__init__).parameters)
    assert _results.FILES[0] == "config.toml"
