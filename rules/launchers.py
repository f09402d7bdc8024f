"""Programs that start others on GPUs: process launchers, SLURM, containers and their images."""

import re
from typing import NamedTuple

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Report, Rule
from migrator.rule_api.libraries import MODULES
from migrator.rule_api.project import context_of, why_it_stays
from migrator.rule_api.shell_commands import container, slurm
from migrator.rule_api.texts import words

LAUNCHER = Rule(
    code="CMD002",
    name="launcher",
    summary="a command that starts a program on GPUs, or for each of them",
    why="""A program for several devices keeps its processes (ranks), and torchrun starts them. So
the command stays, and the message says how to start the program; so it does for accelerate,
DeepSpeed, Horovod and MPI.

With --shard, one process drives all devices of torchax: for a program of the project that is
rewritten so (DST003), `torchrun … train.py` becomes `python train.py`, for one host.

GPUs requested from Slurm, Docker or Kubernetes, and images made for CUDA, are reported with a
replacement.""",
    references=("https://cloud.google.com/tpu/docs/run-in-container",),
    examples=(
        Example("torchrun --nproc_per_node=8 train.py --lr 0.1\n", path="train.sh"),
        Example(
            "FROM pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime\n",
            says={1: "an image for CUDA"},
            path="Dockerfile",
        ),
    ),
)

_IMAGE = "an image for CUDA; a TPU's libraries come by pip: python:3.11 will do"
_TORCHRUN = re.compile(
    r"(?<![\w/.-])(?:(?P<python>[\w./${}-]*python[\d.]*)\s+(?:-u\s+)?-m\s+torch\.distributed\."
    r"(?:launch|run)|torchrun)(?=\s)"
)
# Options of torchrun that only say how many processes there are, and where.
_FLAGS = ("standalone", "use-env")
_VALUES = ("nnodes", "nproc-per-node", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id",
           "rdzv-conf", "max-restarts", "monitor-interval", "start-method", "role", "master-addr",
           "master-port", "local-addr", "log-dir", "redirects", "tee")  # fmt: skip


class _Start(NamedTuple):
    """The program that torchrun starts: torchrun's part of a command, and its replacement."""

    start: int
    end: int
    command: str
    program: str  # a path
    one_host: bool


@LAUNCHER.on("command", "launcher")
def launcher(ctx: Context, found: Construct) -> Decision:
    text = found.content
    if re.search(r"\baccelerate(?:\s+|\.commands\.)launch\b", text):
        return Report(
            "asks accelerate for GPUs: `python` starts the program on one device, `torchrun` a "
            "process for each; set mixed_precision in Accelerator(…)"
        )
    if re.search(r"\bdeepspeed\b", text):
        return Report(f"DeepSpeed is for CUDA only: {MODULES['deepspeed'].advice}")
    started = _by_torchrun(text)
    if started is None and not re.search(r"\btorchrun\b|torch\.distributed", text):
        how = "torchrun" if ctx.api.launches else "python, once: one process drives all devices"
        return Report(f"starts a process for each GPU by MPI; start the program by {how}")
    if ctx.api.launches:
        before = ctx.api.devices.launch_command if ctx.api.devices is not None else ""
        advice = f"on a TPU, run `{before}` in the same shell first" if before else ""
        return Keep("starts a process for each device, as on GPUs", advice)
    if ctx.target.portable:
        return Keep("a program for several devices stays as it is with --portable")
    if started is None:
        return Report("starts a process for each GPU; one process drives all devices")
    command = text[: started.start] + started.command + text[started.end :]
    if not started.one_host:
        return Report(
            "starts processes on several hosts, or may do so: see `tpu-migrate explain CMD002`"
        )
    shown = " ".join(command.replace("\\\n", " ").split())
    if _COUNTS.search(text[started.end :]):
        return Report(
            "starts a process for each GPU, and its options may say how many; one "
            f"process drives all devices: `{shown}`"
        )
    before = ctx.source.text[: ctx.source.span(found.node)[0]] + text[: started.start]
    if _ELSEWHERE.search(before):
        return Report(
            "seems to start a process for each GPU in another folder or on other hosts; one "
            f"process drives all devices: `{shown}`"
        )
    if _is_one_process(ctx, started.program):
        return ctx.code.with_text(found, command, "one process drives all devices")
    return Report(f"starts a process for each GPU; one process drives all devices: `{shown}`")


# Commands that change the folder of a script, or start programs themselves.
_ELSEWHERE = re.compile(r"\b(?:cd|pushd|WORKDIR|srun|mpirun|mpiexec|ssh|pdsh)\s")


def _by_torchrun(text: str) -> _Start | None:
    """None if the command can't be parsed."""
    match = _TORCHRUN.search(text)
    if match is None or len(_TORCHRUN.findall(text)) > 1:
        return None
    python = match["python"] or "python"
    one_host, module, value_of = True, False, ""
    for word in words(text[match.end() :]):
        name, equals, value = word.text.lstrip("-").replace("_", "-").partition("=")
        if value_of:
            value_of, name, value = "", value_of, word.text
        elif not word.text:
            return None
        elif word.text in ("-m", "--module"):
            module = True
            continue
        elif word.text.startswith("--") and name in _FLAGS:
            continue
        elif not word.text.startswith("-"):
            program = f"{word.text.replace('.', '/')}.py" if module else word.text
            how = f"{python} -m " if module else f"{python} "
            return _Start(match.start(), match.end() + word.start, how, program, one_host)
        elif name not in _VALUES:
            return None
        elif not equals:
            value_of = name
            continue
        one_host = one_host and value in _ONE_HOST.get(name, (value,))
    return None


# Arguments of a program that may contain the number of processes, or their device.
_COUNTS = re.compile(
    r"gpu|rank|world|parallel|degree|ulysses|ring[_-]|launcher|n_?procs?\b|num_?proc|shard|fsdp"
    r"|--device",
    re.IGNORECASE,
)
_ONE_HOST = {"nnodes": ("1", "1:1"), "node-rank": ("0",)}


def _is_one_process(ctx: Context, program: str) -> bool:
    """Whether a program of the project is rewritten so that one process replaces its ranks."""
    here = ctx.project
    path = here.started(program) if here is not None else None
    if here is None or path is None:
        return False
    there = here.of(path)
    its = context_of(there, ctx.target, ctx.options)
    if its is None or not any(ranks.start is not None for ranks in its.distributed.ranks.values()):
        return False
    return why_it_stays(its) is None


LAUNCHER.on("command", "slurm")(slurm)


LAUNCHER.on("command", "container")(container)


@LAUNCHER.on("command", "image")
def image(ctx: Context, found: Construct) -> Decision:
    return Report(_IMAGE)


@LAUNCHER.on("setting", "container")
def container_setting(ctx: Context, found: Construct) -> Decision:
    said = found.content
    if "nvidia.com/gpu" in said:
        return Report("asks Kubernetes for GPUs; `google.com/tpu: 8` asks for the chips of a host")
    if re.search(r"\bimage\b", said):
        return Report(_IMAGE)
    return Report(
        "gives a container NVIDIA's GPUs; `privileged: true` with `network_mode: host` gives it "
        "the TPU"
    )
