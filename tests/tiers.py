"""Which cases of a test are in the first tier (see tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

import pytest
from target import TARGET

Test = TypeVar("Test", bound=Callable[..., Any])


def thorough_but(first: Container[Any], values: Iterable[Any]) -> list[Any]:
    """For `parametrize`: all of the values, those of the second tier marked so."""
    return [v if v in first else pytest.param(v, marks=pytest.mark.thorough) for v in values]


def thorough_between(every: int, values: Iterable[Any]) -> list[Any]:
    """The same, where one of so many values is in the first tier."""
    return [
        pytest.param(value, marks=pytest.mark.thorough) if number % every else value
        for number, value in enumerate(values)
    ]


def thorough_on(target: str) -> Callable[[Test], Test]:
    """Of the second tier on one target: on the other the first tier has it."""
    if target == TARGET:
        return pytest.mark.thorough
    return lambda test: test
