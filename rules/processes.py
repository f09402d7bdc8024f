"""Processes and threads that a program starts by itself."""

from migrator.construct import Construct
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

CHILD = Rule(
    code="DST004",
    name="child-process",
    summary="a child process that uses the device, or memory of it that is shared",
    why="""A GPU serves any number of processes, and CUDA lets them share its memory. A TPU
belongs to one process, and its memory can not be shared: a child that uses it fails, or waits
forever, as long as its parent has it. Children that stay on the CPU (workers that load data,
environments of reinforcement learning, Hogwild on the CPU) work as they are, and nothing is said
of them; so do start methods and sharing strategies. Only what the same file says is known:
torch's processes whose function is elsewhere are reported.""",
    references=("https://pytorch.org/docs/stable/notes/multiprocessing.html",),
    examples=(
        Example(
            """
            import torch
            import torch.multiprocessing as mp


            def work(rank):
                x = torch.ones(2, device="cuda")


            if __name__ == "__main__":
                mp.Process(target=work, args=(0,)).start()
            """,
            after="""
            import torch
            import torch.multiprocessing as mp


            def work(rank):
                x = torch.ones(2, device="{device}")


            if __name__ == "__main__":
                mp.Process(target=work, args=(0,)).start()
            """,
        ),
    ),
)


THREAD = Rule(
    code="DST005",
    name="thread",
    summary="a thread that uses the device",
    why="""torchax is switched on for the thread that calls setup(): what another thread moves, or
computes with tensors of the device, raises there, unless torchax.enable_globally() is the first
thing that it runs. On torch_xla threads share the device, as they do on a GPU. Threads that stay on
the CPU are nobody's business.""",
    examples=(
        Example(
            """
            import asyncio
            import torch


            async def load(x):
                return await asyncio.to_thread(lambda: x.cuda())
            """,
            after="""
            import asyncio
            import torch


            async def load(x):
                return await asyncio.to_thread(lambda: x.to("{device}"))
            """,
        ),
    ),
)


@THREAD.on("child", "thread")
def thread(ctx: Context, found: Construct) -> Decision:
    if ctx.words.threads:
        return Keep("threads share the device")
    called = ctx.words.thread_setup
    how = f", or let what runs here begin with {called}" if called else ""
    return Report(
        f"{ctx.target.name} is on in the thread that set it up alone: leave the device to that "
        f"thread{how}"
    )


@CHILD.on("child", "start")
def start(ctx: Context, found: Construct) -> Decision:
    return Report(
        "this child process uses the device, and a TPU belongs to one process: compute in the "
        "parent, or leave the device to this child alone"
    )


@CHILD.on("child", "unknown")
def unknown(ctx: Context, found: Construct) -> Decision:
    return Report(
        "what this child process does can not be seen; a TPU belongs to one process, so it has to "
        "stay on the CPU"
    )


@CHILD.on("child", "memory")
def memory(ctx: Context, found: Construct) -> Decision:
    return Report(
        "memory of a TPU can not be shared between processes; share the tensors on the CPU, before "
        "they are moved"
    )
