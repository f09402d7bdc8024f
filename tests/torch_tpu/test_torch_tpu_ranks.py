"""PyTorch's native parallelism on torch_tpu, in a world of one: the CPU's numbers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
import tpu_runtime
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

BACK_END = "cpu:gloo,tpu:tpu_dist"


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    tpu_runtime.setup()
    dist.init_process_group(BACK_END, store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def layers() -> Layers:
    torch.manual_seed(0)
    return Layers()


def trained(model: nn.Module, device: str, run: Callable[..., torch.Tensor] | None = None) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    for step in range(1, 3):
        optimizer.zero_grad()
        (run or model.__call__)(torch.ones(3, 4, device=device) * step).square().mean().backward()
        optimizer.step()


def whole(tensor: Any) -> torch.Tensor:
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().cpu()  # type: ignore[no-any-return]


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return fully_shard(model.to("tpu"), mesh=mesh["dp"])


def sharded_from_the_cpu(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return fully_shard(model, mesh=mesh["dp"])


def sharded_from_the_meta_device(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """torchtitan's way. Set-up gave DTensors a device's wrapper around a tensor without one."""
    values = {name: value.clone() for name, value in model.state_dict().items()}
    before = fully_shard(model.to("meta"), mesh=mesh["dp"])
    parameters = list(before.parameters())
    model.to_empty(device="tpu")
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(distribute_tensor(values[name].to("tpu"), mesh["dp"], [Shard(0)]))
    return model


def in_tensors(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model.to("tpu"), mesh["tp"], plan)


def both(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return fully_shard(in_tensors(model, mesh), mesh=mesh["dp"])


def copied(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model.to("tpu"))


WAYS = [
    sharded, sharded_from_the_cpu, sharded_from_the_meta_device, in_tensors, both, copied
]  # fmt: skip


@pytest.mark.parametrize("parallel", WAYS)
def test_a_parallel_model_trains_as_on_the_cpu(parallel: Callable[..., nn.Module]) -> None:
    mesh = init_device_mesh("tpu", (1, 1), mesh_dim_names=("dp", "tp"))
    expected = layers()
    trained(expected, "cpu")
    model = parallel(layers(), mesh)
    trained(model, "tpu")
    for found, there in zip(model.parameters(), expected.parameters(), strict=True):
        assert found.device.type == "tpu"
        torch.testing.assert_close(whole(found), there.detach())


def test_a_checkpoint_of_a_sharded_model_comes_back(tmp_path: Path) -> None:
    mesh = init_device_mesh("tpu", (1,))
    model = fully_shard(layers().to("tpu"), mesh=mesh)
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=tmp_path)
    other = fully_shard(Layers().to("tpu"), mesh=mesh)
    state = {"model": get_model_state_dict(other)}
    dcp.load(state, checkpoint_id=tmp_path)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found = get_model_state_dict(other, options=options)
    torch.testing.assert_close(found, layers().state_dict())


def test_tensors_and_objects_are_exchanged() -> None:
    mesh, x = init_device_mesh("tpu", (1,)), torch.arange(4.0)
    divided = distribute_tensor(x.to("tpu"), mesh, [Shard(0)])
    assert torch.equal(whole(divided.redistribute(mesh, [Replicate()])), x)
    assert torch.equal(funcol.all_reduce(x.to("tpu"), "sum", mesh).cpu(), x)
    objects: list[Any] = [None]
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]
    on_cpu = torch.ones(2)
    dist.all_reduce(on_cpu)  # by gloo
    group = dist.new_group([0], backend=dist.get_default_backend_for_device("tpu"))
    dist.all_reduce(moved := x.to("tpu"), op=dist.ReduceOp.AVG, group=group)
    assert torch.equal(moved.cpu(), x) and torch.equal(on_cpu, torch.ones(2))


def test_what_is_reported_raises_an_error() -> None:
    """Nothing of it computes something else."""
    import torch.distributed._symmetric_memory as memory

    with pytest.raises(RuntimeError, match="SymmetricMemory"):
        memory.rendezvous(memory.empty(4, device="tpu"), dist.group.WORLD)


@pytest.mark.parametrize("arguments", [{}, {"device_ids": [0, 1, 2, 3], "output_device": 1}])
def test_copies_are_the_model_itself(arguments: dict[str, Any]) -> None:
    """Inputs on the CPU are moved, as to a GPU; parts of the batch are not computed apart."""
    plain = layers()
    copies = nn.DataParallel(layers(), **arguments)
    copies.to("tpu")
    x = torch.ones(3, 4)
    copies(x).sum().backward()
    plain(x).sum().backward()
    torch.testing.assert_close(copies(x).cpu(), plain(x))
    torch.testing.assert_close(copies.module.up.weight.grad.cpu(), plain.up.weight.grad)
    assert copies.device_ids == [0] and "module.up.weight" in copies.state_dict()


def test_copies_move_what_is_in_their_arguments() -> None:
    class Summing(nn.Module):
        def forward(self, pair: Any, *, by_name: Any, times: int) -> torch.Tensor:
            return (pair[0] + pair[1][0] + by_name["x"]) * times  # type: ignore[no-any-return]

    one = torch.ones(2)
    y = nn.DataParallel(Summing())((one, [one]), by_name={"x": one}, times=2)
    assert y.device.type == "tpu" and y.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("async_op", [False, True])
def test_a_reduction_to_one_rank(async_op: bool) -> None:
    x = torch.arange(3.0, device="tpu")
    work = dist.reduce(x, dst=0, async_op=async_op)
    assert (work is not None) is async_op
    torch.testing.assert_close(x.cpu(), torch.arange(3.0))
    with pytest.raises(ValueError, match="one of dst"):
        dist.reduce(x)
    on_host = torch.ones(2)
    dist.reduce(on_host, 0)
    torch.testing.assert_close(on_host, torch.ones(2))


def _reduce_of_two(rank: int, port: int) -> None:
    from tpu_runtime.distributed.sums_at_root import by_all_ranks

    address = f"tcp://localhost:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    x = torch.full((2,), rank + 1.0)
    by_all_ranks(x, 1, dist.ReduceOp.SUM, None, False, None)
    assert x.tolist() == ([3.0, 3.0] if rank == 1 else [1.0, 1.0])
    by_all_ranks(x, None, dist.ReduceOp.MAX, None, True, 0)
    assert x.tolist() == [3.0, 3.0]
    dist.destroy_process_group()


def test_only_the_root_gets_the_result() -> None:
    """Two ranks on the CPU: a CPU client has one device."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    torch.multiprocessing.spawn(_reduce_of_two, (port,), nprocs=2)
