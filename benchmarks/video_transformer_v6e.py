"""The video transformer in its real shape, compiled for a v6e-8 that is not here.

    python benchmarks/video_transformer_v6e.py [--frames 49] [--devices 8]

Migrates reference_apps/video_transformer with --shard tp and --shard tp-row, traces the transformer
with abstract weights (nothing is allocated), and compiles it with one block, with two, and the step
of DeepCache, which has one. All 54 blocks are alike, and the compiler takes a minute for each: what
the second one adds is taken 53 times. Needs torchax, libtpu and tpu-migrate in one environment.
Nothing runs on a TPU.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "reference_apps" / "video_transformer"
# Latents of 480p by a VAE that stands for 4 frames and 16 x 16 pixels; tokens of a real prompt.
GRID, TEXT, VISION = (30, 53), 1000, 729
# The seed's settings: 50 steps, DeepCache from step 11 to 44, a full step every 4th.
STEPS, CACHED = 50, sum((step - 11) % 4 != 0 for step in range(11, 45))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=49)
    parser.add_argument("--devices", type=int, choices=[1, 4, 8], default=8)
    parser.add_argument("--migrated", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.migrated is not None:
        measure(args)
        return
    for shard in ("tp", "tp-row"):
        with tempfile.TemporaryDirectory() as folder:
            migrated = Path(folder) / "app"
            command = [sys.executable, "-m", "migrator", str(APP), "--target", "torchax"]
            subprocess.run([*command, "--shard", shard, "-o", str(migrated), "-q"], check=True)
            environment = os.environ | {
                "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_LOG_DIR": "disabled",
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={args.devices}",
            }  # fmt: skip
            print(f"--shard {shard}", flush=True)
            subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--migrated", str(migrated)],
                check=True, env=environment,
            )  # fmt: skip


def measure(args: argparse.Namespace) -> None:
    """Compile the full and the cached step of the migrated app, and print what is known of them."""
    sys.path[:0] = [str(args.migrated), str(ROOT)]
    import dataclasses

    import torch

    stage2 = importlib.import_module("stage2_denoise")  # sets the runtime up
    model_of, presets = stage2.VideoTransformer, stage2.PRESETS
    config = presets["1.5"]
    frames = (args.frames - 1) // 4 + 1
    tokens = frames * GRID[0] * GRID[1]
    bf16, head_dim, dim = torch.bfloat16, config.head_dim, config.hidden_size
    inputs = {
        "latents": ((2, config.latent_channels, frames, *GRID), bf16),
        "t": ((2,), torch.float32),
        "guidance": ((2,), torch.float32),
        "text": ((2, TEXT, config.text_dim), bf16),
        "text_mask": ((2, TEXT), torch.bool),
        "vision": ((2, VISION, config.vision_dim), bf16),
        "cos": ((tokens, head_dim), torch.float32),
        "sin": ((tokens, head_dim), torch.float32),
    }
    models = []
    for depth in (1, 2):
        with torch.device("meta"):
            model = model_of(dataclasses.replace(config, depth=depth))
        models.append(model.bfloat16().eval().requires_grad_(False))
    one, two = (sum(p.numel() for p in model.parameters()) for model in models)
    parameters = two + (config.depth - 2) * (two - one)
    print(f"  {parameters / 1e9:.2f} billion parameters, {tokens} image tokens, bfloat16")
    abstract = [Abstract(model, stage2.SHARDING) for model in models]
    first, second = (each.compiled(inputs, args.devices) for each in abstract)
    full = extrapolated(first, second, config.depth)
    cached = abstract[0].compiled({**inputs, "cached": ((2, tokens, dim), bf16)}, args.devices)
    for name, facts in (("1 block", first), ("2 blocks", second), (f"{config.depth} blocks, "
                        "extrapolated", full), ("cached step", cached)):  # fmt: skip
        print(f"  {name}: {describe(facts)}")
    for what in ("flops", "accessed"):
        ratio = cached[what] / full[what]
        predicted = STEPS / (STEPS - CACHED + CACHED * ratio)
        print(f"  by {what}: a cached step is {ratio:.4f} of a full one; with {CACHED} of {STEPS} "
              f"steps cached {predicted:.2f} times as fast")  # fmt: skip


def extrapolated(first: dict[str, Any], second: dict[str, Any], depth: int) -> dict[str, Any]:
    """The figures of ``depth`` blocks, from those of one and of two; temporaries are shared."""
    far = {n: first[n] + (depth - 1) * (second[n] - first[n])
           for n in ("arguments", "outputs", "code", "flops", "accessed")}  # fmt: skip
    hbm = sum(far[n] for n in ("arguments", "outputs", "code")) + second["temporaries"]
    collectives = {
        kind: {
            module: first["collectives"].get(kind, {}).get(module, 0) * (2 - depth)
            + count * (depth - 1)
            for module, count in modules.items()
        }
        for kind, modules in second["collectives"].items()
    }
    return second | far | {"hbm": hbm, "collectives": collectives, "seconds": 0.0}


class Abstract:
    """A model without weights, divided over the devices as a table says."""

    def __init__(self, model: Any, table: dict[str, str]) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec
        from torchax.ops.mappings import t2j_dtype

        mesh, sharding = (importlib.import_module(f"tpu_runtime.{n}") for n in ("mesh", "sharding"))
        self.model, count = model, mesh.start(mesh.MODEL)
        divided, gathered, _ = sharding._plan(model, table, count)
        for layer in gathered:
            layer.register_forward_pre_hook(sharding._gather_input, with_kwargs=True)

        def spec(dim: int | None, given: Any) -> Any:
            parts = [mesh.MODEL if i == dim else None for i in range(len(given.shape))]
            place = NamedSharding(mesh.in_use(), PartitionSpec(*parts))
            return jax.ShapeDtypeStruct(given.shape, t2j_dtype(given.dtype), sharding=place)

        self.spec: Callable[..., Any] = spec
        self.weights = {n: spec(divided.get(id(p)), p) for n, p in model.named_parameters()}

    def compiled(self, inputs: dict[str, Any], devices: int) -> dict[str, Any]:
        """What the TPU compiler says of the forward pass."""
        import jax
        import torch
        import torchax
        from torchax.tensor import Tensor

        inside = importlib.import_module("tpu_runtime.programs").inside
        scopes = importlib.import_module("tpu_runtime.scopes")
        env = torchax.default_env()
        forms = {name: self.spec(None, torch.empty(shape, dtype=dtype, device="meta"))
                 for name, (shape, dtype) in inputs.items()}  # fmt: skip

        def forward(weights: dict[str, Any], given: dict[str, Any]) -> Any:
            named = {name: Tensor(array, env) for name, array in given.items()}
            rope = named.pop("cos"), named.pop("sin")
            tensors = {name: Tensor(array, env) for name, array in weights.items()}
            with inside(), scopes.of(self.model), torch.no_grad():
                result = torch.func.functional_call(
                    self.model, tensors, (), {**named, "rope": rope}
                )
            return [tensor.jax() for tensor in result]

        start = time.monotonic()
        text = jax.jit(forward).lower(self.weights, forms).as_text(debug_info=True)
        compiler = importlib.import_module("migrator.verify.compile_for_tpu")
        topologies = importlib.import_module("migrator.verify.tpu").TOPOLOGIES
        topology = importlib.import_module("jax.experimental.topologies")
        chips = topology.get_topology_desc(topologies[f"v6e-{devices}"], "tpu").devices
        found = compiler._compile(text, chips[:devices])
        facts = compiler._memory(found) | compiler._cost(found) | compiler._seen(found)
        return {**facts, "seconds": time.monotonic() - start}


def describe(facts: dict[str, Any]) -> str:
    """One line, of one device."""
    exchanged = "; ".join(
        f"{sum(modules.values())} {kind} ({', '.join(f'{m} {n}' for m, n in modules.items())})"
        for kind, modules in facts["collectives"].items()
    )
    return (
        f"{facts['hbm'] / 2**30:.2f} GiB of HBM "
        f"(weights and inputs {facts['arguments'] / 2**30:.2f}, "
        f"temporary {facts['temporaries'] / 2**30:.2f}), {facts['flops'] / 1e12:.2f} TFLOP, "
        f"{facts['accessed'] / 1e9:.1f} GB accessed, {exchanged or 'nothing exchanged'}"
        + (f"; compiled in {facts['seconds']:.0f} s" if facts["seconds"] else "")
    )


if __name__ == "__main__":
    main()
