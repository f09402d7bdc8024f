"""Which cases of a test are in the first tier (see tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def thorough_but(first: Container[Any], values: Iterable[Any]) -> list[Any]:
    """For `parametrize`: all of the values, those of the second tier marked so."""
    return [v if v in first else pytest.param(v, marks=pytest.mark.thorough) for v in values]
