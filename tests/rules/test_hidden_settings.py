"""What trainers are told in a roundabout way is rewritten or reported; other things are neither."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import TARGETS, reported_codes, run

REPORTED = {
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
    "an option that a class is made with": (
        """
        from transformers import TrainingArguments
        class Told(Options, TrainingArguments, fp16=True):
            pass
        """,
        "FRW003",
    ),
    "an optimizer that is set by a method": (
        """
        from transformers import TrainingArguments
        TrainingArguments("out").set_optimizer(name="adamw_bnb_8bit", learning_rate=1e-3)
        """,
        "FRW003",
    ),
    "an optimizer that a method sets by its place": (
        """
        from transformers import Trainer
        def train(args):
            args.set_optimizer("paged_adamw_32bit").set_training(3)
            Trainer(model, args).train()
        """,
        "FRW003",
    ),
    "two words of a command line": (
        """
        from transformers import HfArgumentParser, TrainingArguments
        words = ["--optim", "adamw_bnb_8bit"]
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
        """,
        "FRW003",
    ),
    "a command line that is divided": (
        """
        import shlex
        from accelerate import Accelerator
        words = shlex.split("--mixed_precision fp16 --steps 3")
        """,
        "FRW003",
    ),
    "a word that a command line gains": (
        """
        import sys
        from transformers import TrainingArguments
        sys.argv.append("--deepspeed=zero3.json")
        """,
        "FRW003",
    ),
    "a command line of Lightning's": (
        """
        from lightning.pytorch.cli import LightningCLI
        LightningCLI(Net, args=["fit", "--trainer.accelerator=gpu"])
        """,
        "LTN001",
    ),
    "two words of a command line of Lightning's": (
        """
        from lightning.pytorch.cli import LightningCLI
        LightningCLI(Net, args=["fit", "--trainer.precision", "16-mixed"])
        """,
        "LTN001",
    ),
    "a command line of Lightning's that is put together": (
        """
        from lightning.pytorch.cli import LightningCLI
        LightningCLI(Net, args=["fit", f"--trainer.accelerator={chosen}"])
        """,
        "LTN001",
    ),
    "a table of Lightning's arguments": (
        """
        from lightning.pytorch.cli import LightningCLI
        LightningCLI(Net, args={"trainer": {"accelerator": "gpu"}})
        """,
        "LTN001",
    ),
    "a flat table of Lightning's arguments": (
        """
        from lightning.pytorch.cli import LightningCLI
        class Own(LightningCLI):
            def add_arguments_to_parser(self, parser):
                parser.set_defaults({"trainer.precision": 16})
        """,
        "LTN001",
    ),
    "a GPU of Lightning's in a dictionary": (
        """
        import lightning
        options = {"accelerator": "gpu"}
        lightning.Trainer(**options)
        """,
        "LTN001",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", REPORTED)
def test_it_is_reported(kind: str, target: str) -> None:
    text, code = REPORTED[kind]
    assert code in reported_codes(run(f"import functools\nimport torch\n{dedent(text)}", target))


def test_options_that_say_nothing_of_gpus_are_not_reported() -> None:
    text = """
    from transformers import TrainingArguments
    options, layers = {"max_steps": 3}, []
    TrainingArguments("out", **options)
    """
    assert not reported_codes(run(dedent(text)))


# What goes by the name of a setting, and is none of a trainer's.
OTHERS = {
    "a program that only loads a model": """
        from types import SimpleNamespace
        from transformers import AutoModel
        args = SimpleNamespace(fsdp=True, precision="16-mixed")
        args.fp16 = True
        main(["--fp16", "--fsdp"])
        """,
    "a function of the program's own, which asks it": """
        from transformers import Trainer
        def context(fsdp=False):
            return "sharded" if fsdp and torch.is_grad_enabled() else "whole"
        context(fsdp=True)
        """,
    "a word for another program's parser": """
        from accelerate import Accelerator
        parser.add_argument("--fp16", action="store_true")
        """,
    "an optimizer of torch's": """
        from transformers import TrainingArguments
        TrainingArguments("out").set_optimizer(name="adafactor", beta1=0.8)
        """,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_name_alone_is_no_setting(kind: str) -> None:
    result = run(f"import torch\n{dedent(OTHERS[kind])}")
    assert not reported_codes(result)


def test_a_function_that_hands_a_setting_on_is_reported() -> None:
    text = """
    from transformers import Trainer
    def tell(args, fp16):
        args.fp16 = fp16
        Trainer(model, args).train()
    tell(args, fp16=True)
    """
    assert reported_codes(run(dedent(text)))
