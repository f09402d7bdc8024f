"""What to change first: each with the seconds of a step that it is expected to save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migrator.verify.chips import Chip, chips

from .products import SUBLANES
from .roofline import ICI, StepEstimate

_WORTH = 0.02  # of a step's time: less is not worth an edit


@dataclass(frozen=True)
class Advice:
    """``seconds``: saved in a step, at least or at most as ``basis`` says."""

    step: str
    seconds: float
    line: str
    what: str
    edit: str
    basis: str


def advice_for(steps: list[StepEstimate], chip: Chip) -> list[Advice]:
    """The largest gain first."""
    found = [advice for step in steps if not step.error for advice in _of(step, chip)]
    return sorted(found, key=lambda advice: -advice.seconds)


def _of(step: StepEstimate, chip: Chip) -> Iterator[Advice]:
    whole = step.estimate or step.bounds.seconds
    for advice in (_bfloat16(step), _padding(step, chip), _copies(step), _exchange(step)):
        if advice is not None and advice.seconds > _WORTH * whole:
            yield advice


def _bfloat16(step: StepEstimate) -> Advice:
    saved = step.bounds.seconds - step.bfloat16.seconds
    line = next((cost.line for cost in step.operations if cost.kind == "product"), "")
    return Advice(
        step.name, saved, line,
        f"float32 products take {step.bounds.matrix / (step.bfloat16.matrix or 1):.3g} times as "
        "long in the matrix units as bfloat16 ones",
        "torch.autocast(..., dtype=torch.bfloat16) around the forward pass and the loss, or "
        "migrate with --precision default (--precision high: half of the gain); the numbers change",
        "the bound's difference",
    )  # fmt: skip


def _padding(step: StepEstimate, chip: Chip) -> Advice | None:
    worst = max(step.operations, key=lambda cost: cost.padding, default=None)
    if worst is None or not worst.padding:
        return None
    parts = step.bounds
    padded = max(parts.matrix + step.padding, parts.hbm, parts.interconnect)
    return Advice(
        step.name, padded - parts.seconds, worst.line,
        f"products do not fill the matrix units, mostly {worst.name}",
        f"sizes that are multiples of {chip.mxu} (the batch: of {SUBLANES}); up to there, larger "
        "sizes cost nothing",
        "at most: the time of multiplying padding",
    )  # fmt: skip


def _copies(step: StepEstimate) -> Advice | None:
    """Copies that a line of the source makes; the compiler adds some of its own."""
    copies = [cost for cost in step.operations if cost.kind == "copy" and cost.line]
    if not copies:
        return None
    return Advice(
        step.name, sum(cost.seconds for cost in copies), copies[0].line,
        f"data are moved, not computed, mostly by {copies[0].name}",
        "keep one order of dimensions: transpose and contiguous() cost a copy",
        "at most: the compiler's estimate for copies",
    )  # fmt: skip


def _exchange(step: StepEstimate) -> Advice | None:
    if step.bounds.binding != ICI:
        return None
    kind = max(step.collectives, key=lambda name: step.collectives[name])
    worst = next((c for c in step.operations if c.kind == kind), None)
    saved = step.bounds.seconds - max(step.bounds.matrix, step.bounds.hbm)
    return Advice(
        step.name, saved, worst.line if worst else "",
        f"the interconnect binds, mostly by {kind}",
        "a larger batch on each chip, fewer chips, or another --shard (tp-row, tp, fsdp)",
        "at most: the bound without the interconnect",
    )  # fmt: skip


def memory_advice(step: StepEstimate, chip: Chip) -> list[str]:
    """What to change for a step that does not fit into a chip's memory."""
    if step.fits or (step.error and not step.refused_for_memory):
        return []
    held, made = step.memory["arguments"], step.memory["temporaries"]
    weights = [
        "--shard fsdp or tp divides weights and optimizer states over more --chips",
        "weights and optimizer states in bfloat16 take half (numbers change)",
    ]
    activations = [
        "a smaller batch: activations shrink with it",
        "torch.utils.checkpoint around the blocks: activations are computed again, not kept",
        "torch.autocast with bfloat16 halves most activations",
    ]
    found = [*weights, *activations] if held > made else [*activations, *weights]
    larger = [c for c in chips().values() if c.hbm // c.devices > max(step.hbm, step.capacity)]
    if larger:
        names = " or ".join(
            f"{c.name} ({c.hbm // c.devices // 2**30} GiB a device)" for c in larger
        )
        found.append(f"another chip: {names}")
    return found
