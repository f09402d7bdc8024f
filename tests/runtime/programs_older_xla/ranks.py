"""As older guides have it: training with a process for each TPU core."""

import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from parts import points, small
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

SERIAL_EXEC = xmp.MpSerialExecutor()
FLAGS = {"batch_size": 4, "epochs": 2, "num_cores": 8}


def train_loop(loader, model, optimizer):
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        xm.optimizer_step(optimizer)
        mean = xm.mesh_reduce("loss", loss.item(), lambda losses: sum(losses) / len(losses))
        xm.master_print(f"loss {mean:.7f}")


def _mp_fn(index, flags):
    device = xm.xla_device()
    dataset = SERIAL_EXEC.run(points)
    sampler = DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=flags["batch_size"], sampler=sampler, drop_last=True)
    model = small(12, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(flags["epochs"]):
        sampler.set_epoch(epoch)
        para_loader = pl.ParallelLoader(loader, [device])
        train_loop(para_loader.per_device_loader(device), model, optimizer)
    xm.rendezvous("trained")
    xm.save(model.state_dict(), __file__ + ".pt")


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=FLAGS["num_cores"], start_method="fork")
