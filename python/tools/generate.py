"""Write the classes of kinds from the JSON schema of experiment files, and the settings of estimators from the schemas of tasks:
``python python/tools/generate.py``.

A test compares the committed modules with the output of this program.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedsa import _fedsa
from fedsa.errors import InputError

PACKAGE = Path(__file__).parent.parent / "fedsa"
WIDTH = 120

# Class names that do not follow from the names of their kinds.
NAMES = {
    "mrp": "MRP", "glm": "GLM", "q-learning": "QLearning", "linear": "RandomLinear",
    "fedlsa": "FedLSA", "scafflsa": "SCAFFLSA", "scafflsa-random": "SCAFFLSARandom", "fedhsa": "FedHSA", "scaffold": "SCAFFOLD",
    "fedlin": "FedLin", "fedprox": "FedProx", "fedtd": "FedTD", "delayed-sa": "DelayedSA", "delay-adaptive-sa": "DelayAdaptiveSA", "dasa": "DASA",
    "projected-td": "ProjectedTD", "lstd": "LSTD", "lspi": "LSPI", "fitted-q": "FittedQ", "gmres": "GMRES", "shed": "SHED", "q-shed": "QSHED", "gd": "GD", "agd": "AGD",
    "bfgs": "BFGS", "lbfgs": "LBFGS", "giant": "GIANT", "done": "DONE", "fednl": "FedNL",
}  # fmt: skip

# Keys with another name in Python.
RENAMED = {"lambda": "lam"}

# Kinds that also take data in memory: the keyword, the base class, and an addition to the keyword's documentation.
ROWS = "Or rows in memory: ``(X, y)``, or a list or dictionary of these, of which each is an agent."
DATA = {
    "logs": ("path", "LogsProblem", "Or transitions in memory, one table an agent, as :meth:`fedsa.ValueFunction.fit` takes them."),
    "logistic": ("data", "RowsProblem", ROWS), "least-squares": ("data", "RowsProblem", ROWS), "glm": ("data", "RowsProblem", ROWS),
}  # fmt: skip

# Values of required keys, for examples.
EXAMPLES: dict[str, Any] = {"path": "logs/agent_*.csv", "data": "data/rows.csv", "gamma": 0.99, "features": {"kind": "fourier", "order": 3}}

# The same, for single kinds.
EXAMPLES_OF: dict[str, dict[str, Any]] = {
    "top-k": {"k": 10},
    "rand-k": {"k": 10},
    "anderson": {"base": {"kind": "fedlsa", "step_size": 0.1, "local_steps": 10}},
}

PROBLEMS = '"""Problems: one class for each kind.\n\nWhat the keys mean is in the reference of problems. This module is generated from it."""'
METHODS = '"""Methods: one class for each kind, and presets by name.\n\nThis module is generated from the reference of methods."""'
LINKS = '"""Links: codecs and media, one class for each kind.\n\nThis module is generated from the reference of links."""'


def class_name(kind: str) -> str:
    return NAMES.get(kind) or "".join(part.capitalize() for part in kind.split("-"))


class Module:
    """The schema, and the imports of a module."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.defs = schema["$defs"]
        self.typing: set[str] = set()

    def resolve(self, key: dict[str, Any]) -> dict[str, Any]:
        """A key with its reference resolved."""
        if "$ref" in key:
            return {**self.defs[key["$ref"].rpartition("/")[2]], **{k: v for k, v in key.items() if k != "$ref"}}
        return key

    def types(self, key: dict[str, Any]) -> list[str]:
        """The types of a key's values, without duplicates."""
        key = self.resolve(key)
        if "enum" in key:
            self.typing.add("Literal")
            return [f"Literal[{', '.join(json.dumps(value) for value in key['enum'])}]"]
        if "const" in key:
            self.typing.add("Literal")
            return [f"Literal[{json.dumps(key['const'])}]"]
        inner = key.get("anyOf") or key.get("oneOf")
        if inner:
            return merged([one for choice in inner for one in self.types(choice)])
        names = key.get("type", "object")
        out: list[str] = []
        for name in names if isinstance(names, list) else [names]:
            if name == "array" and '"number"' in json.dumps(key.get("items", {})):
                out.append("ArrayLike")
            elif name == "array":
                out.append(f"Sequence[{union(self.types(key['items']) if 'items' in key else ['Any'])}]")
            elif name == "string" and path_like(key):
                out += ["str", "PathLike[str]"]
            elif name != "null":
                out.append({"integer": "int", "number": "float", "string": "str", "boolean": "bool", "object": "Mapping[str, Any]"}[name])
            else:
                out.append("None")
        return merged(out)


def path_like(key: dict[str, Any]) -> bool:
    return "file" in key.get("description", "").lower()


def merged(types: list[str]) -> list[str]:
    """Types without duplicates, with all literals in one type, and None last."""
    literals = [one[8:-1] for one in types if one.startswith("Literal[")]
    rest = [one for one in dict.fromkeys(types) if not one.startswith("Literal[") and one != "None"]
    out = ([f"Literal[{', '.join(dict.fromkeys(literals))}]"] if literals else []) + rest
    return out + (["None"] if "None" in types else [])


def union(types: list[str]) -> str:
    return " | ".join(types)


def words(text: str) -> str:
    """A description in the markup of docstrings."""
    text = re.sub(r"\s+", " ", text.replace("\\", "")).strip()
    return re.sub(r"`([^`]*)`", r"``\1``", text)


def example_value(name: str, key: dict[str, Any], module: Module) -> Any:
    """A valid value of a key."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    key = module.resolve(key)
    for choice in key.get("anyOf", []) + key.get("oneOf", []):
        return example_value(name, choice, module)
    if "enum" in key or "const" in key:
        return key.get("const") or key["enum"][0]
    kind = key.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "integer":
        return max(10 if key.get("maximum", 100) >= 10 else 1, key.get("minimum", 0))
    if kind == "number":
        return 0.1
    if kind == "array":
        return [example_value(name, key["items"], module)]
    return "name"


class Kind:
    """The parameters of a kind."""

    def __init__(self, section: str, tables: list[dict[str, Any]], module: Module) -> None:
        self.section, self.module = section, module
        self.names: list[str] = tables[0]["properties"]["kind"]["enum"]
        self.about = tables[0]["description"]
        self.keys: dict[str, dict[str, Any]] = {}
        everywhere = set(tables[0]["properties"])
        for table in tables:
            everywhere &= set(table["properties"])
            for name, key in table["properties"].items():
                if name == "kind" or (section == "method" and name in ("uplink", "downlink")):
                    continue
                if name in self.keys and name == "law":
                    # Collect the laws of all tables in one enumeration.
                    self.keys[name]["enum"].append(key["const"])
                elif name == "law":
                    self.keys[name] = {"enum": [key["const"]], "description": "The law, which has keys of its own."}
                elif name not in self.keys:
                    self.keys[name] = key
                elif key.get("description") not in self.keys[name]["description"]:
                    self.keys[name] = {**self.keys[name], "description": f"{self.keys[name]['description']} Or: {key['description']}"}
        self.example: dict[str, Any] = dict(EXAMPLES_OF.get(self.names[0], {}))
        for _ in range(20):
            try:
                _fedsa.check_part(section, {"kind": self.names[0], **self.example})
                break
            except InputError as e:
                if e.code != "setting.missing-key" or e.key in self.example:
                    break
                self.example[e.key] = example_value(e.key, self.keys[e.key], module)
        needed = [name for name in self.example if self.is_needed(name)]
        self.required = [name for name in self.keys if name in needed and (name in everywhere or name == "law")]

    def is_needed(self, name: str) -> bool:
        """Whether the kind requires a key."""
        try:
            _fedsa.check_part(self.section, {"kind": self.names[0], **{k: v for k, v in self.example.items() if k != name}})
        except InputError as e:
            return e.code == "setting.missing-key"
        return False

    def parameters(self) -> list[tuple[str, str, str | None, dict[str, Any]]]:
        """Name, type, default as code (``None`` if required) and schema of each parameter, required ones first."""
        out = []
        for name in self.required + [name for name in self.keys if name not in self.required]:
            key = self.keys[name]
            types = (["Method"] if (self.names[0], name) == ("anderson", "base") else []) + self.module.types(key)
            default: str | None = None
            if name not in self.required:
                value = self.module.resolve(key).get("default")
                default = repr(value) if isinstance(value, (int, float, str, bool)) else "None"
                if default == "None" and "None" not in types:
                    types.append("None")
            about = DATA.get(self.names[0])
            if about and about[0] == name:
                # Data in memory have no single type.
                types = ["Any"]
                key = {"description": f"{self.module.resolve(key)['description']} {about[2]}"}
            out.append((RENAMED.get(name, name), union(types), default, key))
        if self.section == "method":
            out.append(("uplink", "UplinkLike | None", "None", {"description": "What happens to messages from agents to the server; nothing by default."}))
            out.append(("downlink", "DownlinkLike | None", "None", {"description": "What happens to messages from the server to agents; nothing by default."}))
        return out

    def code(self) -> str:
        parameters = self.parameters()
        base = {"problem": "Problem", "method": "Method", "codec": "Codec", "medium": "Medium"}[self.section]
        if self.section == "problem" and self.names[0] in DATA:
            base = DATA[self.names[0]][1]
        name = class_name(self.names[0])
        lines = [f"class {name}({base}):", '    """' + words(self.about), ""]
        others = self.names[1:]
        if others:
            lines += wrapped(f"Presets and other names, for ``named``: {', '.join(others)}.", 4) + [""]
        if parameters:
            lines += ["    Parameters", "    ----------"]
            for parameter, types, default, key in parameters:
                lines.append(f"    {parameter} : {types.replace(' | None', '')}{', optional' if default is not None else ''}")
                said = words(self.module.resolve(key).get("description", ""))
                shown = "" if default in (None, "None") else f" By default ``{default}``."
                lines += wrapped((said if said.endswith((".", ")")) or not said else said + ".") + shown, 8)
            lines.append("")
        lines += ["    Examples", "    --------"]
        given = {RENAMED.get(key, key): value for key, value in self.example.items()}
        typed = self.call(name, given)
        lines += [f"    >>> {typed}", f"    {typed}", '    """', "", "    __slots__ = ()", f'    kind_name = "{self.names[0]}"']
        renamed = {RENAMED[key]: key for key in self.keys if key in RENAMED}
        if renamed:
            lines.append(f"    _keys = {renamed!r}".replace("'", '"'))
        lines += ["", "    def __init__(", "        self,"]
        positional = self.positional()
        for i, (parameter, types, default, _) in enumerate(parameters):
            if i == len(positional):
                lines.append("        *,")
            lines.append(f"        {parameter}: {types}{'' if default is None else f' = {default}'},")
        lines.append("    ) -> None: ...")
        return "\n".join(line.rstrip() for line in lines)

    def positional(self) -> list[str]:
        return [RENAMED.get(name, name) for name in self.required[:2]]

    def call(self, name: str, given: dict[str, Any]) -> str:
        positional = [repr(given.pop(parameter)) for parameter in self.positional() if parameter in given]
        return f"{name}({', '.join(positional + [f'{key}={value!r}' for key, value in given.items()])})"


def wrapped(text: str, indent: int) -> list[str]:
    pad = " " * indent
    return textwrap.wrap(text, WIDTH - 10, initial_indent=pad, subsequent_indent=pad, break_long_words=False, break_on_hyphens=False) or []


def kinds(section: str, tables: list[dict[str, Any]], module: Module) -> list[Kind]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        by_name.setdefault(table["properties"]["kind"]["enum"][0], []).append(table)
    return [Kind(section, own, module) for own in by_name.values()]


def module_text(about: str, imports: list[str], module: Module, all_kinds: list[Kind], more: str = "", names: list[str] | None = None) -> str:
    bodies = [kind.code() for kind in all_kinds]
    body = "\n\n\n".join(bodies)
    names = sorted([class_name(kind.names[0]) for kind in all_kinds] + (names or []))
    lines = [about, "", "# Generated by python/tools/generate.py from the JSON schema of experiment files.", "", "from __future__ import annotations", ""]
    abstract = [name for name in ("Mapping", "Sequence") if f"{name}[" in body]
    if abstract:
        lines.append(f"from collections.abc import {', '.join(abstract)}")
    if "PathLike[" in body:
        lines.append("from os import PathLike")
    typing = ([name for name in ("Any", "Literal") if re.search(rf"\b{name}\b", body + more)])
    if "ArrayLike" in body:
        typing.append("TYPE_CHECKING")
    lines.append(f"from typing import {', '.join(sorted(typing, key=str.lower))}")
    lines += ["", *imports]
    if "ArrayLike" in body:
        lines += ["", "if TYPE_CHECKING:", "    from numpy.typing import ArrayLike"]
    lines += ["", f"__all__ = {json.dumps(names)}", "", "", body]
    return "\n".join(lines) + "\n" + more


# Settings of a fit that are arguments of ``fit`` or columns of `X` in Python.
OF_FILES = {"data", "agents", "target", "group", "partition", "holdout", "drop", "row_weights", "divide_by", "pca", "positive", "offset"}

# Settings of an evaluation that are arguments of ``fit``, or values of two fits, in Python.
OF_LOGS = {"logs", "against"}

# Types of the tables of an evaluation.
TABLES = {"columns": "Mapping[str, str] | None", "ranges": "Mapping[str, tuple[float, float]] | None"}

# Times of a tuning. Python also takes texts with a unit.
TIMES = {"budget": "float | str", "time_limit": "float | str | None"}

# Settings of single models.
OF_CLASSIFIERS, OF_REGRESSORS = {"reference"}, {"dispersion", "huber_delta"}

# The choice of models of each class: type, default, description.
MODELS = {
    "FederatedClassifier": ('Literal["auto", "logistic", "multinomial"]', "auto", "By default logistic for two classes, and multinomial for more"),
    "FederatedRegressor": (
        'Literal["least-squares", "poisson", "gamma", "negative-binomial", "huber"]',
        "least-squares",
        "The loss. Counts and positive numbers have a log link: the mean is exp(intercept + coef x)",
    ),
}


# The default of required keys.
NEEDED = object()


class Task:
    """The keyword arguments of a task."""

    def __init__(self, name: str, without: Collection[str] = (), instead: dict[str, tuple[str, Any, str]] | None = None, types: dict[str, str] | None = None) -> None:
        schema = json.loads(_fedsa.task_schema(name))
        module = Module({"$defs": schema.get("$defs", {})})
        self.parameters: list[tuple[str, str, Any, str]] = []
        for key, value in schema["properties"].items():
            if instead and key in instead:
                of_key, default, about = instead[key]
            else:
                # Only settings of data are file names.
                all_types = [one for one in module.types(value) if one != "PathLike[str]"]
                default, about = value.get("default"), module.resolve(value)["description"]
                if default == {}:
                    all_types, default = [*all_types, "None"], None
                if default is None and "None" not in all_types:
                    default = NEEDED
                of_key = (types or {}).get(key, union(all_types))
            if key not in without:
                self.parameters.append((RENAMED.get(key, key), of_key, () if default == [] else default, about))

    def docstring(self, indent: int = 4) -> str:
        """The section Parameters."""
        pad = " " * indent
        lines = [f"{pad}Parameters", f"{pad}----------"]
        for key, types, default, about in self.parameters:
            lines.append(f"{pad}{key} : {types.replace(' | None', ' or None')}")
            shown = "" if default is None or default in ((), NEEDED) else f" By default ``{default!r}``."
            lines += wrapped(re.sub(r"\s+", " ", about).rstrip(".") + "." + shown, indent + 4)
        return "\n".join(lines) + "\n"

    def arguments(self) -> list[str]:
        """The lines of a signature."""
        shown = {key: json.dumps(default) if isinstance(default, str) else repr(default) for key, _, default, _ in self.parameters}
        return [f"        {key}: {types}{'' if default is NEEDED else f' = {shown[key]}'}," for key, types, default, _ in self.parameters]

    def signature(self) -> str:
        """The constructor."""
        lines = ["    def __init__(", "        self,", "        *,"]
        lines += self.arguments()
        lines += ["    ) -> None:", *(f"        self.{key} = {key}" for key, *_ in self.parameters)]
        return "\n".join(lines) + "\n"


def with_settings(text: str, cls: str, task: Task) -> str:
    """Replace the settings of a class in a module."""
    before, middle, after = text.partition(f"\nclass {cls}(")
    after = re.sub(r"    Parameters\n    -{10}\n.*?(?=\n    Attributes\n)", lambda _: task.docstring(), after, count=1, flags=re.DOTALL)
    after = re.sub(r"    def __init__\(\n.*?(?=\n    (?:def|@))", lambda _: task.signature(), after, count=1, flags=re.DOTALL)
    return before + middle + after


def with_method(text: str, method: str, task: Task) -> str:
    """Replace the settings of a method in a module. The method passes them on in the dictionary `settings`."""
    before, middle, after = text.partition(f"    def {method}(\n        self,\n        *,\n")
    signature, handed = "\n".join(task.arguments()) + "\n", "".join(f"            {key}={key},\n" for key, *_ in task.parameters)
    after = re.sub(r"\A.*?(?=        (?:out: Path|progress: ))", lambda _: signature, after, count=1, flags=re.DOTALL)
    after = re.sub(r" {8}Parameters\n {8}-{10}\n.*?(?= {8}(?:out, resume|progress, cancel))", lambda _: task.docstring(8), after, count=1, flags=re.DOTALL)
    after = re.sub(r"(?<=        settings: dict\[str, Any\] = dict\(\n).*?(?=        \)  # fmt: skip)", lambda _: handed, after, count=1, flags=re.DOTALL)
    return before + middle + after


def estimators() -> str:
    """The module of the estimators, with the settings of a fit."""
    text = (PACKAGE / "_fit.py").read_text()
    for cls, others in (("FederatedClassifier", OF_REGRESSORS), ("FederatedRegressor", OF_CLASSIFIERS)):
        text = with_settings(text, cls, Task("fit", OF_FILES | others, {"model": MODELS[cls]}))
    return text


def generated() -> dict[str, str]:
    """The modules by the names of their files."""
    schema = json.loads(_fedsa.schema_json())
    keys = schema["properties"]
    module = Module(schema)
    # The kind `elsewhere` is only in results of federations.
    problems = [kind for kind in kinds("problem", keys["problem"]["anyOf"], module) if kind.names != ["elsewhere"]]
    methods = kinds("method", keys["method"]["items"]["anyOf"], module)
    up = schema["$defs"]["UplinkSpec"]["properties"]
    links = kinds("codec", up["codec"]["anyOf"], module) + kinds("medium", up["media"]["items"]["anyOf"], module)
    by_name = {name: class_name(kind.names[0]) for kind in methods for name in kind.names}
    entries = "\n".join(f'    "{name}": {cls},' for name, cls in by_name.items())
    named = NAMED.replace("ENTRIES", entries)
    base = "from fedsa._kinds import "
    theory = with_method((PACKAGE / "_experiment.py").read_text(), "theory", Task("theory"))
    return {
        "_fit.py": estimators(),
        "_value.py": with_settings((PACKAGE / "_value.py").read_text(), "ValueFunction", Task("evaluate", OF_LOGS, types=TABLES)),
        "_policy.py": with_settings((PACKAGE / "_policy.py").read_text(), "PolicyImprovement", Task("improve", OF_LOGS, types=TABLES)),
        "_experiment.py": with_method(theory, "tune", Task("tune", types=TIMES)),
        "problems.py": module_text(
            PROBLEMS, ["from fedsa._data_problem import LogsProblem, RowsProblem", base + "Problem", "from fedsa.operators import Custom, Linear"], module, problems, names=["Custom", "Linear", "Problem"]
        ),
        "methods.py": module_text(
            METHODS,
            [base + "Method, named_method", "from fedsa._link import DownlinkLike, UplinkLike", "from fedsa.rules import Custom"],
            module,
            methods,
            named,
            ["Custom", "Method", "named"],
        ),
        "links.py": module_text(LINKS, ["from fedsa._link import Codec, Downlink, Medium, Uplink"], module, links, names=["Codec", "Downlink", "Medium", "Uplink"]),
    }


NAMED = '''

def named(kind: str, **settings: Any) -> Method:
    """Make a method by the name of its kind or of a preset.

    Parameters
    ----------
    kind : str
        The name in experiment files, such as ``"fedlsa"`` or ``"fib-shed"``.
    **settings
        Keywords of the class of that kind. A preset has settings of its own, which these replace.

    Returns
    -------
    Method
        The method.

    Examples
    --------
    >>> named("fib-shed")
    named('fib-shed')
    >>> named("fedlsa", step_size=0.1, local_steps=10)
    FedLSA(0.1, 10)
    """
    return named_method(kind, _BY_NAME, settings)


_BY_NAME: dict[str, type[Method]] = {
ENTRIES
}
'''


def main() -> None:
    for name, text in generated().items():
        assert not any(keyword.iskeyword(word) for word in RENAMED.values())
        (PACKAGE / name).write_text(text)
        print(f"wrote {PACKAGE / name}", file=sys.stderr)


if __name__ == "__main__":
    main()
