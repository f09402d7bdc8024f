"""What a target's environment needs: the extras of this distribution, stated once in its metadata.

A checkout's pyproject.toml is read where there is one, since the metadata of an editable
installation can be older; else the metadata of the installed distribution.
"""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from migrator.analysis.cuda_libraries import Library, of_package
from migrator.errors import UsageError
from migrator.targets import Target, all_markers

DISTRIBUTION = "tpu-migrate"

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# An index of them, or of those for other accelerators.
CUDA_WHEELS = re.compile(r"pytorch\.org.*(?:cu\d{2,3}|rocm[\d.]+|/xpu|torch_stable\.html)/?$")
ONLY_TORCH = re.compile(r"pytorch\.org/whl(?:/cpu)?/?$")  # has nothing of jax, and little else

# Where the import name is not the distribution's name.
_IMPORT_NAMES = {
    "opencv-python-headless": "cv2", "pillow": "PIL", "tensorflow-cpu": "tensorflow",
    "tensorflow-tpu": "tensorflow",
}  # fmt: skip
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


def pinned(target: Target) -> list[Requirement]:
    """The requirements of ``target``, in its own order.

    Raises UsageError where it leaves them to an extra, and no metadata can be found.
    """
    extra = target.name
    lines = target.environment.pins or _from_checkout(extra) or _from_metadata(extra)
    if not lines:
        raise UsageError(
            f"the metadata of {DISTRIBUTION} has no extra {extra!r}: reinstall {DISTRIBUTION}"
        )
    return [Requirement(line) for line in lines]


def on_tpu(target: Target) -> list[Requirement]:
    """What a machine with a TPU needs beside them, or in their place."""
    return [Requirement(line) for line in target.environment.on_tpu]


def tested(target: Target) -> dict[str, str]:
    """The packages whose versions were tested together for ``target``, by their names.

    And torchaudio, which is released with torch under the same number, and the runtime, where
    requirements have to name it.
    """
    versions: dict[str, str] = {
        normal(each.name): each.text.partition(";")[0].strip()
        for each in pinned(target)
        if each.exact
    }
    if target.delivered is not None:
        versions[target.delivered.name] = target.delivered.requirement
    return {**versions, "torchaudio": versions["torch"].replace("torch", "torchaudio", 1)}


def ranges(target: Target) -> list[str]:
    """What a library's extra asks for: torch and what goes with it, up to the next minor version.

    Pins would shut out every other library that asks for torch.
    """
    versions = tested(target)
    return [in_a_range(text) for text in (versions["torch"], *companions(target, ()))]


def in_a_range(pinned: str) -> str:
    """A version with a hash is the only one there is.

    >>> in_a_range("torch_xla[tpu]==2.9.0"), in_a_range("tpu-runtime==0.1.0+torchax.h1a2b3c4")
    ('torch_xla[tpu]~=2.9.0', 'tpu-runtime==0.1.0+torchax.h1a2b3c4')
    """
    return pinned if "+" in pinned else pinned.replace("==", "~=")


def without_driver(target: Target, versions: dict[str, str]) -> dict[str, str]:
    """The same for a machine that has no TPU."""
    driver = normal(target.environment.driver or "libtpu")
    kept = {name: text for name, text in versions.items() if name != "libtpu"}
    return {n: text.replace("[tpu]", "") if n == driver else text for n, text in kept.items()}


def companions(
    target: Target, named: Container[str | None], versions: dict[str, str] | None = None
) -> list[str]:
    """What has to be installed beside torch, less what is ``named`` already; of the tested
    ``versions``, or of some of them."""
    own = ("torch", "torchvision", "torchaudio")
    versions = tested(target) if versions is None else versions
    return [text for name, text in versions.items() if name not in own and name not in named]


def bounds(target: Target) -> dict[str, str]:
    """The versions of numpy, and of packages built for it, that go with the tested ones."""
    numpy = {each.name: each.text for each in pinned(target) if each.name == "numpy"}
    built = {name: f"{name}>={version}" for name, version in _FOR_NUMPY_2.items()}
    return {**built, **numpy, **target.environment.asked}


# The first versions that run beside NumPy 2 (https://github.com/numpy/numpy/issues/26191).
_FOR_NUMPY_2 = {
    "h5py": "3.11", "matplotlib": "3.8.4", "numba": "0.60", "opencv-python": "4.10",
    "opencv-python-headless": "4.10", "pandas": "2.2.2", "scikit-learn": "1.4.2", "scipy": "1.13",
}  # fmt: skip


def is_far_below(target: Target, name: str, asked: str) -> str | None:
    """The release of a framework that programs ran with, where another major one is pinned.

    >>> from migrator.targets import targets
    >>> is_far_below(targets()["torchax"], "transformers", "==4.37.0")
    '5.24'
    """
    pinned_version = re.fullmatch(r"\s*===?\s*(\d+)\.(\d+)[\w.*]*\s*", asked)
    ran_with = target.environment.frameworks.get(name)
    if pinned_version is None or ran_with is None:
        return None
    major, minor = int(pinned_version[1]), int(pinned_version[2])
    known_major, _, known_minor = ran_with.partition(".")
    is_older = major < int(known_major) or (major == 0 and 2 * minor < int(known_minor))
    return ran_with if is_older else None


def in_place_of(asked: str, wanted: str) -> str:
    """``wanted``, with the extras of ``asked`` beside its own, less those that choose a device.

    >>> in_place_of("torch_xla[pallas]~=2.1", "torch_xla[tpu]==2.9.0")
    'torch_xla[pallas,tpu]==2.9.0'
    """
    name, own, version = _split_requirement(wanted)
    extras = [each for each in _split_requirement(asked)[1] if not _OF_DEVICE.match(each)] + own
    return f"{name}[{','.join(extras)}]{version}" if extras else wanted


def constraint(wanted: str) -> str:
    """``wanted`` for a file of constraints: pip refuses extras there, and uv passes them over."""
    name, _, version = _split_requirement(wanted)
    return f"{name}{version}"


def entry(wanted: str) -> str:
    """``wanted`` in a table of Poetry, pipenv or pixi.

    >>> entry("torch==2.9.0"), entry("torch_xla[tpu]==2.9.0")
    ('torch = "==2.9.0"', 'torch_xla = {version = "==2.9.0", extras = ["tpu"]}')
    """
    name, extras, version = _split_requirement(wanted)
    listed = ", ".join(f'"{each}"' for each in extras)
    said = f'{{version = "{version}", extras = [{listed}]}}' if extras else f'"{version}"'
    return f"{name} = {said}"


def extras_of(text: str) -> list[str]:
    """The extras that a requirement asks for."""
    return _split_requirement(text)[1]


def _split_requirement(text: str) -> tuple[str, list[str], str]:
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


def clash(target: Target, name: str, others: Container[str | None]) -> str | None:
    """Why a package cannot be beside what the target needs, where ``others`` are that."""
    versions = tested(target)
    if name in versions or not any(each in others for each in versions):
        return None
    if name in ("libtpu", "libtpu-nightly"):
        driver = versions.get(normal(target.environment.driver or name))
        own = versions.get("libtpu") or (f"the one that {driver} brings" if driver else "none")
        return f"the target needs {own}: remove it"
    damage = target.environment.damage
    if damage is not None and name == normal(damage.by):
        overwritten = target.environment.package
        return f"its wheel overwrites {overwritten} in the same environment: remove it"
    return None


def pythons(target: Target) -> str:
    """The Pythons that all packages of ``target`` have wheels for."""
    last = target.environment.newest
    return f">={_dotted(target.environment.pythons[0])},<{last[0]}.{last[1] + 1}"


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


def shut_out(target: Target, name: str, asked: str) -> str | None:
    """The versions of a package that go with the target, where `asked` has none of them."""
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


def cloned(text: str) -> tuple[str, Library] | None:
    """The first repository in a command that only exists for CUDA, by its package."""
    names = filter(None, map(repository_of, text.split()))
    return next(((name, library) for name in names if (library := of_package(name))), None)


def older_library(text: str) -> str | None:
    """The library of a target that was installed from this before it was on PyPI."""
    name = name_of(text)
    for each in all_markers():
        if name in each.older_packages or any(part in text for part in each.older_wheels):
            return each.library
    return None


@cache
def _from_checkout(extra: str) -> Sequence[str]:
    import tomllib

    try:
        text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)  # the tools' take longest
        own = "".join(table for table in tables if table.startswith("[project"))
        project = tomllib.loads(own)["project"]
        if project["name"] == DISTRIBUTION:
            return list(project["optional-dependencies"][extra])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        pass
    return []


def _from_metadata(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    return [line for text in declared if (line := without_extra(text, extra)) is not None]


def without_extra(text: str, extra: str) -> str | None:
    """``text`` less its marker ``extra == …``; None if it is not of that extra.

    >>> without_extra("a==1; (os_name == 'nt') and extra == 'torch-xla'", "torch_xla")
    "a==1; (os_name == 'nt')"
    """
    match = _EXTRA.search(text)
    if match is None or match["name"].replace("-", "_") != extra:
        return None
    return (text[: match.start()] + text[match.end() :]).strip().rstrip(";").strip()
