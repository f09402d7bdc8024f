"""Scripts for XPU, MPS, an NPU or Vulkan are migrated as those for CUDA; others' branches stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, migrated, reported, run

from migrator.runs.run import migrate_paths

LADDER = """\
import torch

def get_best_device():
    # NVIDIA and AMD
    if torch.cuda.is_available():
        return torch.device("cuda")
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return torch.device("xpu")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    if torch.is_vulkan_available():
        return torch.device("vulkan")
    return torch.device("cpu")
"""


def left(source: str) -> list[str]:
    return reported(run(source))


@pytest.mark.parametrize("name", ["xpu", "npu"])
def test_the_names_of_torch_are_those_of_cuda(name: str) -> None:
    """XPU and NPU have the functions of torch.cuda under their own name."""
    source = """\
import torch
from torch.cuda.amp import autocast
device = "cuda:0" if torch.cuda.is_available() else "cpu"
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(3)
x = torch.randn(2, device=device).cuda(non_blocking=True)
with autocast(dtype=torch.float16):
    y = model(x)
if y.is_cuda:
    torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated(), torch.cuda.get_device_name(0))
torch.cuda.empty_cache()
"""
    for target in TARGETS:
        there = source.replace("cuda", name)
        assert migrated(there, target) == migrated(source, target)
        assert name not in migrated(there, target)


def test_mps_has_names_of_its_own() -> None:
    source = """\
import torch as th
if th.backends.mps.is_built() and th.backends.mps.is_available():
    device = th.device("mps")
    print(th.mps.current_allocated_memory(), th.mps.driver_allocated_memory())
    th.mps.synchronize()
"""
    assert (
        migrated(source)
        == """\
import torch as th
import tpu_runtime
if tpu_runtime.is_available():
    device = th.device("jax")
    print(tpu_runtime.memory_allocated(), tpu_runtime.memory_reserved())
    tpu_runtime.synchronize()
"""
    )


def test_vulkan() -> None:
    source = """\
import torch
if torch.is_vulkan_available():
    x = torch.rand(1, 3, 8, 8).to("vulkan")
    print(x.is_vulkan, model(x.to("vulkan")))
"""
    assert (
        migrated(source, "torch_xla")
        == """\
import torch
import tpu_runtime
if tpu_runtime.is_available():
    x = torch.rand(1, 3, 8, 8).to("xla")
    print(x.device.type == "xla", model(x.to("xla")))
"""
    )


def test_what_only_looks_like_a_device_stays() -> None:
    source = """\
import torch
x = torch.ones(2, device="mps")
unit, path = "mps2", "data/mps/npu"
impl = "mps"
timestamps = inputs.stamps
"""
    assert migrated(source) == source.replace('device="mps"', 'device="jax"')
    assert left(source) == ['"mps"']  # impl


def test_a_ladder_gets_a_rung_and_keeps_the_others() -> None:
    for target, device, imports in (
        ("torchax", 'torch.device("jax")', "import tpu_runtime\n"),
        ("torch_xla", "torch_xla.device()", "import torch_xla\nimport tpu_runtime\n"),
    ):
        rung = f"    if tpu_runtime.is_available():\n        return {device}\n"
        expected = LADDER.replace("    # NVIDIA", f"{rung}    # NVIDIA")
        expected = expected.replace("import torch\n", f"import torch\n{imports}")
        assert migrated(LADDER, target) == expected
        assert left(LADDER) == []


def test_a_ladder_of_branches_with_a_comment_above() -> None:
    source = """\
import torch
class Runner:
    def __init__(self):
        # the best there is
        if torch.cuda.is_available():
            print("GPU")
            self.device = 'cuda'
        elif torch.backends.mps.is_available():  # Apple
            self.device = 'mps'
        else:
            self.device = 'cpu'
"""
    assert migrated(source) == source.replace(
        "        if torch.cuda",
        "        if tpu_runtime.is_available():\n            self.device = 'jax'\n"
        "        elif torch.cuda",
    ).replace("import torch\n", "import torch\nimport tpu_runtime\n")


def test_a_rung_that_does_more_is_rewritten_itself() -> None:
    """What else belongs to the accelerator must happen on the TPU, too."""
    source = """\
import torch
if torch.cuda.is_available():
    device, batch = torch.device("cuda"), 64
elif torch.backends.mps.is_available():
    device, batch = torch.device("mps"), 8
"""
    assert (
        migrated(source)
        == """\
import torch
import tpu_runtime
if tpu_runtime.is_available():
    device, batch = torch.device("jax"), 64
elif torch.backends.mps.is_available():
    device, batch = torch.device("mps"), 8
"""
    )


def test_a_choice_in_one_expression_becomes_the_device() -> None:
    source = """\
import torch
device = ("cuda" if torch.cuda.is_available()
          else "mps" if torch.backends.mps.is_available() else "cpu")
"""
    assert migrated(source) == 'import torch\ndevice = "jax"\n'


def test_a_portable_program_chooses_by_the_runtime() -> None:
    text = migrated(LADDER, portable=True)
    assert text.count("tpu_runtime.is_available()") == 1
    assert "tpu_runtime.device()" in text and 'torch.device("mps")' in text


def test_branches_for_other_accelerators_stay_in_a_cuda_program() -> None:
    source = """\
import torch
x = torch.ones(2).cuda()
if x.device.type == "mps":
    torch.mps.empty_cache()
    x = x.to("mps", torch.float32)
try:
    import torch_npu
    x = x.npu()
except ImportError:
    pass
"""
    assert migrated(source) == source.replace(".cuda()", '.to("jax")')
    assert left(source) == []


def test_what_is_reached_without_asking_is_reported() -> None:
    source = 'import torch\nx = torch.ones(2).cuda()\ntorch.xpu.synchronize()\ny = x.to("npu:0")\n'
    assert left(source) == ["torch.xpu.synchronize", '"npu:0"']


def test_a_file_of_helpers_for_another_accelerator_stays() -> None:
    """It puts nothing on MPS itself, so nothing says that the program runs there."""
    source = """\
import torch
def supported(x):
    if x.device.type == "mps":
        return x.float()
    return x
"""
    assert migrated(source) == source


def test_intels_extension_goes() -> None:
    source = """\
import torch
import intel_extension_for_pytorch as ipex

model = model.to("xpu")
model, optimizer = ipex.optimize(model, optimizer=optimizer)
"""
    assert migrated(source) == 'import torch\n\nmodel = model.to("jax")\n'


@pytest.mark.parametrize(
    "use",
    [
        "model = ipex.optimize(model, dtype=torch.bfloat16)",  # converts the weights
        "fast = ipex.optimize(model)",  # a copy
        "model = ipex.quantize(model)",
    ],
)
def test_intels_extension_stays_where_it_does_more(use: str) -> None:
    source = f"import torch\nimport intel_extension_for_pytorch as ipex\nm.to('xpu')\n{use}\n"
    assert use in migrated(source)
    assert len(left(source)) == 2  # the import and the call


def test_rocm_is_asked_for_by_a_version() -> None:
    source = """\
import torch
is_rocm = torch.version.hip is not None
def get_rocm_version():
    return torch.version.hip
if torch.version.hip:
    print(f"ROCm {torch.version.hip}")
x = torch.ones(2)
major = int(torch.version.hip.split(".")[0])
"""
    assert migrated(source) == source
    assert left(source) == ["torch.version.hip"]  # the last


def test_group_of_another_back_end() -> None:
    source = (
        "import torch\nimport torch.distributed as dist\n"
        'dist.init_process_group("ccl")\nmodel.to("xpu")\n'
    )
    assert 'init_process_group("xla", init_method="xla://")' in migrated(source, "torch_xla")


def test_a_migrated_file_is_not_read_as_one_for_mps() -> None:
    """CUDA's words are gone after the first run; those for MPS are still none of its own."""
    source = """\
import torch
device = torch.device("cuda")
places = {"apple": torch.device("mps")} if torch.backends.mps.is_available() else {}
"""
    assert 'torch.device("mps")' in migrated(source)


def test_a_picker_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "devices.py").write_text(LADDER)
    (tmp_path / "main.py").write_text(
        "import torch\nfrom devices import get_best_device\n"
        "device = get_best_device()\n"
        'if __name__ == "__main__":\n'
        '    with torch.autocast("cuda" if device.type == "cuda" else "cpu"):\n'
        "        model.to(device)\n"
    )
    report = migrate_paths([tmp_path], "torchax")
    texts = {f.path.name: f.result.source.decode() for f in report.files}
    assert 'torch.device("jax")' in texts["devices.py"]
    assert 'device.type == "jax"' in texts["main.py"]
    assert "tpu_runtime.setup()" in texts["main.py"]


@pytest.mark.parametrize(
    "head",
    [
        'if name != "auto":\n        return torch.device(name)\n    ',
        "if force_cpu:\n        return torch.device('cpu')\n    ",
        "if x is None:\n        y = y.to(z)\n        return y.device\n    ",
    ],
)
def test_a_question_that_is_not_about_hardware_stays_first(head: str) -> None:
    rest = LADDER[LADDER.index("    if torch.cuda") + 4 :]
    source = f"import torch\n\ndef pick(name, force_cpu, x, y, z):\n    {head}{rest}"
    text = migrated(source)
    assert head in text
    assert text.index(head) < text.index("if tpu_runtime.is_available()")


@pytest.mark.parametrize(
    "test",
    [
        "not args.no_cuda and torch.cuda.is_available()",
        'name == "cuda" and torch.cuda.is_available()',
        "(cuda := torch.cuda.is_available())",
    ],
)
def test_a_flag_in_a_rung_counts_for_the_tpu_too(test: str) -> None:
    source = (
        f"import torch\nif {test}:\n    device = 'cuda'\n"
        "elif torch.backends.mps.is_available():\n    device = 'mps'\nelse:\n    device = 'cpu'\n"
    )
    assert f"if {test.replace('torch.cuda', 'tpu_runtime')}:\n    device = 'jax'\n" in migrated(
        source
    )


def test_what_a_rung_does_is_done_on_the_tpu_too() -> None:
    source = (
        "import torch\nif torch.cuda.is_available():\n    torch.manual_seed(3)\n"
        "    device = 'cuda'\nelif torch.backends.mps.is_available():\n    device = 'mps'\n"
    )
    assert "if tpu_runtime.is_available():\n    torch.manual_seed(3)\n    device = 'jax'\n" in (
        migrated(source)
    )


def test_methods_that_are_called_like_accelerators() -> None:
    source = "import torch\nx = torch.ones(2)\ny = state.mps() @ state.mps(3) + circuit.vulkan()\n"
    assert migrated(source) == source
