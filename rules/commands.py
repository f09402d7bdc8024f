"""Around the code: commands for a shell, requirements, configurations."""

import ast
import json
import re
import shlex

from migrator.edits import SetString
from migrator.inventory import DEVICE_SETTING, Construct, without_comment
from migrator.requirements import companions, is_for_cuda, is_of_older_xla, name_of, tested
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

COMMAND = Rule(
    code="CMD001",
    name="gpu-command",
    summary="a command for NVIDIA's tools, or for packages that were built for CUDA",
    why="""In shell scripts, Dockerfiles, notebooks, and where a program calls os.system.
`nvidia-smi` becomes `tpu-info`, which shows the same of TPUs. Where PyTorch is installed, the
command gets the versions that were tested together for the target, and PyTorch's index of CPU
wheels in the place of one for CUDA: torch itself works on the CPU there. Packages that only exist
for CUDA are named. `--device cuda` becomes the target's device, which the migrated program
understands. Cells of `%%bash`, `%%writefile` and the like, and cells that do not parse (of Python
2, say), stay as they are and are named.""",
    references=(
        "https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/tree/main/tpu_info",
    ),
    examples=(
        Example('import os\nos.system("nvidia-smi")\n', both='import os\nos.system("tpu-info")\n'),
        Example(
            'import os\nos.system("python train.py --device cuda")\n',
            torchax='import os\nos.system("python train.py --device jax")\n',
            torch_xla='import os\nos.system("python train.py --device xla")\n',
        ),
    ),
)

REQUIREMENT = Rule(
    code="REQ001",
    name="requirement",
    summary="a package that was built for CUDA, or whose version has to fit the target",
    why="""torch and torchvision get the versions that were tested together for the target, and what
it needs stands behind them. An index of CUDA wheels becomes PyTorch's index of CPU wheels. Packages
that only exist for CUDA, and those that come with torch's CUDA wheels, are named. Requirements of
projects without GPU code stay.""",
    examples=(
        Example(
            "numpy\ntorch>=1.13\ntorchvision\nxformers  # fast\n",
            torchax="numpy\ntorch==2.9.0\ntorchax==0.0.13\njax==0.10.2\njaxlib==0.10.2\n"
            "libtpu==0.0.52\ntorchvision==0.24.0\nxformers  # fast\n",
            torch_xla="numpy\ntorch==2.9.0\ntorch_xla==2.9.0\ntorchvision==0.24.0\n"
            "xformers  # fast\n",
            path="requirements.txt",
        ),
    ),
)

SETTING = Rule(
    code="CFG001",
    name="gpu-setting",
    summary="a configuration that names a GPU",
    why="""In YAML and JSON, a key that ends in `device` with `cuda` as its value gets the target's
device, which the migrated program understands. What else speaks of GPUs (how many, a back end, an
accelerator of Lightning) is named: the program decides what it means. Files that are longer than a
person writes are data, and are not looked into.""",
    examples=(
        Example(
            "train:\n  device: cuda:0  # the first\n  gpus: 4\n",
            torchax="train:\n  device: jax  # the first\n  gpus: 4\n",
            torch_xla="train:\n  device: xla  # the first\n  gpus: 4\n",
            path="config.yaml",
        ),
        Example(
            '{"device": "cuda", "lr": 0.1}\n',
            torchax='{"device": "jax", "lr": 0.1}\n',
            torch_xla='{"device": "xla", "lr": 0.1}\n',
            path="config.json",
        ),
    ),
)

_CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
_CUDA_WHEELS = re.compile(r"pytorch\.org.*(?:cu\d{2,3}|torch_stable\.html)/?$")
_DEVICE = re.compile(
    r"(--device(?:[ =]))(?P<quote>[\"']?)(?:cuda|xpu|npu|mps)(?::\d+)?(?P=quote)(?=[\s;|&)\"'\]]|$)"
)
_PART = re.compile(
    r"""(?P<end>&&|\|\||[;|&]|(?<!\\)\n|(?<!\S)\#.*)|(?P<word>(?:[^\s"'|;&\\]|\\.|"[^"]*"|'[^']*')+)""",
)
_INDEX = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
_WITH_VALUE = ("-r", "--requirement", "-c", "--constraint", "-t", "--target", "-e", "--editable",
               "--prefix", "--root", "--python", "--platform", "--no-binary", "--only-binary",
               *_INDEX)  # fmt: skip


@COMMAND.on("command", "nvidia-smi")
def nvidia_smi(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    plain = re.fullmatch(r"([!%\s]*(?:sx\s+)?)nvidia-smi(?:\s+-L)?(\s*)", text)
    if plain is None:
        return Report("asks NVIDIA's driver; `tpu-info` shows what a TPU does")
    return _set(ctx, found, f"{plain[1]}tpu-info{plain[2]}")


@COMMAND.on("command", "device")
def device_option(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Report("the program chooses its device itself; leave the option out")
    device = ctx.target.device
    text = _DEVICE.sub(lambda m: f"{m[1]}{m['quote']}{device}{m['quote']}", _text(found))
    if text == _text(found):
        return Report(f"names a GPU; the target's device is {device}")
    if _LAUNCHER.search(text) and not ctx.target.launches:
        return Report(_ONE_PROCESS)
    return _set(ctx, found, text)


_ONE_PROCESS = "starts a process for each GPU; here one process drives all devices"
_LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(?:launch|run)")


@COMMAND.on("command", "gpu")
def gpu_command(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    if re.match(r"\s*FROM\s", text):
        return Report("an image for CUDA; a TPU's libraries come by pip: python:3.11 will do")
    if re.search(r"gres=gpu|^#SBATCH", text):
        return Report("asks SLURM for GPUs")
    if _LAUNCHER.search(text):
        if ctx.target.launches:
            return Keep("starts a process for each device, as on GPUs")
        return Report(_ONE_PROCESS)
    if re.search(r"\bnvcc\b|cuda-toolkit|cudatoolkit", text):
        return Report("of CUDA's tools; nothing takes their place on a TPU")
    if re.search(r"CUDA_VISIBLE_DEVICES|NCCL_", text):
        return Keep("means nothing on a TPU")
    return Report("speaks of GPUs; look at what the program makes of it")


@COMMAND.on("command", "pip")
def pip(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    if ctx.target.portable:
        return Report("installs PyTorch; a portable program needs what its machine has")
    versions = tested(ctx.target.name)
    packages, changes = _installed(text)
    if cuda := [word for *_, word in packages if is_for_cuda(word)]:
        return Report(f"{', '.join(cuda)}: for CUDA only")
    older = [place for place in packages if is_of_older_xla(place[2])]
    packages = [place for place in packages if place not in older]
    if older and "torch" not in {name_of(word) for *_, word in packages}:
        start, end, _ = older.pop(0)
        changes.append((start, end, versions["torch"]))
    changes += [(start - (text[start - 1] == " "), end, "") for start, end, _ in older]
    for start, end, word in packages:
        name = name_of(word)
        if name is None and re.search(r"torch|cu\d\d", word):
            return Report(f"{word} can not be read; it takes {versions['torch']}")
        if name in versions:
            changes.append((start, end, versions[name]))
    if not changes:
        if re.search(r"cu\d\d", text):
            return Report("for CUDA, it seems")
        return Keep("installs nothing that depends on the device")
    # What else the target needs stands behind torch, where that is installed.
    for number, (start, end, new) in enumerate(changes):
        if new == versions["torch"]:
            named = {name_of(word) for *_, word in packages}
            changes[number] = start, end, " ".join([new, *companions(ctx.target.name, named)])
            break
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return _set(ctx, found, text, "versions that were tested together")


_Word = tuple[int, int, str]  # where it starts and ends, and what it says


def _installed(text: str) -> tuple[list[_Word], list[_Word]]:
    """What commands install, and which of their options become another one."""
    packages: list[_Word] = []
    options: list[_Word] = []
    before, option, inside = "", None, False
    for match in _PART.finditer(text):
        if match["end"] is not None:
            before, option, inside = "", None, False
            continue
        word = _unquoted(match[0])
        start, end = match.span()
        if not inside:
            inside = word == "install" and re.fullmatch(r"[!%]*pip[\d.]*", before) is not None
            before = word
        elif option is not None:
            if option[2] in _INDEX and _CUDA_WHEELS.search(word):
                options.append((option[0], end, f"--extra-index-url {_CPU_WHEELS}"))
            option = None
        elif word in _WITH_VALUE:
            option = start, end, word
        elif word.startswith("-"):
            if _CUDA_WHEELS.search(word):
                options.append((start, end, f"--extra-index-url {_CPU_WHEELS}"))
        else:
            packages.append((start, end, word))
    return packages, options


@COMMAND.on("command", "xla")
def older_xla(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    setting = re.fullmatch(r"""(\s*export\s+)XRT_TPU_CONFIG=(?:"[^"]*"|'[^']*')\s*""", text)
    if setting is not None and ctx.target.library == "torch_xla":
        return _set(ctx, found, f"{setting[1]}PJRT_DEVICE=TPU", "what older guides told XRT")
    return Report("of torch_xla before PJRT: nothing reads it today; take it out")


@REQUIREMENT.on("requirement", "package")
def requirement(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    said = without_comment(text)
    line = said.replace("\\\r\n", "").replace("\\\n", "").strip()
    if line.startswith("-"):
        if _CUDA_WHEELS.search(line):
            return _set(ctx, found, f"--extra-index-url {_CPU_WHEELS}{text[len(said) :]}")
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
    if is_for_cuda(body):
        of_torch = str(name).startswith("nvidia-")
        what = "comes with torch's CUDA wheels" if of_torch else "is for CUDA only"
        return Report(f"{name} {what}; leave it out")
    if name not in versions:
        if name is None or re.search(r"cu\d{2,3}\b", line):
            return Report(f"was built for CUDA, it seems; torch is {versions['torch']} there")
        return Keep("does not depend on the device")
    beside = [without_comment(_text(c)) for c in ctx.constructs if c.kind == found.kind]
    others = [name_of(re.split(r"[;\\]| -", each)[0]) for each in beside]
    new = [versions[name]]
    if new == [wanted.strip()] and not options:
        return Keep("the version that was tested")
    if options or marker or others.count(name) > 1:
        return Report(f"takes {new[0]} in the place of what depends on the machine, or on hashes")
    if name == "torch":
        new += companions(ctx.target.name, others)
    end = "\r\n" if text.endswith("\r") else "\n"
    indent = said[: len(said) - len(said.lstrip())]
    return _set(ctx, found, indent + end.join(new) + text[len(said) :], "tested together")


@SETTING.on("setting", "device")
def device_setting(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Report("the program chooses its device itself; leave the setting out")
    said = without_comment(_text(found))
    device = DEVICE_SETTING.sub(rf"\g<before>{ctx.target.device}\g<after>", said)
    return _set(ctx, found, device + _text(found)[len(said) :])


@SETTING.on("setting", "gpu")
def gpu_setting(ctx: Context, found: Construct) -> Decision:
    return Report("speaks of GPUs; look at what the program makes of it")


@COMMAND.on("command", "other")
def other_cell(ctx: Context, found: Construct) -> Decision:
    first = _text(found).lstrip().partition("\n")[0]
    what = f"a cell of {first.split()[0]}" if first.startswith("%%") else "it is not valid Python"
    return Report(f"{what}, and not looked into")


def _text(found: Construct) -> str:
    assert isinstance(found.node, ast.Constant)
    return str(found.node.value)


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word


def _set(ctx: Context, found: Construct, text: str, note: str = "") -> Decision:
    assert isinstance(found.node, ast.Constant)
    literal = ctx.source.code(found.node)
    if literal == json.dumps(_text(found)):  # how a notebook's commands stand in its module
        return Rewrite([SetString(found.node, json.dumps(text)[1:-1])], note=note)
    if any(mark in text for mark in "\"'\\\n{}") or literal[-3:] in ('"""', "'''"):
        return Report(f"becomes `{text}`")
    return Rewrite([SetString(found.node, text)], note=note)
