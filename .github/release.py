"""Make a release, and publish it.

    uv run .github/release.py 0.1.0             # writes everything to build/release
    uv run .github/release.py 0.1.0 --publish   # and then publishes it

It makes the package, the wheels of the runtimes, the documentation, the extension for VS Code and
the notes, which are the version's part of CHANGELOG.md. Nothing is published unless all of it is
there. `--publish` tags the commit, uploads the package, makes a release on the code host with all
files, and adds the version to the documentation's site. It needs uv, npm and gh, logged in. The
runtimes' wheels have a local version (`+torchax…`), which PyPI refuses: the release has them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.targets import portable, targets
from migrator.targets.wheel import runtime_wheel

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "release"
EXTENSION = Path("editors", "vscode")
Command = tuple[list[str], Path]  # and where it runs


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("version")
    options.add_argument("--publish", action="store_true")
    asked = options.parse_args()
    if problems := [*find_problems(ROOT, asked.version, asked.publish)]:
        sys.exit("\n".join(problems))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    build(asked.version)
    files = sorted(path for path in FOLDER.iterdir() if path.is_file() and path.suffix)
    print(*(f"{path.stat().st_size:>12,} {path.name}" for path in files), sep="\n")
    for command, where in publishing(asked.version, files):
        if asked.publish:
            run(command, where)
        else:
            print("would run:", *command)


def find_problems(root: Path, version: str, publish: bool) -> Iterator[str]:
    """What keeps a version from being made, or published, a line each."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extension = json.loads((root / EXTENSION / "package.json").read_text(encoding="utf-8"))
    versions = {
        "pyproject.toml": project["version"],
        f"{EXTENSION.as_posix()}/package.json": extension["version"],
    }
    for file, found in versions.items():
        if found != version:
            yield f"{file}: the version is {found}, not {version}"
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not notes(changes, version):
        yield f"CHANGELOG.md: nothing under `## {version}`"
    elif publish and f"## {version} (not released)" in changes:
        yield f"CHANGELOG.md: put the date in place of `## {version} (not released)`"
    if publish and _git(root, "status", "--porcelain"):
        yield "there are changes that are not committed"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"v{version} is a tag already"


def notes(changes: str, version: str) -> str:
    """A version's part of the changelog."""
    head = rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)"
    found = re.search(head, changes, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def build(version: str) -> None:
    """Write all files of a release."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (FOLDER / "notes.md").write_text(notes(changes, version) + "\n", encoding="utf-8")
    run(["uv", "build", "--quiet", "--out-dir", str(FOLDER)], ROOT)
    with_runtime = [target for target in targets().values() if target.runtime is not None]
    for target in [*with_runtime, *map(portable, with_runtime)]:
        wheel = runtime_wheel(target)
        (FOLDER / wheel.file_name).write_bytes(wheel.content)
    site = FOLDER / "site"
    run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)], ROOT)
    shutil.make_archive(str(FOLDER / f"documentation-{version}"), "zip", site)
    run(["npm", "ci", "--silent"], ROOT / EXTENSION)
    run(["npm", "run", "--silent", "package"], ROOT / EXTENSION)
    shutil.move(ROOT / EXTENSION / f"tpu-migrate-{version}.vsix", FOLDER)


def publishing(version: str, files: Sequence[Path]) -> Iterator[Command]:
    """The commands that publish a release, in their order: what can be taken back comes first."""
    package = [str(path) for path in files if path.name.startswith("tpu_migrate-")]
    attached = [str(path) for path in files if path.name != "notes.md"]
    (vsix,) = (str(path) for path in files if path.suffix == ".vsix")
    tag = f"v{version}"
    said = ["--title", f"tpu-migrate {version}", "--notes-file", str(FOLDER / "notes.md")]
    yield ["git", "tag", "--annotate", tag, "--message", f"tpu-migrate {version}"], ROOT
    yield ["git", "push", "origin", tag], ROOT
    yield ["gh", "release", "create", tag, *said, *attached], ROOT
    mike = ["uv", "run", "--with", "mike", "mike", "deploy", "--push", "--update-aliases"]
    yield [*mike, version, "latest"], ROOT
    yield ["npx", "vsce", "publish", "--packagePath", vsix], ROOT / EXTENSION
    yield ["uv", "publish", *package], ROOT


def run(command: list[str], where: Path) -> None:
    """Run a command; leave if it fails."""
    try:
        code = subprocess.run(command, cwd=where, check=False).returncode
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed")
    if code:
        sys.exit(f"{' '.join(command)}: exit code {code}; nothing after it was done")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
