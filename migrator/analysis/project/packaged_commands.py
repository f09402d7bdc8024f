"""Programs that a project's files name: `train = "mypkg.cli:main"` in its packaging."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

# `"train = mypkg.cli:main"` in setup.py, `train = mypkg.cli:main` in setup.cfg.
_COMMAND = re.compile(r"[\w.-]+\s*=\s*([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_][\w.]*(?:\s*\[.*?\])?")
_GROUPS = ("console_scripts", "gui_scripts")
# `predict: "predict.py:Predictor"` in cog.yaml
_OF_COG = re.compile(r"(?m)^(?:predict|train|run):\s*[\"']?([\w./-]+)\.py(?::\w+)?[\"']?\s*(?:#|$)")


def commands(content: dict[str, bytes]) -> Iterator[str]:
    """The modules that commands start, according to a folder's packaging files, given by name."""
    for name, read in PACKAGING.items():
        try:
            yield from read(content.get(name, b"").decode())
        except (
            ValueError,
            SyntaxError,
            RecursionError,
            configparser.Error,
        ):  # invalid: it installs nothing
            continue


def _of_pyproject(text: str) -> Iterable[str]:
    # The specification: https://packaging.python.org/en/latest/specifications/pyproject-toml
    document = tomllib.loads(text)
    project, poetry = document.get("project"), document.get("tool", {}).get("poetry")
    tables = [(project, "scripts"), (project, "gui-scripts"), (poetry, "scripts")]
    for table, key in tables:
        found = table.get(key) if isinstance(table, dict) else None
        for value in found.values() if isinstance(found, dict) else ():
            if isinstance(value, str) and ":" in value:
                yield value.partition(":")[0].strip()


def _of_setup_cfg(text: str) -> Iterable[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    section = "options.entry_points"
    lists = [parser.get(section, group, fallback="") for group in _GROUPS]
    return chain.from_iterable(map(_COMMAND.findall, lists))


def _of_ini(text: str) -> Iterable[str]:
    """`[console_scripts]`, and a command on each line."""
    parser = configparser.RawConfigParser(strict=False, delimiters=["="])
    parser.read_string(text)
    lines = (f"{k}={v}" for g in _GROUPS if parser.has_section(g) for k, v in parser.items(g))
    return chain.from_iterable(map(_COMMAND.findall, lines))


def _of_setup_py(text: str) -> Iterable[str]:
    """Parsed as text; it can't be run to find out."""
    if not any(group in text for group in _GROUPS):
        return
    strings = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
    for said in strings:
        if isinstance(said, str) and (command := _COMMAND.fullmatch(said.strip())):
            yield command[1]
        elif isinstance(said, str) and any(f"[{group}]" in said for group in _GROUPS):
            yield from _of_ini(said)


def _of_cog(text: str) -> Iterable[str]:
    return (path.removeprefix("./").replace("/", ".") for path in _OF_COG.findall(text))


PACKAGING: dict[str, Callable[[str], Iterable[str]]] = {
    "pyproject.toml": _of_pyproject,
    "setup.cfg": _of_setup_cfg,
    "setup.py": _of_setup_py,
    "cog.yaml": _of_cog,
}
