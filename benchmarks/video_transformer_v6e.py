"""The video transformer in its real shape, compiled for a v6e-8 that is not here.

    python benchmarks/video_transformer_v6e.py [--frames 49] [--size 480p]
        [--python PYTHON_WITH_TORCHAX]

Migrates reference_apps/video_transformer with --shard tp and --shard tp-row, traces the transformer
with abstract weights (nothing is allocated), and compiles it with one block, with two, and the step
of DeepCache, which has one. All 54 blocks are alike, and the compiler takes half a minute for each:
what the second one adds is taken 53 times. Nothing runs on a TPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
from measuring import row

DEVICES, TOPOLOGY, SLICE = 8, "v6e:2x4", "v6e-8"
# Latents by a VAE that stands for 4 frames and 16 x 16 pixels; tokens of a real prompt.
GRIDS, TEXT, VISION = {"480p": (30, 53), "720p": (45, 80)}, 1000, 729
BATCH = 2  # with and without the prompt
# The seed's settings: 50 steps, DeepCache from step 11 to 44, a full step every 4th.
STEPS, CACHED = 50, sum((step - 11) % 4 != 0 for step in range(11, 45))
GIB, TERA, GIGA = 2**30, 1e12, 1e9

Facts = dict[str, Any]  # of a program, for one device


def main() -> int:
    parser = measuring.parser(__doc__)
    parser.add_argument("--frames", type=int, default=49)
    parser.add_argument("--size", choices=GRIDS, default="480p")
    parser.add_argument("--ungathered", action="store_true", help="XLA decides what a layer that "
                        "is not divided does with a divided input")  # fmt: skip
    args = parser.parse_args()
    if args.migrated is not None:
        print(json.dumps(measured(args.migrated, args)))
        return 0
    divided, by_rows = (in_real_shape(args, shard) for shard in ("tp", "tp-row"))
    written_out = in_real_shape(args, "tp", TPU_RUNTIME_FLASH="off")
    return measuring.report(table(divided, by_rows, written_out), args.json)


def in_real_shape(args: argparse.Namespace, shard: str, **variables: str) -> Facts:
    """What is known of a full step, and of a cached one."""
    from forecast_figures import figures

    how = "".join(f", {name}={value}" for name, value in variables.items())
    print(f"compiling for --shard {shard}{how}", file=sys.stderr, flush=True)
    variables |= {
        "TPU_SKIP_MDS_QUERY": "1", "TPU_LOG_DIR": "disabled", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
    }  # fmt: skip
    with measuring.migrated("video_transformer", shard) as copy:
        shape = ["--frames", str(args.frames), "--size", args.size]
        shape += ["--ungathered"] if args.ungathered else []
        found: Facts = measuring.inside(args.python, __file__, copy, *shape, **variables)
    for which in ("one", "two", "cached"):  # the target's Python need not have tpu-migrate
        found[which] |= figures(found[which].pop("text"), SLICE)
    return {**found, "full": extrapolated(found["one"], found["two"], found["depth"])}


def table(divided: Facts, by_rows: Facts, without_kernel: Facts) -> Iterator[dict[str, Any]]:
    """What a reader wants to know, beside what the seed's report says; some of it is judged."""
    full, rows, cached = divided["full"], by_rows["full"], divided["cached"]
    yield row(
        "real shape, compiled for, not run on, a v6e-8",
        f"{divided['depth']} blocks (extrapolated from 1 and 2), {divided['parameters'] / 1e9:.2f} "
        f"billion parameters, {divided['tokens']:,} image tokens, bfloat16, batch {BATCH}",
    )
    behind = divided["depth"] * 4 - 2  # layers behind divided ones; the last text stream is unused
    reduced, gathered = (count(full, kind) for kind in ("all-reduce", "all-gather"))
    yield row("exchanged, tp", f"{reduced} all-reduces, {gathered} all-gathers",
              "0 all-reduces in fc2 and proj", reduced == 0)  # fmt: skip
    reduced = count(rows, "all-reduce")
    yield row("exchanged, tp-row", f"{reduced} all-reduces: {named(rows, 'all-reduce')}",
              "one for each fc2 and proj", reduced == behind)  # fmt: skip
    yield row("HBM of a chip, tp / tp-row", f"{hbm(full)} / {hbm(rows)}: "
              f"{(full['hbm'] - rows['hbm']) / GIB:.1f} GiB more", "12 GB more")  # fmt: skip
    yield row("a step of a chip, tp / tp-row", f"{cost(full)} / {cost(rows)}",
              "8.12 s by tp-row, 7.29 s by tp")  # fmt: skip
    yield row("attention", f"{sum(full['kernels'].values())} kernels; written out: "
              f"{hbm(without_kernel['full'])}, {cost(without_kernel['full'])}",
              "", sum(full["kernels"].values()) == divided["depth"])  # fmt: skip
    yield row("a cached step of DeepCache, tp", cost(cached))
    by = [predicted(cached[what] / full[what]) for what in ("flops", "accessed")]
    yield row(f"{STEPS} steps, {CACHED} of them cached: predicted by FLOPs, by bytes",
              f"{by[0]:.2f}, {by[1]:.2f} times as fast", "1.8 times, measured")  # fmt: skip


def count(facts: Facts, kind: str) -> int:
    return sum(facts["collectives"].get(kind, {}).values())


def named(facts: Facts, kind: str) -> str:
    modules = facts["collectives"].get(kind, {})
    return ", ".join(f"{name.removesuffix('.linear')} {n}" for name, n in modules.items())


def hbm(facts: Facts) -> str:
    return f"{facts['hbm'] / GIB:.1f} GiB (weights {facts['arguments'] / GIB:.1f})"


def cost(facts: Facts) -> str:
    return f"{facts['flops'] / TERA:.3g} TFLOP, {facts['accessed'] / GIGA:,.4g} GB accessed"


def predicted(ratio: float) -> float:
    """How many times as fast, if a cached step takes ``ratio`` of a full one's time."""
    return STEPS / (STEPS - CACHED + CACHED * ratio)


def extrapolated(one: Facts, two: Facts, depth: int) -> Facts:
    """The figures of ``depth`` blocks, from those of one and of two; temporaries are shared."""
    from forecast_figures import SUMS

    def far(first: float, second: float) -> float:
        return first + (depth - 1) * (second - first)

    parts = ("arguments", "outputs", "code", "flops", "accessed", *SUMS)
    sums = {n: far(one[n], two[n]) for n in parts}
    hbm = sum(sums[n] for n in ("arguments", "outputs", "code")) + two["temporaries"]
    collectives = {
        kind: {m: far(one["collectives"].get(kind, {}).get(m, 0), n) for m, n in modules.items()}
        for kind, modules in two["collectives"].items()
    }
    kernels = {name: far(one["kernels"].get(name, 0), n) for name, n in two["kernels"].items()}
    return two | sums | {"hbm": hbm, "collectives": collectives, "kernels": kernels}


def measured(migrated: Path, args: argparse.Namespace) -> Facts:
    """Compile steps of the migrated app; runs in the target's Python."""
    sys.path.insert(0, str(migrated))
    import torch

    stage2 = importlib.import_module("stage2_denoise")  # sets the runtime up
    config = stage2.PRESETS["1.5"]
    grid = GRIDS[args.size]
    tokens = ((args.frames - 1) // 4 + 1) * grid[0] * grid[1]
    bf16 = torch.bfloat16
    inputs = {
        "latents": ((BATCH, config.latent_channels, tokens // (grid[0] * grid[1]), *grid), bf16),
        "t": ((BATCH,), torch.float32),
        "guidance": ((BATCH,), torch.float32),
        "text": ((BATCH, TEXT, config.text_dim), bf16),
        "text_mask": ((BATCH, TEXT), torch.bool),
        "vision": ((BATCH, VISION, config.vision_dim), bf16),
        "cos": ((tokens, config.head_dim), torch.float32),
        "sin": ((tokens, config.head_dim), torch.float32),
    }
    models = []
    for depth in (1, 2):
        with torch.device("meta"):
            model = stage2.VideoTransformer(dataclasses.replace(config, depth=depth))
        models.append(model.bfloat16().eval().requires_grad_(False))
    one, two = (sum(p.numel() for p in model.parameters()) for model in models)
    # What a kernel computes is not in a program's cost: queries by keys, and weights by values.
    attended = 4 * BATCH * config.hidden_size * (tokens + TEXT + VISION) ** 2 / DEVICES
    how = stage2.SHARDING, attended, args.ungathered
    first, second = (Abstract(model, *how) for model in models)
    cached = {**inputs, "cached": ((BATCH, tokens, config.hidden_size), bf16)}
    return {
        "depth": config.depth, "tokens": tokens,
        "parameters": one + (config.depth - 1) * (two - one),
        "one": first.compiled(inputs), "two": second.compiled(inputs),
        "cached": first.compiled(cached),
    }  # fmt: skip


class Abstract:
    """A model without weights, divided over the devices as a table says."""

    def __init__(
        self, model: Any, sharding_table: dict[str, str], attended: float, ungathered: bool
    ) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec
        from torchax.ops.mappings import t2j_dtype

        mesh = importlib.import_module("tpu_runtime.distributed.mesh")
        sharding = importlib.import_module("tpu_runtime.distributed.tensor_parallel")
        self.model, self.attended, count = model, attended, mesh.start(mesh.MODEL)
        divided, gathered, _ = sharding._plan(model, sharding_table, count)
        for layer in () if ungathered else gathered:
            layer.register_forward_pre_hook(sharding._gather_input, with_kwargs=True)

        def spec(dim: int | None, given: Any) -> Any:
            parts = [mesh.MODEL if i == dim else None for i in range(len(given.shape))]
            place = NamedSharding(mesh.in_use(), PartitionSpec(*parts))
            return jax.ShapeDtypeStruct(given.shape, t2j_dtype(given.dtype), sharding=place)

        self.spec: Callable[..., Any] = spec
        self.weights = {n: spec(divided.get(id(p)), p) for n, p in model.named_parameters()}

    def compiled(self, inputs: dict[str, Any]) -> Facts:
        """What the TPU compiler says of the forward pass."""
        import jax
        import torch
        import torchax
        from jax.experimental import topologies
        from torchax.tensor import Tensor

        inside = importlib.import_module("tpu_runtime.compilation.compile_state").inside
        scopes = importlib.import_module("tpu_runtime.profiling.module_scopes")
        env = torchax.default_env()
        forms = {name: self.spec(None, torch.empty(shape, dtype=dtype, device="meta"))
                 for name, (shape, dtype) in inputs.items()}  # fmt: skip

        def forward(weights: dict[str, Any], given: dict[str, Any]) -> Any:
            named = {name: Tensor(array, env) for name, array in given.items()}
            rope = named.pop("cos"), named.pop("sin")
            tensors = {name: Tensor(array, env) for name, array in weights.items()}
            with inside(), scopes.scope_of_module(self.model), torch.no_grad():
                result = torch.func.functional_call(
                    self.model, tensors, (), {**named, "rope": rope}
                )
            return [tensor.jax() for tensor in result]

        start = time.monotonic()
        traced = jax.jit(forward).trace(self.weights, forms)
        text = traced.lower(lowering_platforms=("tpu",)).as_text(debug_info=True)
        chips = topologies.get_topology_desc(TOPOLOGY, "tpu").devices
        by_text = compiler()
        compiled = by_text.compile_text(text, chips[:DEVICES])
        facts: Facts = by_text.facts_of(compiled)
        facts["text"] = by_text.text_of(compiled)
        facts["flops"] += self.attended * sum(facts["kernels"].values())
        print(f"  compiled in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        return facts


def compiler() -> Any:
    """The script by which `tpu-migrate verify` compiles; it needs nothing of its package."""
    path = measuring.ROOT / "migrator" / "verify" / "compile_for_tpu.py"
    spec = importlib.util.spec_from_file_location("compile_for_tpu", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
