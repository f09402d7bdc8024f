"""What a program says in a roundabout way is rewritten as it is meant, or reported."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import TARGETS, run

from migrator.diagnostics import Outcome

REPORTED = {
    "an import with two meanings": (
        """
        if torch.cuda.is_available():
            from torch.cuda.amp import autocast
        else:
            from contextlib import nullcontext as autocast
        with autocast():
            y = net(x)
        """,
        "CUD005",
    ),
    "an import that a function takes the place of": (
        """
        from torch.cuda import synchronize
        synchronize()
        def synchronize():
            pass
        """,
        "CUD005",
    ),
    "code in a string": ('exec("x = torch.ones(1).cuda()")', "CUD005"),
    "code in pieces": ('eval("torch.cuda" + f".{name}()")', "CUD005"),
    "more than a tensor for Tensor.cuda": (
        "move = functools.partial(torch.Tensor.cuda, non_blocking=True)",
        "MOV001",
    ),
    "options of a trainer in a dictionary": (
        """
        from transformers import TrainingArguments
        options = dict(fp16=True, optim="adamw_bnb_8bit")
        TrainingArguments("out", **options)
        """,
        "FRW003",
    ),
    "options of a trainer from elsewhere": (
        """
        from transformers import TrainingArguments
        def made(**options):
            return TrainingArguments("out", **options)
        """,
        "FRW003",
    ),
    "options of accelerate in a dictionary": (
        """
        import accelerate
        accelerate.Accelerator(**{"mixed_precision": "fp16"})
        """,
        "FRW003",
    ),
    "options of a class of one's own": (
        """
        import transformers
        class Arguments(transformers.TrainingArguments):
            fp16: bool = True
        """,
        "FRW003",
    ),
    "options by another name": (
        """
        import transformers
        Arguments = transformers.TrainingArguments
        Arguments("out", fp16=chosen)
        """,
        "FRW002",
    ),
    "an option that is set later": (
        """
        from transformers import TrainingArguments
        arguments = TrainingArguments("out")
        arguments.fp16 = True
        """,
        "FRW003",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", REPORTED)
def test_it_is_reported(kind: str, target: str) -> None:
    text, code = REPORTED[kind]
    result = run(f"import functools\nimport torch\n{dedent(text)}", target)
    assert code in {d.code for d in result.diagnostics if d.outcome is Outcome.REPORTED}


def test_options_that_say_nothing_of_gpus_are_not_reported() -> None:
    text = """
    from transformers import TrainingArguments
    options = {"max_steps": 3}
    TrainingArguments("out", **options)
    """
    assert not [d for d in run(dedent(text)).diagnostics if d.outcome is Outcome.REPORTED]


@pytest.mark.parametrize(("target", "word"), [("torchax", "jax:0"), ("torch_xla", "xla:0")])
def test_a_name_whose_index_is_taken_out_keeps_it(target: str, word: str) -> None:
    text = 'import torch\ndevice = "cuda:0"\nindex = int(device.split(":")[1])\n'
    assert f'device = "{word}"' in run(text, target).source.decode()
