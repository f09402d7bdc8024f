"""Text in a program for a shell, an installer or a configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from migrator.analysis import gpu_text_patterns
from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.cuda_libraries import may_concern_device
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.formats.embedded_text import (
    COMMAND,
    COMPILED,
    CONDA,
    EXTRA,
    OTHER,
    PYTHON,
    REQUIRED,
    REQUIREMENT,
    SETTING,
    TEXT,
)
from migrator.frameworks.torch.torch_tokens import has_tokens


def embedded(names: Names, call: ast.Call, vocabulary: Vocabulary) -> Iterator[Construct]:
    """A shell command, a requirement, or text that isn't analysed further."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    if call.args and names.qualified(call.func) in _READERS:
        value = names.only_value(call.args[0])
        lines = str(value.value).split("\n") if isinstance(value, ast.Constant) else []
        if any(map(gpu_text_patterns.setting, lines)):
            yield Construct("setting", "text", call.args[0])
    if call.args and names.qualified(call.func) in ("exec", "eval", "compile"):
        code = _said(names.only_value(call.args[0])).encode(errors="replace")
        if has_tokens(code) or vocabulary.may_be_in(code):
            yield Construct("code", "text", call.args[0])
    match call.args:
        case [ast.Constant(value=str(text)) as node, *_]:
            if function == OTHER:
                code = text.encode(errors="replace")
                if has_tokens(code) or vocabulary.may_be_in(code):
                    yield Construct("command", "other", node)
            elif function == COMPILED:
                if any(
                    may_concern_device(gpu_text_patterns.without_comment(line))
                    for line in text.split("\n")
                ):
                    yield Construct("requirement", "compiled", node)
            elif function in REQUIRED:
                always = function in (PYTHON, EXTRA) or (function == CONDA and _PYTHON.match(text))
                if always or may_concern_device(gpu_text_patterns.without_comment(text)):
                    yield Construct("requirement", _REQUIRED[function], node)
            elif function == SETTING:
                if (key := gpu_text_patterns.setting(text)) is not None:
                    yield Construct("setting", key, node)
            elif function == TEXT:
                if gpu_text_patterns.setting(text) is not None:
                    yield Construct("setting", "text", node)
            elif function == COMMAND or names.qualified(call.func) == "os.system":
                if (key := gpu_text_patterns.command(text)) is not None:
                    yield Construct("command", key, node)
            elif names.qualified(call.func) in _CHILDREN:
                if (key := gpu_text_patterns.command(text)) is not None:
                    yield Construct("command", key if key == "pip" else "child", node)
        case [ast.List(elts=parts) as node, *_] if names.qualified(call.func) in _CHILDREN:
            said = [p for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
            key = gpu_text_patterns.command(" ".join(str(p.value) for p in said))
            installed = list(_installed(said)) if key == "pip" else []
            for part in installed:
                yield Construct("requirement", "package", part)
            if key is not None and not installed:
                yield Construct("command", "child", node)


def doctests(names: Names, docstring: ast.Constant, vocabulary: Vocabulary) -> Iterator[Construct]:
    """Examples of a docstring that use a GPU, in a file that runs its examples."""
    if not any(names.qualified(call.func) in _RUNNING for call in names.all(ast.Call)):
        return
    code = "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)", str(docstring.value), re.MULTILINE))
    content = code.encode(errors="replace")
    if has_tokens(content) or vocabulary.may_be_in(content):
        yield Construct("code", "doctest", docstring)


_RUNNING = ("doctest.testmod", "doctest.run_docstring_examples", "doctest.DocTestSuite")


def says(function: str, text: str) -> bool:
    """Whether a line of a non-Python file may hold a construct."""
    asked = _OF_LINES.get(function)
    return asked is None or asked(text) is not None or _DEVICES.search(text) is not None


def _said(text: ast.expr) -> str:
    """The relevant words in a text, where they occur literally."""
    parts = [n.value for n in ast.walk(text) if isinstance(n, ast.Constant)]
    return "".join(part for part in parts if isinstance(part, str))


# pip options that take the next word as their value.
_WITH_VALUE = ("-r", "-c", "-e", "-i", "-f", "-t", "--requirement", "--constraint", "--editable",
               "--index-url", "--extra-index-url", "--find-links", "--target")  # fmt: skip


def _installed(words: Iterable[ast.Constant]) -> Iterator[ast.Constant]:
    """The packages of `[sys.executable, "-m", "pip", "install", "torch"]`."""
    before = ""
    for word in words:
        text = str(word.value)
        if (
            before
            and before not in _WITH_VALUE
            and not text.startswith("-")
            and may_concern_device(text)
        ):
            yield word
        before = text if before or text == "install" else ""


def next_in_line(
    found: Construct, text: str, done: Collection[str], kept: Collection[str]
) -> Construct | None:
    """What else a line says about GPUs, besides what is already `done`."""
    key = None
    if found.kind == "setting" and found.key != "text":
        key = gpu_text_patterns.setting(text, done)
    elif found.kind == "command" and found.key not in ("child", "other"):
        key = gpu_text_patterns.command(text, done, kept)
    return Construct(found.kind, key, found.node, text) if key is not None else None


_CHILDREN = frozenset({
    *(f"subprocess.{f}" for f in ("run", "call", "check_call", "check_output", "Popen",
                                  "getoutput", "getstatusoutput")),
    "os.popen",
})  # fmt: skip

# Calls that create configuration values written in the code.
_READERS = frozenset({
    "json.loads", "omegaconf.OmegaConf.create", "toml.loads", "tomllib.loads", "yaml.full_load",
    "yaml.load", "yaml.safe_load", "yaml.unsafe_load",
})  # fmt: skip

_REQUIRED = {each: each.strip("_") for each in REQUIRED} | {REQUIREMENT: "package"}

_OF_LINES = {
    SETTING: gpu_text_patterns.setting,
    TEXT: gpu_text_patterns.setting,
    COMMAND: gpu_text_patterns.command,
}
_DEVICES = re.compile(gpu_text_patterns.DEVICES)  # strings that name a device are always constructs
_PYTHON = re.compile(r"(?:[\w./-]+::)?python[\s=<>~!]")
