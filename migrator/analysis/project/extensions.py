"""Compiled modules of a project: what its setup.py files build, what its git submodules bring, and
what is imported from a folder with native sources, but is no Python file there.

Nothing is built or run: names in sources and in folders say what there is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from migrator.analysis.project.extension_module import Built, Extension
from migrator.analysis.project.import_graph import ImportGraph
from migrator.analysis.project.readers import Reader

_DEEPEST = 4  # folders below the root in which a setup.py is looked for
_MANY = 300  # names in a folder: one with more holds data
_CUDA = re.compile(r"\.cuh?\b|CUDAExtension|cuda_ext\b")
_FOR_CUDA = (".cu", ".cuh")
_FOR_CPU = (".pyx", ".c", ".cc", ".cpp", ".cxx", ".rs")
_NATIVE = ("src", "csrc", "cpp", "cuda")  # folders of sources
_LIBRARIES = (".so", ".pyd")
_NO_CODE = ("data", "docs", "tests", "node_modules")
_PATH = re.compile(r"^\s*path\s*=\s*(\S+)", re.MULTILINE)
_EXTENSION = re.compile(r"[Ee]xtension$|_ext$")  # what makes one in a setup.py
_PLAIN = ("Extension", "CppExtension", "Pybind11Extension")
# Names that only kernels have: `selective_scan_cuda_core`; but not `retry_if_cuda_oom`, a function.
_NAMED = re.compile(r"(?:^|\.)(?!(?:check|get|has|is|no|retry|set|to|use|with)_)\w*_cuda(?:_\w+)?$")
# Names that only compiled modules have, whatever for: `pkg._C`, but not that of yacs' settings, and
# `iou3d_nms_ext`.
_ONLY_COMPILED = re.compile(
    r"^(?!.*(?:conf|cfg|defaults))(?:[\w.]+\.)?(?:_C|_ext)(?:\.\w+)*$|^\w+_ext$"
)


def extension_of(project: ImportGraph, module: str) -> Extension | None:
    """The compiled module that is imported as ``module`` in a file; None for all that is Python,
    and for what may be."""
    if module.startswith("."):
        level = len(module) - len(module.lstrip("."))
        parts = [part for part in module.lstrip(".").split(".") if part]
        return _missing(project, project.path.parents[level - 1], parts) if parts else None
    parts = module.split(".")
    homes = [base for base in project.bases() if _has_package(project.reader, base, parts[0])]
    if homes:
        found = [_missing(project, base, parts) for base in homes]
        return None if None in found else found[0]
    for each in _built_by(project):
        if module in (each.module, each.module.rpartition(".")[0]) or (
            module.startswith(f"{each.module}.")
        ):
            return each
    return _by_name(module)


def _by_name(module: str) -> Extension | None:
    if _NAMED.search(module):
        return Extension(module, Built.CUDA, "compiled, by its name")
    if _ONLY_COMPILED.match(module):
        return Extension(module, Built.UNKNOWN, "compiled, by its name")
    return None


def _has_package(reader: Reader, base: Path, name: str) -> bool:
    """Whether a folder has a module or package of Python; not what a setup.py is to install."""
    if f"{name}.py" in reader.list(base):
        return True
    inside = reader.list(base / name) if name in reader.list(base) else frozenset()
    return bool(inside) and ("__init__.py" in inside or "setup.py" not in inside)


def _missing(project: ImportGraph, folder: Path, parts: Sequence[str]) -> Extension | None:
    """What is imported from a package, if it has no such file and no such name, but is compiled."""
    reader = project.reader
    for part in parts:
        names = reader.list(folder)
        if f"{part}.py" in names or not names:
            return None
        if part not in names:
            return _compiled(project, folder, part)
        folder = folder / part
    return None


def _compiled(project: ImportGraph, folder: Path, name: str) -> Extension | None:
    reader, names = project.reader, project.reader.list(folder)
    package = folder / "__init__.py"
    if "__init__.py" in names and package != project.path:
        there = project.cache.file(package)
        if name in there.words or b"import *" in there.content:
            return None  # a name, and no module
    for each in _built_by(project):
        above, _, last = each.module.rpartition(".")
        if last == name and above.rpartition(".")[2] in ("", folder.name):
            return each
    if any(n.startswith(f"{name}.") and n.endswith(_LIBRARIES) for n in names):
        return Extension(name, Built.UNKNOWN, f"compiled, and lies in {_shown(project, folder)}")
    below = [folder / each for each in names if "." not in each] if len(names) < _MANY else []
    beside = [folder.parent / each for each in _NATIVE] if folder != project.root else []
    sources = [*names, *(each for at in (*below, *beside) for each in reader.list(at))]
    by = f"compiled from what lies in {_shown(project, folder)}"
    native = [source for source in sources if source.endswith((*_FOR_CUDA, *_FOR_CPU))]
    if not native:
        return _by_name(name)
    for_cuda = _NAMED.search(name) or any(
        source.endswith(_FOR_CUDA) or "cuda" in source for source in native
    )
    return Extension(name, Built.CUDA if for_cuda else Built.CPU, by)


def _shown(project: ImportGraph, path: Path) -> str:
    inside = path.relative_to(project.root) if path.is_relative_to(project.root) else path
    return inside.as_posix() if inside.parts else "the project's folder"


def _built_by(project: ImportGraph) -> Sequence[Extension]:
    """What the setup.py files of a project build, what is for CUDA first; and its submodules."""
    known = project.cache.extensions.get(project.root)
    if known is None:
        found = [*_built(project.root, project.reader), *_submodules(project.root, project.reader)]
        found.sort(key=lambda each: each.built is not Built.CUDA)
        known = project.cache.extensions[project.root] = found
    return known


def _folders(folder: Path, reader: Reader, depth: int = 0) -> Iterator[tuple[Path, Set[str]]]:
    """The folders of a project that may have code, with the names in each."""
    names = reader.list(folder)
    if len(names) > _MANY:
        return
    yield folder, names
    if depth < _DEEPEST:
        for name in sorted(names):
            if "." not in name and name not in _NO_CODE:
                yield from _folders(folder / name, reader, depth + 1)


def _built(root: Path, reader: Reader) -> Iterator[Extension]:
    for folder, names in _folders(root, reader):
        if "setup.py" in names:
            content = reader.read(folder / "setup.py") or b""
            by = f"compiled by {(folder / 'setup.py').relative_to(root).as_posix()}"
            for module, built in _of_setup(content.decode("utf-8", "replace")):
                yield Extension(module, built, by)


def _submodules(root: Path, reader: Reader) -> Iterator[Extension]:
    """Git submodules that are not checked out: what is in them, nobody can see."""
    if ".gitmodules" not in reader.list(root):
        return
    text = (reader.read(root / ".gitmodules") or b"").decode("utf-8", "replace")
    for path in _PATH.findall(text):
        if not reader.list(root / path):
            name = path.rstrip("/").rpartition("/")[2].replace("-", "_")
            by = f"part of the git submodule {path}, which is not checked out"
            yield Extension(name, Built.UNKNOWN, by)


def _of_setup(text: str) -> Iterator[tuple[str, Built]]:
    """The modules that a setup.py compiles, and what for."""
    if "xt" not in text:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    texts = {
        target.id: node.value.value
        for node in ast.walk(tree) if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }  # fmt: skip
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        maker = _last_name(call.func)
        keywords = {each.arg: each.value for each in call.keywords}
        if not (_EXTENSION.search(maker) or "sources" in keywords):
            continue
        name = keywords.get("name", call.args[0] if call.args else None)
        module = _text(name, texts)
        if module:
            if package := _text(keywords.get("module"), texts):
                module = f"{package}.{module}"
            yield module, _compiled_for(maker, ast.unparse(call), text)


def _compiled_for(maker: str, call: str, text: str) -> Built:
    if _CUDA.search(call):
        return Built.CUDA
    if maker in _PLAIN:
        return Built.CPU
    return Built.CUDA if _CUDA.search(text) else Built.UNKNOWN


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _text(node: ast.expr | None, texts: dict[str, str]) -> str:
    """A name in a setup.py, with names in it that are texts; "" if unknown."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return texts.get(name, "")
        case ast.JoinedStr(values=values):
            return "".join(_text(each, texts) for each in values)
        case ast.FormattedValue(value=value):
            return _text(value, texts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, texts) + _text(right, texts)
    return ""
