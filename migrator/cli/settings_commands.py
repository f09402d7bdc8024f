"""Settings: those in force, the files that they leave, and a first configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from migrator.config import OWN, SHARED, TABLE, Config, load, settings
from migrator.errors import UsageError
from migrator.files import staging
from migrator.targets.target_argument import TargetName

_HOOKS = ".pre-commit-config.yaml"
_HOOK = """\
  - repo: local
    hooks:
      - id: tpu-migrate
        name: tpu-migrate
        entry: tpu-migrate --hook
        language: system
        types_or: [python, jupyter]
        require_serial: true
"""


def show_settings(config: Config) -> str:
    """All settings as TOML, as a configuration file would have them."""
    lines = list(_settings(config))
    source = f"# from {config.source}" if config.source else "# no configuration file"
    return "\n".join((source, *lines))


def _settings(config: Config) -> Iterator[str]:
    default = Config()
    for field in settings():
        value = getattr(config, field.name)
        same = "  # default" if value == getattr(default, field.name) else ""
        key = "target" if field.name == "targets" else field.name.replace("_", "-")
        if field.name in ("replace", "per_file_ignores"):
            pairs = ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value)
            yield f"{key} = {{ {pairs} }}{same}" if pairs else f"{key} = {{}}{same}"
        elif value is None or (field.name == "jobs" and not value):
            yield f"# {key} is not set{same}"
        else:
            yield f"{key} = {_toml(value)}{same}"


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def show_files(paths: tuple[str, ...], config: Config) -> str:
    """The files that a run looks at, a line each. Raises UsageError for paths that don't exist."""
    from migrator.files.discover import discover
    from migrator.runs.run import existing

    found = discover(existing(paths), config.excluded, None)
    return "\n".join(map(str, found.files))


@click.command("init", short_help="Write a first configuration, and a hook.")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--target", type=TargetName(), required=True, help="What the code is to run on.")
@click.option("--hook", is_flag=True, help="Write a hook for pre-commit, too.")
def init_command(folder: str, target: str, hook: bool) -> None:
    """Put the target into FOLDER's pyproject.toml, or into a tpu-migrate.toml."""
    top = Path(folder)
    if not top.is_dir():
        raise UsageError(f"{folder}: no such folder")
    known = load(top)
    if known.source is not None and known.source.parent.samefile(top):
        raise UsageError(f"{known.source}: has settings already; change them there")
    file = top / SHARED if (top / SHARED).is_file() else top / OWN
    text = file.read_bytes() if file.exists() else b""
    table = f"{TABLE}\n" if file.name == SHARED else ""
    gap = b"\n" if text.endswith(b"\n") else b"\n\n" if text else b""
    _write(file, text + gap + f"{table}target = {json.dumps(target)}\n".encode())
    if hook and (top / _HOOKS).exists():
        click.echo(f"{top / _HOOKS} exists; put this under its repos:\n{_HOOK}", nl=False)
    elif hook:
        _write(top / _HOOKS, f"repos:\n{_HOOK}".encode())
    click.echo(f"look first: tpu-migrate {folder} --diff")


def _write(file: Path, content: bytes) -> None:
    staging.write(file, content)
    click.echo(f"wrote {file}")
