"""Processes and threads that a program starts by itself."""

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    Report,
    Rule,
    Safety,
)

CHILD = Rule(
    code="DST004",
    name="child-process",
    summary="a child process that uses the device or shares its memory",
    why="""A GPU serves many processes, which may share its memory. A TPU belongs to one process:
while the parent has it, a child that uses it fails, or waits forever.

Children that stay on the CPU work, and are not reported: data workers, environments for
reinforcement learning, Hogwild on the CPU. Nor are start methods and sharing strategies.

The rule looks at one file. If the function of a child is in another, a process of
torch.multiprocessing is reported, because it may use the device; other processes are not. Tasks of
Celery are reported, and so is what Ray runs of a script, which no worker loads.""",
    safety=Safety.DISPLAY_ONLY,
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
            says={10: "this child process uses the device"},
        ),
        Example(
            """
            import torch.multiprocessing as mp
            from accelerate import Accelerator
            from mylib import work

            accelerator = Accelerator()
            mp.Process(target=work).start()
            """,
            says={6: "the source doesn't show what this child process does"},
        ),
        Example(
            """
            import multiprocessing as mp
            from accelerate import Accelerator
            from mylib import read

            accelerator = Accelerator()
            mp.Process(target=read).start()
            """,
        ),
    ),
)


THREAD = Rule(
    code="DST005",
    name="thread",
    summary="a thread that uses the device",
    why="""torchax is on only in the thread that calls setup(). Another one that moves tensors, or
computes on the device, gets an error unless it calls tpu_runtime.setup() first; so do functions
that web servers and Gradio call in threads of their own. On torch_xla, threads share the device, as
on a GPU. Threads that stay on the CPU are not reported.""",
    safety=Safety.DISPLAY_ONLY,
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
        Example(
            """
            import threading
            from accelerate import Accelerator

            accelerator = Accelerator()
            threading.Thread(target=print, args=("training",)).start()
            """,
        ),
        Example(
            """
            import threading
            from accelerate import Accelerator

            accelerator = Accelerator()
            threading.Thread(target=lambda: accelerator.prepare(model)).start()
            """,
        ),
    ),
)


@THREAD.on("child", "thread")
def thread(ctx: Context, found: Construct) -> Decision:
    if ctx.api.threads:
        return Keep("threads share the device")
    called = ctx.api.thread_setup
    how = f", or let what runs here begin with {called}" if called else ""
    return Report(
        f"{ctx.target.name} is on only in the thread that set it up: leave the device to that "
        f"thread{how}"
    )


@CHILD.on("child", "start")
def start(ctx: Context, found: Construct) -> Decision:
    return Report(
        "this child process uses the device, and a TPU belongs to one process: compute in the "
        "parent, or let only this child use the device"
    )


@CHILD.on("child", "worker")
def worker(ctx: Context, found: Construct) -> Decision:
    if not ctx.target.offers("setup"):
        return Keep("needs no set-up where it runs")
    return Report(
        f"Ray runs this in a process that never runs this script: let it begin with "
        f"{RUNTIME}.setup(), or move it to a module, which then sets itself up"
    )


@CHILD.on("child", "queue")
def queue(ctx: Context, found: Construct) -> Decision:
    return Report(
        "Celery runs tasks in several processes, and a TPU belongs to one: start the worker with "
        "--pool=solo"
    )


@CHILD.on("child", "unknown")
def unknown(ctx: Context, found: Construct) -> Decision:
    return Report(
        "the source doesn't show what this child process does; a TPU belongs to one process, so it "
        "has to stay on the CPU"
    )


@CHILD.on("child", "memory")
def memory(ctx: Context, found: Construct) -> Decision:
    return Report(
        "memory of a TPU cannot be shared between processes; share the tensors on the CPU, before "
        "they are moved"
    )
