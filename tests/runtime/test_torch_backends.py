"""Every name below torch.backends, of the torch that a target has, is decided on."""

import types
from collections.abc import Iterator

import pytest
import torch
from target import TARGET

from migrator.diagnostics import Outcome
from migrator.options import Options
from migrator.pipeline.engine import migrate
from migrator.pipeline.result import Result
from migrator.targets import targets

GPU = {"cuda", "cudnn", "miopen", "cusparselt", "fp32_precision", "flags", "set_flags"}
# What steers the CPU, or all devices alike, and stays as it is.
NO_GPU = {
    "cpu", "kleidiai", "mha", "mkl", "mkldnn", "nnpack", "openmp", "opt_einsum", "quantized",
    "xeon",  # a launcher, which is not imported with torch
    "disable_global_flags", "flags_frozen",
}  # fmt: skip
OTHER_ACCELERATORS = {"mps"}
# The machinery of torch.backends itself.
INNER = {"ContextProp", "GenericModule", "PropModule", "contextmanager", "types"}


def below(owner: object, path: str, depth: int = 0) -> Iterator[str]:
    """Public names of a module or of an object that stands for one."""
    for name in sorted({*dir(owner), *dir(type(owner))}):
        kind = getattr(type(owner), name, None)  # a property may ask the GPU
        if name.startswith("_") or name in INNER or hasattr(types.ModuleType, name):
            continue
        yield f"{path}.{name}"
        if depth < 2 and not isinstance(kind, property):
            value = getattr(owner, name, None)
            named = value.__name__ if isinstance(value, types.ModuleType) else None
            if (named or type(value).__module__).startswith("torch.backends") and not callable(
                value
            ):
                yield from below(value, f"{path}.{name}", depth + 1)


CHILDREN = {
    name for name in dir(torch.backends) if not name.startswith("_") and name not in INNER
} - {"sys", "torch", "m"}
NAMES = [
    name
    for child in sorted(CHILDREN)
    for name in (
        f"torch.backends.{child}",
        *below(getattr(torch.backends, child), f"torch.backends.{child}"),
    )
    if "m" not in name.split(".")[2:]  # the module behind an object
]
# What `dir` does not show, since __getattr__ gives it.
NAMES += [
    "torch.backends.cuda.cufft_plan_cache.max_size",
    *(f"torch.backends.cudnn.{part}.fp32_precision" for part in ("conv", "rnn")),
    *(
        f"torch.backends.cuda.matmul.{name}"
        for name in (
            "allow_tf32", "allow_fp16_reduced_precision_reduction", "fp32_precision",
            "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation",
        )
    ),
]  # fmt: skip
FORMS = ["{} = True\n", "x = {}\n", "{}()\n", "with {}(True):\n    f()\n", "if {}():\n    f()\n"]


def migrated(source: str) -> Result:
    return migrate(source.encode(), targets()[TARGET], Options(entry=False))


def test_all_children_are_known() -> None:
    assert CHILDREN <= GPU | NO_GPU | OTHER_ACCELERATORS
    assert len(NAMES) > 80


@pytest.mark.parametrize("form", FORMS)
def test_each_name_is_decided_on(form: str) -> None:
    for name in NAMES:
        source = "import torch\n" + form.format(name)
        result = migrated(source)
        found = [d for d in result.diagnostics if d.outcome is not None]
        child = name.split(".")[2]
        if child in OTHER_ACCELERATORS:
            continue
        if child in NO_GPU:
            assert not result.diagnostics and not result.changed, source
            continue
        assert found and not [d for d in found if d.code == "GEN001"], source
        assert all(d.message for d in found if d.outcome is not Outcome.REWRITTEN), source
        if all(d.outcome is Outcome.REWRITTEN for d in found):
            assert name not in result.source.decode(), source


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_answers_without_a_gpu(name: str) -> None:
    """A read that stays must not raise on a machine without CUDA."""
    read = f"x = {name}\n"
    result = migrated(f"import torch\n{read}")
    if read.encode() in result.source and not any(
        d.outcome is Outcome.REPORTED for d in result.diagnostics
    ):
        exec(read, {"torch": torch})
