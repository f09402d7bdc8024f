"""What a target's environment needs: the extras of this distribution, stated once in its metadata.

A checkout's pyproject.toml is read where there is one, since the metadata of an editable
installation can be older; else the metadata of the installed distribution.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from migrator.analysis.libraries import Library, of_package
from migrator.errors import UsageError

DISTRIBUTION = "tpu-migrate"
TARGETS = ("torchax", "torch_xla")
OLDEST, NEWEST = (3, 11), (3, 13)  # Pythons that torch_xla 2.9 has wheels for
_NEWEST_WITH_TPU = {"torch_xla": (3, 12)}  # those that its libtpu has wheels for

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# An index of them, or of those for other accelerators.
CUDA_WHEELS = re.compile(r"pytorch\.org.*(?:cu\d{2,3}|rocm[\d.]+|/xpu|torch_stable\.html)/?$")
ONLY_TORCH = re.compile(r"pytorch\.org/whl(?:/cpu)?/?$")  # has nothing of jax, and little else
# What jax asks for, and the extras do not state: it says so in its own metadata.
_ASKED = {"torchax": {"scipy": "scipy>=1.14"}}

# Where the import name is not the distribution's name.
_IMPORT_NAMES = {"opencv-python-headless": "cv2", "pillow": "PIL"}
_OF_DEVICE = re.compile(r"tpu|cpu|cuda|rocm|gpu")  # extras
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


def bounds(target: str) -> dict[str, str]:
    """The versions of numpy and scipy that go with the tested ones, by their names."""
    numpy = {each.name: each.text for each in pinned(target) if each.name == "numpy"}
    return {**numpy, **_ASKED.get(target, {})}


def in_place_of(asked: str, wanted: str) -> str:
    """``wanted``, with the extras of ``asked`` beside its own, less those that choose a device.

    >>> in_place_of("torch_xla[pallas]~=2.1", "torch_xla[tpu]==2.9.0")
    'torch_xla[pallas,tpu]==2.9.0'
    """
    name, own, version = _parts(wanted)
    extras = [each for each in _parts(asked)[1] if not _OF_DEVICE.match(each)] + own
    return f"{name}[{','.join(extras)}]{version}" if extras else wanted


def constraint(wanted: str) -> str:
    """``wanted`` for a file of constraints: pip refuses extras there, and uv passes them over."""
    name, _, version = _parts(wanted)
    return f"{name}{version}"


def entry(wanted: str) -> str:
    """``wanted`` in a table of Poetry, pipenv or pixi.

    >>> entry("torch==2.9.0"), entry("torch_xla[tpu]==2.9.0")
    ('torch = "==2.9.0"', 'torch_xla = {version = "==2.9.0", extras = ["tpu"]}')
    """
    name, extras, version = _parts(wanted)
    listed = ", ".join(f'"{each}"' for each in extras)
    said = f'{{version = "{version}", extras = [{listed}]}}' if extras else f'"{version}"'
    return f"{name} = {said}"


def extras_of(text: str) -> list[str]:
    """The extras that a requirement asks for."""
    return _parts(text)[1]


def _parts(text: str) -> tuple[str, list[str], str]:
    """Name, extras, and all that stands behind them."""
    match = re.match(r"\s*([\w.-]*)\s*(?:\[([^\]]*)\])?\s*(.*)", text, re.DOTALL)
    name, extras, rest = match.groups() if match else ("", "", text)
    return name, [each.strip() for each in (extras or "").split(",") if each.strip()], rest


def alike(text: str, other: str) -> bool:
    """Whether two requirements say the same, however they are written."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text.strip()) == Requirement(other.strip())
    except InvalidRequirement:
        return text.strip() == other.strip()


def clash(target: str, name: str, others: Iterable[str | None]) -> str | None:
    """Why a package can not be beside what the target takes, where ``others`` are that."""
    versions = tested(target)
    if versions.keys().isdisjoint(others) or name in versions:
        return None
    if name in ("libtpu", "libtpu-nightly"):
        own = versions.get("libtpu") or f"the one that {versions['torch-xla']} brings"
        return f"the target takes {own}: leave it out"
    if name == "torch-xla":
        return "its wheel overwrites torchax in the same environment: leave it out"
    return None


def newest(target: str) -> tuple[int, int]:
    """The newest Python that all packages of ``target`` have wheels for, those for a TPU, too."""
    return _NEWEST_WITH_TPU.get(target, NEWEST)


def pythons(target: str) -> str:
    """The Pythons that all packages of ``target`` have wheels for."""
    last = newest(target)
    return f">={_dotted(OLDEST)},<{last[0]}.{last[1] + 1}"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def excludes(asked: str, versions: str) -> bool:
    """Whether no version is in both; False for what is no list of versions.

    >>> excludes("<2", ">=2,<3"), excludes("~=2.1", ">=2,<3"), excludes("^3.8", ">=3.11,<3.14")
    (True, False, False)
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        both = [SpecifierSet(_standard(each), prereleases=True) for each in (asked, versions)]
    except InvalidSpecifier:
        return False
    ends = {spec.version.removesuffix(".*") for each in both for spec in each}
    between = {f"{end}.0.1" for end in ends if re.fullmatch(r"[\d.]+", end)}
    return not any(all(end in each for each in both) for end in ends | between)


def _standard(asked: str) -> str:
    """Versions as pip has them: Poetry has `^3.8` and `~3.8`, others write `3.8` alone."""
    if match := re.fullmatch(r"\s*\^\s*(\d+)((?:\.\d+)*)\s*", asked):
        return f">={match[1]}{match[2]},<{int(match[1]) + 1}" if match[1] != "0" else ""
    if match := re.fullmatch(r"\s*~\s*(\d+\.\d+)((?:\.\d+)*)\s*", asked):
        return f">={match[1]}{match[2]},=={match[1]}.*"
    if match := re.fullmatch(r"\s*(\d+(?:\.\d+)*)(?:\.\*)?\s*", asked):
        return f"=={match[1]}.*"
    return "" if asked.strip() == "*" else asked


def shut_out(target: str, name: str, asked: str) -> str | None:
    """The versions of numpy or scipy that go with the target, where `asked` has none of them."""
    wanted = bounds(target).get(name, "")
    return wanted if wanted and excludes(asked, wanted.removeprefix(name)) else None


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


def asked_of(text: str) -> str:
    """The versions that a requirement asks for."""
    match = re.match(r"\s*[\w.-]+\s*(?:\[[^\]]*\])?\s*\(?([^();@]*)", text)
    return match[1] if match else ""


def library_of(text: str) -> Library | None:
    """What only exists for CUDA, by a requirement, a wheel or a repository; None for others."""
    return of_package(name_of(text) or wheel_of(text) or repository_of(text) or "")


_EGG = re.compile(r"[#&]egg=([\w.-]+)")
_REPOSITORY = re.compile(
    r"(?:git\+|\bgit@|\bgithub\.com[:/]).*?/?([\w.-]+?)/([\w.-]+?)(?:\.git)?(?:[@#]|/?$)"
)
_CALLED = {"flash-attention": "flash-attn", "mamba": "mamba-ssm", "vision": "torchvision",
           "pytorch": "torch", "audio": "torchaudio",
           "transformerengine": "transformer-engine"}  # fmt: skip


def wheel_of(text: str) -> str | None:
    """The package whose wheel a URL or a path leads to, in its normal form."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    file = unquote(re.split(r"[?#]", text.strip())[0]).replace("\\", "/").rpartition("/")[2]
    try:
        return normal(parse_wheel_filename(file)[0])
    except InvalidWheelFilename:
        return None


def repository_of(text: str) -> str | None:
    """The package that a repository builds: what the URL says, or the repository's own name."""
    if egg := _EGG.search(text):
        return normal(egg[1])
    if (match := _REPOSITORY.search(text)) is None:
        return None
    name = normal(match[2])
    if name in ("vision", "audio", "pytorch") and match[1].lower() != "pytorch":
        return None
    return _CALLED.get(name, name)


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
