"""Functions in C++ and CUDA that a program compiles: by cpp_extension, or with cupy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.file_facts import FileFacts
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument

from .kernel import Kernel
from .search import Search, Use, place_of

_EXTENSION = "torch.utils.cpp_extension"
_COMPILED = {  # by what makes it: the position of its name
    f"{_EXTENSION}.load": 0, f"{_EXTENSION}.load_inline": 0, f"{_EXTENSION}.CUDAExtension": 0,
    "cupy.RawKernel": 1,
}  # fmt: skip
_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
_HEADERS = (".h", ".hpp", ".cuh")
_MOST_BYTES = 2**20
_MOST_FILES = 200
_BOUND = re.compile(r"""\.def\(\s*"(\w+)"\s*,\s*&?(?:\w+::)*(\w+)""")
_WORDS = r"(?:[\w:<>&*]+\s+)+[&*]*"


@dataclass(frozen=True)
class _Text:
    path: Path
    line: int  # of its beginning
    text: str


@dataclass(frozen=True)
class _KernelModule:
    """What one call compiles: a module with functions, or one kernel."""

    call: ast.Call
    name: str
    texts: Sequence[_Text]
    is_kernel: bool


def native_kernels(
    project: ProjectFacts, facts: FileFacts, search: Search
) -> Iterator[tuple[Kernel, Sequence[Use]]]:
    """The functions that a file compiles, with the calls of each."""
    for module in _modules(project, facts.names):
        for name, function in _functions(module):
            found = _signature(function, module.texts)
            if found is None:
                continue
            text, line, parameters = found
            uses = [*_uses(search, module, name)]
            places = [place for use in uses if (place := place_of(use)) is not None]
            names = [_parameter(each) for each in _split(parameters)]
            signature = f"{name}({', '.join(_split(parameters))})"
            yield (
                Kernel(
                    text.path,
                    line,
                    "CUDA",
                    name,
                    signature,
                    [n for n in names if n],
                    (),
                    (),
                    places,
                ),
                uses,
            )


def _modules(project: ProjectFacts, names: Names) -> Iterator[_KernelModule]:
    for call in names.all(ast.Call):
        made = _made_by(names, call.func)
        if made is None:
            continue
        name = argument(call, _COMPILED[made], "name")
        is_kernel = made == "cupy.RawKernel"
        known = name.value if isinstance(name, ast.Constant) else ""
        texts = [*_texts(project, names, call)]
        if isinstance(known, str) and texts:
            yield _KernelModule(call, known, texts, is_kernel)


def _made_by(names: Names, called: ast.expr) -> str | None:
    """What compiles in a call, also by another name: `extension = CUDAExtension`."""
    bound = names.lookup(called) if isinstance(called, ast.Name) else ()
    meant = [called, *(binding.value for binding in bound if binding.kind == "assign")]
    found = (names.qualified(each) or "" for each in meant if each is not None)
    return next((name for name in found if name in _COMPILED), None)


def _texts(project: ProjectFacts, names: Names, call: ast.Call) -> Iterator[_Text]:
    """The sources that a call names, or holds; all below the folder if it looks for them."""
    folder = project.path.parent
    paths: list[Path] = []
    for node in (n for part in (*call.args, *call.keywords) for n in ast.walk(part)):
        value = names.only_value(node) if isinstance(node, ast.Name) else node
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if "(" in value.value and "{" in value.value:
                yield _Text(project.path, value.lineno, value.value)
            elif value.value.endswith(_SOURCES):
                paths += [p for p in (folder / value.value,) if p.is_file()] or folder.rglob(
                    f"{Path(value.value).name.strip('*')}"
                )
    if paths or argument(call, None, "sources") is not None or len(call.args) > 1:
        below = [p for p in sorted(folder.rglob("*")) if p.suffix in (*_SOURCES, *_HEADERS)]
        wanted = [p for p in below if p.suffix in _HEADERS] if paths else below
        paths += wanted[:_MOST_FILES]
    for path in paths:
        if path.stat().st_size <= _MOST_BYTES:
            yield _Text(path, 1, path.read_text("utf-8", "replace"))


def _functions(module: _KernelModule) -> Iterator[tuple[str, str]]:
    """The names of what is called from Python, and what they are called in C++."""
    if module.is_kernel:
        yield module.name, module.name
        return
    found = dict(pair for text in module.texts for pair in _BOUND.findall(text.text))
    listed = argument(module.call, None, "functions")
    for node in ast.walk(listed) if listed is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.setdefault(node.value, node.value)
    yield from found.items()


def _signature(function: str, texts: Sequence[_Text]) -> tuple[_Text, int, str] | None:
    """Where a function is defined, or else declared, and its parameters."""
    pattern = re.compile(
        rf"{_WORDS}{re.escape(function)}\s*\(([^;{{}}]*?)\)\s*(?:const\s*)?([;{{])"
    )
    declared = None
    for text in texts:
        for match in pattern.finditer(_without_comments(text.text)):
            found = (text, text.line + text.text.count("\n", 0, match.start(1)), match[1])
            if match[2] == "{":
                return found
            declared = declared or found
    return declared


def _without_comments(text: str) -> str:
    """The same length, and the same lines."""
    blank = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    return blank.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _split(parameters: str) -> list[str]:
    """The parameters, by the commas that aren't inside of brackets."""
    found, depth = [""], 0
    for character in " ".join(parameters.split()):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found if each.strip()]


def _parameter(text: str) -> str:
    """The name of a parameter: `x` for `const at::Tensor& x = {}`."""
    names = re.findall(r"\w+", text.partition("=")[0].partition("[")[0])
    return names[-1] if len(names) > 1 else ""


def _uses(search: Search, module: _KernelModule, name: str) -> Iterator[Use]:
    """Where a function of a compiled module is called, or the kernel itself."""
    for path, names in search.files_with("" if module.is_kernel else name):
        for call in names.all(ast.Call):
            owner = call.func if module.is_kernel else getattr(call.func, "value", None)
            is_named = module.is_kernel or getattr(call.func, "attr", "") == name
            if is_named and isinstance(owner, ast.Name | ast.Attribute):
                if _is_module(search, path, names, owner, module):
                    yield Use(path, names, call.func)


def _is_module(
    search: Search, path: Path, names: Names, owner: ast.expr, module: _KernelModule
) -> bool:
    if isinstance(owner, ast.Name):
        if any(binding.value is module.call for binding in names.lookup(owner)):
            return True
    qualified = names.qualified(owner) or ""
    if not qualified:
        return False
    if module.name and qualified.rpartition(".")[2] == module.name.rpartition(".")[2]:
        return search.project.of(path).resolve(qualified) is None
    found = search.project.of(path).assigned(qualified)
    return found is not None and found[2] is module.call
