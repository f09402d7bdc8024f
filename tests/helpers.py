"""What the tests of the engine and of the command line share."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import site
import subprocess
import sys
import tokenize
import tomllib
import traceback
import venv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from markdown_it import MarkdownIt

from migrator import start
from migrator.config import Config
from migrator.diagnostics import Diagnostic, Outcome, Severity
from migrator.formats.python_source import decode
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.targets import RUNTIME, targets
from migrator.targets import portable as portable_of
from migrator.targets.wheel import STEM, runtime_wheel

REPOSITORY = Path(__file__).resolve().parents[1]
# Of those with torch's own words, which say other things, see tests/rules/test_torch_tpu.py.
TARGETS = tuple(
    name for name, target in targets().items()
    if target.framework == "torch" and not target.portable
)  # fmt: skip
# Installs a package with rules: its files, and the module that its entry point names.
Install = Callable[[Mapping[str, str], str], None]
COPY = Config(runtime="copy")  # programs run where nothing is installed
DEVICE = {name: target.api.device for name, target in targets().items()}


# ---- the engine ----------------------------------------------------------------------------------


def run(
    source: str | bytes, target: str = "torchax", path: str = "module.py", **options: Any
) -> Result:
    """Migrate a snippet, as a library module unless `entry` says otherwise."""
    data = source.encode() if isinstance(source, str) else source
    options = {"entry": False, **options}
    return migrate_file(Path(path), data, targets()[target], Options(**options))


def migrated(source: str, target: str = "torchax", **options: Any) -> str:
    """The text that a snippet becomes; it has to parse, and a second run must not change it."""
    result = run(source, target, **options)
    assert_sound(result, target, **options)
    return result.source.decode()


def outcomes(result: Result) -> list[tuple[str, str, str]]:
    """(code, outcome, construct) of every construct, in order."""
    return [(d.code, str(d.outcome), d.construct) for d in constructs(result)]


def constructs(result: Result) -> list[Diagnostic]:
    return [d for d in result.diagnostics if d.outcome is not None]


def reported(result: Result) -> list[str]:
    """The source text of what was left to change by hand."""
    return [d.construct for d in result.diagnostics if d.outcome is Outcome.REPORTED]


def reported_codes(result: Result) -> set[str]:
    return {d.code for d in result.diagnostics if d.outcome is Outcome.REPORTED}


def errors(result: Result) -> list[Diagnostic]:
    return [d for d in result.diagnostics if d.severity is Severity.ERROR]


def assert_sound(result: Result, target: str, **options: Any) -> None:
    """What holds for every result: it parses, nothing failed, and a second run changes nothing."""
    assert not errors(result), errors(result)
    ast.parse(result.source)
    again = run(result.source, target, **options)
    assert not errors(again), errors(again)
    assert again.source.decode("latin-1") == result.source.decode("latin-1")


def comments(source: bytes) -> Counter[str]:
    """Every comment of a file, with how often it occurs."""
    text = decode(source).text
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(t.string.strip() for t in tokens if t.type == tokenize.COMMENT)


# ---- projects and the command line ---------------------------------------------------------------


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `root`, by relative path."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def wheel_for(name: str, portable: bool = False) -> str:
    """Where the wheel of a target's runtime lies in a project."""
    target = portable_of(targets()[name]) if portable else targets()[name]
    return f"vendor/{runtime_wheel(target).file_name}"


def read_tree(root: Path, runtime: bool = False) -> dict[str, bytes]:
    """The files below `root`, without version control and (by default) without the runtime."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not {".git", "__pycache__"} & set(path.parts)
        and (runtime or RUNTIME not in path.relative_to(root).parts)
        and (runtime or not path.name.startswith(STEM))
    }


def git(root: Path, *arguments: str, stdin: bytes | None = None) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false")
    run = subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, input=stdin, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode(errors="surrogateescape")


def committed(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A git repository that holds `files`."""
    write_tree(root, files)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    return root


def cli(
    *arguments: str | os.PathLike[str],
    cwd: Path,
    stdin: bytes | None = None,
    encoding: str = "utf-8",
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with its output in pipes, in this process (a new one costs half a second)."""
    argv = ["tpu-migrate", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin or b""))),
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, COLUMNS="200"),
    ):
        code = _exit_code_of_main()
    return subprocess.CompletedProcess(argv, code, _written(out), _written(err))


def _exit_code_of_main() -> int:
    try:
        start.run()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.seek(0)
    return bytes(stream.buffer.read())


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which `tpu-migrate` is the command."""
    line = command.replace("tpu-migrate", f"'{sys.executable}' -m migrator")
    return subprocess.run(["sh", "-c", line], cwd=cwd, capture_output=True, check=False)


def one_line(stderr: bytes, *words: str) -> str:
    """Standard error, which has to be one line that holds all of `words`."""
    lines = stderr.decode().splitlines()
    assert len(lines) == 1, lines
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in {lines[0]!r}"
    return lines[0]


def codes(diagnostics: Sequence[Diagnostic]) -> list[str]:
    return [d.code for d in diagnostics]


# ---- pages that are followed to the letter -------------------------------------------------------


def page_blocks(page: Path, named: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """What a page shows, each with the file or command that the text in front of it names."""
    before = ""
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "inline":
            before = token.content
        elif token.type == "fence":
            yield named.findall(before)[-1], token.content


def installed_by(project: str) -> dict[str, str]:
    """The files by which a package of a pyproject.toml is known as installed."""
    about = tomllib.loads(project)["project"]
    lines = []
    for group, points in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    meta = f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    return {
        f"{meta}/METADATA": f"Name: {about['name']}\nVersion: {about['version']}\n",
        f"{meta}/entry_points.txt": "\n".join(lines),
    }


def have_installed(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder be one into which packages are installed for this interpreter."""
    known = site.getsitepackages()
    patch.setattr(site, "getsitepackages", lambda: [*known, str(folder)])
    patch.syspath_prepend(folder)


def environment_with(root: Path, packages: Mapping[str, str]) -> Path:
    """The interpreter of a new environment, with some packages and all that is installed here."""
    venv.create(root, symlinks=True)
    python = root / "bin" / "python"
    asked = [python, "-c", "import site; print(site.getsitepackages()[0])"]
    folder = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    here = [f"import site; site.addsitedir({each!r})\n" for each in site.getsitepackages()]
    write_tree(folder, {**packages, "here.pth": "".join([*here, f"{REPOSITORY / 'tests'}\n"])})
    return python


def changed_lines(diff: bytes) -> str:
    """A diff without its headers, up to that of the runtime."""
    text = diff.decode().partition("diff --git")[0]
    kept = [x for x in text.splitlines(keepends=True) if not x.startswith(("---", "+++", "@@"))]
    return "".join(kept)
