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
    "an option that is set by its name": (
        """
        from transformers import TrainingArguments
        arguments = TrainingArguments("out")
        setattr(arguments, "tf32", True)
        """,
        "FRW003",
    ),
    "options that are set by their names": (
        """
        from transformers import TrainingArguments
        arguments = TrainingArguments("out")
        for name, value in {"fp16": True}.items():
            setattr(arguments, name, value)
        """,
        "FRW003",
    ),
    "an option of an attribute": (
        """
        from transformers import TrainingArguments
        class Run:
            def __init__(self, half):
                self.arguments = TrainingArguments("out")
                self.arguments.fp16 = half
        """,
        "FRW003",
    ),
    "options that are replaced": (
        """
        import dataclasses
        from transformers import TrainingArguments
        dataclasses.replace(TrainingArguments("out"), fp16=True)
        """,
        "FRW003",
    ),
    "options of a parser": (
        """
        from transformers import HfArgumentParser, TrainingArguments
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--fp16"])
        """,
        "FRW003",
    ),
    "options that are bound": (
        """
        from transformers import TrainingArguments
        make = functools.partial(TrainingArguments, fp16=True)
        """,
        "FRW003",
    ),
    "options of a class with an __init__ of its own": (
        """
        from transformers import TrainingArguments
        class Arguments(TrainingArguments):
            def __init__(self, out, fp16):
                super().__init__(out)
        Arguments("out", fp16=True)
        """,
        "FRW003",
    ),
    "a precision by its place": (
        """
        from accelerate import Accelerator
        Accelerator(True, False, "fp16")
        """,
        "FRW003",
    ),
    "a precision of what is given a class": (
        """
        from accelerate import Accelerator
        def make(cls):
            return cls(mixed_precision="fp16")
        make(Accelerator)
        """,
        "FRW003",
    ),
    "a precision of the environment": (
        """
        import os
        os.environ["ACCELERATE_MIXED_PRECISION"] = "fp16"
        """,
        "FRW003",
    ),
    "a GPU of Lightning's in a dictionary": (
        """
        import lightning
        options = {"accelerator": "gpu"}
        lightning.Trainer(**options)
        """,
        "LTN001",
    ),
    "a class whose `to` looks at the name": (
        """
        class Box:
            def to(self, where):
                self.fast = self.places[where]
        Box().to("cuda")
        """,
        "DEV002",
    ),
    "a class whose `to` is a lambda": (
        """
        class Box:
            to = lambda self, *where: where[0] == "cuda"
        Box().to("cuda")
        """,
        "DEV002",
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


def test_a_to_that_hands_the_device_on_is_torchs() -> None:
    text = """
    import torch
    class Batch:
        def to(self, device):
            self.fast = device == "cuda"
            self.x = self.x.to(device)
    Batch().to("cuda")
    """
    assert not [d for d in run(dedent(text)).diagnostics if d.outcome is Outcome.REPORTED]
    assert '"cuda"' not in run(dedent(text)).source.decode()
