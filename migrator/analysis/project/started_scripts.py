"""Files that a program names: the scripts that it starts, and the settings that it reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.formats.embedded_text import COMMAND

_SCRIPT = re.compile(r"[\w./-]*\w\.py")
_SETTINGS = re.compile(r"[\w./-]*\w\.(?:ya?ml|toml|json)")
_STARTS = frozenset({
    *(f"subprocess.{f}" for f in ("run", "call", "check_call", "check_output", "Popen",
                                  "getoutput", "getstatusoutput")),
    "os.system", "os.popen", "os.startfile", "os.posix_spawn", "os.posix_spawnp", "pty.spawn",
    *(f"os.exec{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *(f"os.spawn{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "runpy.run_path",
    COMMAND,  # of a notebook
})  # fmt: skip
_MODULE = "runpy.run_module"
# Cheap tests
MAY_START = re.compile(
    rb"__command__|subprocess|runpy|\bpty\b|\b(?:system|popen|exec[lv]p?e?|spawn\w*)\b"
)
MAY_NAME_SETTINGS = re.compile(rb"\.(?:ya?ml|toml|json)\b")
_DEEPEST = 3  # names of names


def started(names: Names) -> Iterator[tuple[str, bool]]:
    """The scripts that a file starts in a process of their own: a path, or a module (True)."""
    for call in names.all(ast.Call):
        name = names.qualified(call.func) or dotted(call.func)
        if name not in _STARTS and name != _MODULE:
            continue
        given = [*call.args, *(k.value for k in call.keywords)]
        texts = [text for value in given for text in _texts(names, value, _DEEPEST)]
        if name == _MODULE:
            yield from ((text, True) for text in texts[:1])
            continue
        yield from started_by(" ".join(texts))


def started_by(command: str) -> Iterator[tuple[str, bool]]:
    """The same for the words of a command."""
    words = [word.strip("\"'") for word in command.split()]
    yield from ((word.lstrip("/"), False) for word in words if _SCRIPT.fullmatch(word))
    yield from ((after, True) for word, after in pairwise(words) if word == "-m")


def _texts(names: Names, node: ast.expr, depth: int) -> Iterator[str]:
    """The literal texts of an expression, also where a name stands for them, in order."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name() if depth:
            for binding in names.lookup(node):
                if binding.kind == "assign" and binding.value is not None:
                    yield from _texts(names, binding.value, depth - 1)
        case _:
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.expr):
                    yield from _texts(names, inner, depth)


def settings_named(names: Names) -> Sequence[str]:
    """The settings that a file's texts name: `configs/train.yaml`."""
    texts = (c.value for c in names.all(ast.Constant) if isinstance(c.value, str))
    return [*dict.fromkeys(text for text in texts if _SETTINGS.fullmatch(text))]
