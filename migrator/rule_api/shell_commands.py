"""Commands for a shell: what they install, and which program they start."""

import ast
import re
from collections.abc import Iterable

from migrator.rule_api import Construct, Context, Decision, Report
from migrator.rule_api.packages import (
    CPU_WHEELS,
    CUDA_WHEELS,
    ONLY_TORCH,
)
from migrator.rule_api.texts import (
    ShellWord,
    is_embedded,
    quoted,
    words,
)

# Commands that install packages, by the word before `install` or `add`.
_INSTALLS = {
    "install": re.compile(r"[!%@]*(?:\S*/)?(?:pip[\d.]*|pipenv)"),
    "add": re.compile(r"[!%@]*(?:\S*/)?(?:uv|poetry|pdm)"),
}
_INDEX = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index")
_WITH_VALUE = ("-r", "--requirement", "-c", "--constraint", "-t", "--target", "-e", "--editable",
               "--prefix", "--root", "--python", "--platform", "--no-binary", "--only-binary",
               "--group", "-G", "--extra", "--extras", "--optional", "--package", "--source",
               "--script", "--directory", "--project", "--upgrade-strategy", "--trusted-host",
               *_INDEX)  # fmt: skip


def nvidia_smi(ctx: Context, found: Construct) -> Decision:
    text = found.content
    plain = re.fullmatch(r"([!%\s]*(?:sx\s+)?)nvidia-smi(?:\s+-L)?(\s*)", text)
    if plain is None or ctx.target.portable:
        return Report("asks NVIDIA's driver; `tpu-info` shows what a TPU does")
    return ctx.code.with_text(found, f"{plain[1]}tpu-info{plain[2]}")


def as_words(packages: Iterable[str], mark: str) -> str:
    """Packages as words of a shell command."""
    return " ".join(quoted(each, mark) for each in packages)


def mark(ctx: Context, found: Construct, used: str = "") -> str:
    """The quotes for a word: those already used, otherwise those that the surrounding string
    allows."""
    if used in ("'", '"'):
        return used
    assert isinstance(found.node, ast.expr)
    held = not is_embedded(ctx.names.parent(found.node)) and ctx.source.code(found.node)[0] == "'"
    return '"' if held else "'"


def installed_by(text: str) -> tuple[list[ShellWord], list[ShellWord], list[ShellWord]]:
    """The packages a command installs, options that change, and options that go with torch."""
    packages: list[ShellWord] = []
    options: list[ShellWord] = []
    indexes: list[ShellWord] = []
    before, option, inside = "", None, False
    for each in words(text):
        start, end, word = each
        if not word:
            before, option, inside = "", None, False
        elif not inside:
            inside = word in _INSTALLS and _INSTALLS[word].fullmatch(before) is not None
            before = before if word.startswith("-") else word
        elif option is not None:
            if option.text in _INDEX and CUDA_WHEELS.search(word):
                options.append(ShellWord(option.start, end, _cpu_index(f"{option.text} {word}")))
            elif option.text in ("-i", "--index-url") and ONLY_TORCH.search(word):
                indexes.append(ShellWord(option.start, option.end, "--extra-index-url"))
            elif option.text in ("-e", "--editable"):
                packages.append(each)
            option = None
        elif word in _WITH_VALUE:
            option = each
        elif re.fullmatch(r"--torch-backend=cu\d+", word):
            options.append(ShellWord(start, end, "--torch-backend=cpu"))
        elif word.startswith("-"):
            if CUDA_WHEELS.search(word):
                options.append(ShellWord(start, end, _cpu_index(word)))
            elif word.startswith("--index-url=") and ONLY_TORCH.search(word):
                indexes.append(ShellWord(start, start + len("--index-url"), "--extra-index-url"))
        else:
            packages.append(each)
    return packages, options, indexes


def _cpu_index(option: str) -> str:
    """The option for the index of CPU wheels; uv's and pipenv's `--index` may give it a name."""
    if re.match(r"--index[ =]", option):
        return re.sub(r"https?://\S+", CPU_WHEELS, option)
    return f"--extra-index-url {CPU_WHEELS}"


def slurm(ctx: Context, found: Construct) -> Decision:
    return Report(
        "asks Slurm for GPUs; remove it, and start the script on the TPU's own hosts "
        "(`gcloud compute tpus tpu-vm ssh NAME --worker=all --command=…`)"
    )


def container(ctx: Context, found: Construct) -> Decision:
    return Report(
        "gives a container NVIDIA's GPUs; `docker run --privileged --net=host` gives it the TPU"
    )
