"""Arguments that functions no longer take."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import constructs, migrated, run

from migrator.analysis.upgrade_tables import removed_arguments

HEAD = "import numpy as np\nimport torch\n\nx = torch.ones(3).cuda()\n"


def upgraded(line: str, head: str = HEAD) -> str:
    return migrated(f"{head}{line}\n").rstrip().rpartition("\n")[2]


# Those of Keras: tests/keras_scripts/test_keras_upgrades.py
_ELSEWHERE = ("*", "keras", "tensorflow")
OF_FUNCTIONS = [key for key in removed_arguments() if not key[0].startswith(_ELSEWHERE)]


def called(name: str, keyword: str, value: object) -> object:
    """What the real function does with an argument."""
    x = torch.rand(1, 3, 4, 4)
    given: Mapping[str, tuple[Any, ...]] = {
        "functional.affine": (x, 0, [0, 0], 1, [0, 0]), "functional.rotate": (x, 0),
        "RandomAffine": (3,), "RandomRotation": (3,), "make_grid": (x,), "save_image": (x, "x.png"),
        "histogram": ([1, 2],), "percentile": ([1, 2], 50), "quantile": ([1, 2], 0.5),
        "LSUN": (), "Block": (8, 2), "Trainer": (), "TrainingArguments": ("x",),
        "gca": (), "hist": ([1],),
        "export": (torch.nn.Linear(1, 1), torch.ones(1), "x"),
    }  # fmt: skip
    schedulers: Mapping[str, tuple[Any, ...]] = {
        "CyclicLR": (0.1, 1), "ExponentialLR": (0.1,), "LambdaLR": (lambda n: 1,),
        "MultiStepLR": ([1],), "MultiplicativeLR": (lambda n: 1,), "OneCycleLR": (0.1, 3),
        "StepLR": (1,), "CosineAnnealingLR": (3,), "CosineAnnealingWarmRestarts": (3,),
        "SequentialLR": ([], []),
    }  # fmt: skip
    module, _, last = name.rpartition(".")
    function: Any = getattr(pytest.importorskip(module), last)
    if "lr_scheduler" in name:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
        arguments: tuple[Any, ...] = optimizer, *schedulers.get(name.rpartition(".")[2], ())
    else:
        arguments = next(v for k, v in given.items() if name.endswith(k))
    return function(*arguments, **{keyword: value})


@pytest.mark.parametrize("function, keyword", OF_FUNCTIONS)
def test_an_argument_is_gone_and_its_new_name_is_there(
    function: str, keyword: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        (TypeError, AttributeError), match=rf"unexpected keyword argument '{keyword}'"
    ):
        called(function, keyword, False)
    gone = removed_arguments()[function, keyword]
    if gone.exact:
        new = gone.instead
        given = {"value_range": (0, 1), "density": True, "method": "lower", "eval_strategy": "no",
                 "per_device_train_batch_size": 1}.get(new, 0)  # fmt: skip
        if not function.endswith(("LSUN", "Trainer")):  # they read a database, and want a model
            called(function, new, given)


@pytest.mark.parametrize("function, keyword", OF_FUNCTIONS)
def test_an_argument_is_renamed_or_goes_or_is_reported(function: str, keyword: str) -> None:
    gone = removed_arguments()[function, keyword]
    head = f"import {function.partition('.')[0]}\n{HEAD}"
    if gone.exact:
        assert f"({gone.instead}=v)" in upgraded(f"y = {function}({keyword}=v)", head)
    else:
        usual = keyword == "save_safetensors"
        assert f"{function}(a)" in upgraded(f"y = {function}(a, {keyword}={usual})", head)
        (found,) = [
            d for d in constructs(run(f"{head}y = {function}({keyword}=v)\n"))
            if d.code == "UPG003"
        ]  # fmt: skip
        assert str(found.outcome) == "reported" and keyword in found.message
