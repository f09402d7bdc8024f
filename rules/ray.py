"""Ray: what asks it for GPUs."""

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Report,
    Rule,
    Safety,
)

RESOURCES = Rule(
    code="FRW004",
    name="ray-gpus",
    summary="a task, an actor or a trainer asks Ray for GPUs",
    why="""Ray gives out what its machines have. A TPU machine has no GPU, so what asks for one
waits for ever, or Ray refuses to start. Chips are the resource `TPU`; a trainer of Ray Train takes
them by `ScalingConfig(use_tpu=True)`. Every task and actor is a process of its own, and has to turn
the TPU on itself.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    for_cuda=True,
    references=("https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html",),
    examples=(
        Example(
            """
            import ray

            @ray.remote(num_gpus=1)
            def answer(x):
                return x + 1
            """,
            says={3: "Ray finds no GPU on a TPU machine"},
        ),
        Example(
            """
            from ray.train import ScalingConfig
            scaling = ScalingConfig(num_workers=4, use_gpu=True)
            """,
            says={2: "write use_tpu=True"},
        ),
        Example(
            """
            from ray.train import ScalingConfig
            scaling = ScalingConfig(num_workers=4, use_gpu=False)
            """,
        ),
    ),
)


_WAITS = "Ray finds no GPU on a TPU machine, and waits for ever"


@RESOURCES.on("ray", "num_gpus")
def number(ctx: Context, found: Construct) -> Decision:
    return Report(
        f'{_WAITS}: ask for resources={{"TPU": 1}}, and call {RUNTIME}.setup() in that process'
    )


@RESOURCES.on("ray", "use_gpu")
def used(ctx: Context, found: Construct) -> Decision:
    return Report(f"{_WAITS}: write use_tpu=True")


@RESOURCES.on("ray", "gpu")
def listed(ctx: Context, found: Construct) -> Decision:
    return Report(f'{_WAITS}: ask for {{"TPU": 1}}')
