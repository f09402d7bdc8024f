"""The CPU in the place of several GPUs: what wraps models, and what processes exchange."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import cpu_sync_batch_norm
import torch
import torch.distributed


def patch() -> None:
    """One process of the CPU, or several over gloo."""
    # (the package's attribute of this name is a function)
    sys.modules["torch.nn.parallel.data_parallel"]._get_available_device_type = lambda: None
    original_ddp = torch.nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(original_ddp)
    def ddp(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        original_ddp(self, module, None, None, *args, **kwargs)

    torch.nn.parallel.DistributedDataParallel.__init__ = ddp
    if torch.distributed.is_available():
        cpu_sync_batch_norm.patch()
        init = torch.distributed.init_process_group

        @functools.wraps(init)
        def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("device_id", None)
            init(of_cpu(backend or "nccl"), *args, **kwargs)

        torch.distributed.init_process_group = init_process_group
        patch_groups()
        patch_fsdp()
        patch_meshes()
        for name in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"):
            averaging = averaged(getattr(torch.distributed, name))
            setattr(torch.distributed, name, averaging)
        torch.distributed.Work.get_future = futures(torch.distributed.Work.get_future)


def of_cpu(backend: str | None) -> str | None:
    return "gloo" if backend and "nccl" in backend else backend


def patch_groups() -> None:
    """Groups of some ranks, as meshes make them, too."""
    core: Any = torch.distributed.distributed_c10d
    original = core._new_group_with_tag
    signature = inspect.signature(original)

    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["backend"] = of_cpu(given.arguments.get("backend"))
        given.arguments.pop("device_id", None)
        return original(*given.args, **given.kwargs)

    core._new_group_with_tag = new_group


def patch_fsdp() -> None:
    """The CPU is the device of all parameters, also where each rank has another GPU."""
    from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils

    original = FullyShardedDataParallel.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fsdp(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.arguments["device_id"] = torch.device("cpu")
        original(*given.args, **given.kwargs)

    FullyShardedDataParallel.__init__ = fsdp
    # `sync_module_states` asks for parameters on a GPU; gloo sends those of the CPU
    _init_utils._check_module_states_for_sync_module_states = lambda _states: None


def patch_meshes() -> None:
    """A mesh of GPUs, as `fully_shard` makes one, is of the CPU."""
    from torch.distributed.device_mesh import DeviceMesh

    original = DeviceMesh.__init__

    @functools.wraps(original)
    def mesh(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    DeviceMesh.__init__ = mesh  # type: ignore[method-assign]


class Done:
    """An exchange that has ended."""

    def wait(self, *_timeout: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[None]:
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done


def futures(get_future: Callable[..., Any]) -> Callable[..., Any]:
    """What waits for an exchange, also where gloo has nothing that does."""

    @functools.wraps(get_future)
    def get(work: Any) -> Any:
        try:
            return get_future(work)
        except RuntimeError:  # "not implemented"
            work.wait()
            return Done().get_future()

    return get


def averaged(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction that knows ReduceOp.AVG, which gloo does not."""
    signature = inspect.signature(reduction)
    op = torch.distributed.ReduceOp

    @functools.wraps(reduction)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if given.arguments.get("op") != op.AVG:
            return reduction(*args, **kwargs)
        given.arguments["op"] = op.SUM
        work = reduction(*given.args, **given.kwargs)
        if work is not None:
            work.wait()  # once: gloo would write its sum again
        size = torch.distributed.get_world_size(given.arguments.get("group"))
        averages = given.arguments["output" if "output" in given.arguments else "tensor"]
        averages.div_(size)
        return work if work is None else Done()

    return reduce
