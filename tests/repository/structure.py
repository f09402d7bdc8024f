"""Figures of the structure: `python tests/repository/structure.py`; `--list` names what counts."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RUNTIME = REPOSITORY / "migrator" / "runtime"

Graph = dict[str, set[str]]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def modules() -> dict[str, Path]:
    """All modules by their names, those of programs that run elsewhere, too."""
    found: dict[str, Path] = {}
    for folder in ("migrator", "rules"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            parts = ("migrator", *parts) if parts[0] == "rules" else parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, *, types: bool = True) -> set[str]:
    """The modules of the tool that one imports, in functions too; `types`: also those for types."""
    path = modules()[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    found: set[str] = set()
    queue: list[ast.AST] = [parsed(path)]
    while queue:
        node = queue.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) if not types:
                queue += node.orelse
                continue
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                base = package.split(".")[: len(package.split(".")) + 1 - node.level]
                origin = [*(base if node.level else ()), *((node.module or "").split("."))]
                source = ".".join(filter(None, origin))
                inner = [f"{source}.{alias.name}" for alias in node.names]
                found |= {name if name in modules() else source for name in inner}
        queue += ast.iter_child_nodes(node)
    return {name for name in found if name in modules()} - {module}


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The groups of modules that import each other (Tarjan), largest first."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted((group for group in found if len(group) > 1), key=len, reverse=True)


def packages() -> tuple[Graph, dict[tuple[str, str], list[str]]]:
    """The dependencies between the folders and loose files of the tool, and each one's imports."""
    graph: Graph = defaultdict(set)
    why: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in modules():
        unit = unit_of(module)
        graph[unit] |= set()
        for other in imports(module):
            if unit_of(other) != unit:
                graph[unit].add(unit_of(other))
                why[unit, unit_of(other)].append(f"{module} -> {other}")
    return dict(graph), why


def unit_of(module: str) -> str:
    """The folder or loose file below `migrator` that a module belongs to."""
    parts = module.split(".")
    if parts[1:2] == ["targets"] and "rules" in parts:  # a target's own
        return "migrator.rules"
    return ".".join(parts[:2])


def upward(graph: Graph) -> set[tuple[str, str]]:
    """The fewest dependencies found without which the rest has layers: all lie in circles."""
    return {edge for circle in circles(graph) for edge in _against(circle, graph)}


def _against(circle: set[str], graph: Graph) -> set[tuple[str, str]]:
    """The dependencies of a circle that run against its best order.

    Each name goes to the place with the fewest of them, until none moves.
    """
    order = sorted(circle, key=lambda name: (-len(graph[name] & circle), name))
    moved = True
    while moved:
        moved = False
        for name in sorted(circle):
            at = order.index(name)
            rest = order[:at] + order[at + 1 :]
            # by place: what it asks that stands above it, and what asks it that stands below
            cost = sum(name in graph[other] for other in rest)
            costs = [cost]
            for other in rest:
                cost += (other in graph[name]) - (name in graph[other])
                costs.append(cost)
            if min(costs) < costs[at]:
                order = rest[:]
                order.insert(costs.index(min(costs)), name)
                moved = True
    place = {name: index for index, name in enumerate(order)}
    return {(a, b) for a in circle for b in graph[a] & circle if place[a] > place[b]}


def layers(graph: Graph) -> int:
    """The longest chain of dependencies, without those that run upwards."""
    against = upward(graph)

    @cache
    def height(name: str) -> int:
        return 1 + max((height(o) for o in graph[name] if (name, o) not in against), default=0)

    return max(map(height, graph))


def shared_modules() -> dict[str, list[str]]:
    """The names that several modules have."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        if path.stem not in ("__init__", "__main__"):
            found[path.stem].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def shared_classes() -> dict[str, list[str]]:
    """The names that several classes have."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def lines_of_code(path: Path) -> int:
    """How many lines a file has without docstrings, comments and blank ones."""
    return len(code_lines(path))


def code_lines(path: Path) -> set[int]:
    """The numbers of those lines."""
    found: set[int] = set()
    skipped = (
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    )  # fmt: skip
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                end = node.body[0].end_lineno
                found -= set(range(node.body[0].lineno, (end or 0) + 1))
    return found


def context_members() -> list[str]:
    """What a rule can ask of a `Context` itself, and what it has from `Task`."""
    found = []
    for module, name in (("task", "Task"), ("__init__", "Context")):
        path = REPOSITORY / "migrator" / "context" / f"{module}.py"
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                for each in node.body:
                    match each:
                        case ast.FunctionDef(name=member):
                            found.append(member)
                        case ast.AnnAssign(target=ast.Name(id=member), annotation=kind):
                            found += [member] if "InitVar" not in ast.unparse(kind) else []
    return [member for member in found if not member.startswith("_")]


def files_with(pattern: str) -> list[str]:
    return [m for m, path in modules().items() if re.search(pattern, path.read_text("utf-8"))]


def outside_the_runtime() -> Iterator[Path]:
    return (path for path in modules().values() if RUNTIME not in path.parents)


def main(*, names: bool) -> None:
    graph, why = packages()
    against = sorted(upward(graph))
    by_module = {module: imports(module) for module in modules()}
    late = {module: imports(module, types=False) for module in modules()}
    top = [path.name for path in (REPOSITORY / "migrator").glob("*.py")]
    figures: list[tuple[str, int | str, Iterable[str]]] = [
        ("folders and loose files", len(graph), ()),
        ("layers", layers(graph), ()),
        ("dependencies", sum(map(len, graph.values())), ()),
        ("upward dependencies", len(against),
         [f"{a} -> {b}: {'; '.join(why[a, b][:4])}" for a, b in against]),
        ("import cycles", len(circles(late)), [", ".join(sorted(c)) for c in circles(late)]),
        ("import cycles with types", len(circles(by_module)),
         [", ".join(sorted(c)) for c in circles(by_module)]),
        ("loose files at the top", len(top), top),
        ("shared module names", len(shared_modules()),
         [f"{n}: {', '.join(p)}" for n, p in shared_modules().items()]),
        ("shared class names", len(shared_classes()),
         [f"{n}: {', '.join(p)}" for n, p in shared_classes().items()]),
        ("members of Context", len(context_members()), context_members()),
        ("files that call .resolve()", len(files_with(r"\.resolve\(")), files_with(r"\.resolve\(")),
        ("lines of code without the runtime", sum(map(lines_of_code, outside_the_runtime())), ()),
    ]  # fmt: skip
    for title, number, details in figures:
        print(f"{title:36}{number:>8,}")
        for line in details if names else ():
            print(f"    {line}")


if __name__ == "__main__":
    main(names="--list" in sys.argv)
