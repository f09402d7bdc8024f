"""The modules that a file imports, read from its text: parsing takes fifteen times as long."""

from __future__ import annotations

import codecs
import re
import unicodedata

# Text up to the next import, over strings and comments, which hold examples; then the import.
# Nothing is tried twice (`++`), so the time is proportional to the text.
_NEXT = re.compile(
    rb"""
    (?: [^\#"'\n;:]++ | \#[^\n]*+
      | \"{3}(?: [^"\\]++ | \\. | "(?!"") )*+\"{3} | '{3}(?: [^'\\]++ | \\. | '(?!'') )*+'{3}
      | "(?: [^"\\\n]++ | \\. )*+" | '(?: [^'\\\n]++ | \\. )*+' | ["']
      | [\n;:]++(?! [ \t\f]*+ (?:import|from)\b )
    )*+
    [\n;:]++ [ \t\f]*+
    (?: import\b (?P<modules> (?: [^\n;\\]++ | \\\n )*+ )
      | from\b (?P<module> (?: \.++ | (?!import\b)[\w\x80-\xff]++ | [ \t]++ | \\\n )++ )
        import\b (?: [ \t]++ | \\\n )*+
        (?: \( (?P<names> (?: [^)\#]++ | \#[^\n]*+ )*+ ) \)
          | (?P<line> (?: [^\n;(\\]++ | \\\n )*+ ) )
      | from  # of another statement, on a line of its own
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_BETWEEN = re.compile(rb"\#[^\n]*|\\\n")


def imported_modules(source: bytes) -> list[str]:
    """In the order of the source; also of a file that doesn't parse."""
    found: dict[str, None] = {}
    source = b"\n" + source.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(
        b"\r", b"\n"
    )
    match = _NEXT.match(source)
    while match is not None:
        clause = match["modules"] or match["names"] or match["line"] or b""
        names = [words[0] for part in _text(clause).split(",") if (words := part.split())]
        if match["module"] is not None:
            module = "".join(_text(match["module"]).split())
            joint = "" if module.endswith(".") else "."
            names = [module, *(f"{module}{joint}{name}" for name in names)]
        found.update(dict.fromkeys(names))
        match = _NEXT.match(source, match.end())
    return list(found)


def _text(clause: bytes) -> str:
    """Names as Python compares them, without comments and continued lines."""
    return unicodedata.normalize("NFKC", _BETWEEN.sub(b" ", clause).decode("utf-8", "replace"))
