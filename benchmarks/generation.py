"""What a token costs in transformers' `generate`, migrated, and in a decoder written by hand.

    python benchmarks/generation.py --target torchax [--prompts 17 40 100] [--new 32 256]
    python benchmarks/generation.py --target torchax --plot docs/generation.svg  # needs matplotlib

In the environment of the target, with the group `trainers`, on its CPU back end. A Llama with
random weights (2 layers, `--width` wide) continues 2 prompts greedily: by `model.generate` on the
device, by `generate` of CPU torch, and by hand with the same shapes: prompts and cache padded to
the same powers of two, one program for the prompt and one for all further tokens, in place; the
token that is chosen stays on the device, and the tokens are read at the end. For JAX by hand means
`jax.jit` with a donated cache, for torch_xla a loop with `torch_xla.sync()`. Each prompt is a
process of its own; in it the three take turns. The tokens must be the same.

The table has the programs that a first call compiled, and all further ones; its seconds; medians
of what comes after, milliseconds to the first token and for each of the others; and how many times
as long as by hand that is, the median of the turns. `--cpu-time` counts CPU time, for a machine
that others use, too.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migrator.targets.copies import folder_to_import

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch's threads make room for the target's
HERE = Path(__file__).resolve()
BATCH, HEADS, KEYS, VOCABULARY, LAYERS, POSITIONS = 2, 8, 4, 8192, 2, 2048
LEAST = 64  # tokens of a padded prompt, and of a cache

Generate = Callable[[int], Any]  # of the number of new tokens; all of them, in lists


def bucket(length: int) -> int:
    return max(LEAST, 1 << (length - 1).bit_length())


def model_of(width: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=11 * width // 4,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KEYS,
        max_position_embeddings=POSITIONS, pad_token_id=0, bos_token_id=None, eos_token_id=None,
        initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


# ---- by hand, for JAX and for torch: `np` is jax.numpy, or torch ---------------------------------


class Shape:
    """What a decoder's code has to know of a model."""

    def __init__(self, config: Any) -> None:
        self.eps = config.rms_norm_eps
        self.theta = config.rope_parameters["rope_theta"]
        self.size = config.hidden_size // config.num_attention_heads


def norm(np: Any, x: Any, weight: Any, eps: float) -> Any:
    return weight * (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps))


def turned(np: Any, x: Any, positions: Any, shape: Shape) -> Any:
    half = shape.size // 2
    steps = np.arange(half, **({"device": x.device} if np.__name__ == "torch" else {}))
    angles = positions[:, None] / shape.theta ** (steps / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)


def forward(
    np: Any, write: Any, weights: dict[str, Any], shape: Shape, caches: list[Any], ids: Any,
    positions: Any, last: Any,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """The token that follows the one at ``last``; the caches with keys and values of ``ids``."""
    x = weights["model.embed_tokens.weight"][ids]
    batch, length = ids.shape
    new = []
    for layer in range(LAYERS):
        named = f"model.layers.{layer}."

        def linear(x: Any, name: str, named: str = named) -> Any:
            return x @ weights[f"{named}{name}.weight"].T

        def heads(x: Any, number: int) -> Any:
            return np.swapaxes(x.reshape(batch, length, number, shape.size), 1, 2)

        y = norm(np, x, weights[f"{named}input_layernorm.weight"], shape.eps)
        query = turned(np, heads(linear(y, "self_attn.q_proj"), HEADS), positions, shape)
        key = turned(np, heads(linear(y, "self_attn.k_proj"), KEYS), positions, shape)
        value = heads(linear(y, "self_attn.v_proj"), KEYS)
        keys, values = (
            write(c, n, positions) for c, n in zip(caches[layer], (key, value), strict=True)
        )
        new.append((keys, values))
        grouped = query.reshape(batch, KEYS, HEADS // KEYS, length, shape.size)
        scores = np.einsum("bgrqd,bgkd->bgrqk", grouped, keys) / shape.size**0.5
        places = np.arange(
            keys.shape[2], **({"device": x.device} if np.__name__ == "torch" else {})
        )
        scores = np.where(places[None] <= positions[:, None], scores, -1e30)
        scores = np.exp(scores - np.amax(scores, -1, keepdims=True))
        scores = scores / scores.sum(-1, keepdims=True)
        mixed = np.einsum("bgrqk,bgkd->bgrqd", scores, values)
        mixed = np.swapaxes(mixed.reshape(batch, HEADS, length, shape.size), 1, 2)
        x = x + linear(mixed.reshape(batch, length, -1), "self_attn.o_proj")
        y = norm(np, x, weights[f"{named}post_attention_layernorm.weight"], shape.eps)
        gate = linear(y, "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, "mlp.up_proj"), "mlp.down_proj")
    chosen = norm(np, x[:, last], weights["model.norm.weight"], shape.eps)
    return (chosen @ weights["lm_head.weight"].T).argmax(-1), new


def forms(prompt: int, new: int, shape: Shape) -> tuple[int, tuple[int, ...]]:
    """The length of a padded prompt, and the form of a cache."""
    return bucket(prompt), (BATCH, KEYS, bucket(prompt + new - 1), shape.size)


def by_jax(model: Any, ids: Any) -> Generate:
    import jax
    import jax.numpy as jnp

    shape = Shape(model.config)
    weights = {name: jnp.asarray(w.numpy()) for name, w in model.state_dict().items()}
    prompt = ids.shape[1]

    def write(cache: Any, new: Any, positions: Any) -> Any:
        return jax.lax.dynamic_update_slice(cache, new, (0, 0, positions[0], 0))

    @functools.partial(jax.jit, donate_argnums=1)
    def fill(weights: Any, caches: Any, ids: Any, last: Any) -> Any:
        positions = jnp.arange(ids.shape[1])
        return forward(jnp, write, weights, shape, caches, ids, positions, last)

    @functools.partial(jax.jit, donate_argnums=1)
    def follow(weights: Any, caches: Any, token: Any, position: Any) -> Any:
        chosen, caches = forward(
            jnp, write, weights, shape, caches, token[:, None], position[None], 0
        )
        return chosen, caches, position + 1

    def generate(new: int) -> Any:
        length, form = forms(prompt, new, shape)
        caches = [(jnp.zeros(form), jnp.zeros(form)) for _ in range(LAYERS)]
        padded = jnp.pad(jnp.asarray(ids.numpy()), ((0, 0), (0, length - prompt)))
        token, caches = fill(weights, caches, padded, jnp.asarray(prompt - 1))
        tokens, position = [token], jnp.asarray(prompt)
        for _ in range(new - 1):
            token, caches, position = follow(weights, caches, token, position)
            tokens.append(token)
        return jax.device_get(jnp.stack(tokens, 1)).tolist()

    return generate


def by_torch_xla(model: Any, ids: Any) -> Generate:
    import torch
    import torch_xla

    shape = Shape(model.config)
    device = torch_xla.device()
    weights = {name: w.to(device) for name, w in model.state_dict().items()}
    prompt = ids.shape[1]

    def write(cache: Any, new: Any, positions: Any) -> Any:
        return cache.index_copy_(2, positions, new)

    @torch.no_grad()
    def generate(new: int) -> Any:
        length, form = forms(prompt, new, shape)
        caches = [[torch.zeros(form, device=device) for _ in range(2)] for _ in range(LAYERS)]
        padded = torch.nn.functional.pad(ids, (0, length - prompt)).to(device)
        positions, last = torch.arange(length).to(device), torch.tensor([prompt - 1]).to(device)
        token, _ = forward(torch, write, weights, shape, caches, padded, positions, last)
        position = last + 1
        torch_xla.sync()
        tokens = [token[:, 0]]
        for _ in range(new - 1):
            ids_now = tokens[-1][:, None]
            token, _ = forward(torch, write, weights, shape, caches, ids_now, position, 0)
            position = position + 1
            tokens.append(token)
            torch_xla.sync()
        return torch.stack(tokens, 1).tolist()

    return generate


# ---- one prompt ----------------------------------------------------------------------------------


def by_transformers(model: Any, ids: Any) -> Generate:
    def generate(new: int) -> Any:
        return model.generate(ids, max_new_tokens=new)[:, ids.shape[1] :].tolist()

    return generate


def counter(target: str) -> Callable[[], int]:
    """How many programs have been compiled, all in all."""
    if target == "torchax":
        import jax

        found: list[str] = []

        def note(event: str, *_: Any, **__: Any) -> None:
            found.extend([event] * event.endswith("backend_compile_duration"))

        jax.monitoring.register_event_duration_secs_listener(note)
        return lambda: len(found)
    from torch_xla.debug import metrics

    return lambda: metrics.counter_value("UncachedCompile") or 0


def child(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One prompt, continued by all ways."""
    sys.path.insert(0, str(folder_to_import(arguments.target)))
    import copy

    import torch
    import tpu_runtime

    tpu_runtime.setup()
    prompt, *_ = arguments.prompts
    model = model_of(arguments.width)
    ids = torch.randint(1, VOCABULARY, (BATCH, prompt), generator=torch.Generator().manual_seed(1))
    by_hand, word = {"torchax": (by_jax, "jax"), "torch_xla": (by_torch_xla, "xla")}[
        arguments.target
    ]
    on_device = copy.deepcopy(model).to(word)
    ways = {
        "migrated": by_transformers(on_device, ids.to(word)),
        "by hand": by_hand(model, ids),
        "CPU torch": by_transformers(model, ids),
    }
    compiled = counter(arguments.target)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    expected: dict[int, Any] = {}
    rows: dict[tuple[str, int], dict[str, Any]] = {}

    def run(name: str, new: int) -> float:
        began = clock()
        tokens = ways[name](new)
        took = clock() - began
        if expected.setdefault(new, tokens) != tokens:
            raise SystemExit(f"{name}: other tokens than those of {next(iter(ways))}")
        return took

    for new in arguments.new:
        for name in ways:
            before = compiled()
            first = run(name, new)
            programs = compiled() - before
            row = {"way": name, "prompt": prompt, "new": new, "first": first, "programs": programs}
            rows[name, new] = row
        after = dict.fromkeys(ways, 0)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(arguments.rounds + 1):
            for name in ways:
                before = compiled()
                one, all_of_them = run(name, 1), run(name, new)
                after[name] += compiled() - before
                if turn:  # a first token alone may be new
                    times[name].append((one, (all_of_them - one) / (new - 1)))
        for name in ways:
            row = rows[name, new]
            row["later"] = after[name]
            row["to_first"] = statistics.median(one for one, _ in times[name])
            row["token"] = statistics.median(each for _, each in times[name])
            turns = zip(times[name], times["by hand"], strict=True)
            row["ratio"] = statistics.median(each / hand for (_, each), (_, hand) in turns)
    return list(rows.values())


def plot(file: Path, found: list[dict[str, Any]]) -> None:
    """Draw the time of a token by the number of new tokens: a panel for each prompt."""
    import matplotlib.pyplot as plt

    prompts = list(dict.fromkeys(row["prompt"] for row in found))
    figure, panels = plt.subplots(
        1, len(prompts), figsize=(3.5 * len(prompts), 3), sharey=True, squeeze=False
    )
    for prompt, axes in zip(prompts, panels[0], strict=True):
        for way in dict.fromkeys(row["way"] for row in found):
            rows = [row for row in found if (row["prompt"], row["way"]) == (prompt, way)]
            times = [1000 * row["token"] for row in rows]
            axes.plot([row["new"] for row in rows], times, marker="o", label=way)
        axes.set(xscale="log", title=f"prompt of {prompt} tokens", xlabel="new tokens")
        axes.set_xticks([row["new"] for row in rows], [f"{row['new']:,}" for row in rows])
        axes.minorticks_off()
    panels[0][0].set(ylabel="ms a token", ylim=(0, 1100 * max(row["token"] for row in found)))
    panels[0][0].legend(fontsize=8, loc="center left")
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=["torchax", "torch_xla"], required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=[17, 40, 100])
    parser.add_argument("--new", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the times of a token")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments)))
        return
    environment = {"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU", **os.environ}
    print("| prompt | new | | programs | later | first call, s | first token, ms | a token, ms | |")
    print("|---|---|---|---|---|---|---|---|---|")
    found: list[dict[str, Any]] = []
    for prompt in arguments.prompts:
        command = [sys.executable, str(HERE), *sys.argv[1:], "--child", "--prompts", str(prompt)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
        rows = json.loads(done.stdout.splitlines()[-1])
        found += rows
        for row in rows:
            print(
                f"| {prompt} | {row['new']} | {row['way']} | {row['programs']} | {row['later']} "
                f"| {row['first']:.1f} | {1000 * row['to_first']:.1f} | {1000 * row['token']:.2f} "
                f"| {row['ratio']:.2f} |"
            )
        sys.stdout.flush()
    if arguments.plot:
        plot(arguments.plot, found)


if __name__ == "__main__":
    main()
