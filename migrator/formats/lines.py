"""Files whose lines stand for themselves: shell scripts, requirements, configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from migrator.diagnostics import Range
from migrator.formats.embedded import (
    COMMAND,
    SETTING,
    TEXT,
    call,
    restored,
)


@dataclass(frozen=True)
class Lines:
    """The text's lines, and what each of them is; one that goes on in the next is one with it."""

    functions: Sequence[str]
    lines: tuple[str, ...]

    @property
    def module(self) -> str:
        lines = zip(self.functions, self.lines, strict=True)
        return "".join(f"{call(function, line)}\n" for function, line in lines)

    def with_module(self, module: str) -> str:
        found = module.removesuffix("\n").split("\n")
        if len(found) != len(self.lines):
            raise ValueError("a line is missing")
        return "\n".join(restored(line) for line in found)

    def located(self, where: Range) -> Range:
        first = 1 + sum(line.count("\n") + 1 for line in self.lines[: where.line - 1])
        line = self.lines[where.line - 1]
        column = len(line) - len(line.lstrip()) + 1
        *above, last = line.split("\n")
        end_column = len(last) + 1 if above else column
        end_line = first + len(above)
        return replace(where, line=first, column=column, end_line=end_line, end_column=end_column)


def read(content: bytes, function: str) -> Lines:
    """Raises UnicodeDecodeError."""
    text = content.decode("utf-8")
    if function == SETTING:
        lines = tuple(_settings(text))
        return Lines([function for function, _ in lines], tuple(line for _, line in lines))
    found = split(text, continued=True)
    return Lines([function] * len(found), found)


# Keys in YAML and JSON below which there are commands: of workflows, containers and launchers.
_COMMANDS = re.compile(
    r"""(?P<before>\s*(?:-\s+)*)["']?(?:run|script|(?:before|after)_(?:script|install)|install|setup"""
    r"""|commands?|cmd|entrypoint|args|postCreateCommand)["']?\s*:(?:\s+(?P<value>[^#\s].*?))?\s*(?:\s#.*)?"""
)
_TEXT = re.compile(
    r"""(?P<before>\s*(?:-\s+)*)(?:(?P<key>[^\s#:][^:]*?)\s*:\s+)?(?:[!&]\S+\s+)*[|>][-+\d]*\s*(?:\s\#.*)?"""
)
_FILE = re.compile(r"""["']?\S+\.(?:ya?ml|json)["']?""")  # that a text is, by its key
_BLOCK = re.compile(r"[|>][-+\d]*")
_DEVICE_OPTION = re.compile(r"""\s*(?:-\s+)?(["']?)--device\1,?""")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Lines of YAML and JSON; those of a command are the command's."""
    column = -1  # of the key that the lines belong to
    block = False  # whether they are one text
    whole = ""  # lines up to here go on in the next
    function = SETTING
    prose = -1  # the column of a key whose lines are a text
    for line in text.split("\n"):
        said = line.strip()
        indent = len(line) - len(line.lstrip())
        if prose >= 0 and (not said or indent > prose):
            yield TEXT, line
            continue
        prose = -1
        if whole:
            whole += f"\n{line}"
        else:
            if said and column >= 0 and not (
                indent > column or (not block and indent == column and said[0] in "-]")
            ):  # fmt: skip
                column = -1
            function = COMMAND if column >= 0 else SETTING
            if column >= 0 and not block and re.match(r"""["']?\w+["']?\s*:(?:\s|$)""", said):
                function, column = SETTING, -1  # a table of its own
            if column < 0 and (key := _COMMANDS.fullmatch(line)):
                value = key["value"] or ""
                block = _BLOCK.fullmatch(value) is not None
                if block or value in ("", "["):
                    column = len(key["before"])
                elif value[0] != "{":
                    function = COMMAND
            elif column < 0 and (key := _TEXT.fullmatch(line)):
                if not _FILE.fullmatch(key["key"] or ""):
                    prose = len(key["before"]) if key["key"] else indent
            whole = line
        if function == COMMAND and (said.endswith("\\") or _DEVICE_OPTION.fullmatch(line)):
            continue
        yield function, whole
        whole = ""
    if whole:
        yield function, whole


def split(text: str, *, continued: bool) -> tuple[str, ...]:
    """Lines; where they may be `continued`, one that ends in a backslash goes on in the next."""
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        if goes_on:
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
        goes_on = (
            continued and line.rstrip("\r").endswith("\\") and not line.lstrip().startswith("#")
        )
    return tuple(lines)
