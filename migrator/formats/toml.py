"""TOML (pyproject.toml, Pipfile, pixi.toml): where it lists requirements. tomllib gives the values,
but not their positions.

So the text is tokenized again, and only what agrees with tomllib is used.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.formats.embedded_text import (
    BUILD,
    COMMAND,
    CONSTRAINT,
    DEPENDENCY,
    EXTRA,
    PIXI,
    PYTHON,
    REQUIREMENT,
    SOURCE,
    TABLE,
)
from migrator.formats.entries import Entry

_TOKEN = re.compile(
    r'''(?P<string>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')'''
    r"""|(?P<comment>\#[^\n]*)|(?P<end>\n)|(?P<mark>[\[\]{}=,])|(?P<other>[^"'\#\n\[\]{}=,]+)""",
    re.DOTALL,
)
_PIXI = r"tool\.pixi\.(?:feature\.[^.]+\.)?(?:target\.[^.]+\.)?"
_BELOW = r"(?P<below>\.(?:version|git|url|path|file|source|index))?"
# The kind of value of a key: a list, texts, or a whole `key = value`, which may be a table.
_OF_PROJECT = {
    "list": (
        (r"project\.(?:optional-dependencies\..+|dependencies)|dependency-groups\..+"
         r"|tool\.uv\.(?:dev|override)-dependencies|tool\.pdm\.dev-dependencies\..+"
         r"|tool\.hatch\.envs\.[^.]+\.(?:extra-)?dependencies|tool\.rye\.dev-dependencies"
         r"|tool\.tox\.env(?:\.[^.]+|_run_base)\.deps"
         r"|tool\.flit\.metadata\.requires(?:-extra\..+)?", REQUIREMENT),
        (r"tool\.uv\.constraint-dependencies", CONSTRAINT),
        (r"build-system\.requires", BUILD),
    ),
    "texts": (
        (r"tool\.(?:uv\.index|poetry\.source|pdm\.source)\.url|tool\.uv\..*index-url"
         r"|tool\.pixi\..*index-urls?", REQUIREMENT),
        (r"project\.requires-python|tool\.poetry\.dependencies\.python(?:\.version)?"
         rf"|tool\.hatch\.envs\.[^.]+\.python|{_PIXI}dependencies\.python(?:\.version)?", PYTHON),
        (r"tool\.(?:pdm\.scripts|rye\.scripts|hatch\.envs\.[^.]+\.scripts)\.[^.]+(?:\.(?:cmd|shell))?"
         rf"|(?:tool\.poe\.tasks|tool\.taskipy\.tasks|{_PIXI}tasks)\.[^.]+(?:\.(?:cmd|shell))?",
         COMMAND),
    ),
    "whole": (
        (rf"tool\.poetry\.(?:group\.[^.]+\.)?(?:dev-)?dependencies\.[^.]+{_BELOW}", TABLE),
        (rf"{_PIXI}pypi-dependencies\.[^.]+{_BELOW}", TABLE),
        (rf"tool\.uv\.sources\.[^.]+{_BELOW}", SOURCE),
        (rf"{_PIXI}(?:host-|build-)?dependencies\.[^.]+{_BELOW}", PIXI),
        (rf"{_PIXI}system-requirements\.cuda", PIXI),
        (r"tool\.uv\.(?:pip\.)?(?:find-links|torch-backend)|tool\.pixi\..*find-links", REQUIREMENT),
    ),
}  # fmt: skip
_OF_PIPENV = {
    "texts": (
        (r"source\.url", REQUIREMENT),
        (r"requires\.python_(?:full_)?version", PYTHON),
        (r"scripts\.[^.]+", COMMAND),
    ),
    "whole": ((rf"(?!(?:source|requires|scripts|pipenv)\.)[^.]+\.[^.]+{_BELOW}", TABLE),),
}
_Tokens = list[tuple[re.Match[str], int]]  # with the number of enclosing brackets
_Patterns = list[tuple[str, re.Pattern[str], str]]


def _compiled(keys: Mapping[str, Iterable[tuple[str, str]]], without: str = "") -> _Patterns:
    return [
        (how, re.compile(keys.replace(without, "") if without else keys), function)
        for how, patterns in keys.items()
        for keys, function in patterns
    ]


_KEYS = {
    "pyproject.toml": _compiled(_OF_PROJECT),
    "Pipfile": _compiled(_OF_PIPENV),
    "pixi.toml": _compiled(_OF_PROJECT, without=r"tool\.pixi\."),
}


@dataclass(frozen=True)
class _TomlValue:
    """The value of a key, as tokens."""

    path: tuple[str, ...]
    start: int  # of the key
    tokens: _Tokens
    table: tuple[str, ...] = ()  # that contains it
    inline: bool = False  # whether it is written as `{…}`

    @property
    def is_plain(self) -> bool:
        """Whether it is a text, or a list."""
        return not any(t["mark"] == "{" and not depth for t, depth in self.tokens)

    @property
    def end(self) -> int:
        last = [t for t, _ in self.tokens if t.group().strip()][-1:]
        return last[0].start() + len(last[0].group().rstrip()) if last else self.start


def check(text: str) -> None:
    """Raises ValueError if it isn't TOML."""
    tomllib.loads(text)


def lists(text: str, file: str = "pyproject.toml") -> list[list[Entry]]:
    """The requirements of each list and table, and text that is only named like a list."""
    try:
        data = tomllib.loads(text)
        values = [inner for value in _values(text) for inner in (value, *_inside(value))]
    except (ValueError, RecursionError):  # invalid, too deep, or with tokens not known here
        return []
    found: dict[tuple[object, ...], list[Entry]] = {}
    known: set[tuple[str, ...]] = set()  # packages whose whole entry was found
    for value in values:
        for how, keys, function in _KEYS[file]:
            match = keys.fullmatch(".".join(value.path))
            if match is None:
                continue
            if how == "list":
                listed = _at(data, value.path)
                function = _function(data, value.path, function)
                found[value.path, value.start] = _listed(text, value, listed, function)
            elif how == "texts" and value.is_plain:
                found[value.path, value.start] = [
                    _entry(text, t, function) for t, _ in value.tokens if t["string"]
                ]
            elif how == "whole":
                below = "below" in match.re.groupindex and match["below"] is not None
                package = value.path[:-1] if below else value.path
                if package not in known:
                    known.add(package)
                    whole = _whole_entry(text, value, function, below)
                    found.setdefault(package[:-1], []).append(whole)
            break
    extra = _extra(text, data, values, found) if "build-system" in data else []
    return [entries for entries in (*found.values(), extra) if entries]


def with_uv_source(text: str, name: str, path: str) -> str:
    """A pyproject.toml in which uv takes a package from a file; unchanged if it says a source."""
    return _with_key(text, "tool.uv.sources", name, f'{{ path = "{path}" }}')


def with_pixi_links(text: str, folder: str) -> str:
    """A pyproject.toml in which pixi also looks for packages in a folder; unchanged if it names
    folders already. `pypi-dependencies` can't have what `project.dependencies` has."""
    return _with_key(text, "tool.pixi.pypi-options", "find-links", f'[{{ path = "{folder}" }}]')


def _with_key(text: str, table: str, key: str, value: str) -> str:
    """TOML with a key in a table, unless it is there, or the table is no section of the file."""
    there = _at(tomllib.loads(text), tuple(table.split(".")))
    if there is not None and key in there:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    line = f"{key} = {value}{end}"
    if header := re.search(rf"^\[{re.escape(table)}\][^\n]*\n", text, re.M):
        return text[: header.end()] + line + text[header.end() :]
    if there is not None:
        return text  # in one line, for example
    return f"{text.rstrip()}{end}{end}[{table}]{end}{line}"


_TORCH = re.compile(r"torch\b(?!-)")


def _function(data: Mapping[str, Any], path: tuple[str, ...], function: str) -> str:
    """A built project is installed by others; otherwise its extras are beside its own list."""
    if path[0] != "project":
        return function
    own = _at(data, ("project", "dependencies"))
    named = isinstance(own, list) and any(_TORCH.match(str(each)) for each in own)
    shared = "build-system" in data or (named and path[1] == "optional-dependencies")
    return DEPENDENCY if shared else function


def _extra(
    text: str,
    data: Mapping[str, Any],
    values: Iterable[_TomlValue],
    found: Mapping[tuple[object, ...], list[Entry]],
) -> list[Entry]:
    """The TPU extra of a project that depends on torch, or the place for it."""
    listed = (entry for entries in found.values() for entry in entries)
    if not any(e.function == DEPENDENCY and _TORCH.match(e.text) for e in listed):
        return []
    table = ("project", "optional-dependencies")
    extras = [value for value in values if value.path[:2] == table]
    for value in extras:
        if value.path == (*table, "tpu"):
            return [Entry(value.start, value.end, text[value.start : value.end], EXTRA)]
    if extras:
        last = extras[-1]
        dotted = last.table == ("project",) and not last.inline
        head = "optional-dependencies.tpu" if dotted and len(last.path) == 3 else "tpu"
        if last.table not in (("project",), table) or last.inline or len(last.path) != 3:
            return []  # written on one line, for example
    elif _at(data, table) is not None:
        return []
    else:
        last = [value for value in values if value.table == ("project",)][-1]
        head = f"\n[{'.'.join(table)}]\ntpu"
    end = text.find("\n", last.end) + 1
    frame = f'{head if end else chr(10) + head} = [\n    "', '",\n]\n'
    joint = '",\n    "'
    if "\r\n" in text:
        frame = frame[0].replace("\n", "\r\n"), frame[1].replace("\n", "\r\n")
        joint = joint.replace("\n", "\r\n")
    return [Entry(end or len(text), end or len(text), "", EXTRA, joint, frame=frame)]


def _listed(text: str, value: _TomlValue, known: object, function: str) -> list[Entry]:
    entries = [_entry(text, t, function) for t, depth in value.tokens if depth == 1 and t["string"]]
    alike = isinstance(known, list) and [e.text for e in entries] == [
        each for each in known if isinstance(each, str)
    ]
    return entries if alike else [_whole_entry(text, value, function, below=False)]


def _entry(text: str, token: re.Match[str], function: str) -> Entry:
    marks = 3 if token.group()[:3] in ('"""', "'''") else 1
    start, end = token.start() + marks, token.end() - marks
    if function == COMMAND:
        inside = text[token.start() : start]
        return Entry(start, end, text[start:end], function, inside=inside)
    quote = text[token.start() : start]
    before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
    line_end = "\r\n" if "\r\n" in text else "\n"
    between = f",{line_end}{before}" if before.strip() == "" else ", "
    return Entry(start, end, text[start:end], function, f"{quote}{between}{quote}")


def _whole_entry(text: str, value: _TomlValue, function: str, below: bool) -> Entry:
    """`key = value`; the name of a package's own table also counts for the values `below` it."""
    said = text[value.start : value.end]
    if below and len(value.path) - len(value.table) == 1:
        said = f"{value.table[-1]}.{said}"
    row = text.rfind("\n", 0, value.start) + 1
    line_end = "\r\n" if "\r\n" in text else "\n"
    joint = ", " if value.inline else line_end + text[row : value.start]
    return Entry(value.start, value.end, said, function, joint)


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _values(text: str) -> Iterator[_TomlValue]:
    """All keys that have a value, below their tables."""
    table: tuple[str, ...] = ()
    for line in _lines(text):
        said = [(t, depth) for t, depth in line if t["comment"] is None and t["end"] is None]
        first = next((t for t, _ in said if t.group().strip()), None)
        if first is None:
            continue
        if first["mark"] == "[":
            header = "".join(t.group() for t, _ in said).strip()
            table = _path(header.replace("[[", "[").replace("]]", "]"))
            continue
        yield _value(said, table)


def _value(said: _Tokens, table: tuple[str, ...], inline: bool = False) -> _TomlValue:
    """`key = value`, as tokens. Raises ValueError if there is no value."""
    at = [t["mark"] for t, _ in said].index("=")
    key = "".join(t.group() for t, _ in said[:at])
    start = said[0][0].start() + len(key) - len(key.lstrip())
    return _TomlValue((*table, *_path(f"{key} = {{}}")), start, said[at + 1 :], table, inline)


def _inside(value: _TomlValue) -> Iterator[_TomlValue]:
    """The contents of inline tables: `{…}`, also as elements of a list."""
    parts: list[_Tokens] = []
    inner = 0  # brackets around the table's contents
    for token, depth in value.tokens:
        if not inner and token["mark"] == "{":
            inner = depth + 1
            parts.append([])
        elif inner and depth < inner:
            inner = 0
        elif inner and depth == inner and token["mark"] == ",":
            parts.append([])
        elif inner:
            parts[-1].append((token, depth - inner))
    for part in parts:
        if any(t.group().strip() for t, _ in part):
            found = _value(part, value.path, inline=True)
            yield found
            yield from _inside(found)


def _lines(text: str) -> Iterator[_Tokens]:
    """Tokens up to each end of a line outside of brackets."""
    line: _Tokens = []
    depth = 0
    for token in _TOKEN.finditer(text):
        depth -= token.group() in ("]", "}")
        line.append((token, depth))
        depth += token.group() in ("[", "{")
        if token["end"] and depth == 0:
            yield line
            line = []
    yield line


def _path(toml: str) -> tuple[str, ...]:
    """The only key of a document, with those nested in it."""
    data = tomllib.loads(toml)
    parts: list[str] = []
    while data:
        ((part, data),) = data.items()
        parts.append(part)
    return tuple(parts)
