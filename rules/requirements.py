"""What a project says that has to be installed: by pip, by conda, or when it is built."""

import re

from migrator.inventory import Construct
from migrator.libraries import of_package
from migrator.mentions import without_comment
from migrator.requirements import (
    CPU_WHEELS,
    CUDA_WHEELS,
    NEWEST,
    OLDEST,
    companions,
    is_of_older_xla,
    name_of,
    normal,
    tested,
)
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

REQUIREMENT = Rule(
    code="REQ001",
    name="requirement",
    summary="a package that was built for CUDA, or whose version has to fit the target",
    why="""torch and torchvision get the versions that were tested together for the target, and what
it needs stands behind them. An index of CUDA wheels becomes PyTorch's index of CPU wheels. Packages
that only exist for CUDA, and those that come with torch's CUDA wheels, are named. So it is in
requirements.txt, pyproject.toml, setup.py, setup.cfg and environment.yml; Poetry's own tables are
named, since a lock file belongs to them. Conda has no torch that fits a TPU: in environment.yml its
`pytorch` moves to the list of what pip installs, if no package of conda's needs it there.
Requirements of projects without GPU code stay.""",
    examples=(
        Example(
            "numpy\ntorch>=1.13\ntorchvision\nxformers  # fast\n",
            torchax="numpy\ntorch==2.9.0\ntorchax==0.0.13\njax==0.10.2\njaxlib==0.10.2\n"
            "libtpu==0.0.52\ntorchvision==0.24.0\nxformers  # fast\n",
            torch_xla="numpy\ntorch==2.9.0\ntorch_xla==2.9.0\ntorchvision==0.24.0\n"
            "xformers  # fast\n",
            path="requirements.txt",
        ),
        Example(
            "name: a\nchannels:\n  - pytorch\ndependencies:\n  - python>=3.10\n  - pytorch=2.1\n"
            "  - pytorch-cuda=12.1\n  - pip:\n    - tqdm\n",
            torchax="name: a\nchannels:\n  - pytorch\ndependencies:\n  - python>=3.10\n  - pip:\n"
            "    - torch==2.9.0\n    - torchax==0.0.13\n    - jax==0.10.2\n    - jaxlib==0.10.2\n"
            "    - libtpu==0.0.52\n    - tqdm\n",
            torch_xla="name: a\nchannels:\n  - pytorch\ndependencies:\n  - python>=3.10\n  - pip:\n"
            "    - torch==2.9.0\n    - torch_xla==2.9.0\n    - tqdm\n",
            path="environment.yml",
        ),
        Example(
            '[project]\nname = "a"\ndependencies = ["torch>=2", "numpy"]\n',
            torchax='[project]\nname = "a"\ndependencies = ["torch==2.9.0", "torchax==0.0.13", '
            '"jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.52", "numpy"]\n',
            torch_xla='[project]\nname = "a"\ndependencies = ["torch==2.9.0", "torch_xla==2.9.0", '
            '"numpy"]\n',
            path="pyproject.toml",
        ),
        Example(
            "from setuptools import setup\n\nsetup(\n    install_requires=[\n"
            "        'numpy',\n        'torch',  # any\n    ],\n)\n",
            torchax="from setuptools import setup\n\nsetup(\n    install_requires=[\n"
            "        'numpy',\n        'torch==2.9.0',\n        'torchax==0.0.13',\n"
            "        'jax==0.10.2',\n        'jaxlib==0.10.2',\n"
            "        'libtpu==0.0.52',  # any\n    ],\n)\n",
            torch_xla="from setuptools import setup\n\nsetup(\n    install_requires=[\n"
            "        'numpy',\n        'torch==2.9.0',\n        'torch_xla==2.9.0',  # any\n"
            "    ],\n)\n",
            path="setup.py",
        ),
    ),
)


@REQUIREMENT.on("requirement", "package")
def requirement(ctx: Context, found: Construct) -> Decision:
    text = ctx.text(found)
    said = without_comment(text)
    line = said.replace("\\\r\n", "").replace("\\\n", "").strip()
    if CUDA_WHEELS.search(line) and line.startswith("https:"):
        return ctx.with_text(found, CPU_WHEELS)
    if line.startswith("-"):
        if CUDA_WHEELS.search(line):
            return ctx.with_text(found, f"--extra-index-url {CPU_WHEELS}{text[len(said) :]}")
        return Keep("no package")
    wanted, _, options = line.partition(" -")
    body, _, marker = wanted.partition(";")
    name = name_of(body)
    if not line or (name is None and not re.search(r"torch|cu\d\d", line)):
        return Keep("no package with a version of its own")
    if is_of_older_xla(body):
        return Report("torch_xla was installed so before it was on PyPI; leave it out")
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    versions = tested(ctx.target.name)
    library = of_package(name or "")
    if library is not None and not library.modules:
        return Report(library.advice)  # the same words for all that come with something else
    if library is not None:
        return Report(f"{name} is for CUDA only: {library.advice}")
    if name not in versions:
        if name is None:
            return Report(f"not changed by itself; the target takes {_all(ctx, line)}")
        if re.search(r"cu\d{2,3}\b", line):
            return Report(f"was built for CUDA, it seems; torch is {versions['torch']} there")
        return Keep("does not depend on the device")
    others = _beside(ctx, found)
    new = [versions[name]]
    if name == "torch":
        new += companions(ctx.target.name, others)
    if new == [wanted.strip()] and not options:
        return Keep("the version that was tested")
    if options or marker or others.count(name) > 1:
        return Report(f"takes {new[0]} in the place of what depends on the machine, or on hashes")
    end = "\r\n" if text.endswith("\r") else "\n"
    indent = said[: len(said) - len(said.lstrip())]
    return ctx.with_text(
        found, indent + end.join(new) + text[len(said) :], "versions that were tested together"
    )


# ---- conda ---------------------------------------------------------------------------------------

_OF_PIP = {"pytorch": "torch", "pytorch-gpu": "torch", "torchvision": "torchvision",
           "torchaudio": "torchaudio"}  # fmt: skip
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
        lines = [tested(ctx.target.name)[package]]
        if package == "torch":
            lines += companions(ctx.target.name, of_pip)
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
    library = of_package(name)
    if library is not None:
        return Report(f"{name} is for CUDA only: {library.advice}")
    wanted = tested(ctx.target.name).get(name)
    if wanted is not None:
        return Report(f"the target takes {wanted}, by pip: leave it out here")
    return Keep("does not depend on the device")


def _python(ctx: Context, version: str, needs_torch: bool) -> Decision:
    low, high = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    match = re.match(r"\s*=*\s*3(?:\.(\d+))?", version) or re.search(r"<\s*3\.(\d+)", version)
    if not needs_torch or match is None or match[1] is None:
        return Keep("does not depend on the device")
    if "<" not in version and OLDEST[1] <= int(match[1]) <= NEWEST[1]:
        return Keep("a version that the target has wheels for")
    if "<" in version and int(match[1]) > OLDEST[1]:
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
        name_of(re.split(r"[;\\]| -", without_comment(ctx.text(each)))[0])
        for each in ctx.constructs
        if each.kind == "requirement" and each.key == "package" and _list_of(ctx, each) is inside
    ]


def _list_of(ctx: Context, found: Construct) -> object:
    return next((a for a in ctx.names.ancestors(found.node) if hasattr(a, "elts")), None)


def _all(ctx: Context, line: str) -> str:
    """All that the target needs, as Poetry writes it where the line is one of Poetry's."""
    needed = [tested(ctx.target.name)["torch"], *companions(ctx.target.name, ())]
    if re.match(r"""["'\w.-]+\s*=\s*["'{\[]""", line):
        needed = [f'{name} = "{version}"' for name, version in (n.split("==") for n in needed)]
    return ", ".join(f"`{each}`" for each in needed)
