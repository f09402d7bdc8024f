"""A file's kind, by its name alone. The other modules here read each kind."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.formats.embedded_text import COMMAND, CONSTRAINT, REQUIREMENT, SETTING

NOTEBOOK = ".ipynb"
KAGGLE = "kernel-metadata.json"  # chooses the machine for a Kaggle notebook
TOML = ("pyproject.toml", "Pipfile", "pixi.toml")
INI = ("setup.cfg", "tox.ini")
_SHELL = re.compile(
    r".*\.(?:sh|bash|slurm|sbatch|mk)|Dockerfile.*|.*\.[Dd]ockerfile|(?:GNUm|[Mm])akefile"
)
_CONFIGURATION = re.compile(
    r"(?:^|[_.-])(?:conf\w*|cfgs?|settings?|options?|params?|args|hparams?|experiments?)(?:$|[_.-])",
    re.I,
)
_REQUIREMENTS = re.compile(
    r"(?:[\w.-]*[-_.])?(?:requirements|constraints|reqs?)(?:[-_.\d][\w.-]*)?\.(?:txt|in)"
    r"|requirements[\w.-]*\.(?:txt|in)",
    re.IGNORECASE,
)


def is_notebook(path: Path) -> bool:
    return path.suffix == NOTEBOOK


def is_module(path: Path) -> bool:
    """Whether a file is plain Python."""
    return not is_notebook(path) and line_kind(path) is None


def line_kind(path: Path) -> str | None:
    """The kind of a line, in a file whose lines are independent; None for other files."""
    if _SHELL.fullmatch(path.name):
        return COMMAND
    if path.name in (*TOML, *INI):
        return REQUIREMENT
    if path.suffix in (".yaml", ".yml", ".json") or _is_toml_of_program(path):
        return SETTING
    beside = path.parent.name == "requirements" and path.suffix in (".txt", ".in")
    if beside or _REQUIREMENTS.fullmatch(path.name):
        return CONSTRAINT if "constraints" in path.name.lower() else REQUIREMENT
    return None


def _is_toml_of_program(path: Path) -> bool:
    """Not Rust's, whose features have such names."""
    return path.suffix == ".toml" and path.name != "Cargo.toml"


def lists_packages(path: Path) -> bool:
    """Whether packages are installed from such a file."""
    environment = path.suffix in (".yml", ".yaml") and path.stem.startswith("env")
    return path.name == "setup.py" or environment or line_kind(path) == REQUIREMENT


def is_data(path: Path) -> bool:
    """Most JSON files are data, and there may be many: only the name tells a configuration."""
    return (
        path.suffix == ".json"
        and path.name != KAGGLE
        and not any(map(_CONFIGURATION.search, (path.stem, path.parent.name)))
    )
