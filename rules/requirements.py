"""What a project says that has to be installed: by pip, by conda, or when it is built."""

import ast
import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from migrator.analysis.libraries import of_package
from migrator.analysis.mentions import without_comment
from migrator.codes import Family
from migrator.construct import Construct
from migrator.diagnostics import lines_of
from migrator.edits import EditCall
from migrator.formats.kinds import lists_packages
from migrator.frameworks.torch.setup_py import SETUP
from migrator.requirements import (
    CPU_WHEELS,
    CUDA_WHEELS,
    ONLY_TORCH,
    alike,
    asked_of,
    clash,
    companions,
    constraint,
    excludes,
    extras_of,
    in_a_range,
    in_place_of,
    name_of,
    normal,
    older_library,
    pythons,
    ranges,
    repository_of,
    shut_out,
    tested,
    wheel_of,
)
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

FAMILY = Family("REQ", "Requirements", 160)

REQUIREMENT = Rule(
    code="REQ001",
    name="requirement",
    summary="a package that was built for CUDA, or whose version has to fit the target",
    why="""torch and torchvision get the versions that were tested together for the target, and what
it needs stands behind them: torch_xla with its extra `tpu`, since nothing else installs libtpu, but
in constraints, which can have no extras. An index of CUDA wheels becomes PyTorch's index of CPU
wheels. Packages that only exist for CUDA or another accelerator, and those that come with torch's
CUDA wheels, are named, also by their wheels and repositories. Libraries keep their ranges, or get
one around the tested version, since pins would shut out every other library: there, what the target
needs is an extra of its own, `tpu`. So it is in requirements.txt and constraints, pyproject.toml
(lists of PEP 621, uv, Hatch and PDM, tables of Poetry and pixi), Pipfile, pixi.toml, setup.py,
setup.cfg, tox.ini and environment.yml; a lock file has to be made again, and so has a list that uv
or pip-compile wrote, which is named once. Conda has no torch that
fits a TPU: in environment.yml its `pytorch` moves to the list of what pip installs, if no package
of conda's needs it there. What needs the build of a project gets torch's version alone. Bounds on
Python, numpy and scipy that leave no version that was tested are named. Requirements of projects
without GPU code stay.""",
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
            [project]
            name = "a"
            dependencies = ["torch>=2", "numpy"]

            [build-system]
            requires = ["hatchling"]
            """,
            after="""
            [project]
            name = "a"
            dependencies = ["torch>=2", "numpy"]

            [project.optional-dependencies]
            tpu = [
                "torch~=2.9.0",
                "torchax~=0.0.13",
                "jax~=0.10.2",
                "jaxlib~=0.10.2",
                "libtpu~=0.0.52",
            ]

            [build-system]
            requires = ["hatchling"]
            """,
            except_on={
                "torch_xla": """
                [project]
                name = "a"
                dependencies = ["torch>=2", "numpy"]

                [project.optional-dependencies]
                tpu = [
                    "torch~=2.9.0",
                    "torch_xla[tpu]~=2.9.0",
                ]

                [build-system]
                requires = ["hatchling"]
                """
            },
            path="pyproject.toml",
        ),
        Example(
            """
            from setuptools import setup

            setup(
                install_requires=['numpy', 'torch<2'],
            )
            """,
            after="""
            from setuptools import setup

            setup(
                install_requires=['numpy', 'torch~=2.9.0'],
                extras_require={'tpu': ['torch~=2.9.0', 'torchax~=0.0.13', 'jax~=0.10.2', \
'jaxlib~=0.10.2', 'libtpu~=0.0.52']},
            )
            """,
            except_on={
                "torch_xla": """
                from setuptools import setup

                setup(
                    install_requires=['numpy', 'torch~=2.9.0'],
                    extras_require={'tpu': ['torch~=2.9.0', 'torch_xla[tpu]~=2.9.0']},
                )
                """
            },
            path="setup.py",
        ),
    ),
    is_requirement=True,
)


@REQUIREMENT.on("requirement", "package", "dependency", "constraint", "build")
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
    if name == "pytorch" and found.key != "build":
        return Report(_PYTORCH.format(versions["torch"]))
    library = of_package(name or "")
    if library is not None:
        return Report(library.reason(str(name)))
    if missing := shut_out(ctx.target, name or "", asked_of(body)):
        return Report(SHUT_OUT.format(missing))
    others = packages_beside(ctx, found)
    if name is None:
        return Report(f"not changed by itself; the target takes {all_needed(ctx)}")
    if name not in versions:
        return _without_version(ctx, name, others, line, body)
    if found.key == "dependency" and not (wheel or repository):
        return _shared(ctx, found, name, said, body)
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


def _without_version(
    ctx: Context, name: str, others: Iterable[str | None], line: str, body: str
) -> Decision:
    """A package that the target takes in any version, unless it was built for CUDA."""
    if why := clash(ctx.target, name, others):
        return Report(why)
    if re.search(r"cu\d{2,3}\b", line):
        return Report(f"was built for CUDA, it seems; torch is {tested(ctx.target)['torch']} there")
    if extra := re.search(r"\[[^\]]*?\b((?:[\w-]*[-_])?(?:gpu|cuda\w*))\b[^\]]*\]", body):
        return Report(f"its extra `{extra[1]}` is for CUDA: leave that out")
    return Keep("does not depend on the device")


def _shared(ctx: Context, found: Construct, name: str, said: str, body: str) -> Decision:
    """A package of a library's: whoever installs it has versions of others to agree with."""
    version = tested(ctx.target)[name]
    if not excludes(asked_of(body), asked_of(version)):
        return _with_extra(ctx, found, Keep("allows the version that was tested"))
    if said.strip() != body.strip():
        return Report(f"leaves out {version}, which was tested with the target")
    indent = said[: len(said) - len(said.lstrip())]
    text = indent + in_place_of(body, in_a_range(version)) + ctx.text(found)[len(said) :]
    new = ctx.with_text(found, text, "a range that has the version that was tested")
    return _with_extra(ctx, found, new)


def _with_extra(ctx: Context, found: Construct, decision: Decision) -> Decision:
    """The first `torch` of a setup.py brings the extra for TPUs."""
    dependencies = (each for each in ctx.constructs if each.key == "dependency")
    first = next((each for each in dependencies if name_of(ctx.text(each)) == "torch"), None)
    call = next((node for node in ctx.names.order if isinstance(node, ast.Call)
                 and ctx.names.qualified(node.func) in SETUP), None)  # fmt: skip
    if call is None or first is not found or not isinstance(decision, Keep | Rewrite):
        return decision
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    extras = given.get("extras_require")
    if extras is None and None not in given:
        listed = ", ".join(ctx.quoted(each, call) for each in ranges(ctx.target))
        put = EditCall(call, put={"extras_require": f"{{{ctx.quoted('tpu', call)}: [{listed}]}}"})
        edits = decision.edits if isinstance(decision, Rewrite) else ()
        return Rewrite([*edits, put], note=_EXTRA)
    if isinstance(extras, ast.Dict) and any(
        isinstance(key, ast.Constant) and key.value == "tpu" for key in extras.keys
    ):
        return decision
    return replace(decision, advice=f'{_EXTRA}: add `"tpu": {ranges(ctx.target)}`')


_EXTRA = "what a TPU needs is an extra of its own, `tpu`"


@REQUIREMENT.on("requirement", "extra")
def extra(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if ctx.text(found):
        return Keep("the extra for TPUs")
    return ctx.with_text(found, "\n".join(ranges(ctx.target)), _EXTRA)


_PYTORCH = "a name of conda's, under which PyPI has nothing that runs; the target takes {}"
_OF_JAX = "of a program for JAX, it seems; in one environment with it, the target takes {}"
SHUT_OUT = "leaves no version that was tested with the target, which takes {}"


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
    if only and ONLY_TORCH.search(only[1]) and "torch" in packages_beside(ctx, found):
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
        said.insert(0, f"the target takes {all_needed(ctx)}")
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
    if any(each.kind == "requirement" and each.key in ("package", "dependency", "table")
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
    if is_of(ctx, "table"):
        return Report(f"the target's packages have to fit all of these Pythons: take {wanted}")
    advice = f"uv locks for all of these Pythons, and the target's packages need {wanted}"
    return Keep(
        "has Pythons that the target has wheels for", advice if is_of(ctx, "source") else ""
    )


# ---- what is beside it ---------------------------------------------------------------------------


def packages_beside(ctx: Context, found: Construct) -> list[str | None]:
    """Packages of pip's in the same list (itself, too), or in the file that is one."""
    inside = _list_of(ctx, found)
    return [
        pair(ctx.text(each))[0] if each.key == "table"
        else name_of(re.split(r"[;\\]| -", without_comment(ctx.text(each)))[0])
        for each in ctx.constructs
        if each.kind == "requirement"
        and each.key in ("package", "dependency", "constraint", "table")
        and _list_of(ctx, each) is inside
    ]  # fmt: skip


def _is_of_jax(ctx: Context, name: str, others: Iterable[str | None]) -> bool:
    """Whether a list is without torch: what else is in it may need another JAX."""
    alone = {"torch", ctx.target.environment.package}.isdisjoint(others) and not is_of(ctx, "conda")
    return name in ("jax", "jaxlib", "libtpu") and alone


def _list_of(ctx: Context, found: Construct) -> object:
    return next((a for a in ctx.names.ancestors(found.node) if hasattr(a, "elts")), None)


def is_of(ctx: Context, key: str) -> bool:
    return any(each.kind == "requirement" and each.key == key for each in ctx.constructs)


def _names_torch(ctx: Context, found: Construct) -> bool:
    """Whether the file lists torch, or what goes with it, beside its Pythons."""
    texts = (ctx.text(each) for each in ctx.constructs if each.kind == "requirement")
    return any(re.match(r"\W*(?:py)?torch\b", text) for text in texts)


def all_needed(ctx: Context) -> str:
    """All that the target needs."""
    needed = [tested(ctx.target)["torch"], *companions(ctx.target, ())]
    return ", ".join(f"`{each}`" for each in needed)


def pair(text: str) -> tuple[str, Any]:
    """`torch = "^2.0"` and `torch.version = "^2.0"`: the package, and what is said of it."""
    try:
        ((name, value),) = tomllib.loads(text).items()
    except (tomllib.TOMLDecodeError, ValueError):
        return "", ""
    return normal(name), value
