"""The CPU in the place of several GPUs, and what is seen of parameters that they divide."""

import os
import socket
import subprocess
import sys
from pathlib import Path

RECORDER = Path(__file__).parents[2] / "migrator/verify/recorder"
PROGRAM = f"""
import sys
sys.path.insert(0, {str(RECORDER)!r})
import several_gpus
import torch, torch.distributed as dist, torch.distributed.fsdp

several_gpus.patch()
dist.init_process_group("nccl")
rank = dist.get_rank()
part, whole, mean = torch.empty(2), torch.empty(4), torch.full((2,), float(rank))
given = torch.arange(4.0) * (rank + 1)
work = dist.reduce_scatter_tensor(part, given, op=dist.ReduceOp.AVG, async_op=True)
work.wait()
work.get_future().wait()
assert part.tolist() == [[0.0, 1.5], [3.0, 4.5]][rank], part
dist.all_gather_into_tensor(whole, part, async_op=True).get_future().wait()
assert whole.tolist() == [0.0, 1.5, 3.0, 4.5], whole
dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=True).get_future().wait()
assert mean.tolist() == [0.5, 0.5], mean

# SyncBatchNorm: each rank has its part of what BatchNorm has as a whole
torch.manual_seed(0)
whole, scale = torch.randn(5, 3, 2, 2, dtype=torch.float64), torch.randn(5, 1, 1, 1)
mine = slice(0, 2) if rank == 0 else slice(2, 5)
norms = [torch.nn.BatchNorm2d(3).double(), torch.nn.SyncBatchNorm(3).double()]
norms[1] = torch.nn.parallel.DistributedDataParallel(norms[1], device_ids=[rank])
given = [whole.clone().requires_grad_(), whole[mine].clone().requires_grad_()]
results = [norm(x) for norm, x in zip(norms, given)]
for result, factor in zip(results, [scale, scale[mine]]):
    (result.exp() * factor).sum().backward()
def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
close(results[1], results[0][mine])
close(given[1].grad, given[0].grad[mine])
close(norms[1].module.weight.grad * 2, norms[0].weight.grad)
for name, value in norms[0].named_buffers():
    close(norms[1].module.get_buffer(name), value)
norms[1].eval()
assert norms[1](given[1]).shape == given[1].shape

# FSDP: all ranks begin with the first one's parameters, which are on its GPU
torch.manual_seed(rank)
sharded = torch.distributed.fsdp.FullyShardedDataParallel(
    torch.nn.Linear(2, 1), device_id=rank, sync_module_states=True
)
result = sharded(torch.ones(1, 2))
means = result.detach().clone()
dist.all_reduce(means, op=dist.ReduceOp.AVG)
close(result.detach(), means)

# what FSDP and fully_shard divide among the ranks is seen as a whole
import gradients, recorded_tensors, sharded

def trained(wrap):
    torch.manual_seed(0)
    net = wrap(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)))
    net(torch.ones(1, 2)).sum().backward()
    named = [(sharded.plain(f"Net.{{path}}"), p) for path, p in net.named_parameters()]
    divided = sharded.state_dict(net)
    state = {{path: recorded_tensors.on_host(value) for path, value in divided.items()}}
    return gradients.norms(named, [("Net", net)])[1](), state, sharded.has_parts(net)

fsdp = torch.distributed.fsdp.FullyShardedDataParallel
expected, parameters, has_parts = trained(lambda net: net)
assert not has_parts and len(expected["norms"]) == len(parameters) == 4
for wrap in (
    lambda net: fsdp(net, device_id=rank),
    lambda net: fsdp(net, device_id=rank, use_orig_params=True),
    lambda net: fsdp(torch.nn.Sequential(*map(fsdp, net)), device_id=rank),
    torch.distributed.fsdp.fully_shard,
):
    found, state, has_parts = trained(wrap)
    assert has_parts and found["dtypes"] == expected["dtypes"]
    assert found["norms"].keys() == expected["norms"].keys(), found
    for name, norm in expected["norms"].items():
        assert abs(found["norms"][name] - norm) < 1e-6, (name, found)
    assert state.keys() == parameters.keys(), state
    for name, value in parameters.items():
        close(state[name], value)
assert dist.get_backend(dist.new_group([0, 1], backend="nccl")) == "gloo"
dist.destroy_process_group()
"""


def test_averages_and_futures_as_of_nccl(tmp_path: Path) -> None:
    """Each exchange is waited for by its future, as sharded optimizers do."""
    (tmp_path / "train.py").write_text(PROGRAM)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


MEETING = f"""
import sys
sys.path.insert(0, {str(RECORDER)!r})
import datetime, recorded_ranks, weakref, torch.distributed as dist

said, soon = [], datetime.timedelta(seconds=5)
recorded_ranks.tell(said.append, lambda: said.append("parted"))
dist.init_process_group("gloo", f"tcp://localhost:{{sys.argv[1]}}", soon, 1, 0)
assert said == [0]
group = weakref.ref(dist.group.WORLD)
dist.destroy_process_group()
assert said == [0, "parted"]
assert not dist.is_initialized() and group() is not None  # or DDP may wait for it for ever
"""


def test_a_rank_below_torchrun_meets_others_at_an_address_of_its_own() -> None:
    """As where torchrun takes the place of a launcher that gives ranks `tcp://…`."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", MEETING, port], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
