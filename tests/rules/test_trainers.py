"""Accelerate, transformers' Trainer, TRL: nothing of them is silent, and set-up comes in front."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, cli, constructs, migrated, run, write_tree

from migrator.diagnostics import Outcome

ARGUMENTS = "from transformers import TrainingArguments\nargs = TrainingArguments('out'{})\n"
PROGRAM = """\
from accelerate import Accelerator

accelerator = Accelerator({})
print(accelerator.device)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "made",
    [
        "from accelerate import Accelerator\nx = Accelerator()\n",
        "import accelerate\nx = accelerate.Accelerator(log_with='all')\n",
        "from accelerate.state import PartialState\nx = PartialState()\n",
        "from transformers import Trainer\nx = Trainer(model, args)\n",
        "from transformers import Seq2SeqTrainer as T\nx = T(model, args)\n",
        "from transformers import Trainer\nclass Own(Trainer):\n    pass\nx = Own(model, args)\n",
        "import transformers\nx = transformers.Trainer(model, args)\n",
        "from trl import SFTTrainer\nx = SFTTrainer(model, args)\n",
        "from accelerate import *\nx = Accelerator()\n",
        "import accelerate\nx = getattr(accelerate, 'Accelerator')()\n",
        "from accelerate import Accelerator\nx = {'make': Accelerator}['make']()\n",
        "from accelerate import Accelerator as A\nclass Own(A):\n    pass\nx = Own()\n",
        "from accelerate import Accelerator as A\ndef f(x = A()):\n    pass\nimport json\n",
    ],
)
def test_a_program_that_only_makes_a_trainer_is_set_up(made: str, target: str) -> None:
    """Without set-up it would train on the CPU, or with another precision, and say nothing."""
    result = run(made, target, entry=True)
    (found,) = constructs(result)
    assert (found.code, found.outcome) == ("FRW001", Outcome.KEPT)
    text = result.source.decode()
    assert text.index("tpu_runtime.setup()") < text.index("x = ")


@pytest.mark.parametrize(
    ("target", "outcome"), [("torchax", Outcome.KEPT), ("torch_xla", Outcome.REPORTED)]
)
def test_what_an_argument_keeps_on_the_cpu_stays_there(target: str, outcome: Outcome) -> None:
    """accelerate takes torch_xla wherever it is installed, if no set-up tells it otherwise."""
    result = run(PROGRAM.format("cpu=True"), target, entry=True)
    assert not result.changed
    (found,) = constructs(result)
    assert found.outcome == outcome


@pytest.mark.parametrize("target", TARGETS)
def test_what_may_stay_on_the_cpu_is_set_up(target: str) -> None:
    """`cpu=args.cpu` is how accelerate's examples say it, and it is off."""
    result = run(PROGRAM.format("cpu=args.cpu"), target, entry=True)
    assert "tpu_runtime.setup()" in result.source.decode()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (", fp16=True", ", bf16=True"),
        (", fp16=True, tf32=True, max_steps=4", ", bf16=True, max_steps=4"),
        (", tf32=True, fp16=True, fp16_full_eval=True", ", bf16=True, bf16_full_eval=True"),
        (", torch_compile=True", ""),
        (", torch_compile_backend='inductor', torch_compile_mode='max-autotune'", ""),
        (", fp16=False, tf32=None", ", fp16=False, tf32=None"),
        (", optim='adafactor'", ", optim='adafactor'"),
    ],
)
def test_settings_for_gpus_become_those_for_tpus(before: str, after: str, target: str) -> None:
    """Those of one call are rewritten together."""
    assert migrated(ARGUMENTS.format(before), target) == ARGUMENTS.format(after)


SUBCLASS = """\
from accelerate import Accelerator
from transformers import TrainingArguments
class Chosen(Accelerator):
    def __init__(self):
        {0}.__init__({1}mixed_precision="{2}")
class Told(TrainingArguments):
    def __init__(self, out):
        super().__init__(out, {3}=True)
class Plain(TrainingArguments):
    pass
Plain("out", {3}=True)
"""


@pytest.mark.parametrize("base", [("super()", ""), ("Accelerator", "self, ")])
def test_classes_of_ones_own_tell_the_library_the_same(base: tuple[str, str]) -> None:
    after = SUBCLASS.format(*base, "bf16", "bf16")
    assert migrated(SUBCLASS.format(*base, "fp16", "fp16")) == after


def test_classes_of_other_files_are_the_librarys(tmp_path: Path) -> None:
    """Also by a star import, and by the name that a package passes on."""
    files = {
        "pkg/__init__.py": "from .own import *\nfrom accelerate import Accelerator as Chooses\n",
        "pkg/own.py": "from transformers import TrainingArguments\n"
        "class Told(TrainingArguments):\n    pass\n",
        "train.py": "import pkg\nfrom pkg import Chooses, Told\n"
        'Told("out", fp16=True)\npkg.Told("out", fp16=True)\nChooses(mixed_precision="fp16")\n',
    }
    write_tree(tmp_path, files)
    cli("train.py", "--target", "torchax", "--allow-dirty", cwd=tmp_path)
    text = (tmp_path / "train.py").read_text()
    assert "fp16" not in text.replace("bf16", "") and "tpu_runtime.setup()" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fp16=half", "bf16=True"),
        ("fp16=True, bf16=False", "bf16=True"),
        ("fp16=True, **more", "bf16=True"),
        ("optim='paged_adamw_32bit'", "adamw_torch"),
        ("optim='adamw_bnb_8bit'", "adamw_torch"),
        ("optim=transformers.training_args.OptimizerNames.ADAMW_BNB", "adamw_torch"),
        ("deepspeed='zero3.json'", "shards over GPUs"),
        ("fsdp='full_shard auto_wrap'", "shards over GPUs"),
    ],
)
def test_settings_that_a_person_has_to_decide_are_reported(given: str, said: str) -> None:
    result = run(ARGUMENTS.format(f", {given}"))
    assert not result.changed
    found = constructs(result)
    assert {each.outcome for each in found} == {Outcome.REPORTED}
    assert all(said in each.message for each in found)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [("'fp16'", Outcome.REWRITTEN), ("'bf16'", Outcome.KEPT), ("half", Outcome.REPORTED)],
)
def test_the_precision_of_accelerate(given: str, outcome: Outcome) -> None:
    result = run(PROGRAM.format(f"mixed_precision={given}"), entry=True)
    assert {d.outcome for d in constructs(result) if d.code == "FRW002"} == {outcome}
    assert ("'fp16'" in result.source.decode()) is False


@pytest.mark.parametrize(
    ("given", "is_reported"),
    [
        ("", True),
        (", device=0", True),
        (", device=0 if torch.cuda.is_available() else -1", True),
        (", device=-1", False),
        (", device='cpu'", False),
    ],
)
def test_a_pipeline_takes_no_tpu_by_itself(given: str, is_reported: bool) -> None:
    source = f"import torch\nfrom transformers import pipeline\np = pipeline('x'{given})\n"
    found = [d for d in constructs(run(source)) if d.code == "LIB007"]
    assert [d.outcome for d in found] == [Outcome.REPORTED] * is_reported


@pytest.mark.parametrize("method", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_offloads_of_diffusers_are_reported(method: str) -> None:
    source = f"import torch\nfrom diffusers import Pipe\nPipe.from_pretrained('x').{method}()\n"
    (found,) = constructs(run(source))
    assert (found.code, found.outcome) == ("LIB007", Outcome.REPORTED)


LAUNCHED = """\
from accelerate import notebook_launcher
notebook_launcher(train, (3,){})
"""


@pytest.mark.parametrize(
    ("given", "on_torchax"),
    [
        (", num_processes=1", Outcome.KEPT),
        (", 1", Outcome.KEPT),
        (", num_processes=8", Outcome.REPORTED),
        (", num_processes=count", Outcome.REPORTED),
        ("", Outcome.REPORTED),
    ],
)
def test_processes_of_a_notebook_are_one(given: str, on_torchax: Outcome) -> None:
    (found,) = constructs(run(LAUNCHED.format(given)))
    assert (found.code, found.outcome) == ("FRW001", on_torchax)
    (found,) = constructs(run(LAUNCHED.format(given), "torch_xla"))
    assert found.outcome == Outcome.REPORTED and "Colab" in found.message


def test_what_a_launcher_says_of_precision_becomes_bfloat16() -> None:
    asked = LAUNCHED.format(", num_processes=1, mixed_precision='fp16'")
    assert migrated(asked, "torchax") == asked.replace("fp16", "bf16")
    by_position = constructs(run(LAUNCHED.format(", 1, 'fp16'")))
    assert {each.outcome for each in by_position} == {Outcome.KEPT, Outcome.REPORTED}


@pytest.mark.parametrize(
    ("default", "reported"),
    [
        ('field(default="adamw_torch")', 0),
        ('"adafactor"', 0),
        ('field(default="paged_adamw_32bit")', 1),
        ("field(default=CHOSEN)", 1),
        ("field(default_factory=choose)", 1),
    ],
)
def test_a_default_of_own_arguments_is_read(default: str, reported: int) -> None:
    """stanford_alpaca's `optim: str = field(default="adamw_torch")` is as plain as can be."""
    source = (
        "import transformers\nfrom dataclasses import dataclass, field\n@dataclass\n"
        f"class Told(transformers.TrainingArguments):\n    optim: str = {default}\n"
    )
    found = [d for d in constructs(run(source)) if d.outcome is Outcome.REPORTED]
    assert len(found) == reported
