"""Programs of transformers' `generate`: what else is recorded has its own."""

import copy

import torch
import torch_xla
import tpu_runtime as tpu

from tests.runtime.generating import compilations, llama, moved, prompts

tpu.setup()


def test_what_is_recorded_before_is_no_part_of_the_prompts_program() -> None:
    on_cpu = llama()
    model = copy.deepcopy(on_cpu).to("xla")
    model.generate(**moved(prompts(5)), max_new_tokens=3)
    kept = torch.ones(3, device="xla") * 5
    torch_xla.sync()  # this is a program of its own
    kept = torch.ones(3, device="xla") * 5
    with compilations() as found:
        tokens = model.generate(**moved(prompts(5)), max_new_tokens=3)
    assert found == [] and kept.tolist() == [5, 5, 5]
    assert tokens.tolist() == on_cpu.generate(**prompts(5), max_new_tokens=3).tolist()
