"""Which code only computes, so that a model's first call may be compiled; by its byte code."""

import dis
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
import tpu_runtime as tpu
from tpu_runtime.compilation.bytecode_names import operations_of
from tpu_runtime.compilation.purity import only_computes

tpu.setup()


def computes() -> list[Callable[..., Any]]:
    outer: list[int] = []

    def local_list(x: Any) -> Any:
        parts = [x]
        parts.append(x)
        return parts

    def in_place(x: Any) -> Any:
        x += 1
        return x

    def cell(x: Any) -> Any:
        total = x
        return lambda: total + len(outer)

    def __init__(self: Any, y: Any) -> None:
        self.y = y

    def two_lists(x: Any) -> Any:
        parts: list[Any] = []
        others: list[Any] = []
        parts.append(x)
        others.append(x)
        return parts, others

    return [local_list, in_place, cell, __init__, two_lists]


def leaves_behind() -> list[Callable[..., Any]]:
    outer: list[int] = []
    number = 0

    def attribute(x: Any) -> None:
        x.seen = 1

    def item(x: Any) -> None:
        x[0] = 1

    def outer_list(x: Any) -> None:
        outer.append(x)

    def argument(x: Any) -> None:
        x.append(1)

    def either(x: Any, flag: bool) -> None:
        items = x.items if flag else []
        items.append(1)

    def taken_over(x: Any) -> None:
        items: Any = []
        items, other = x
        items.append(other)

    def attribute_of_that_name(x: Any) -> None:
        items: Any = []
        x.items.append(items)

    def two_attributes(x: Any, y: Any) -> None:
        x.seen = y.seen = x

    def other_variable() -> None:
        nonlocal number
        number += 1

    def module_variable() -> None:
        global count
        count += 1

    def drawn(x: Any) -> Any:
        return next(x)

    def imported() -> None:
        import math  # noqa: F401

    return [
        attribute, item, outer_list, argument, either, taken_over, attribute_of_that_name,
        two_attributes, other_variable, module_variable, drawn, imported,
    ]  # fmt: skip


@pytest.mark.parametrize("function", computes(), ids=lambda f: f.__name__)
def test_code_that_only_computes(function: Any) -> None:
    assert only_computes(function.__code__)


def test_instructions_of_two_variables_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 writes them."""

    def joined(code: CodeType) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(opname=kind, argval=names, argrepr="", is_jump_target=True)
            for kind, names in (("RESUME", 0), ("STORE_FAST_LOAD_FAST", ("a", "b")),
                                ("LOAD_FAST_LOAD_FAST", ("b", "a")), ("LOAD_CONST", (1, 2)))
        ]  # fmt: skip

    monkeypatch.setattr(dis, "get_instructions", joined)
    found = [(o.kind, o.name, o.is_target) for o in operations_of(joined.__code__)]
    assert found == [
        ("RESUME", 0, True), ("STORE_FAST", "a", True), ("LOAD_FAST", "b", False),
        ("LOAD_FAST", "b", True), ("LOAD_FAST", "a", False), ("LOAD_CONST", (1, 2), True),
    ]  # fmt: skip


@pytest.mark.parametrize("function", leaves_behind(), ids=lambda f: f.__name__)
def test_code_that_may_leave_something_behind(function: Any) -> None:
    assert not only_computes(function.__code__)
