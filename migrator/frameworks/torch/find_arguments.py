"""Arguments of calls that are GPU constructs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.devices.indices import is_device_index
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.frameworks.torch.strings import VISIBLE

_EMBEDDINGS = frozenset({
    "torch.nn.Embedding", "torch.nn.Embedding.from_pretrained",
    "torch.nn.EmbeddingBag", "torch.nn.EmbeddingBag.from_pretrained",
    "torch.nn.functional.embedding", "torch.nn.functional.embedding_bag",
})  # fmt: skip


def of_arguments(
    names: Names, flow: Flow, call: ast.Call, vocabulary: Vocabulary
) -> Iterator[Construct]:
    """The constructs among the arguments that a call names."""
    for keyword in call.keywords:
        if keyword.arg == VISIBLE:
            yield Construct("variable", VISIBLE, keyword)
        if keyword.arg in vocabulary.keywords:
            if not is_false(keyword.value):
                yield Construct("keyword", keyword.arg, keyword)
        elif keyword.arg in ("sparse", None) and _embeds(names, call):
            if _asks_for_sparse(names, keyword):
                yield Construct("sparse", "gradients", keyword)
        elif keyword.arg == "device" and is_device_index(names, flow, keyword.value):
            called = names.qualified(call.func) or ""
            moves = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
            if moves or (called.startswith("torch.") and not called.startswith("torch.cuda.")):
                yield Construct("keyword", "device", keyword)


def _embeds(names: Names, call: ast.Call) -> bool:
    called = names.qualified(call.func)
    if called == "functools.partial" and call.args:
        called = names.qualified(call.args[0])
    return called in _EMBEDDINGS


def _asks_for_sparse(names: Names, keyword: ast.keyword) -> bool:
    """`sparse=True`, or a dictionary that says so: `**{"sparse": True}`"""
    if keyword.arg is not None:
        return not is_false(keyword.value)
    value: ast.expr | None = keyword.value
    if isinstance(value, ast.Name):
        bound = names.lookup(value)
        value = bound[0].value if len(bound) == 1 else None
    match value:
        case ast.Dict(keys=keys, values=values):
            return any(
                isinstance(key, ast.Constant) and key.value == "sparse" and not is_false(given)
                for key, given in zip(keys, values, strict=True)
            )
        case ast.Call(func=ast.Name(id="dict"), keywords=given):
            return any(each.arg == "sparse" and not is_false(each.value) for each in given)
    return False


def is_false(node: ast.expr) -> bool:
    """`False`, `None`, `0`"""
    return isinstance(node, ast.Constant) and not node.value
