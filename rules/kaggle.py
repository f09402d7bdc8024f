"""A Kaggle kernel's metadata: the machine and image that it requests."""

import re

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Report, Rule

KERNEL = Rule(
    code="CFG002",
    name="kaggle-kernel",
    summary="a Kaggle kernel that asks for a GPU asks for a TPU",
    why="""`kaggle kernels push` reads the machine from `kernel-metadata.json`. A `docker_image`
there, as `kaggle kernels pull` writes it, pins an image for CPUs or GPUs. Kaggle then starts that
image instead of a TPU machine. So it becomes null, as if it were not there. A kernel that asks for
no GPU or TPU stays.""",
    references=("https://github.com/Kaggle/kaggle-cli/issues/1197",),
    examples=(
        Example(
            """
            {
              "code_file": "train.ipynb",
              "kernel_type": "notebook",
              "enable_gpu": true,
              "enable_tpu": false,
              "docker_image": "gcr.io/kaggle-images/python@sha256:0123",
              "machine_shape": "NvidiaTeslaT4"
            }
            """,
            after="""
            {
              "code_file": "train.ipynb",
              "kernel_type": "notebook",
              "enable_gpu": false,
              "enable_tpu": true,
              "docker_image": null,
              "machine_shape": "TpuV5E8"
            }
            """,
            path="kernel-metadata.json",
        ),
        Example(
            """
            {
              "kernel_type": "script",
              "enable_gpu": false,
              "docker_image": "gcr.io/kaggle-images/python@sha256:0123"
            }
            """,
            says={4: "asks for no accelerator"},
            path="kernel-metadata.json",
        ),
        Example(
            """
            {
              "model": "resnet50",
              "enable_gpu": true
            }
            """,
            says={3: "check what the program does with it"},
            path="kernel-metadata.json",
        ),
    ),
)
_FIELDS = {
    "docker_image": "null", "enable_gpu": "false", "enable_tpu": "true",
    "machine_shape": '"TpuV5E8"',
}  # fmt: skip
_FIELD = re.compile(rf'"(?P<name>{"|".join(_FIELDS)})"(?P<colon>\s*:\s*)(?:"[^"]*"|\w+)')
_ACCELERATOR = re.compile(
    r'enable_[gt]pu\\?"\s*:\s*(?:\\?")?true|machine_shape\\?"\s*:\s*\\?"(?:Nvidia|Tpu)', re.I
)


@KERNEL.on("setting", "kaggle")
def kernel(ctx: Context, found: Construct) -> Decision:
    if "kernel_type" not in ctx.source.text:
        return Report("mentions GPUs; check what the program does with it")
    if ctx.target.portable:
        return Keep("a portable program uses what its machine has")
    if not _ACCELERATOR.search(ctx.source.text):
        return Keep("a kernel that asks for no accelerator")
    text = found.content
    return ctx.code.with_text(
        found,
        _FIELD.sub(lambda m: f'"{m["name"]}"{m["colon"]}{_FIELDS[m["name"]]}', text),
        note="the image is for CPUs or GPUs" if "docker_image" in text else "",
    )
