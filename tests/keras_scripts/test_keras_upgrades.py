"""What the table says of Keras holds for the Keras that is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import keras
import pytest
from helpers import REPOSITORY

from migrator.analysis.find_absent_names import absent
from migrator.analysis.upgrade_tables import removed_arguments, removed_names

KERAS = ("keras.", "tensorflow.keras.")
NAMES = [name for name in removed_names() if name.startswith(KERAS)]
ARGUMENTS = [each for each in removed_arguments() if each[0].startswith(KERAS)]
(LIST,) = (path.stem for path in (REPOSITORY / "migrator/analysis/installed").glob("keras-*"))


def found(name: str) -> Any:
    """The object of a name, through its modules; AttributeError if there is none."""
    module, _, rest = name.partition(".")
    at: Any = importlib.import_module(module)
    for part in rest.split("."):
        at = getattr(at, part)
    return at


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_gone_and_its_successor_is_there(name: str) -> None:
    with pytest.raises(AttributeError):
        found(name)
    assert absent(name, LIST) is not None
    if (gone := removed_names()[name]).exact:
        assert found(gone.instead) is not None


@pytest.mark.parametrize(("function", "keyword"), ARGUMENTS)
def test_an_argument_is_gone_and_its_new_name_is_there(function: str, keyword: str) -> None:
    if new := removed_arguments()[function, keyword].instead:
        with pytest.raises(ValueError, match="not recognized"):
            found(function)(**{keyword: 0.5})
        assert found(function)(**{new: 0.5}).learning_rate == 0.5
    else:
        with pytest.warns(UserWarning, match="will be ignored"):
            found(function)(**{keyword: 0.5})


def test_methods_for_generators_are_gone_and_fit_takes_one() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    for name in ("fit_generator", "evaluate_generator", "predict_generator", "predict_classes"):
        assert not hasattr(model, name)
    model.compile("sgd", "mse")
    x = keras.ops.ones((4, 2))
    model.fit(x=((x, x[:, :1]) for _ in range(2)), steps_per_epoch=2, epochs=1, verbose=0)


def test_the_list_is_of_the_installed_version() -> None:
    assert f"keras-{keras.__version__}" == LIST and Path(keras.__file__).exists()
