"""What a project says that has to be installed: by pip, by conda, or when it is built."""

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from migrator.analysis.libraries import of_package
from migrator.analysis.mentions import without_comment
from migrator.codes import Family
from migrator.construct import Construct
from migrator.diagnostics import lines_of
from migrator.formats.lines import lists_packages
from migrator.requirements import (
    CPU_WHEELS,
    CUDA_WHEELS,
    ONLY_TORCH,
    alike,
    asked_of,
    clash,
    companions,
    constraint,
    entry,
    excludes,
    extras_of,
    in_place_of,
    name_of,
    normal,
    older_library,
    pythons,
    repository_of,
    shut_out,
    tested,
    wheel_of,
)
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

FAMILY = Family("REQ", "Requirements", 160)

REQUIREMENT = Rule(
    code="REQ001",
    name="requirement",
    summary="a package that was built for CUDA, or whose version has to fit the target",
    why="""torch and torchvision get the versions that were tested together for the target, and what
it needs stands behind them: torch_xla with its extra `tpu`, since nothing else installs libtpu, but
in constraints, which can have no extras. An index of CUDA wheels becomes PyTorch's index of CPU
wheels. Packages that only exist for CUDA or another accelerator, and those that come with torch's
CUDA wheels, are named, also by their wheels and repositories. So it is in requirements.txt and
constraints, pyproject.toml (lists of PEP 621, uv, Hatch and PDM, tables of Poetry and pixi),
Pipfile, pixi.toml, setup.py, setup.cfg, tox.ini and environment.yml; a lock file has to be made
again. Conda has no torch that fits a TPU: in environment.yml its `pytorch` moves to the list of
what pip installs, if no package of conda's needs it there. What needs the build of a project gets
torch's version alone. Bounds on Python, numpy and scipy that leave no version that was tested are
named. Requirements of projects without GPU code stay.""",
    examples=(
        Example(
            """
            numpy
            torch>=1.13
            torchvision
            xformers  # fast
            """,
            after="""
            numpy
            torch==2.9.0
            torchax==0.0.13
            jax==0.10.2
            jaxlib==0.10.2
            libtpu==0.0.52
            torchvision==0.24.0
            xformers  # fast
            """,
            except_on={
                "torch_xla": """
                numpy
                torch==2.9.0
                torch_xla[tpu]==2.9.0
                torchvision==0.24.0
                xformers  # fast
                """
            },
            path="requirements.txt",
        ),
        Example(
            """
            name: a
            channels:
              - pytorch
            dependencies:
              - python>=3.10
              - pytorch=2.1
              - pytorch-cuda=12.1
              - pip:
                - tqdm
            """,
            after="""
            name: a
            channels:
              - pytorch
            dependencies:
              - python>=3.10
              - pip:
                - torch==2.9.0
                - torchax==0.0.13
                - jax==0.10.2
                - jaxlib==0.10.2
                - libtpu==0.0.52
                - tqdm
            """,
            except_on={
                "torch_xla": """
                name: a
                channels:
                  - pytorch
                dependencies:
                  - python>=3.10
                  - pip:
                    - torch==2.9.0
                    - torch_xla[tpu]==2.9.0
                    - tqdm
                """
            },
            path="environment.yml",
        ),
        Example(
            """
            [project]
            name = "a"
            dependencies = ["torch>=2", "numpy"]
            """,
            after="""
            [project]
            name = "a"
            dependencies = ["torch==2.9.0", "torchax==0.0.13", "jax==0.10.2", \
"jaxlib==0.10.2", "libtpu==0.0.52", "numpy"]
            """,
            except_on={
                "torch_xla": """
                [project]
                name = "a"
                dependencies = ["torch==2.9.0", "torch_xla[tpu]==2.9.0", "numpy"]
                """
            },
            path="pyproject.toml",
        ),
        Example(
            """
            [tool.poetry.dependencies]
            torch = "^2.0"
            numpy = "<2"
            """,
            after="""
            [tool.poetry.dependencies]
            torch = "==2.9.0"
            torchax = "==0.0.13"
            jax = "==0.10.2"
            jaxlib = "==0.10.2"
            libtpu = "==0.0.52"
            numpy = "<2"
            """,
            except_on={
                "torch_xla": """
                [tool.poetry.dependencies]
                torch = "==2.9.0"
                torch_xla = {version = "==2.9.0", extras = ["tpu"]}
                numpy = "<2"
                """
            },
            path="pyproject.toml",
        ),
        Example(
            """
            from setuptools import setup

            setup(
                install_requires=[
                    'numpy',
                    'torch',  # any
                ],
            )
            """,
            after="""
            from setuptools import setup

            setup(
                install_requires=[
                    'numpy',
                    'torch==2.9.0',
                    'torchax==0.0.13',
                    'jax==0.10.2',
                    'jaxlib==0.10.2',
                    'libtpu==0.0.52',  # any
                ],
            )
            """,
            except_on={
                "torch_xla": """
                from setuptools import setup

                setup(
                    install_requires=[
                        'numpy',
                        'torch==2.9.0',
                        'torch_xla[tpu]==2.9.0',  # any
                    ],
                )
                """
            },
            path="setup.py",
        ),
    ),
    is_requirement=True,
)


@REQUIREMENT.on("requirement", "package", "constraint", "build")
def requirement(ctx: Context, found: Construct) -> Decision:
    text = ctx.text(found)
    said = without_comment(text)
    line = said.replace("\\\r\n", "").replace("\\\n", "").strip()
    line = re.sub(r"(?:-e|--editable)[\s=]+(?=\S)", "", line)
    wanted, _, options = line.partition(" -")
    body, _, marker = wanted.partition(";")
    if older := older_library(body):
        return Report(f"{older} was installed so before it was on PyPI; leave it out")
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if CUDA_WHEELS.search(line) and line.startswith(("-", "https:")):
        return _index(ctx, found, line, said)
    if ONLY_TORCH.search(line) and line.startswith("https:"):
        return Keep("PyTorch's index of CPU wheels")
    if line.startswith("-"):
        return _option(ctx, found, line, said)
    wheel, repository = wheel_of(body.rpartition(" @ ")[2]), repository_of(body)
    name = name_of(body) or wheel or repository
    if not line or (name is None and not re.search(r"torch|cu\d\d", line)):
        return Keep("no package with a version of its own")
    versions = tested(ctx.target)
    library = of_package(name or "")
    if library is not None:
        return Report(library.reason(str(name)))
    if missing := shut_out(ctx.target, name or "", asked_of(body)):
        return Report(_SHUT_OUT.format(missing))
    others = _beside(ctx, found)
    if name not in versions:
        if name is None:
            return Report(f"not changed by itself; the target takes {_all(ctx)}")
        if why := clash(ctx.target, name, others):
            return Report(why)
        if re.search(r"cu\d{2,3}\b", line):
            return Report(f"was built for CUDA, it seems; torch is {versions['torch']} there")
        if extra := re.search(r"\[[^\]]*?\b((?:[\w-]*[-_])?(?:gpu|cuda\w*))\b[^\]]*\]", body):
            return Report(f"its extra `{extra[1]}` is for CUDA: leave that out")
        return Keep("does not depend on the device")
    if _is_of_jax(ctx, name, others):
        return Report(_OF_JAX.format(versions[name]))
    new = [in_place_of(body, versions[name])]
    if name == "torch" and found.key != "build":
        new += companions(ctx.target, others)
    advice = ""
    if found.key == "constraint":
        advice = _bare(ctx, new)
        new = list(map(constraint, new))
    if len(new) == 1 and alike(new[0], wanted) and not options:
        return Keep("the version that was tested", advice)
    if repository and not wheel:
        return Report(f"builds {name} from its repository; the target takes {', '.join(new)}")
    if options or marker or others.count(name) > 1:
        return Report(f"takes {new[0]} in the place of what depends on the machine, or on hashes")
    end = "\r\n" if text.endswith("\r") else "\n"
    indent = said[: len(said) - len(said.lstrip())]
    return ctx.with_text(
        found, indent + end.join(new) + text[len(said) :], "versions that were tested together",
        advice,
    )  # fmt: skip


_OF_JAX = "of a program for JAX, it seems; in one environment with it, the target takes {}"
_SHUT_OUT = "leaves no version that was tested with the target, which takes {}"


def _index(ctx: Context, found: Construct, line: str, said: str) -> Decision:
    """Of CUDA wheels; what projects list as an index has a name of its own."""
    if line.startswith("-"):
        return ctx.with_text(found, f"--extra-index-url {CPU_WHEELS}{ctx.text(found)[len(said) :]}")
    lists = [ctx.text(each) for each in ctx.constructs if each.kind == "requirement"]
    if sum(each == CPU_WHEELS or CUDA_WHEELS.search(each) is not None for each in lists) > 1:
        return Report(
            f"one of several indexes: {CPU_WHEELS} is enough; take this out, with what names it"
        )
    note = "PyTorch's index of CPU wheels; what it is called here may speak of CUDA still"
    return ctx.with_text(found, CPU_WHEELS, note)


def _option(ctx: Context, found: Construct, line: str, said: str) -> Decision:
    only = re.match(r"(?:-i|--index-url)[ =](\S+)$", line)
    if only and ONLY_TORCH.search(only[1]) and "torch" in _beside(ctx, found):
        text = f"--extra-index-url {only[1]}{ctx.text(found)[len(said) :]}"
        return ctx.with_text(found, text, "that index alone has nothing of what torch takes")
    if re.search(r"(?:[+/_-]|\b)cu\d{2,3}\b", line):
        return Report("wheels that were built for CUDA; leave it out")
    if re.search(r"\bnvidia\.com|pytorch-extension\.intel\.com", line):
        return Report("packages for other hardware than a TPU; leave it out")
    return Keep("no package")


@REQUIREMENT.on("requirement", "text")
def requirements_in_text(ctx: Context, found: Construct) -> Decision:
    """Strings of setup.py that are no elements of a list, or of one that is read in pieces."""
    every = lines_of(ctx.text(found))
    names = [name_of(re.split(r"[;#]", line)[0]) for line in every]
    libraries = [library.reason(str(n)) for n in names if (library := of_package(n or ""))]
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    lines = [line for line in every if (name := name_of(line))
             and shut_out(ctx.target, name, asked_of(line))]  # fmt: skip
    said = [f"`{line.strip()}` leaves no version that was tested" for line in lines] + libraries
    if "torch" in names or (None in names and "torch" in ctx.text(found)):
        said.insert(0, f"the target takes {_all(ctx)}")
    versions = [tested(ctx.target).get(n or "") for n in names if n != "torch"]
    said += [f"the target takes {version}" for version in versions if version]
    asked = ctx.text(found).split()
    done = all(v in asked for v in (tested(ctx.target)["torch"], *filter(None, versions)))
    if not said or (done and not lines and not libraries):
        return Keep("does not depend on the device")
    return Report(f"not changed by itself, since it is not listed plainly: {'; '.join(said)}")


# ---- constraints ---------------------------------------------------------------------------------

_TORCH = re.compile(rb"(?<![\w-])(?:torch|pytorch|torch[-_]xla)(?![\w./-])")


def _bare(ctx: Context, wanted: Iterable[str]) -> str:
    """What a constraint can not say, and no list of the project is there to say it."""
    told = [each for each in wanted if extras_of(each)]
    if not told or _is_listed(ctx):
        return ""
    return f"a constraint has no extras: what installs it has to ask for {', '.join(told)}"


def _is_listed(ctx: Context) -> bool:
    """Whether something that the project installs from names torch: it gets the extra there."""
    if any(each.kind == "requirement" and each.key in ("package", "table")
           and re.match(r"torch\b(?!-)", ctx.text(each)) for each in ctx.constructs):  # fmt: skip
        return True
    if ctx.project is None:
        return False
    here, reader = ctx.project.path.parent, ctx.project.reader
    folders = [here, *(each for each in here.parents if ctx.project.root in (each, *each.parents))]
    return any(
        _TORCH.search(reader.read(folder / name) or b"")
        for folder in folders
        for name in reader.list(folder)
        if lists_packages(folder / name) and folder / name != ctx.project.path
    )


# ---- Pythons -------------------------------------------------------------------------------------


@REQUIREMENT.on("requirement", "python")
def python(ctx: Context, found: Construct) -> Decision:
    asked = re.sub(r"^python(?=\d)", "", ctx.text(found).strip())
    if ctx.target.portable or not _names_torch(ctx, found):
        return Keep("does not depend on the device")
    wanted = pythons(ctx.target)
    if excludes(asked, wanted):
        return Report(f"the target's packages have no wheels for these Pythons: take {wanted}")
    if excludes(asked, f"<{wanted[2:6]}"):
        return Keep("has Pythons that the target has wheels for")
    if _is_of(ctx, "table"):
        return Report(f"the target's packages have to fit all of these Pythons: take {wanted}")
    advice = f"uv locks for all of these Pythons, and the target's packages need {wanted}"
    return Keep(
        "has Pythons that the target has wheels for", advice if _is_of(ctx, "source") else ""
    )


# ---- tables of Poetry, pipenv, pixi and uv -------------------------------------------------------


@REQUIREMENT.on("requirement", "table")
def in_table(ctx: Context, found: Construct) -> Decision:
    """`torch = "^2.0"`, also with an index, gets the version, and what goes with it below it."""
    text = ctx.text(found)
    name, value = _pair(text)
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if library := of_package(name):
        return Report(library.reason(name))
    asked = value.get("version", "") if isinstance(value, dict) else value
    if missing := shut_out(ctx.target, name, str(asked)):
        return Report(_SHUT_OUT.format(missing))
    version = tested(ctx.target).get(name)
    beside = _beside(ctx, found)
    if version is None:
        if re.search(r"cu\d{2,3}\b", text):
            return Report(f"was built for CUDA, it seems; the target takes {_all(ctx)}")
        if why := clash(ctx.target, name, beside):
            return Report(why)
        return Keep("does not depend on the device")
    lines = [version]
    if name == "torch":
        lines += companions(ctx.target, beside)
    first, *more = map(entry, lines)
    new = first if isinstance(value, str) else _with_version(text, value, version)
    if not more and (new == text or (asked == first.split('"')[1] and not extras_of(version))):
        return Keep("the version that was tested")
    if new is None or not text.startswith(name.split("-")[0]):
        listed = ", ".join(f"`{line}`" for line in (first, *more))
        return Report(f"not changed by itself; the target takes {listed}")
    note = "versions that were tested together; the lock file has to be made again"
    return ctx.with_text(found, "\n".join([new, *more]), note)


def _with_version(text: str, value: object, version: str) -> str | None:
    """An inline table with another version, from PyTorch's index for the CPU if it named CUDA's.

    Extras stay, and the wanted ones are with them.
    """
    if not isinstance(value, dict) or not value.keys() <= {"version", "source", "index", "extras"}:
        return None
    if not re.match(r"[\w-]+\s*=\s*\{", text) or "version" not in value:
        return None
    said = r"""(version\s*=\s*)(["'])[^"']*\2"""
    missing = [f'"{each}"' for each in extras_of(version) if each not in value.get("extras", ())]
    extras = f", extras = [{', '.join(missing)}]" if missing and "extras" not in value else ""
    asked = asked_of(version)
    text = re.sub(said, rf"\g<1>\g<2>{asked}\g<2>{extras}", text, count=1)
    if missing and not extras:
        more = ", ".join(missing) + ", " * bool(value["extras"])
        text = re.sub(r"(extras\s*=\s*\[\s*)", rf"\g<1>{more}", text, count=1)
    index = value.get("index", "")
    return text.replace(index, CPU_WHEELS) if index and CUDA_WHEELS.search(index) else text


@REQUIREMENT.on("requirement", "source")
def source(ctx: Context, found: Construct) -> Decision:
    """Where uv takes a package from: an index by its name, or a place of its own."""
    name, value = _pair(ctx.text(found))
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if library := of_package(name):
        return Report(library.reason(name))
    places = [
        str(place)
        for each in (value if isinstance(value, list) else [value])
        for key, place in (each.items() if isinstance(each, dict) else [("", each)])
        if key not in ("index", "extra", "group", "marker")
    ]
    if name in tested(ctx.target) and places:
        return Report(f"comes from elsewhere; the target takes {tested(ctx.target)[name]}: "
                      "leave the source out")  # fmt: skip
    if any(re.search(r"cu\d{2,3}\b", place) for place in places):
        return Report("was built for CUDA, it seems")
    return Keep("comes from the index of that name")


@REQUIREMENT.on("requirement", "pixi")
def pixi(ctx: Context, found: Construct) -> Decision:
    name, _ = _pair(ctx.text(found))
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if package := _OF_PIP.get(name):
        lines = [tested(ctx.target)[package]]
        if package == "torch":
            lines += companions(ctx.target, _beside(ctx, found))
        listed = ", ".join(f"`{entry(line)}`" for line in lines)
        return Report(f"conda has no build for TPUs: in `pypi-dependencies`, write {listed}")
    if name in (*_CHOOSES_BUILD, "cuda"):
        return Report("chooses a build for CUDA, and there is none for TPUs: leave it out")
    if library := of_package(name):
        return Report(library.reason(name))
    if missing := shut_out(ctx.target, name, str(_pair(ctx.text(found))[1])):
        return Report(_SHUT_OUT.format(missing))
    return Keep("does not depend on the device")


def _pair(text: str) -> tuple[str, Any]:
    """`torch = "^2.0"` and `torch.version = "^2.0"`: the package, and what is said of it."""
    try:
        ((name, value),) = tomllib.loads(text).items()
    except (tomllib.TOMLDecodeError, ValueError):
        return "", ""
    return normal(name), value


# ---- conda ---------------------------------------------------------------------------------------

_OF_PIP = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch",
           "torchvision": "torchvision", "torchaudio": "torchaudio"}  # fmt: skip
_CHOOSES_BUILD = ("pytorch-cuda", "pytorch-mutex", "cpuonly")  # of conda's pytorch, nothing else
# Packages of conda that would bring conda's pytorch back.
_NEEDS_TORCH = re.compile(
    r"pytorch-.*|.*torch|torch.*|torchtext|pyg|dgl.*|fastai|timm|accelerate|diffusers|kornia|monai"
    r"|sentence-transformers|pyro-ppl|fvcore|iopath|lpips|detectron2|faiss-gpu"
)


@REQUIREMENT.on("requirement", "conda")
def conda(ctx: Context, found: Construct) -> Decision:
    text = ctx.text(found)
    name, version = _of_conda(text)
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    others = [_of_conda(ctx.text(each))[0] for each in ctx.constructs if each.key == "conda"]
    of_pip = _beside(ctx, found)
    brings_torch = [each for each in others if each in _OF_PIP]
    if name == "python":
        return _python(ctx, version, bool(brings_torch) or "torch" in of_pip)
    back = [each for each in others if each not in (*_OF_PIP, *_CHOOSES_BUILD)
            and _NEEDS_TORCH.fullmatch(each)]  # fmt: skip
    if name in _OF_PIP:
        package = _OF_PIP[name]
        lines = [tested(ctx.target)[package]]
        if package == "torch":
            lines += companions(ctx.target, of_pip)
        listed = ", ".join(f"`- {line}`" for line in lines)
        if back:
            return Report(
                f"conda has no build for TPUs, and {', '.join(back)} of conda's needs conda's "
                f"pytorch: move all of these to the list of pip, with {listed} there"
            )
        if package in of_pip:
            return Report("pip installs it, too, and conda has no build for TPUs: leave it out")
        return ctx.with_text(found, "\n".join(lines), "pip has it for the target, conda has not")
    if name in _CHOOSES_BUILD:
        if brings_torch and not back:
            return ctx.with_text(found, "", "chooses a build of conda's pytorch, which is gone")
        return Report("chooses a build of conda's pytorch, and there is none for TPUs")
    if library := of_package(name):
        return Report(library.reason(name))
    exact = re.match(r"\s*=+([^=]+)", version)
    if missing := shut_out(ctx.target, name, exact[1] if exact else version):
        return Report(_SHUT_OUT.format(missing))
    wanted = tested(ctx.target).get(name)
    if wanted is not None:
        return Report(f"the target takes {wanted}, by pip: leave it out here")
    return Keep("does not depend on the device")


def _python(ctx: Context, version: str, needs_torch: bool) -> Decision:
    first, last = ctx.target.environment.pythons[0], ctx.target.environment.newest
    low, high = (".".join(map(str, each)) for each in (first, last))
    match = re.match(r"\s*=*\s*3(?:\.(\d+))?", version) or re.search(r"<\s*3\.(\d+)", version)
    if not needs_torch or match is None or match[1] is None:
        return Keep("does not depend on the device")
    if "<" not in version and first[1] <= int(match[1]) <= last[1]:
        return Keep("a version that the target has wheels for")
    if "<" in version and int(match[1]) > first[1]:
        return Keep("allows a version that the target has wheels for")
    return Report(f"the target's packages need Python {low} to {high}: `- python={low}`")


def _of_conda(text: str) -> tuple[str, str]:
    """Name and version: `pytorch::torchvision=0.8=py38` says both, and more."""
    match = re.match(r"(?:[\w./-]+::)?([\w.-]+)(.*)", text)
    return (normal(match[1]), match[2]) if match else ("", "")


# ---- what is beside it ---------------------------------------------------------------------------


def _beside(ctx: Context, found: Construct) -> list[str | None]:
    """Packages of pip's in the same list (itself, too), or in the file that is one."""
    inside = _list_of(ctx, found)
    return [
        _pair(ctx.text(each))[0] if each.key == "table"
        else name_of(re.split(r"[;\\]| -", without_comment(ctx.text(each)))[0])
        for each in ctx.constructs
        if each.kind == "requirement" and each.key in ("package", "constraint", "table")
        and _list_of(ctx, each) is inside
    ]  # fmt: skip


def _is_of_jax(ctx: Context, name: str, others: Iterable[str | None]) -> bool:
    """Whether a list is without torch: what else is in it may need another JAX."""
    alone = {"torch", ctx.target.environment.package}.isdisjoint(others) and not _is_of(
        ctx, "conda"
    )
    return name in ("jax", "jaxlib", "libtpu") and alone


def _list_of(ctx: Context, found: Construct) -> object:
    return next((a for a in ctx.names.ancestors(found.node) if hasattr(a, "elts")), None)


def _is_of(ctx: Context, key: str) -> bool:
    return any(each.kind == "requirement" and each.key == key for each in ctx.constructs)


def _names_torch(ctx: Context, found: Construct) -> bool:
    """Whether the file lists torch, or what goes with it, beside its Pythons."""
    texts = (ctx.text(each) for each in ctx.constructs if each.kind == "requirement")
    return any(re.match(r"\W*(?:py)?torch\b", text) for text in texts)


def _all(ctx: Context) -> str:
    """All that the target needs."""
    needed = [tested(ctx.target)["torch"], *companions(ctx.target, ())]
    return ", ".join(f"`{each}`" for each in needed)
