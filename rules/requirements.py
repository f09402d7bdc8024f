"""Requirements of a project: for pip, for conda, or for its build."""

import re
from collections.abc import Container

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Keep,
    Report,
    Rule,
)
from migrator.rule_api.libraries import of_package
from migrator.rule_api.packages import (
    CPU_WHEELS,
    CUDA_WHEELS,
    ONLY_TORCH,
    alike,
    asked_of,
    clash,
    constraint,
    in_place_of,
    is_far_below,
    name_of,
    older_library,
    ranges,
    repository_of,
    shut_out,
    tested,
    wheel_of,
)
from migrator.rule_api.requirement_extras import EXTRA, of_library
from migrator.rule_api.requirement_lists import (
    SHUT_OUT,
    all_needed,
    beside_torch,
    is_of_jax,
    packages_beside,
    what_a_constraint_lacks,
    where_portable,
)
from migrator.rule_api.texts import without_comment

FAMILY = Family("REQ", "Requirements", 160)

REQUIREMENT = Rule(
    code="REQ001",
    name="requirement",
    summary="a package built for CUDA, or one whose version has to fit the target",
    why="""torch and torchvision get the versions that were tested together; what the target needs
follows them. torch_xla gets its extra `tpu`, because nothing else installs libtpu (not in
constraints, which can't have extras). An index of CUDA wheels becomes PyTorch's of CPU wheels.

Libraries keep their ranges, or get one around the tested version, because pins would exclude every
other library; what the target needs becomes an extra, `tpu`. Projects that need torch to build get
its version only. Requirements of projects without GPU code stay.

Files: requirements.txt and constraints, pyproject.toml (PEP 621, uv, Hatch, PDM, Poetry, pixi),
Pipfile, pixi.toml, setup.py, setup.cfg, tox.ini and environment.yml. Conda has no torch for TPUs,
so `pytorch` moves to environment.yml's pip list, unless a conda package needs it that PyPI has
under another name. Lines of `conda list --export` are only reported.

Reported: packages only for CUDA or another accelerator, also as wheels and repositories; those that
come with torch's CUDA wheels; bounds on Python, numpy and what is built for it that exclude every
tested version; frameworks pinned far below the tested release; lock files, and lists by uv or
pip-compile, which have to be made again.""",
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
            says={4: "xformers is for CUDA only"},
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
            says={3: "excludes every version tested with the target"},
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
        Example(
            """
            torchmetrics
            numpy
            """,
            says={1: "does not depend on the device"},
            path="requirements.txt",
        ),
        Example(
            """
            numpy
            torch==1.13 ; sys_platform == "linux"
            """,
            says={2: "takes torch==2.9.0 instead of entries that depend on the machine"},
            path="requirements.txt",
        ),
    ),
    is_requirement=True,
)


@REQUIREMENT.on("requirement", "package", "dependency", "constraint", "build")
def requirement(ctx: Context, found: Construct) -> Decision:
    text = found.content
    said = without_comment(text)
    line = said.replace("\\\r\n", "").replace("\\\n", "").strip()
    line = re.sub(r"(?:-e|--editable)[\s=]+(?=\S)", "", line)
    wanted, _, options = line.partition(" -")
    body, _, marker = wanted.partition(";")
    if older := older_library(body):
        return Report(f"{older} was installed this way before it was on PyPI; remove it")
    if ctx.target.portable:
        return where_portable(ctx, name_of(body), asked_of(body))
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
    if library := of_package(name or ""):
        return Report(library.reason(str(name)))
    if missing := shut_out(ctx.target, name or "", asked_of(body)):
        return Report(SHUT_OUT.format(missing))
    if name is None:
        return Report(f"not changed automatically; the target needs {all_needed(ctx)}")
    others = packages_beside(ctx, found)
    if name not in versions:
        if ran_with := is_far_below(ctx.target, name, asked_of(body)):
            return Report(_FAR_BELOW.format(ran_with))
        return _without_version(ctx, name, others, line, body)
    if found.key == "dependency" and not (wheel or repository):
        return of_library(ctx, found, name, said, body)
    if is_of_jax(ctx, name, others):
        return Report(_OF_JAX.format(versions[name]))
    new = [in_place_of(body, versions[name])]
    if name == "torch" and found.key != "build":
        new += beside_torch(ctx, others)
    advice = ""
    if found.key == "constraint":
        advice = what_a_constraint_lacks(ctx, new)
        new = [constraint(each) for each in new if not each.startswith("-")]
    if len(new) == 1 and alike(new[0], wanted) and not options:
        return Keep("the version that was tested", advice)
    if repository and not wheel:
        return Report(f"builds {name} from its repository; the target needs {', '.join(new)}")
    if options or marker or others[name] > 1:
        return Report(f"takes {new[0]} instead of entries that depend on the machine, or on hashes")
    end = "\r\n" if text.endswith("\r") else "\n"
    new_text = said[: len(said) - len(said.lstrip())] + end.join(new) + text[len(said) :]
    return ctx.code.with_text(found, new_text, "versions that were tested together", advice)


def _without_version(
    ctx: Context, name: str, others: Container[str | None], line: str, body: str
) -> Decision:
    """A package that the target needs in any version, unless it was built for CUDA."""
    if why := clash(ctx.target, name, others):
        return Report(why)
    if re.search(r"cu\d{2,3}\b", line):
        return Report(f"was probably built for CUDA; torch is {tested(ctx.target)['torch']} there")
    if extra := re.search(r"\[[^\]]*?\b((?:[\w-]*[-_])?(?:gpu|cuda\w*))\b[^\]]*\]", body):
        return Report(f"its extra `{extra[1]}` is for CUDA: leave that out")
    return Keep("does not depend on the device")


@REQUIREMENT.on("requirement", "extra")
def extra(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    if found.content:
        return Keep("the extra for TPUs")
    return ctx.code.with_text(found, "\n".join(ranges(ctx.target)), EXTRA)


_PYTORCH = "a name of conda's, under which PyPI has nothing that runs; the target needs {}"
_OF_JAX = "probably of a program for JAX; in one environment with it, the target needs {}"
_FAR_BELOW = "far below {}, with which programs for the target were run; raise it"


def _index(ctx: Context, found: Construct, line: str, said: str) -> Decision:
    """An index of CUDA wheels; an index in a project's settings has a name of its own."""
    if line.startswith("-"):
        text = f"--extra-index-url {CPU_WHEELS}{found.content[len(said) :]}"
        return ctx.code.with_text(found, text)
    if ctx.once(_count_of_indexes) > 1:
        return Report(
            f"one of several indexes: {CPU_WHEELS} is enough; remove this one, and what names it"
        )
    note = "PyTorch's index of CPU wheels; its name here may still mention CUDA"
    return ctx.code.with_text(found, CPU_WHEELS, note)


def _count_of_indexes(ctx: Context) -> int:
    lists = (each.content for each in ctx.constructs if each.kind == "requirement")
    return sum(each == CPU_WHEELS or CUDA_WHEELS.search(each) is not None for each in lists)


def _option(ctx: Context, found: Construct, line: str, said: str) -> Decision:
    only = re.match(r"(?:-i|--index-url)[ =](\S+)$", line)
    if only and ONLY_TORCH.search(only[1]) and "torch" in packages_beside(ctx, found):
        text = f"--extra-index-url {only[1]}{found.content[len(said) :]}"
        note = "that index alone lacks the packages that torch needs"
        return ctx.code.with_text(found, text, note)
    if re.search(r"(?:[+/_-]|\b)cu\d{2,3}\b", line):
        return Report("wheels built for CUDA; remove it")
    if re.search(r"\bnvidia\.com|pytorch-extension\.intel\.com", line):
        return Report("packages for other hardware; remove it")
    return Keep("no package")
