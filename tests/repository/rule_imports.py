"""Rules import what they need from `migrator.rule_api`: `python tests/repository/rule_imports.py`
mends the imports of those that don't."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
API = "migrator.rule_api"


def rule_files() -> list[Path]:
    return sorted(
        [*REPOSITORY.glob("rules/*.py"), *REPOSITORY.glob("migrator/targets/*/rules/*.py")]
    )


def offered() -> dict[tuple[str, str], tuple[str, str]]:
    """The module of the API, and the name there, by the module and the name that it imports."""
    found = {}
    for path in sorted((REPOSITORY / "migrator" / "rule_api").glob("*.py")):
        module = API if path.stem == "__init__" else f"{API}.{path.stem}"
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origin = (node.module or "", alias.name)
                    found.setdefault(origin, (module, alias.asname or alias.name))
    return found


def past_the_api(path: Path) -> Iterator[ast.ImportFrom | ast.Import]:
    """The imports of a rule file that go past the API."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(level=0, module=str(module)):
                names = [module]
            case ast.Import():
                names = [alias.name for alias in node.names]
            case _:
                continue
        if any(n.split(".")[0] == "migrator" and not f"{n}.".startswith(f"{API}.") for n in names):
            yield node


def mended(path: Path) -> str:
    """The text of a rule file whose imports all come from the API."""
    known = offered()
    lines = path.read_text("utf-8").splitlines(keepends=True)
    for node in sorted(past_the_api(path), key=lambda node: -node.lineno):
        assert isinstance(node, ast.ImportFrom), f"{path}:{node.lineno}"
        by_module: dict[str, list[str]] = defaultdict(list)
        for alias in node.names:
            origin = (node.module or "", alias.name)
            if origin not in known:
                sys.exit(f"{path}:{node.lineno}: {'.'.join(origin)} is in no module of {API}")
            module, name = known[origin]
            local = alias.asname or alias.name
            by_module[module].append(name if name == local else f"{name} as {local}")
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [
            f"{indent}from {module} import {', '.join(names)}\n"
            for module, names in by_module.items()
        ]
    return "".join(lines)


def main() -> None:
    changed = [path for path in rule_files() if any(past_the_api(path))]
    for path in changed:
        path.write_text(mended(path), "utf-8")
    for command in (["check", "--select", "I,F401", "--fix"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *changed], check=True)


if __name__ == "__main__":
    main()
