"""TorchTPU: PyTorch's native parallelism stays, and what else it has of its own."""

from __future__ import annotations

import textwrap

import pytest
from helpers import migrated, reported, reported_codes, run

TPU = "torch_tpu"


def tpu(source: str, **options: bool) -> str:
    return migrated(textwrap.dedent(source), TPU, **options)


PARALLEL = """\
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


def parallel(model: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel()})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    return fully_shard(model, mesh=mesh["dp"], mp_policy=policy)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    other = DeviceMesh("cuda", [0, 1])
    group = dist.new_group([0, 1], backend="nccl")
    model = parallel(Model().cuda(), mesh)
    whole = distribute_tensor(torch.ones(4, device="cuda"), mesh["dp"], [Shard(0)]).full_tensor()
    dcp.save({"model": model.state_dict()}, checkpoint_id="folder")
"""


def test_native_parallelism_stays_with_the_devices_name() -> None:
    result = run(PARALLEL, TPU, entry=True)
    text = result.source.decode()
    back_end = "dist.get_default_backend_for_device(device)"
    for line in (
        f'    dist.init_process_group(f"cpu:gloo,{{device.type}}:{{{back_end}}}")\n',
        '    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("dp", "tp"))\n',
        "    other = DeviceMesh(device.type, [0, 1])\n",
        f"    group = dist.new_group([0, 1], backend={back_end})\n",
        "    model = parallel(Model().to(device), mesh)\n",
    ):
        assert line in text
    kept = PARALLEL[PARALLEL.index("def parallel") : PARALLEL.index("if __name__")]
    assert kept in text and not reported(result)
    assert tpu(text, entry=True) == text


@pytest.mark.parametrize(
    "line",
    [
        "pg_options = dist.ProcessGroupNCCL.Options()",
        "import torch.distributed._symmetric_memory as memory\nx = memory.empty(4)",
        "from torch.distributed.tensor.experimental import context_parallel\ncontext_parallel(m)",
        "from torch.distributed import rpc\nrpc.init_rpc('worker')",
    ],
)
def test_what_torch_distributed_lacks_there_is_reported_alone(line: str) -> None:
    source = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    like = (
        "y = [torch.empty(2)]\ndist.reduce_scatter(x, y)\ndist.all_reduce(x)\ndist.reduce(x, 0)\n"
    )
    result = run(f"{source}x = torch.ones(2).cuda()\n{like}{line}\n", TPU, entry=True)
    assert "x = torch.ones(2).to(device)" in result.source.decode()
    assert reported_codes(result) == {"DST001"}


CHOSEN_BY_TABLE = """\
import torch
import torch.distributed as dist


def back_end(device_type: str, on_cpu: bool) -> str:
    found = dist.Backend.default_device_backend_map.get(device_type, "nccl")
    return f"{device_type}:{found},cpu:gloo" if on_cpu else found


class Recipe:
    def __init__(self, device):
        self.back_end = back_end(device.type, True)
        dist.init_process_group(self.back_end, device_id=torch.device("cuda:0"))
"""


def test_a_back_end_by_torchs_own_table_is_the_devices() -> None:
    text = tpu(CHOSEN_BY_TABLE)
    assert "        dist.init_process_group(self.back_end)\n" in text


def test_a_group_of_the_cpu_stays_one() -> None:
    alone = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    assert tpu(alone) == alone
    beside = f"{alone}model = model.cuda()\n"
    assert "get_default_backend_for_device(device)" in tpu(f"import torch\n{beside}")


def test_a_generator_of_a_computed_device_stays() -> None:
    source = "import torch\n\n\ndef seeded(device):\n    return torch.Generator(device)\n"
    assert tpu(source) == source


def test_a_setting_names_the_device() -> None:
    config = "device: cuda  # of all\nlr: 0.1\n"
    result = run(config, TPU, path="config.yaml")
    assert result.source.decode() == "device: tpu  # of all\nlr: 0.1\n"


def test_flex_attention_works_there() -> None:
    source = "from torch.nn.attention.flex_attention import flex_attention\ny = flex_attention(q)\n"
    assert not reported(run(source, TPU)) and reported(run(source, "torchax"))


def test_what_is_nccls_or_for_the_gpus_of_one_process_is_no_part_of_it() -> None:
    head = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    assert "if not dist.is_available():" in tpu(
        f"{head}if not dist.is_nccl_available():\n    f()\n"
    )
    parts = "from torch.nn.parallel import gather, replicate\nx = gather(replicate(m, d), 0)\n"
    assert len(reported(run(head + parts, TPU))) == 2
