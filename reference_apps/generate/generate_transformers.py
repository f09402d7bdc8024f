"""transformers' generate: a batch of prompts of several lengths, padded on the left."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from record import Record

NAME = "transformers"


def run(prompts: list[str], new_tokens: int, repeat: int, record: Record) -> None:
    """Make the text several times; keep it, and the scores of its last token."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    model.cuda().eval()
    texts = [list(prompt.encode())[: 8 + 3 * number] for number, prompt in enumerate(prompts)]
    longest = max(map(len, texts))
    ids = torch.tensor([[0] * (longest - len(text)) + text for text in texts]).cuda()
    for _ in range(repeat):
        with record.text():
            made = model.generate(
                ids,
                attention_mask=(ids != 0).long(),
                max_new_tokens=new_tokens,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
    record.keep(made.sequences, made.logits[-1])
