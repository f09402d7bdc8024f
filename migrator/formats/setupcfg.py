"""setup.cfg: where setuptools reads requirements from it."""

from __future__ import annotations

import re

from migrator.formats.entries import Entry

_LISTS = {
    "options": re.compile(r"install_requires"),
    "options.extras_require": re.compile(r".+"),
}
_SECTION = re.compile(r"\[([^\]]+)\]")
_KEY = re.compile(r"(?P<key>[^\s=:#;\[][^=:]*?)\s*[=:][ \t]*(?P<value>[^\r\n]*)")


def lists(text: str) -> list[list[Entry]]:
    """The requirements of each list, one a line; what stands behind a key is a list, too."""
    found: list[list[Entry]] = []
    wanted: re.Pattern[str] | None = None
    inside = False
    at = 0
    for row in text.splitlines(keepends=True):
        start, at = at, at + len(row)
        line = row.strip()
        if not line or line[0] in "#;":
            continue
        if row[0] in " \t":
            if inside:
                first = start + row.index(line)
                between = ("\r\n" if row.endswith("\r\n") else "\n") + text[start:first]
                found[-1].append(Entry(first, first + len(line), line, between))
        elif section := _SECTION.match(line):
            wanted, inside = _LISTS.get(section[1]), False
        elif key := _KEY.match(row):
            inside = wanted is not None and wanted.fullmatch(key["key"]) is not None
            if inside:
                found.append([])
            if inside and key["value"].strip() and not key["value"].startswith("file:"):
                found.append([Entry(start, start + len(line), line)])
    return [entries for entries in found if entries]
