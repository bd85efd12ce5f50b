"""Write the list of names into ``docs/src/reference/python.md``: ``python python/tools/reference.py``.

A test compares the committed page with the output of this program.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import fedsa
from fedsa import federation, gym, links, methods, operators, problems, rules

PAGE = Path(__file__).parents[2] / "docs/src/reference/python.md"
BEGIN, END = "<!-- made by python/tools/reference.py -->", "<!-- end of it -->"

# Sections of the page: title, module, names.
GROUPS: list[tuple[str, Any, list[str]]] = [
    ("Experiments", fedsa, ["Experiment", "bundled"]),
    ("Results", fedsa, ["Results", "Outcome", "Estimate", "CheckResult", "Summary", "Figure", "Table", "open", "compare", "Comparison", "report", "Report", "sweep"]),
    (
        "Theory, tuning, checks",
        fedsa,
        ["Theory", "Limits", "StableStep", "Target", "Change", "Curve", "Accuracy", "Unknown", "Tuning", "Check"],
    ),
    ("Value functions", fedsa, ["ValueFunction", "PolicyValue", "ValueEstimate", "Spending"]),
    ("Policies", fedsa, ["PolicyImprovement", "ActionValueFunction"]),
    ("Recordings: `fedsa.gym`", gym, list(gym.__all__)),
    ("Regression and classification", fedsa, ["FederatedClassifier", "FederatedRegressor", "Inference"]),
    ("Calls", fedsa, ["Progress", "CancelToken", "set_threads", "get_threads"]),
    ("The ends of a federation: `fedsa.federation`", federation, list(federation.__all__)),
    ("Problems: `fedsa.problems`", problems, list(problems.__all__)),
    ("Operators of your own: `fedsa.operators`", operators, ["Operator", "Draws"]),
    ("Methods: `fedsa.methods`", methods, list(methods.__all__)),
    ("Rules of your own: `fedsa.rules`", rules, ["ClientRule", "ServerRule", "Agents", "ServerRound"]),
    ("Links: `fedsa.links`", links, list(links.__all__)),
    (
        "Exceptions",
        fedsa,
        ["FedsaError", "InputError", "MissedError", "NotAvailable", "OutOfMemory", "MachineError", "Cancelled", "InternalError", "FedsaWarning"],
    ),
]

# Members that scikit-learn requires and documents.
OF_SKLEARN = {"get_params", "set_params", "get_metadata_routing", "set_fit_request", "set_predict_request", "set_score_request"}

# Classes whose common members are listed only under another class.
LIKE = {"FederatedRegressor": "FederatedClassifier"}

# Modules of kinds, which have their own pages.
PAGES = {problems: "problems.md", methods: "methods.md", links: "links.md"}


def said(thing: Any) -> str:
    """The summary of a docstring, as Markdown."""
    text = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    text = re.sub(r":(?:class|meth|func|mod|attr):`~?\.?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


def signature(thing: Any, name: str) -> str:
    """A call with the names of its parameters."""
    try:
        parameters = [p for p in inspect.signature(thing).parameters.values() if p.name not in ("self", "cls")]
    except (TypeError, ValueError):
        return name
    parts, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(mark + p.name + ("" if p.default is p.empty or mark else f"={p.default!r}"))
    return f"{name}({', '.join(parts)})"


def is_exception(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def shortened(call: str, name: str) -> str:
    """A call, without its arguments if it is long."""
    return call if len(call) <= 60 else f"{name}(..)"


def lines_of(name: str, thing: Any) -> list[str]:
    """The entry of a class or function."""
    bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__) if is_exception(thing) else ""
    if bases:
        return [f"- `{name}` ({bases}): {said(thing)}"]
    is_made = not inspect.isclass(thing) or name in ("Experiment", "AgentData", "Federation", "ClientNode", "ServerNode", "Session", "CancelToken")
    out = [f"- `{shortened(signature(thing, name), name) if is_made else name}`: {said(thing)}"]
    if inspect.isclass(thing):
        members = {n: m for cls in thing.__mro__[:-1] if cls.__module__.startswith("fedsa") for n, m in vars(cls).items()}
        for member, value in sorted(members.items()):
            if member.startswith("_") or member in OF_SKLEARN:
                continue
            inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if inspect.isfunction(inner):
                out.append(f"  - `{shortened(signature(inner, f'.{member}'), f'.{member}')}`: {said(inner)}")
            elif isinstance(inner, property):
                out.append(f"  - `.{member}`: {said(inner)}")
    return out


def listed() -> str:
    """The list of all names."""
    out: list[str] = []
    for title, module, names in GROUPS:
        out += [f"## {title}", ""]
        if module in PAGES:
            out += [f"One class for each kind, which the [reference]({PAGES[module]}) explains: `{', '.join(names)}`.", ""]
            continue
        for name in names:
            known = lines_of(LIKE[name], getattr(module, LIKE[name])) if name in LIKE else []
            out += [line for line in lines_of(name, getattr(module, name)) if line not in known]
        out.append("")
    return "\n".join(out)


def page(text: str) -> str:
    """The page with the new list."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{listed()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote {PAGE}", file=sys.stderr)
