"""What the tests of transformers' `generate` share: a model, prompts, and a count of programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from target import WORD
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128, **TOKENS,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def prompts(length: int, seed: int = 0) -> dict[str, Tensor]:
    """Two of them, the first one padded on the left."""
    ids = torch.randint(3, 32, (2, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    ids[0, :2] = mask[0, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def moved(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(WORD) for name, tensor in inputs.items()}


@contextmanager
def compilations() -> Iterator[list[str]]:
    """What is compiled within."""
    found: list[str] = []
    if WORD == "jax":
        import jax

        def note(event: str, *_: Any, **__: Any) -> None:
            found.extend([event] * event.endswith("backend_compile_duration"))

        jax.monitoring.register_event_duration_secs_listener(note)
        yield found
        jax.monitoring.unregister_event_duration_listener(note)
    else:
        from torch_xla.debug import metrics

        before = metrics.counter_value("UncachedCompile") or 0
        yield found
        found += ["a graph"] * ((metrics.counter_value("UncachedCompile") or 0) - before)
