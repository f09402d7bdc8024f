"""What a target's environment needs: the extras of this distribution, stated once in its metadata.

A checkout's pyproject.toml is read where there is one, since the metadata of an editable
installation can be older; else the metadata of the installed distribution.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from migrator.config import UsageError

DISTRIBUTION = "tpu-migrate"
TARGETS = ("torchax", "torch_xla")
OLDEST, NEWEST = (3, 11), (3, 13)  # Pythons that torch_xla 2.9 has wheels for

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
CUDA_WHEELS = re.compile(r"pytorch\.org.*(?:cu\d{2,3}|torch_stable\.html)/?$")  # an index of them

# Where the import name is not the distribution's name.
_IMPORT_NAMES = {"opencv-python-headless": "cv2", "pillow": "PIL"}
_EXTRA = re.compile(r"""(?:\s+and\s+)?\bextra\s*==\s*(['"])(?P<name>[^'"]+)\1(?:\s+and\s+)?""")


@dataclass(frozen=True)
class Requirement:
    """One line of the pinned set, e.g. ``libtpu==0.0.52; sys_platform == 'linux'``."""

    text: str

    @property
    def name(self) -> str:
        match = re.match(r"[A-Za-z0-9._-]+", self.text)
        if match is None:
            raise UsageError(f"unreadable requirement in the metadata: {self.text!r}")
        return match.group()

    @property
    def module(self) -> str:
        return _IMPORT_NAMES.get(self.name.lower(), self.name.replace("-", "_"))

    @property
    def exact(self) -> str | None:
        """The version after ``==``, or None where a range is given."""
        match = re.search(r"==\s*([^\s,;]+)", self.text.partition(";")[0])
        return match.group(1) if match else None

    @property
    def conditional(self) -> bool:
        """Whether a marker limits it to some machines."""
        return ";" in self.text


def pinned(target: str) -> list[Requirement]:
    """The requirements of ``target``'s extra, in the order of the metadata.

    Raises UsageError where the target is unknown or no metadata can be found.
    """
    if target not in TARGETS:
        raise UsageError(f"unknown target {target!r}: one of {', '.join(TARGETS)}")
    lines = _from_checkout(target) or _from_metadata(target)
    if not lines:
        raise UsageError(
            f"the metadata of {DISTRIBUTION} has no extra {target!r}: reinstall {DISTRIBUTION}"
        )
    return [Requirement(line) for line in lines]


def tested(target: str) -> dict[str, str]:
    """The packages whose versions were tested together for ``target``, by their names.

    And torchaudio, which is released with torch under the same number.
    """
    versions: dict[str, str] = {
        normal(each.name): each.text.partition(";")[0].strip()
        for each in pinned(target)
        if each.exact
    }
    return {**versions, "torchaudio": versions["torch"].replace("torch", "torchaudio", 1)}


def companions(target: str, named: Iterable[str | None]) -> list[str]:
    """What has to be installed beside torch, less what is ``named`` already."""
    left_out = {"torch", "torchvision", "torchaudio", *named}
    return [text for name, text in tested(target).items() if name not in left_out]


def normal(name: str) -> str:
    """A package's name in its normal form."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def name_of(text: str) -> str | None:
    """The package that a requirement names, in its normal form; None for paths, URLs and others."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return normal(Requirement(text.strip()).name)
    except InvalidRequirement:
        return None


def is_of_older_xla(text: str) -> bool:
    """Whether a requirement is what torch_xla was installed from before it was on PyPI."""
    return name_of(text) == "cloud-tpu-client" or "/tpu-pytorch/wheels/" in text


def _from_checkout(target: str) -> list[str]:
    import tomllib

    try:
        project = tomllib.loads(
            (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        )["project"]
        if project["name"] == DISTRIBUTION:
            return list(project["optional-dependencies"][target])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        pass
    return []


def _from_metadata(target: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    return [line for text in declared if (line := without_extra(text, target)) is not None]


def without_extra(text: str, target: str) -> str | None:
    """``text`` less its marker ``extra == target``; None if it is not of that extra.

    >>> without_extra("a==1; (os_name == 'nt') and extra == 'torch-xla'", "torch_xla")
    "a==1; (os_name == 'nt')"
    """
    match = _EXTRA.search(text)
    if match is None or match["name"].replace("-", "_") != target:
        return None
    return (text[: match.start()] + text[match.end() :]).strip().rstrip(";").strip()
