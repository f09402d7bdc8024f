"""The tiny video transformer of reference_apps, written for JAX by hand; weights by their names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Weights = dict[str, Any]


def linear(w: Weights, name: str, x: Any) -> Any:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-6)


def rms_norm(w: Weights, name: str, x: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]


def embed(w: Weights, name: str, t: Any) -> Any:
    angles = t[:, None] * 10000.0 ** -(jnp.arange(128) / 128)
    embedded = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)
    return linear(w, f"{name}.fc2", jax.nn.silu(linear(w, f"{name}.fc1", embedded)))


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    turned = jnp.stack([-pairs[..., 1], pairs[..., 0]], -1).reshape(x.shape)
    return x * cos + turned * sin


def block(w: Weights, name: str, streams: list[Any], vec: Any, rope: Any, mask: Any) -> list[Any]:
    """One double block; ``streams`` are image and text."""
    mods, parts = [], []
    for number, (kind, x) in enumerate(zip(("img", "txt"), streams, strict=True)):
        own = f"{name}.{kind}"
        mod = jnp.split(linear(w, f"{own}.mod.linear", jax.nn.silu(vec))[:, None], 6, -1)
        h = norm(x) * (1 + mod[1]) + mod[0]
        q, k, v = (
            linear(w, f"{own}.{part}", h).reshape(*h.shape[:2], 8, -1).swapaxes(1, 2)
            for part in "qkv"
        )
        q, k = rms_norm(w, f"{own}.q_norm", q), rms_norm(w, f"{own}.k_norm", k)
        if number == 0:
            q, k = rotate(q, *rope), rotate(k, *rope)
        mods.append(mod)
        parts.append((q, k, v))
    q, k, v = (jnp.concatenate(pair, 2) for pair in zip(*parts, strict=True))
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    joint = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v
    joint = joint.swapaxes(1, 2).reshape(joint.shape[0], joint.shape[2], -1)
    found = jnp.split(joint, [streams[0].shape[1]], 1)
    out = []
    for kind, x, mod, mixed in zip(("img", "txt"), streams, mods, found, strict=True):
        own = f"{name}.{kind}"
        x = x + mod[2] * linear(w, f"{own}.proj", mixed)
        h = linear(w, f"{own}.mlp.fc1", norm(x) * (1 + mod[4]) + mod[3])
        out.append(x + mod[5] * linear(w, f"{own}.mlp.fc2", jax.nn.gelu(h, approximate=True)))
    return out


@jax.jit
def step(w: Weights, given: dict[str, Any]) -> tuple[Any, Any]:
    """The transformer: velocity, and what all blocks but the first have added."""
    latents, cached = given["latents"], given.get("cached")
    weight = w["patch_in.weight"]
    _, _, t, h, width = latents.shape
    p = weight.shape[-1]
    img = jax.lax.conv_general_dilated(latents, weight, weight.shape[2:], "VALID")
    img = img + w["patch_in.bias"][:, None, None, None]
    img = img.reshape(*img.shape[:2], -1).swapaxes(1, 2)
    has_vision = jnp.any(given["vision"] != 0)
    vision_mask = jnp.broadcast_to(has_vision, given["vision"].shape[:2])
    txt = [linear(w, "text_in", given["text"]), linear(w, "vision_in", given["vision"])]
    vec = embed(w, "time_in", given["t"]) + embed(w, "guidance_in", given["guidance"])
    masks = [jnp.ones(img.shape[:2], bool), given["text_mask"], vision_mask]
    mask = jnp.concatenate(masks, 1)[:, None, None]
    rope, streams = given["rope"], [img, jnp.concatenate(txt, 1)]
    streams = block(w, "blocks.0", streams, vec, rope, mask)
    if cached is None:
        first = streams[0]
        for number in range(1, 4):
            streams = block(w, f"blocks.{number}", streams, vec, rope, mask)
        cached = streams[0] - first
        img = streams[0]
    else:
        img = streams[0] + cached
    mod = jnp.split(linear(w, "final.mod.linear", jax.nn.silu(vec))[:, None], 2, -1)
    x = linear(w, "final.linear", norm(img) * (1 + mod[1]) + mod[0])
    x = x.reshape(x.shape[0], t, h // p, width // p, -1, 1, p, p)
    return x.transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape(x.shape[0], -1, t, h, width), cached
