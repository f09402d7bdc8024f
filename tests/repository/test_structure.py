"""How the code is built: who imports whom, who knows rules by codes, how long things are."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import REPOSITORY, git
from rule_imports import mended, past_the_api, rule_files
from structure import (
    circles,
    context_members,
    imports,
    layers,
    modules,
    packages,
    parsed,
    shared_classes,
    shared_modules,
    upward,
)

from migrator.rule import Rule
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


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_nothing_lies_beside_the_rooms() -> None:
    """What a run by hand has left there is committed easily."""
    files = git(REPOSITORY, "ls-files").splitlines()
    assert {file.partition("/")[0] for file in files} == TOP_LEVEL


# ---- imports -------------------------------------------------------------------------------------


def test_what_one_file_means_is_known_without_its_project() -> None:
    """`analysis/project` builds on these rooms; they say what they ask of it, as protocols."""
    asking = ("syntax", "values", "ranks", "devices")
    for module, path in modules().items():
        room = module.removeprefix("migrator.analysis.").partition(".")[0]
        if room in asking:
            assert "analysis.project" not in path.read_text("utf-8"), name(path)


def test_no_modules_import_each_other() -> None:
    graph = {module: imports(module, types=False) for module in modules()}
    assert sum(map(len, graph.values())) > 1000  # what is looked at
    assert circles(graph) == []


def test_the_structure_gets_no_worse() -> None:
    """`python tests/repository/structure.py --list` names what counts."""
    assert upward(packages()[0]) == set()
    assert len(context_members()) <= 15
    # by role: a target's environment, a runtime's collectives
    assert len(shared_modules()) <= 30
    assert len(shared_classes()) <= 14
    assert circles({module: imports(module) for module in modules()}) == []


@pytest.mark.parametrize(
    ("graph", "against", "height"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, 0, 3),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 1, 3),
        ({"a": {"b", "c"}, "b": {"c"}, "c": {"b", "d"}, "d": {"b"}}, 1, 4),
    ],
)
def test_an_upward_dependency_is_seen(
    graph: dict[str, set[str]], against: int, height: int
) -> None:
    assert len(upward(graph)) == against
    assert layers(graph) == height


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]


# ---- rules ---------------------------------------------------------------------------------------


def test_rules_import_from_their_api_alone() -> None:
    """`python tests/repository/rule_imports.py` mends this."""
    files = rule_files()
    assert len(files) > 80
    assert {name(path) for path in files if any(past_the_api(path))} == set()


def test_rules_import_rules_alone_from_each_other() -> None:
    """A rule may have handlers in several files; what several rules use is in their API."""
    found = set()
    for path in (REPOSITORY / "rules").glob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level:
                module = importlib.import_module(f"migrator.rules.{node.module}")
                found |= {getattr(module, alias.name) for alias in node.names}
    assert found and all(isinstance(each, Rule) for each in found), found


def test_an_import_past_the_api_is_seen_and_mended(tmp_path: Path) -> None:
    rule = tmp_path / "a.py"
    rule.write_text(
        "import ast\n"
        "import migrator.rule\n"
        "from migrator.targets.wheel import NAME as WHEEL\n"
        "from migrator.rule_api import Rule\n"
        "from migrator.rule_api.python import values\n"
    )
    assert [node.lineno for node in past_the_api(rule)] == [2, 3]
    rule.write_text("def f():\n    from migrator.targets.wheel import NAME as WHEEL\n")
    assert mended(rule) == (
        "def f():\n    from migrator.rule_api import RUNTIME_PACKAGE as WHEEL\n"
    )


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
