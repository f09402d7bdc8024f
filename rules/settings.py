"""Configuration files: settings for GPUs."""

import json
import re

from migrator.rule_api import Construct, Context, Decision, Example, Family, Keep, Report, Rule
from migrator.rule_api.libraries import MODULES, of_package
from migrator.rule_api.packages import alike, normal, tested
from migrator.rule_api.texts import (
    DEVICE_SETTING,
    HIDES,
    LISTED_PACKAGE,
    NAMED_CLASS,
    NOT_HALF,
    PLACE_SETTING,
    hides_gpus,
    without_comment,
)
from migrator.rule_api.yaml_settings import with_setting

FAMILY = Family("CFG", "Configurations", 170)

SETTING = Rule(
    code="CFG001",
    name="gpu-setting",
    summary="a setting in YAML, JSON or TOML that names a GPU",
    why="""In YAML, JSON and TOML, the value `cuda` becomes the target's device under a key that
ends in `device`, or that a program takes for one: `torch.device(cfg.where)`. It keeps an index if a
program beside it or above it compares devices. If no program of the project imports what reads
settings, the device is reported. A number of devices stays if such a program reads its key: what
that does with it is rewritten or reported there.

`accelerator: gpu` becomes `tpu` for Lightning's Trainer: beside a `_target_` that names it, also in
another file of the folder, or for a program with a LightningCLI.

Other settings for GPUs (a back end, another accelerator, float16 of accelerate or Trainer) are
reported. Commands are rewritten as in scripts (CMD001). Very long files count as data, and are not
read.""",
    examples=(
        Example(
            """
            train:
              device: cuda:0  # the first
              gpus: 4
            """,
            after="""
            train:
              device: {device}  # the first
              gpus: 4
            """,
            path="config.yaml",
        ),
        Example(
            '{"device": "cuda", "lr": 0.1}\n',
            after='{"device": "{device}", "lr": 0.1}\n',
            path="config.json",
        ),
        Example(
            """
            train:
              device: cpu
              backend: nccl
            """,
            says={3: "a back end for GPUs"},
            path="config.yaml",
        ),
        Example(
            """
            trainer:
              accelerator: gpu
            """,
            says={2: "names a GPU"},
            path="config.yaml",
        ),
    ),
)


@SETTING.on("setting", "device")
def device_setting(ctx: Context, found: Construct) -> Decision:
    return _with_device(ctx, found, DEVICE_SETTING)


def _with_device(ctx: Context, found: Construct, setting: re.Pattern[str]) -> Decision:
    if ctx.target.asks_runtime:
        return Report("the program chooses its device itself; remove the setting")
    if ctx.project is not None and not ctx.project.has_reader():
        return Report(
            f"no program here reads settings; for one that does, write {ctx.api.device!r}"
        )
    return with_setting(
        ctx, found, setting,
        lambda m: f"{m['before']}{ctx.code.device_name(bool(m['index']))}{m['after']}",
    )  # fmt: skip


@SETTING.on("setting", "accelerator")
def accelerator(ctx: Context, found: Construct) -> Decision:
    names_gpu = _GPU_ACCELERATOR.search(found.content) is not None
    if not names_gpu or ctx.project is None or not ctx.project.configures_lightning():
        return Report(
            f"names a GPU: a program of your own takes {ctx.api.device!r} there, and Lightning's "
            'Trainer "tpu"'
        )
    if (several := ctx.project.lightning_devices()) is not None:
        return Report(
            f'Lightning\'s Trainer takes "tpu" there, and starts no processes for TPUs: {several} '
            "has to be 1, or the number of processes that torchrun starts"
        )
    word = "auto" if ctx.target.portable else "tpu"
    return with_setting(ctx, found, _GPU_ACCELERATOR, rf"\g<before>{word}")


_GPU_ACCELERATOR = re.compile(
    r"""(?P<before>(?<![\w.-])["']?accelerator["']?\s*:\s*["']?)(?:gpu|cuda)\b""", re.IGNORECASE
)


@SETTING.on("setting", "half")
def half(ctx: Context, found: Construct) -> Decision:
    return Report(NOT_HALF)


@SETTING.on("setting", "sharded")
def sharded(ctx: Context, found: Construct) -> Decision:
    return Report("shards over GPUs; remove it, and the whole model is on each device")


@SETTING.on("setting", "class")
def named_class(ctx: Context, found: Construct) -> Decision:
    named = NAMED_CLASS.search(without_comment(found.content))
    assert named is not None
    return Report(MODULES[named["module"]].reason(named["module"]))


@SETTING.on("setting", "package")
def listed_package(ctx: Context, found: Construct) -> Decision:
    """`- "torch==2.1.0"`, in a list that something installs: cog.yaml, a workflow's matrix."""
    listed = LISTED_PACKAGE.match(without_comment(found.content))
    name = normal(listed["name"]) if listed is not None else ""
    if library := of_package(name):
        return Report(library.reason(name))
    needed = tested(ctx.target).get(name)
    if needed is None or ctx.target.portable:
        return Keep("does not depend on the device")
    if alike(without_comment(found.content).strip("- \"'"), needed):
        return Keep(f"{needed} is what the target needs")
    return Report(f"the target needs {needed}")


@SETTING.on("setting", "back end")
def back_end(ctx: Context, found: Construct) -> Decision:
    group = ctx.api.devices.group if ctx.api.devices is not None else "another one"
    if ctx.project is not None and ctx.project.serves_ranks():
        return Keep(f"the program that reads it names `{group}` itself")
    return Report(f"a back end for GPUs; a migrated program names `{group}` itself, remove it")


@SETTING.on("setting", "variable")
def variable(ctx: Context, found: Construct) -> Decision:
    if hides_gpus(found.content):
        return Report(HIDES)
    return Keep("chooses GPUs; no effect on a TPU")


@SETTING.on("setting", "text")
def in_text(ctx: Context, found: Construct) -> Decision:
    return Report("a string that mentions GPUs; check what reads it")


# Counts (`num_gpu: 4`), not device numbers.
_COUNT = re.compile(
    r"""\W*(?P<key>(?:\w*_)?(?:num|n|nr|of)_?gpus?|(?:\w*_)?gpu_num|gpus)["']?\s*[:=]\s*\d+\W*""",
    re.IGNORECASE,
)


# `- trainer: gpu` and `- override /trainer: gpu` of Hydra
_CHOSEN = re.compile(r"\s*-\s+(?:override\s+)?(?P<group>[\w/]+)\s*:\s*(?P<name>[\w/-]+)\s*")


@SETTING.on("setting", "gpu")
def gpu_setting(ctx: Context, found: Construct) -> Decision:
    chosen = _CHOSEN.fullmatch(without_comment(found.content))
    if chosen is not None and ctx.project is not None:
        if ctx.project.holds_setting(chosen["group"], chosen["name"]):
            return Keep("names another configuration, whose own lines say what is for GPUs")
    place = PLACE_SETTING.search(without_comment(found.content))
    if place is not None and ctx.project is not None:
        if ctx.project.is_taken_as_device(place["key"]):
            return _with_device(ctx, found, PLACE_SETTING)
    count = _COUNT.fullmatch(without_comment(found.content))
    if count is not None and ctx.project is not None and ctx.project.is_asked_for(count["key"]):
        return Keep("a number of devices; the lines that read it are handled as GPU code")
    if _CUDA.fullmatch(without_comment(found.content)) and "profil" in _table(ctx, found).lower():
        return Keep("tells a profiler what to trace, which is harmless without CUDA")
    return Report("mentions GPUs; check what the program does with it")


_CUDA = re.compile(r"""\s*["']?(?:use_)?cuda["']?\s*[:=]\s*["']?true["']?\s*,?""", re.IGNORECASE)


_TABLE = re.compile(r"\s*\[+[\w.\"-]+\]+")  # of TOML


def _table(ctx: Context, found: Construct) -> str:
    """The line that names the table which contains a setting."""
    line = found.node.lineno  # type: ignore[attr-defined]
    for above in reversed(ctx.source.text.split("\n")[: line - 1]):
        said = json.loads(above[above.index('"') : above.rindex('"') + 1]) if '"' in above else ""
        if not without_comment(said).strip():
            continue
        if _indent(said) < _indent(found.content) or _TABLE.fullmatch(without_comment(said)):
            return str(said)
    return ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
