"""Comments that switch rules off: for a line, a region or a file.

`# tpu-migrate: ignore` or `ignore[CODE,…]` on a line, `# tpu-migrate: off` … `# tpu-migrate: on`
around lines, `# tpu-migrate: ignore-file` or `ignore-file[CODE,…]` anywhere. Comments of shell
scripts, requirements and YAML count, too.
"""

from __future__ import annotations

import io
import re
import tokenize

from migrator.diagnostics import Range
from migrator.formats.embedded import holds_text

_MARK = re.compile(r"#.*?\btpu-migrate:\s*(ignore-file|ignore|off|on)\b(?:\[([^\]]*)\])?")


class Suppressions:
    """What the comments of one file switch off."""

    def __init__(self, text: str) -> None:
        self.lines: dict[int, tuple[str, ...]] = {}
        self.file: tuple[str, ...] | None = None
        self.regions: list[tuple[int, int]] = []
        if "tpu-migrate:" in text:
            self._read(text)

    def _read(self, text: str) -> None:
        start = 0
        last = text.count("\n") + 2
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT and not holds_text(token):
                continue
            match = _MARK.search(token.string)
            if match is None:
                continue
            line = token.start[0]
            codes = tuple(c.strip() for c in (match[2] or "").split(",") if c.strip())
            if match[1] == "ignore":
                self.lines[line] = codes
            elif match[1] == "ignore-file":
                self.file = codes
            elif match[1] == "off" and not start:
                start = line
            elif match[1] == "on" and start:
                self.regions.append((start, line))
                start = 0
        if start:
            self.regions.append((start, last))

    def covers(self, where: Range, code: str) -> bool:
        if self.file is not None and _matches(self.file, code):
            return True
        if any(start <= where.line <= end for start, end in self.regions):
            return True
        lines = (self.lines[n] for n in range(where.line, where.end_line + 1) if n in self.lines)
        return any(_matches(codes, code) for codes in lines)


def _matches(codes: tuple[str, ...], code: str) -> bool:
    return not codes or any(code.startswith(c) for c in codes)
