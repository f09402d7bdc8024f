"""Repeated queries about a node are computed once: trees don't change."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
Node = TypeVar("Node", bound=ast.AST)
Answer = TypeVar("Answer")


def once(function: Callable[[Node], Answer]) -> Callable[[Node], Answer]:
    """`function`, whose result for a node is kept as long as the node."""
    known: WeakKeyDictionary[Node, Answer] = WeakKeyDictionary()

    @wraps(function)
    def ask(node: Node) -> Answer:
        found = known.get(node)
        if found is None:
            found = known[node] = function(node)
        return found

    return ask


def once_in(function: Callable[[Owner, Node], Answer]) -> Callable[[Owner, Node], Answer]:
    """The same if the result depends on what is known of the file: kept as long as that."""
    known: WeakKeyDictionary[Owner, dict[Node, Answer]] = WeakKeyDictionary()

    @wraps(function)
    def ask(owner: Owner, node: Node) -> Answer:
        answers = known.get(owner)
        if answers is None:
            answers = known[owner] = {}
        if node not in answers:
            answers[node] = function(owner, node)
        return answers[node]

    return ask
