"""A GPU script of many spellings; test_stand_in.py runs it through cpu_stand_in.py.

Prints one JSON object: what is checked, and whether it holds.
"""

import json
import sys
import tempfile
from typing import Any

import torch
import torch.cuda.amp
from torch import cuda, nn
from torch.utils.data import DataLoader, TensorDataset

held: dict[str, bool] = {}
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def train(where: torch.device | str) -> list[float]:
    """Losses of a small net trained on `where`."""
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(3)
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    net = net.to(where)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    for x, y in DataLoader(data, batch_size=8, shuffle=True, pin_memory=where != "cpu"):
        x, y = x.to(where, non_blocking=True), y.to(where, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def moves() -> None:
    """Tensors and modules reach the "GPU" by every road, and moves copy."""
    x = torch.arange(4.0)
    for name, moved in {
        "cuda()": x.cuda(),
        "cuda(0)": x.cuda(0),
        'to("cuda")': x.to("cuda"),
        "to(0)": x.to(0),
        "to(device=)": x.to(device=device, dtype=torch.float64),
        "map(cuda)": next(map(torch.Tensor.cuda, [x])),
        "type": x.type("torch.cuda.FloatTensor"),
        "zeros": torch.zeros(4, device="cuda") + x,
        "zeros_like": torch.zeros_like(x, device=device) + x,
        "new_zeros": x.new_zeros(4, device="cuda:0") + x,
        "pinned": torch.zeros(4, pin_memory=True) + x,
        "cuda.FloatTensor": torch.cuda.FloatTensor([0, 1, 2, 3]),
    }.items():
        held[f"{name} keeps the values"] = moved.tolist() == x.tolist()
    on_gpu = x.cuda()
    kept = on_gpu.cpu()
    on_gpu += 1
    held["writes on the GPU stay there"] = x.tolist() == kept.tolist() == [0, 1, 2, 3]
    leaf = torch.ones(2, device="cuda", requires_grad=True)
    held["a leaf stays a leaf"] = leaf.to(device) is leaf
    with torch.no_grad():  # as accelerate fills a model that it loads
        filled = torch.nn.Parameter(torch.ones(2)).to("cpu")
    held["a parameter stays one"] = type(filled) is torch.nn.Parameter and filled.requires_grad
    held["dtype moves still work"] = x.to(torch.float16).dtype is torch.float16
    for module in (nn.Linear(2, 2).cuda(), nn.Linear(2, 2).to(0), nn.Linear(2, 2).to(device)):
        held["modules move"] = module(torch.ones(1, 2, device="cuda")).shape == (1, 2)
    lazy = nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(3)).cuda().cpu().to(device)
    held["lazy modules move"] = lazy(torch.rand(4, 2, device="cuda")).shape == (4, 3)
    with torch.device("cuda"):
        held["device context"] = torch.ones(2).sum().item() == 2
    torch.set_default_device("cuda")
    held["default device"] = torch.ones(2).sum().item() == 2
    torch.set_default_device(None)


def leaves_alone() -> None:
    """What is not a device stays as it is."""
    held["device objects say cuda"] = device.type == "cuda" and str(device) == "cuda:0"
    with tempfile.TemporaryFile() as file:
        torch.save({"cuda": "cuda:0"}, file)
        file.seek(0)
        held["other strings"] = torch.load(file, map_location="cuda") == {"cuda": "cuda:0"}
    held["einsum"] = torch.einsum("cu,du->cd", torch.ones(2, 3), torch.ones(4, 3)).shape == (2, 4)
    held["integers that are no device"] = torch.full((2,), 0).tolist() == [0, 0]
    try:
        torch.zeros(1, device="cudax")
    except RuntimeError:
        held["a wrong device still fails"] = True


def names() -> None:
    """torch.cuda speaks of one device."""
    held["counts"] = (cuda.device_count(), cuda.current_device()) == (1, 0)
    held["name"] = cuda.get_device_name(0) == "CPU stand-in for CUDA"
    held["properties"] = torch.cuda.get_device_properties(device).major == 8
    torch.cuda.set_device(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held["memory"] = torch.cuda.max_memory_allocated(device) == 0
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        start.record()
        torch.cuda.synchronize()
        end.record()
    held["events"] = 0 <= start.elapsed_time(end) < 1000
    torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    held["accelerator"] = torch.accelerator.current_accelerator().type == "cuda"


def random_numbers() -> None:
    """Seeds give the CPU's numbers, and seeding the GPU as well does not rewind the CPU."""
    torch.manual_seed(5)
    first = torch.rand(3, device="cuda")
    torch.cuda.manual_seed_all(5)
    held["no rewind"] = not torch.equal(first, torch.rand(3))
    torch.cuda.manual_seed(6)
    again = torch.rand(3, device=device)
    torch.cuda.manual_seed(7)
    torch.cuda.manual_seed(6)
    held["seeded on the GPU alone"] = torch.equal(again, torch.rand(3, device="cuda"))
    generator = torch.Generator(device="cuda").manual_seed(1)
    held["generators"] = isinstance(generator, torch.Generator)
    classes = torch.tensor([0, 1, 1, 4], device="cuda")
    held["histograms"] = classes.histc(bins=5, min=0, max=4).tolist() == [1, 2, 0, 0, 1]
    held["generator sampling"] = torch.rand(2, generator=generator, device="cuda").numel() == 2
    state = torch.cuda.random.get_rng_state()  # as transformers' Trainer says it
    values = torch.rand(2, device="cuda")
    torch.cuda.set_rng_state(state)
    held["rng state"] = torch.equal(values, torch.rand(2, device="cuda"))


class Exponential(torch.autograd.Function):
    """An operation that wants float32 under autocast."""

    @staticmethod
    @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        held["custom_bwd"] = not torch.is_autocast_enabled("cpu")
        (x,) = ctx.saved_tensors
        return gradient * x.exp()


def training() -> None:
    """Training, mixed precision, parallel wrappers, checkpoints."""
    held["training equals the CPU's"] = train(device) == train("cpu")
    scaler = torch.cuda.amp.GradScaler(init_scale=128.0)
    net = nn.DataParallel(nn.Linear(4, 2).cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.autocast("cuda", dtype=torch.float16):
        out = net(torch.ones(3, 4, device="cuda"))
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        rough = net(torch.ones(3, 4).cuda())
        wide = Exponential.apply(rough)
    wide.sum().backward()
    held["custom_fwd"] = wide.dtype == torch.float32
    net.zero_grad()
    held["autocast"] = (out.dtype, rough.dtype) == (torch.float16, torch.bfloat16)
    before = net.module.weight.detach().cpu()
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    held["GradScaler"] = torch.allclose(net.module.weight, before - 0.3, atol=1e-3)
    with tempfile.TemporaryFile() as file:
        torch.save(net.state_dict(), file)
        for where in (
            None,
            "cuda:0",
            device,
            lambda storage, _: storage.cuda(0),
            {"cuda:1": "cuda:0"},
        ):
            file.seek(0)
            loaded = torch.load(file, map_location=where)
            held["checkpoints"] = torch.equal(loaded["module.weight"], net.module.weight)


if __name__ == "__main__":
    for check in (moves, leaves_alone, names, random_numbers, training):
        check()
    held["arguments"] = sys.argv[1:] == ["--device", "cuda"]
    print(json.dumps(held))
