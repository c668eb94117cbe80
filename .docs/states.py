"""The page of the state tables, printed from the tables themselves. From the root of a clone::

    .venv/bin/python .docs/states.py           # writes kafka_async/STATES.md

A test compares the page with the tables. The diagrams are Mermaid's, which code hosts draw.
"""

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "kafka_async"
PAGE = PACKAGE / "STATES.md"
MACHINES = (
    ("application/lifecycle/lifecycle.py", "The life of a consumer"),
    ("background/group/consumer/states.py", "A member of a group, consumer protocol (KIP-848)"),
    ("background/group/classic/states.py", "A member of a group, classic protocol"),
    ("background/share/share_membership.py", "A member of a share group"),
    ("background/group/find_coordinator.py", "The search for the coordinator"),
    ("background/positions/subscription.py", "The position of a partition"),
    ("network/link.py", "A connection"),
    ("network/sasl/gssapi.py", "A login with Kerberos"),
    ("background/cluster/telemetry.py", "Telemetry for the cluster's operators (KIP-714)"),
)
"""The file of each table, and what it is about."""
MANY = 4
"""From so many states on, arrows of one input to one state are told in words: drawn, they would cover the picture."""
HEAD = """# States

What a consumer is doing is kept in state machines. Each is one table in the code: `(state, input) -> state`. A pair that is not in
the table is a bug and raises an error. This page is printed from the tables by [`.docs/states.py`](../.docs/states.py).
"""
Table = Mapping[tuple[Enum, Enum], Enum]


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for path, title in MACHINES:
        table = table_of(path)
        state, happening = (type(each) for each in next(iter(table)))
        parts += [f"## {title}\n\n[`{path}`]({path})\n", diagram(table), words(state, "state"), words(happening, "input")]
    return "\n".join(parts)


def table_of(path: str) -> Table:
    """Return the table of a file."""
    table: Table = importlib.import_module("kafka_async." + path.removesuffix(".py").replace("/", ".")).TRANSITIONS
    return table


def diagram(table: Table) -> str:
    """Return the diagram of a table, and what it leaves out in words."""
    sources: dict[tuple[Enum, Enum], list[Enum]] = defaultdict(list)
    for (state, happening), to in table.items():
        if state is not to:
            sources[happening, to].append(state)
    crowded = len({state for state, _ in table}) > MANY + 1
    common = {pair: states for pair, states in sources.items() if crowded and len(states) >= MANY}
    arrows: dict[tuple[Enum, Enum], list[str]] = defaultdict(list)
    for (state, happening), to in table.items():
        if state is not to and (happening, to) not in common:
            arrows[state, to].append(happening.name)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(table))[0].name}"]
    lines += [f"    {state.name} --> {to.name} : {', '.join(names)}" for (state, to), names in arrows.items()]
    lines += ["```", ""]
    for (happening, to), states in common.items():
        lines.append(f"- `{happening.name}` leads to `{to.name}` from {', '.join(f'`{state.name}`' for state in states)}.")
    if any(state is to for (state, _), to in table.items()):
        lines.append("- Inputs that change nothing are not drawn.")
    return "\n".join([*lines, ""] if lines[-1] else lines)


def words(kind: type[Enum], heading: str) -> str:
    """Return what the members of an enumeration mean: the text under each, or its value; nothing if that is only the name."""
    under = texts(kind)
    said = {each.name: under.get(each.name, str(each.value)) for each in kind}
    rows = [f"| `{name}` | {text} |" for name, text in said.items() if text != name.lower().replace("_", " ")]
    return "\n".join([f"| {heading} | meaning |", "|---|---|", *rows, ""])


def texts(kind: type[Enum]) -> dict[str, str]:
    """Return the docstrings under the members of an enumeration."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            (target,) = node.targets
            found[ast.unparse(target)] = " ".join(str(after.value.value).replace("``", "`").split())
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
