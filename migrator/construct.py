"""A GPU construct, as plain data.

A file's framework finds its constructs: see `migrator.frameworks`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Construct:
    """One GPU construct. `kind` and `key` select the handlers, which look at `node`.

    kinds: name (key: qualified name), store (the same, assigned to or deleted), method (attribute),
    keyword (argument), loop (that calls a model and trains nothing, or what joins the text in it),
    cache (of keys and values, that is written at a number, or what a loop gives such a model),
    branch (on values of tensors), tensor (written through a mask), string (`cuda`), tensor_type (a
    string that names a torch.cuda type), library (top-level module), command (text that a shell
    gets), requirement (a line of requirements.txt), setting (a line of YAML or JSON), variable (of
    the environment, for torch_xla), extension (a compiled module of the project that is imported),
    star (module that a star import takes everything from), import (of a name that has other
    meanings, too), code (Python in a string), ranks (what a launcher sets, or a number of ranks),
    child (a process that uses the device), model (that moves to the device, where models are
    divided), trainer (of a library), accelerator (of another kind than the program runs on),
    accelerator library, ray (an argument that asks it for GPUs), ladder (the first `if` of those
    that pick a device of several kinds), version check (that fails on every machine), style (of
    Matplotlib), own, own import (a name that the project's configuration replaces).
    """

    kind: str
    key: str
    node: ast.AST
    text: str | None = None  # of a line that is partly rewritten already
    by_number: bool = False  # a name whose call is given a device by its number

    @property
    def content(self) -> str:
        """The text of a construct that is a string."""
        if self.text is not None:
            return self.text
        assert isinstance(self.node, ast.Constant)
        return str(self.node.value)

    @property
    def value(self) -> ast.expr:
        """The value of an argument, given by name or by position."""
        value = self.node.value if isinstance(self.node, ast.keyword) else self.node
        assert isinstance(value, ast.expr)
        return value
