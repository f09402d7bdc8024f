"""setup.cfg and tox.ini: the parts that setuptools and tox read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from migrator.diagnostics import lines_of
from migrator.formats.embedded_text import BUILD, COMMAND, DEPENDENCY, EXTRA, PYTHON, REQUIREMENT
from migrator.formats.entries import Entry

# `section.key`, and its contents.
_KEYS = [(re.compile(keys), function) for keys, function in (
    (r"options\.install_requires|options\.extras_require\..+", DEPENDENCY),
    (r"options\.tests_require", REQUIREMENT),
    (r"options\.setup_requires", BUILD),
    (r"options\.python_requires|testenv(?::[^.]*)?\.base_?python", PYTHON),
    (r"testenv(?::[^.]*)?\.(?:deps|set_?env)", REQUIREMENT),
    (r"testenv(?::[^.]*)?\.(?:commands(?:_pre|_post)?|install_command|pass_?env)", COMMAND),
)]  # fmt: skip
_SECTION = re.compile(r"\[([^\]]+)\]")
_KEY = re.compile(r"(?P<key>[^\s=:#;\[][^=:]*?)\s*[=:][ \t]*(?P<value>[^\r\n]*)")
_FACTORS = re.compile(r"[!\w.,{}-]+:[ \t]+")  # tox's condition for a line: `py311: torch`
_SETS_NO_INDEX = re.compile(r"(?!\w*(?:INDEX|FIND_LINKS))\w+\s*=(?!=)")  # in an environment


def lists(text: str) -> list[list[Entry]]:
    """The items of each key, one per line; the first may be on the key's line."""
    found: list[list[Entry]] = []
    section = function = ""
    goes_on = False
    end = "\r\n" if "\r\n" in text else "\n"
    at = 0
    for row in lines_of(text):
        start, at = at, at + len(row)
        line = row.strip()
        if not line or line[0] in "#;":
            continue
        if row[0] in " \t":
            first, between = start + row.index(line), end + row[: row.index(line)]
        elif match := _SECTION.match(line):
            section, function = match[1], ""
            continue
        elif key := _KEY.match(row):
            path = f"{section}.{key['key']}"
            function = next((f for keys, f in _KEYS if keys.fullmatch(path)), "")
            found.append([])
            line, goes_on = key["value"].strip(), False
            first, between = start + key.start("value"), f"{end}    "
        else:
            continue
        if not function or not line or line.startswith("file:"):
            continue
        is_command = function == COMMAND or "CUDA_VISIBLE_DEVICES" in line
        if not is_command and _SETS_NO_INDEX.match(line):
            continue
        if goes_on:
            entry, last = found[-1].pop(), first + len(line)
            entry = replace(entry, end=last, text=text[entry.start : last])
        else:
            entry = _entry(
                text, first, first + len(line), COMMAND if is_command else function, between
            )
        found[-1].append(entry)
        goes_on = function == COMMAND and line.endswith("\\")
    return [entries for entries in (*found, _extra(text, found, end)) if entries]


_EXTRAS = re.compile(r"(?m)^\[options\.extras_require\][^\r\n]*(?:\r?\n(?!\[)[^\r\n]*)*")
_TPU = re.compile(r"(?m)^tpu\s*[=:]")


def _extra(text: str, found: Iterable[Sequence[Entry]], end: str) -> list[Entry]:
    """The TPU extra of a project that depends on torch, or the place for it."""
    listed = (entry for entries in found for entry in entries)
    if not any(e.function == DEPENDENCY and re.match(r"torch\b(?!-)", e.text) for e in listed):
        return []
    extras = _EXTRAS.search(text)
    if extras is not None and (own := _TPU.search(text, extras.start(), extras.end())):
        return [Entry(own.start(), own.end(), own[0], EXTRA)]
    whole = extras[0] if extras is not None else text
    at = (extras.start() if extras is not None else 0) + len(whole.rstrip())
    head = f"{end}tpu" if extras is not None else f"{end}{end}[options.extras_require]{end}tpu"
    joint = f"{end}    "
    return [Entry(at, at, "", EXTRA, joint, frame=(f"{head} ={joint}", ""))]


def _entry(text: str, start: int, end: int, function: str, between: str) -> Entry:
    if factors := _FACTORS.match(text, start, end):
        start, between = factors.end(), f"{between}{factors[0]}"
    joint = "\n" if function == COMMAND else between
    return Entry(start, end, text[start:end], function, joint)
