"""Tables of what the code says: settings and the Python API. docs/generate.py writes them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import click

from migrator import config
from migrator.cli.migrate import migrate_command
from migrator.runs.run import migrate_paths, migrate_source
from migrator.targets import portable, targets
from migrator.targets.wheel import runtime_wheel

_WITHOUT_OPTION = {
    "per-file-ignores": ("a table", "Codes that are ignored in files, by patterns of their paths."),
    "replace": ("a table", "Names of your own that become others (rules-of-your-own.md)."),
}
_WIDEST = 60  # of a call in a table
_VALUES = {"bool": "`true`, `false`", "int": "a number from 1", "str | None": "a path"}
_AS_WORTH = "as many as it is worth"
_SECTION = re.compile(r"^(Args|Returns|Raises):$", re.MULTILINE)
_ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    assert "|" not in text, text
    return " ".join(text.split())


# ---- settings ------------------------------------------------------------------------------------


def settings() -> str:
    """Every key of a configuration."""
    return table(("key", "value", "default", "option", ""), _keys())


def _keys() -> Iterator[tuple[str, ...]]:
    options = {option.name: option for option in migrate_command.params}
    for field in config.settings():
        key = field.name.replace("_", "-").replace("targets", "target")
        option = cast(click.Option | None, options.get(key.replace("-", "_")))
        if option is None:
            value, meaning = _WITHOUT_OPTION[key]
        else:
            value, meaning = _value(option, str(field.type)), str(option.help)
        default = _default(field.name, field.default)
        yield f"`{key}`", value, default, f"`--{key}`" if option else "none", _linked(meaning)


def _value(option: click.Option, kind: str) -> str:
    choices = ", ".join(f"`{_toml(c)}`" for c in getattr(option.type, "choices", ()))
    if kind.startswith("tuple"):
        return f"{choices}, or a list" if choices else "a list of strings"
    return choices or _VALUES[kind]


def _default(name: str, default: Any) -> str:
    if name == "jobs":
        return _AS_WORTH
    return f"`{_toml(default)}`" if default or default is False else "none"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _linked(text: str) -> str:
    return re.sub(r"\b([\w-]+)\.md\b", r"[\1](\1.md)", text)


# ---- functions -----------------------------------------------------------------------------------


def functions() -> str:
    """What the tool offers to Python."""
    return "\n\n".join(_described(each) for each in (migrate_source, migrate_paths))


def _described(function: Callable[..., Any]) -> str:
    about, *sections = _SECTION.split(inspect.getdoc(function) or "")
    said = {
        kind: dict(_entries(text)) for kind, text in zip(sections[::2], sections[1::2], strict=True)
    }
    signature = inspect.signature(function)
    rows = (
        (
            f"`{name}`",
            f"`{each.annotation}`".replace(" | ", " or "),  # no bar in a table
            "" if each.default is each.empty else f"`{each.default!r}`",
            said.get("Args", {}).get(name, ""),
        )
        for name, each in signature.parameters.items()
    )
    parts = [
        f"### `{function.__name__}`",
        " ".join(about.split()),
        table(("argument", "type", "default", ""), rows),
        f"Returns a `{signature.return_annotation}`.",
        *(f"Raises `{name}`: {text}" for name, text in said.get("Raises", {}).items()),
    ]
    return "\n\n".join(parts)


def _entries(section: str) -> Iterator[tuple[str, str]]:
    for entry in _ENTRY.split(inspect.cleandoc(section)):
        name, _, text = entry.partition(":")
        if name.strip():
            yield name.strip(), " ".join(text.split())


# ---- the runtimes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Name:
    """A public name of a runtime: how it is called, and the first paragraph about it."""

    call: str
    about: str


def runtime() -> str:
    """The public names of the runtimes, and which targets have them."""
    those = [targets()[name] for name in ("torchax", "torch_xla", "torch_tpu")]
    of = {target.name: _names(runtime_wheel(target).modules) for target in those}
    of["`--portable`"] = _names(runtime_wheel(portable(those[0])).modules)
    every = sorted({name for names in of.values() for name in names}, key=str.lower)
    return table(("name", "what it is", "for"), (_row(name, of) for name in every))


def _row(name: str, of: Mapping[str, Mapping[str, _Name]]) -> tuple[str, ...]:
    having = [target for target, names in of.items() if name in names]
    first = of[having[0]][name]
    everywhere = len(having) == len(of)
    return f"`{first.call}`", first.about, "all" if everywhere else ", ".join(having)


def _names(modules: Mapping[str, bytes]) -> dict[str, _Name]:
    trees = {
        path.removesuffix(".py").replace("/", "."): ast.parse(text)
        for path, text in modules.items()
    }
    (listed,) = (
        ast.literal_eval(node.value)
        for node in trees["__init__"].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return {name: _found(name, trees["__init__"], trees) for name in listed}


def _found(name: str, tree: ast.Module, trees: Mapping[str, ast.Module]) -> _Name:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=found) | ast.ClassDef(name=found) if found == name:
                return _Name(_call(node), _first(ast.get_docstring(node)))
            case ast.ImportFrom(module=str(module), level=1, names=names):
                for alias in names:
                    if (alias.asname or alias.name) == name and module in trees:
                        return _found(alias.name, trees[module], trees)
    return _Name(name, "")


def _call(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        if not made:
            return node.name
        arguments = made[0].args
        arguments.args = arguments.args[1:]
    else:
        arguments = node.args
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    call = f"{node.name}({ast.unparse(arguments)})"
    return call if len(call) <= _WIDEST else f"{node.name}(…)"


def _first(text: str | None) -> str:
    return (text or "").partition("\n\n")[0].replace("``", "`")
