"""Around the code: commands for a shell, requirements, configurations."""

import ast
import json
import re
import shlex

from migrator.edits import SetString
from migrator.inventory import DEVICE_SETTING, Construct, without_comment
from migrator.requirements import is_for_cuda, name_of, tested
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

_WORD = re.compile(r"""(?:[^\s"'|;&]|"[^"]*"|'[^']*')+""")
_CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
_CUDA_WHEELS = re.compile(r"(?:cu\d{2,3}|torch_stable\.html)/?$")
_DEVICE = re.compile(r"(--device(?:[ =]))(?P<quote>[\"']?)cuda(?::\d+)?(?P=quote)(?=\s|$)")


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
    return _set(ctx, found, text)


@COMMAND.on("command", "gpu")
def gpu_command(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    if re.match(r"\s*FROM\s", text):
        return Report("an image for CUDA; a TPU's libraries come by pip: python:3.11 will do")
    if re.search(r"gres=gpu|^#SBATCH", text):
        return Report("asks SLURM for GPUs")
    if re.search(r"torchrun|torch\.distributed\.(?:launch|run)", text):
        if ctx.target.launches:
            return Keep("starts a process for each device, as on GPUs")
        return Report("starts a process for each GPU; here one process drives all devices")
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
    words = [(m.start(), m.end(), _unquoted(m[0])) for m in _WORD.finditer(text)]
    if cuda := [word for *_, word in words if is_for_cuda(word)]:
        return Report(f"{', '.join(cuda)}: for CUDA only")
    changes: list[tuple[int, int, str]] = []
    named = {name_of(word): (start, end) for start, end, word in words}
    for name, (start, end) in named.items():
        if name in versions:
            changes.append((start, end, versions.pop(name)))
        elif name == "torchaudio":
            changes.append((start, end, versions.get("torch", "torch").replace("torch", name, 1)))
    wheels = False
    for start, end, word in words:
        if _CUDA_WHEELS.search(word) and "pytorch.org" in word:
            wheels = True
            changes.append((start, end, _CPU_WHEELS))
            before = max((w for w in words if w[1] <= start), key=lambda w: w[1])
            if before[2] in ("--index-url", "-i", "-f", "--find-links"):
                changes.append((before[0], before[1], "--extra-index-url"))
    if not changes:
        return Keep("installs nothing that depends on the device")
    # What else the target needs stands behind the last package of those that were there.
    last = max(change for change in changes if not change[2].startswith(("http", "--")))
    more = [text for name, text in versions.items() if name != "torchvision"]
    changes[changes.index(last)] = (last[0], last[1], " ".join([last[2], *more]))
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    note = "versions that were tested together" + (", and CPU wheels of PyTorch" if wheels else "")
    return _set(ctx, found, text, note)


@REQUIREMENT.on("requirement", "package")
def requirement(ctx: Context, found: Construct) -> Decision:
    text = _text(found)
    wanted = re.match(r"\s*([^#]*?)(?=\s*(?:#|\Z))", text, re.DOTALL)
    line = wanted[1] if wanted is not None else ""
    if _CUDA_WHEELS.search(line) and "pytorch.org" in line:
        return _set(ctx, found, text.replace(line, f"--extra-index-url {_CPU_WHEELS}"))
    name = name_of(line)
    if name is None:
        return Keep("no package with a version of its own")
    if ctx.target.portable:
        return Keep("a portable program takes what its machine has")
    if is_for_cuda(line):
        what = (
            "comes with torch's CUDA wheels" if name.startswith("nvidia-") else "is for CUDA only"
        )
        return Report(f"{name} {what}; leave it out")
    versions = tested(ctx.target.name)
    if name == "torchaudio":
        versions[name] = versions["torch"].replace("torch", name, 1)
    if name not in versions:
        return Keep("does not depend on the device")
    new = [versions.pop(name)]
    if name == "torch":
        others = {
            name_of(_text(c).partition("#")[0]) for c in ctx.constructs if c.kind == found.kind
        }
        new += [text for each, text in versions.items() if each not in {*others, "torchvision"}]
    if new == [line]:
        return Keep("the version that was tested")
    return _set(ctx, found, text.replace(line, "\n".join(new), 1), "tested together")


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
