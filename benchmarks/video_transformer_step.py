"""A step of the migrated video transformer against the same transformer written for JAX by hand.

    python benchmarks/video_transformer_step.py [--seconds 10] [--python PYTHON_WITH_TORCHAX]

Both have the app's tiny preset with the same synthetic weights, in float32 at HIGHEST, and compute
the same steps in turn, so that they share the machine's moods; medians. Results must agree to 1e-5;
the migrated one may take 1.1 times as long, and compiles nothing after the first steps.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import measuring
from measuring import row

MOST = 1.1  # times as long
CLOSE = 1e-5

Run = Callable[[], Any]


def main() -> int:
    parser = measuring.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind of step")
    args = parser.parse_args()
    if args.migrated is not None:
        sys.path.insert(0, str(args.migrated))
        print(json.dumps(list(compare(args.seconds))))
        return 0
    with measuring.migrated("video_transformer", "tp") as copy:
        seconds = ["--seconds", str(args.seconds)]
        rows = measuring.inside(args.python, __file__, copy, *seconds, TPU_RUNTIME_REPORT="1")
    return measuring.report(rows, args.json)


def compare(seconds: float) -> Iterator[dict[str, Any]]:
    """Time both; runs in the target's Python."""
    model, step, here, by_hand = tiny()
    import torch
    from tpu_runtime.profiling import report

    later = 0
    for kind in ("full", "cached"):
        if kind == "cached":
            with torch.no_grad():
                here["cached"] = model(**here)[1]
            by_hand["cached"] = step(by_hand)[1]

        def migrated() -> Any:
            with torch.no_grad():
                return model(**here)[0].jax().block_until_ready()

        def hand_written() -> Any:
            return step(by_hand)[0].block_until_ready()

        difference = float(abs(migrated() - hand_written()).max())
        for _ in range(3):
            migrated(), hand_written()
        warm = report.collect()["programs"]
        ours, theirs = in_turn(migrated, hand_written, seconds)
        later += report.collect()["programs"] - warm
        yield row(
            f"step of the tiny preset, {kind}: migrated, and written for JAX by hand",
            f"{ours:.2f} ms, {theirs:.2f} ms: {ours / theirs:.2f} times as long; "
            f"results differ by {difference:.1e}",
            f"at most {MOST} times, {CLOSE}",
            ours <= MOST * theirs and difference <= CLOSE,
        )
    yield row("programs compiled after the first steps", str(later), "0", later == 0)


def tiny() -> tuple[Any, Callable[[Any], Any], dict[str, Any], dict[str, Any]]:
    """The migrated model, the step by hand with the same weights, and what each is given."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from video_transformer_by_hand import step

    stage2 = importlib.import_module("stage2_denoise")  # sets the runtime up
    make_weights = importlib.import_module("make_weights")
    import torch
    import tpu_runtime

    config = stage2.PRESETS["tiny"]
    model = stage2.VideoTransformer(config)
    weights = make_weights.draw(model, 1)
    model.load_state_dict(weights)
    model = tpu_runtime.shard(model.eval().requires_grad_(False), stage2.SHARDING)
    generator = torch.Generator().manual_seed(0)
    frames, size = 3, 16
    given = {
        "latents": torch.randn(2, 4, frames, size, size, generator=generator),
        "t": torch.tensor([700.0, 700.0]),
        "guidance": torch.tensor([6000.0, 6000.0]),
        "text": torch.randn(2, 64, config.text_dim, generator=generator),
        "text_mask": torch.arange(64)[None] < torch.tensor([[7], [40]]),
        "vision": torch.zeros(2, 8, config.vision_dim),
    }
    grid = (frames, size // 2, size // 2)
    rope = stage2.rotary_tables(grid, config.rope_dims, torch.device("cpu"))
    by_hand = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), {**given, "rope": rope})
    w = {name: jnp.asarray(np.asarray(value)) for name, value in weights.items()}
    on_device = {name: value.to("jax") for name, value in given.items()}
    on_device["rope"] = tuple(table.to("jax") for table in rope)
    return model, partial(step, w), on_device, by_hand


def in_turn(ours: Run, theirs: Run, seconds: float) -> tuple[float, float]:
    """The medians of both, in milliseconds."""
    times: dict[Run, list[float]] = {ours: [], theirs: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for run, taken in times.items():
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[ours]), 1000 * statistics.median(times[theirs])


if __name__ == "__main__":
    sys.exit(main())
