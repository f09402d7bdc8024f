"""A causal language model over bytes, small and not trained."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def language_model(seed: int) -> LlamaForCausalLM:
    """Llama with two layers and random weights."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
