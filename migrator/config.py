"""Configuration: tpu-migrate.toml, or `[tool.tpu-migrate]` of pyproject.toml. The command line goes
before it."""

from __future__ import annotations

import keyword
import os
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from migrator.codes import current, suggested_codes
from migrator.errors import UsageError
from migrator.files import witness
from migrator.files.reading import read_file
from migrator.files.user_folders import resolved
from migrator.options import Options

_MOST = 2**22  # bytes of a configuration
OWN, SHARED = "tpu-migrate.toml", "pyproject.toml"  # the first one goes before the other
TABLE = "[tool.tpu-migrate]"


@dataclass(frozen=True)
class Config:
    """Everything that can be configured, with its default."""

    targets: tuple[str, ...] = ()  # at most one for each framework; `target` in a file
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # by patterns of paths
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()
    unsafe: bool = False
    precision: str | None = None
    runtime: str = "wheel"
    portable: bool = False
    shard: str = "replicated"
    num_cores: str = "all"
    python: str | None = None  # the environment that programs will run in; None: the target's pins
    replace: tuple[tuple[str, str], ...] = ()
    todo_comments: bool = False
    jobs: int = 0  # 0: as many as it is worth
    folder: Path | None = None  # that of the file that says all this
    source: Path | None = field(default=None, compare=False)  # that file

    def with_overrides(self, **values: Any) -> Config:
        """The same with every value that is given (not None, not empty, a flag that is set)."""
        given = {k: v for k, v in values.items() if v not in (None, False, (), [])}
        if "target" in given:
            given["targets"] = _listed(given.pop("target"))
        if more := given.get("extend_exclude"):
            given["extend_exclude"] = (*self.extend_exclude, *more)
        return replace(self, **given)

    @property
    def target(self) -> str | None:
        """The first target, for what is done for one."""
        return next(iter(self.targets), None)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Patterns of files and folders that are passed over."""
        return (*self.exclude, *self.extend_exclude)

    @property
    def home(self) -> Path:
        """The folder that it is for; the current one without a file."""
        return self.folder or Path.cwd()

    @cached_property
    def options(self) -> Options:
        """The part that decides about the output. Raises UsageError if `python` is none."""
        own = {f.name for f in fields(self)}
        same = {f.name: getattr(self, f.name) for f in fields(Options) if f.name in own}
        top = resolved(self.home).as_posix()
        in_files = tuple((f"{top}/{pattern}", codes) for pattern, codes in self.per_file_ignores)
        return Options(suppress_in=in_files, versions=self._versions(), **same)

    def _versions(self) -> tuple[tuple[str, str], ...]:
        if self.python is None:
            return ()
        from migrator.analysis.installed_versions import read_versions  # slow to import

        return (*sorted(read_versions(self.home / self.python).items()),)


def settings() -> list[Field[Any]]:
    """What a configuration file may have; `targets` is `target` there."""
    return [field for field in fields(Config) if field.name not in ("folder", "source")]


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


_CHOICES = {
    "precision": ("high", "default"),
    "runtime": ("wheel", "package", "copy"),
    "shard": ("replicated", "fsdp", "tp", "tp-row"),
    "num_cores": ("1", "all"),
}
_RENAMED = {"bundled": "copy", "whole": "copy", "installed": "package"}  # values of `runtime`


def load(start: Path) -> Config:
    """The configuration of the nearest folder that has one: a tpu-migrate.toml, or a pyproject.toml
    with a [tool.tpu-migrate] table.

    Raises:
        UsageError: a file that is not TOML, an unknown key, a value of the wrong type.
    """
    folder = start if witness.isdir(start) else start.parent
    for candidate in (folder, *resolved(folder).parents):
        for file in (candidate / OWN, candidate / SHARED):
            if witness.isfile(file) and (table := _table(file)) is not None:
                return replace(_checked(table, file), folder=candidate, source=file)
        if witness.exists(candidate / ".git"):
            break
    return Config()


def load_file(file: Path) -> Config:
    """The configuration that one file has, whatever is around the code. Raises as `load` does."""
    table = _table(file)
    return Config() if table is None else replace(_checked(table, file), source=file)


def common(paths: Sequence[str | os.PathLike[str]]) -> Path:
    """The one path, or the folder that all of them are in: where configuration is looked for."""
    if len(paths) == 1:
        return Path(paths[0])
    folder = os.path.commonpath([Path(p).absolute() for p in paths])
    return Path(os.path.relpath(folder))


def _table(file: Path) -> Any:
    """All of a tpu-migrate.toml; [tool.tpu-migrate] of another file, None if it has none."""
    try:
        found = tomllib.loads(read_file(file, _MOST).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{file}: too deeply nested to be read") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None
    if file.name == OWN:
        return found
    tools = found.get("tool", {})
    if not isinstance(tools, dict):
        raise UsageError(f"{file}: [tool] is not a table")
    return tools.get("tpu-migrate")


def check_codes(codes: Collection[str], where: str) -> None:
    """Raise UsageError for a code that no rule begins with."""
    if not codes:
        return
    from migrator.registry import registry

    known = registry().rules
    for code in codes:
        if not any(each.startswith(code) for each in known):
            raise UsageError(f"{where}: no rule begins with {code!r}{suggested_codes(code, known)}")


def _checked(table: Any, file: Path) -> Config:
    where = str(file) if file.name == OWN else f"{file}: {TABLE}"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    types = {f.name: f.type for f in settings() if f.name != "targets"}
    types["target"] = "str, or a list"
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in types:
            known = ", ".join(sorted(types))
            raise UsageError(f"{where} has an unknown key {key!r} (known: {known})")
        expected = str(types[name])
        if name == "target" and isinstance(value, list) and all(isinstance(v, str) for v in value):
            pass
        elif name == "replace":
            named = "[replace]" if file.name == OWN else "[tool.tpu-migrate.replace]"
            value = _replacements(value, f"{file}: {named}")
        elif name == "per_file_ignores":
            value = _ignores_by_file(value, f"{where} {key}")
        elif expected.startswith("tuple"):
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise UsageError(f"{where} {key} must be a list of strings")
            value = tuple(value)
            if name in ("select", "ignore"):
                value = current(value)
                check_codes(value, f"{where} {key}")
        elif expected == "bool" and not isinstance(value, bool):
            raise UsageError(f"{where} {key} must be true or false")
        elif expected == "int" and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{where} {key} must be a whole number")
        elif name == "jobs" and value < 1:
            raise UsageError(f"{where} {key} must be 1 or more")
        elif expected.startswith("str") and not isinstance(value, str):
            raise UsageError(f"{where} {key} must be a string")
        if name in _CHOICES and value not in _CHOICES[name]:
            now = _RENAMED.get(value) if name == "runtime" else None
            said = f"; {value!r} is {now!r} now" if now else ""
            raise UsageError(f"{where} {key} must be one of {', '.join(_CHOICES[name])}{said}")
        values[name] = value
    return Config().with_overrides(**values)


def _ignores_by_file(table: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`"tests/*" = ["CUD005"]`: what is ignored in files, by patterns of their paths."""
    if not isinstance(table, dict):
        raise UsageError(f'{where} must be a table: "tests/*" = ["CODE"]')
    for pattern, codes in table.items():
        if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
            raise UsageError(f"{where} {pattern!r} must be a list of codes")
        check_codes(codes, f"{where} {pattern!r}")
    return tuple((pattern, tuple(codes)) for pattern, codes in table.items())


def _replacements(table: Any, where: str) -> tuple[tuple[str, str], ...]:
    """`"mylib.to_gpu" = "mylib.to_device"`: full names, none of which is replaced itself."""
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    for old, new in table.items():
        if isinstance(new, dict):
            raise UsageError(f'{where}: names need quotes: "{old}.{next(iter(new), "name")}" = …')
        for name in (old, new):
            if not isinstance(name, str) or not _is_full_name(name):
                raise UsageError(f'{where} {old}: {name!r} is no full name, as "mylib.to_gpu" is')
        if new in table:
            raise UsageError(f"{where} {old}: {new} is replaced itself")
    return tuple(sorted(table.items()))


def _is_full_name(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and all(p.isidentifier() and not keyword.iskeyword(p) for p in parts)
