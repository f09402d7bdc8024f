"""What a program tells a shell, an installer or a configuration: the text that is in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from migrator.analysis import mentions
from migrator.analysis.libraries import matters
from migrator.analysis.names import Names
from migrator.construct import Construct
from migrator.formats.embedded import (
    COMMAND,
    CONDA,
    EXTRA,
    OTHER,
    PYTHON,
    REQUIRED,
    REQUIREMENT,
    SETTING,
    TEXT,
)
from migrator.frameworks.torch.prefilter import has_tokens
from migrator.vocabulary import Vocabulary


def embedded(names: Names, call: ast.Call, vocabulary: Vocabulary) -> Iterator[Construct]:
    """What a shell is told to do, a requirement, or text that is not looked into."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    match call.args:
        case [ast.Constant(value=str(text)) as node, *_]:
            if function == OTHER:
                code = text.encode(errors="replace")
                if has_tokens(code) or vocabulary.may_be_in(code):
                    yield Construct("command", "other", node)
            elif function in REQUIRED:
                always = function in (PYTHON, EXTRA) or (function == CONDA and _PYTHON.match(text))
                if always or matters(mentions.without_comment(text)):
                    yield Construct("requirement", _REQUIRED[function], node)
            elif function == SETTING:
                if (key := mentions.setting(text)) is not None:
                    yield Construct("setting", key, node)
            elif function == TEXT:
                if mentions.setting(text) is not None:
                    yield Construct("setting", "text", node)
            elif function == COMMAND or names.qualified(call.func) == "os.system":
                if (key := mentions.command(text)) is not None:
                    yield Construct("command", key, node)
            elif names.qualified(call.func) in _CHILDREN:
                if mentions.command(text) is not None:
                    yield Construct("command", "child", node)
        case [ast.List(elts=parts) as node, *_] if names.qualified(call.func) in _CHILDREN:
            words = [str(p.value) for p in parts if isinstance(p, ast.Constant)]
            if mentions.command(" ".join(words)) is not None:
                yield Construct("command", "child", node)


def beside(
    found: Construct, text: str, done: Collection[str], kept: Collection[str]
) -> Construct | None:
    """What else a line says of GPUs, beside what is `done` already."""
    key = None
    if found.kind == "setting" and found.key != "text":
        key = mentions.setting(text, done)
    elif found.kind == "command" and found.key not in ("child", "other"):
        key = mentions.command(text, done, kept)
    return Construct(found.kind, key, found.node, text) if key is not None else None


_CHILDREN = frozenset({
    *(f"subprocess.{f}" for f in ("run", "call", "check_call", "check_output", "Popen",
                                  "getoutput", "getstatusoutput")),
    "os.popen",
})  # fmt: skip

_REQUIRED = {each: each.strip("_") for each in REQUIRED} | {REQUIREMENT: "package"}

_PYTHON = re.compile(r"(?:[\w./-]+::)?python[\s=<>~!]")
