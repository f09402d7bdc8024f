"""A target that does not exist, made as docs/adding-a-target.md says: the tool takes it as any.

And no file names a target but those that are its own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import (
    REPOSITORY,
    changed_lines,
    committed,
    environment_with,
    installed_by,
    one_line,
    page_blocks,
    wheel_for,
    write_tree,
)

from migrator.targets import names

PAGE = REPOSITORY / "docs" / "adding-a-target.md"
PACKAGE = "tpu_migrate_fpu"
NAMED = re.compile(rf"`({PACKAGE}/\S+\.py|pyproject\.toml|train\.py|tpu-migrate train\.py [^`]+)`")


def steps() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The files and commands up to the first diff of a migration, and the others."""
    found = list(page_blocks(PAGE, NAMED))
    first = next(i for i, (name, _) in enumerate(found) if name.startswith("tpu-migrate "))
    return found[: first + 1], found[first + 1 :]


class Installed:
    """The package of the page, where installed ones are found."""

    def __init__(self, root: Path, shown: list[tuple[str, str]]) -> None:
        self.root = root
        files = dict(shown)
        own = {name: text for name, text in files.items() if name.startswith(PACKAGE)}
        packages = {**own, **installed_by(files["pyproject.toml"])}
        self.python = environment_with(root / "env", packages)
        [self.folder] = (root / "env").glob("lib/python*/site-packages")
        write_tree(root / "project", {"train.py": files["train.py"]})

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.python, *command], cwd=cwd or self.root / "project",
            env={**os.environ, "COLUMNS": "200"}, capture_output=True, check=False,
        )  # fmt: skip

    def command(self, line: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return self.run("-m", "migrator", *line.split()[1:], cwd=cwd)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The target of the page's first half: words and an environment."""
    return Installed(tmp_path_factory.mktemp("plain"), steps()[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The target of the whole page: with its host, and with a runtime."""
    return Installed(tmp_path_factory.mktemp("whole"), [*steps()[0], *steps()[1]])


@pytest.mark.parametrize(("half", "kind"), [(0, "plain"), (1, "whole")])
def test_the_page_shows_what_comes_out(
    half: int, kind: str, request: pytest.FixtureRequest
) -> None:
    target: Installed = request.getfixturevalue(kind)
    command, diff = next(b for b in steps()[half] if b[0].startswith("tpu-migrate "))
    found = target.command(command)
    assert changed_lines(found.stdout) == diff, found.stderr.decode()
    said = "fpu has no counterpart for torch.cuda.max_memory_allocated"
    assert (said in found.stderr.decode()) is (kind == "plain")


@pytest.mark.parametrize("kind", ["plain", "whole"])
def test_every_example_is_rewritten_or_reported(kind: str, request: pytest.FixtureRequest) -> None:
    target: Installed = request.getfixturevalue(kind)
    done = target.run(str(REPOSITORY / "tests/engine/every_example.py"), "fpu")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["count"]["rewritten"] > 150 and found["count"]["reported"] > 50


def test_examples_show_what_it_lacks(plain: Installed) -> None:
    done = plain.command("tpu-migrate rules --test CUD001")
    assert done.returncode == 1
    shown = done.stdout.decode()
    assert "CUD001, example 3, fpu:" in shown and "+torch.cuda.manual_seed_all(0)" in shown
    assert "on fpu, torch_xla, torchax" in shown and "example 3, torchax" not in shown


def test_the_engines_own_suite_takes_it(whole: Installed) -> None:
    """Its tests are there for each target that is known: also for this one."""
    files = ["tests/analysis/test_find_constructs.py", "tests/engine/test_single.py"]
    done = whole.run(
        "-m", "pytest", "-p", "no:cacheprovider", *files, "-k", "fpu and not apps",
        cwd=REPOSITORY,
    )  # fmt: skip
    passed = re.search(rb"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed and int(passed[1]) > 50, done.stdout.decode()


def test_what_a_project_installs(plain: Installed, tmp_path: Path) -> None:
    write_tree(tmp_path, {
        "requirements.txt": "torch>=2.0\ntorchvision\ntqdm\n",
        "config.json": '{"device": "cuda"}\n',
        "train.py": "import json\nimport torch\nx = torch.ones(2).cuda()\n",
    })  # fmt: skip
    done = plain.command(f"tpu-migrate . --target fpu -o ../{tmp_path.name}_out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    out = tmp_path.parent / f"{tmp_path.name}_out"
    assert (out / "requirements.txt").read_text() == (
        "torch==2.9.0\ntorch_fpu==1.0\ntorchvision==0.24.0\ntqdm\n"
    )
    assert (out / "config.json").read_text() == '{"device": "fpu"}\n'
    assert not (out / "tpu_runtime").exists()


def test_its_runtime_is_delivered(whole: Installed, tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": "import torch\nx = torch.ones(2).cuda()\n"})
    for _ in range(2):  # the second run finds its own
        done = whole.command("tpu-migrate . --target fpu --allow-dirty", cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
    wheels = [path.name for path in (tmp_path / "vendor").iterdir()]
    assert len(wheels) == 1 and "+fpu.h" in wheels[0]
    other = whole.command("tpu-migrate . --target torchax --allow-dirty", cwd=tmp_path)
    assert other.returncode == 0, other.stderr.decode()
    assert '.to("jax")' in (tmp_path / "train.py").read_text()
    assert [path.name for path in (tmp_path / "vendor").iterdir()] == [
        Path(wheel_for("torchax")).name
    ]


def test_doctor_and_verify_ask_it(plain: Installed, whole: Installed) -> None:
    for target in (plain, whole):
        done = target.command("tpu-migrate doctor --target fpu --format json")
        state = json.loads(done.stdout)
        assert done.returncode == 1, done.stderr.decode()
        (found,) = state["targets"]
        assert found["target"] == "fpu" and not found["ready"]
        assert "doctor --target fpu --install" in found["problems"][0]["fix"]
        assert {"torch_fpu", "torchax"} <= state["interpreters"][0]["packages"].keys()
        done = target.command(f"tpu-migrate verify train.py --target fpu --python {sys.executable}")
        assert done.returncode == 2
        assert "torch_fpu" in done.stderr.decode() and "Traceback" not in done.stderr.decode()
    done = whole.command("tpu-migrate verify train.py --target fpu --compile-for v6e-8")
    assert (
        b"--compile-for needs --target keras_jax or torch_tpu or torch_xla or torchax"
        in done.stderr
    )


def test_review_tells_it_by_its_traces(plain: Installed, tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\nx = torch.ones(2).cuda()\n"})
    (root / "a.py").write_text('import torch\nx = torch.ones(2).to("fpu")\n')
    done = plain.command("tpu-migrate review HEAD", cwd=root)
    assert done.returncode == 0 and b"for fpu" in done.stdout, done.stderr.decode()


def test_without_a_runtime_no_program_chooses(plain: Installed) -> None:
    done = plain.command("tpu-migrate train.py --target fpu --portable --check")
    one_line(done.stderr, "--portable: not supported on fpu")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("__init__.py", "TARGET = 1\n", ["there is no TARGET of that name"]),
        ("__init__.py", "import nothing_of_that_name\n", ["ModuleNotFoundError"]),
        ("runtime/tpu_runtime/__init__.py", None, ["its runtime is missing", "tpu_runtime"]),
        ("environment.py", "from migrator.targets import Environment\n"
         "ENVIRONMENT = Environment(package='torch_fpu', pins=('torch_fpu==1.0',))\n",
         ["its pins have no exact torch"]),
    ],
)  # fmt: skip
def test_a_package_that_is_no_target(
    tmp_path: Path, name: str, text: str | None, words: list[str]
) -> None:
    broken = Installed(tmp_path, [*steps()[0], *steps()[1]])
    path = broken.folder / PACKAGE / name
    path.write_text(text) if text is not None else path.unlink()
    one_line(broken.command("tpu-migrate train.py --target fpu --check").stderr, "fpu", *words)


# ---- names ---------------------------------------------------------------------------------------

# They look into libraries that are loaded in a program's own process.
INSIDE = {
    "migrator/verify/recorder/written_files.py": "which versions ran",
    "migrator/verify/recorder/operation_traces.py": "methods that do not pass by torch's functions",
    "migrator/verify/recorder/recorded_tensors.py": "tensors that have no value yet",
    "migrator/verify/warm/fork_server.py": "variables that a library reads when it is imported",
    "migrator/targets/__init__.py": "the one for which none has to be named",
}


def said(path: Path) -> Iterator[tuple[int, str]]:
    """Names and strings of a module's code: not comments, docstrings, nor what rules declare."""
    tree = ast.parse(path.read_bytes())
    left: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):
                left.add(text)
            case ast.Call(func=ast.Name(id="Rule" | "Example" | "Family")):
                left.update(ast.walk(node))
            case ast.FunctionDef(returns=ast.Name(id="Example")):  # makes examples
                left.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in left:
            continue
        for field in ("value", "id", "attr", "arg", "name", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str | bytes):
                text = value if isinstance(value, str) else value.decode("latin-1")
                yield getattr(node, "lineno", 0), text


def test_no_file_names_a_target_but_its_own() -> None:
    own = re.compile("|".join(names()))
    found = {}
    for path in [*REPOSITORY.glob("migrator/**/*.py"), *REPOSITORY.glob("rules/*.py")]:
        name = path.relative_to(REPOSITORY).as_posix()
        if re.match(rf"migrator/(?:runtime|targets/(?:{own.pattern}))/", name):
            continue
        if places := [f"{name}:{line}: {text}" for line, text in said(path) if own.search(text)]:
            found[name] = places
    others = [place for name, places in found.items() if name not in INSIDE for place in places]
    assert not others
    assert found.keys() == INSIDE.keys(), "what is not there any more goes from the list"
