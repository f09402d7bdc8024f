"""How the code is built: who imports whom, who knows rules by codes, how long things are."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from helpers import REPOSITORY, git

from migrator.targets import find_target, portable
from migrator.targets.wheel import runtime_wheel

LONGEST_FILE = 400  # lines
LONGEST_FUNCTION = 60
PAGE = (".js", ".css", ".j2")  # of the HTML report
ROOMS = (
    "benchmarks", "docs", "editors", "golden", "migrator", "reference_apps", "rules", "skills",
    "tests",
)  # fmt: skip
TOP_LEVEL = {
    *ROOMS, ".ci", ".gitattributes", ".github", ".gitignore", ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "LICENSE", "README.md", "SECURITY.md", "action.yml", "mkdocs.yml", "pyproject.toml", "uv.lock",
}  # fmt: skip


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_nothing_lies_beside_the_rooms() -> None:
    """What a run by hand has left there is committed easily."""
    files = git(REPOSITORY, "ls-files").splitlines()
    assert {file.partition("/")[0] for file in files} == TOP_LEVEL


# ---- imports -------------------------------------------------------------------------------------


@cache
def modules() -> dict[str, Path]:
    """The modules of the tool by their names; programs that run elsewhere are none of it."""
    found: dict[str, Path] = {}
    for path in sources("migrator", "rules"):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        if "tpu_runtime" in parts or "recorder" in parts:
            continue
        parts = ("migrator", *parts) if parts[0] == "rules" else parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, path: Path) -> Iterator[str]:
    """The modules that one imports, also late, in a function; not those for types alone."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    queue: list[ast.AST] = [parsed(path)]
    while queue:
        node = queue.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                queue += node.orelse
                continue
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = package.split(".")[: len(package.split(".")) + 1 - node.level]
                origin = [*(base if node.level else ()), *((node.module or "").split("."))]
                source = ".".join(filter(None, origin))
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    yield inner if inner in modules() else source
        queue += ast.iter_child_nodes(node)


def test_what_one_file_means_is_known_without_its_project() -> None:
    """`analysis/project` builds on these rooms; they say what they ask of it, as protocols."""
    asking = ("syntax", "values", "ranks", "devices")
    for module, path in modules().items():
        room = module.removeprefix("migrator.analysis.").partition(".")[0]
        if room in asking:
            assert "analysis.project" not in path.read_text("utf-8"), name(path)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """What is left where modules go, again and again, that import none of the others."""
    left = {module: set(imported) for module, imported in graph.items()}
    for forwards in (True, False):
        while True:
            imported = set().union(*left.values())
            ends = {m for m in left if (not left[m] if forwards else m not in imported)}
            if not ends:
                break
            left = {m: others - ends for m, others in left.items() if m not in ends}
    return [{module, *others} for module, others in sorted(left.items())]


def test_no_modules_import_each_other() -> None:
    known = modules()
    graph = {
        module: {other for other in imports(module, path) if other in known} - {module}
        for module, path in known.items()
    }
    assert sum(map(len, graph.values())) > 300  # what is looked at
    assert circles(graph) == []


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}, {"b", "c"}]


# ---- rules ---------------------------------------------------------------------------------------


def test_only_rules_have_the_codes_of_rules() -> None:
    """The engine asks a rule what it is; its code is what users call it by."""
    found = set()
    for path in sources("migrator"):
        if "tpu_runtime" in path.parts or "recorder" in path.parts:
            continue
        if path.name == "codes.py" or "rules" in path.relative_to(REPOSITORY).parts:
            continue
        texts = (n.value for n in ast.walk(parsed(path)) if isinstance(n, ast.Constant))
        if any(isinstance(t, str) and re.fullmatch(r"[A-Z]{3}\d{3}", t) for t in texts):
            found.add(name(path))
    assert found == set()


# ---- length --------------------------------------------------------------------------------------


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    page = (path for path in (REPOSITORY / "migrator").rglob("*.*") if path.suffix in PAGE)
    for path in (*sources(*ROOMS), *page):
        lines = len(path.read_text("utf-8").splitlines())
        assert lines <= LONGEST_FILE, f"{name(path)}: {lines} lines"


def test_no_function_is_too_long_to_be_read_at_once() -> None:
    for path in sources(*ROOMS):
        for function, lines in functions(path):
            assert lines <= LONGEST_FUNCTION, f"{name(path)}: {function} has {lines} lines"


@pytest.mark.parametrize("text", ["def f():\n" + "    pass\n" * 60])
def test_a_long_function_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    assert list(functions(tmp_path / "a.py")) == [("f", 61)]


def test_what_runtimes_share_is_there_once() -> None:
    """And some runtime has it. No link: Windows clones have none."""
    runtimes = REPOSITORY / "migrator" / "runtime"
    listed = [path.read_text().split() for path in runtimes.glob("*/shared.txt")]
    folder = runtimes / "shared"
    shared = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    assert shared == {name for names in listed for name in names}
    assert all(names == sorted({*names}) for names in listed)
    for listing in runtimes.glob("*/shared.txt"):
        own = listing.parent / "tpu_runtime"
        assert not [name for name in listing.read_text().split() if (own / name).exists()]
    assert not [path for path in REPOSITORY.joinpath("migrator").rglob("*") if path.is_symlink()]
    assert (runtimes / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


@pytest.mark.parametrize("runtime", ["torchax", "torch_xla", "torch_tpu", "portable"])
def test_a_runtime_has_all_modules_that_its_modules_import(runtime: str) -> None:
    target = find_target("torchax" if runtime == "portable" else runtime)
    modules = runtime_wheel(portable(target) if runtime == "portable" else target).modules
    for name, content in modules.items():
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.ImportFrom) and node.level:
                origin = [*name.split("/")[: -node.level], *(node.module or "").split(".")]
                package = "/".join(filter(None, origin))
                asked = [package]
                if f"{package}.py" not in modules:  # then of a package, whose modules are asked for
                    asked = [f"{package}/{each.name}".lstrip("/") for each in node.names]
                for path in asked:
                    found = {f"{path}.py", f"{path}/__init__.py"} & modules.keys()
                    assert found, f"{name} imports {path}"


def test_every_package_is_in_the_wheel() -> None:
    """A folder that is not listed is only missed by those who install the wheel."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    listed = {*project["tool"]["setuptools"]["packages"], "migrator.rules"}
    packages = {
        ".".join(path.parent.relative_to(REPOSITORY).parts)
        for path in (REPOSITORY / "migrator").rglob("__init__.py")
        if "runtime" not in path.relative_to(REPOSITORY).parts
    }
    assert packages <= listed
