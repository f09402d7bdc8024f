"""What the modules of a runtime offer, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, or of a class when it is made."""

    parameters: tuple[str, ...]
    required: int

    def takes(self, call: ast.Call) -> bool:
        """Whether a call has all arguments that are required, and no others than these."""
        keywords = [keyword.arg for keyword in call.keywords]
        if None in keywords or any(isinstance(arg, ast.Starred) for arg in call.args):
            return False
        given = len(call.args)
        named = [name for name in self.parameters[given:] if name in keywords]
        needed = self.parameters[given : self.required]
        return (
            given <= len(self.parameters)
            and len(named) == len(keywords)
            and all(name in keywords for name in needed)
        )


@cache
def signatures(module: Path) -> Mapping[str, Signature]:
    """The functions and classes in a module's `__all__`; none if there is no such module."""
    if not module.exists():
        return {}
    public: list[str] = []
    found: dict[str, Signature] = {}
    for statement in ast.parse(module.read_bytes()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                public = ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=name)) if name in found:
                found[alias] = found[name]
            case ast.FunctionDef():
                found[statement.name] = _signature(statement, 0)
            case ast.ClassDef():
                made = [n for n in statement.body if isinstance(n, ast.FunctionDef)]
                init = next(n for n in made if n.name == "__init__")
                found[statement.name] = _signature(init, 1)
    return {name: found[name] for name in public}


def _signature(function: ast.FunctionDef, skipped: int) -> Signature:
    parameters = tuple(arg.arg for arg in function.args.args[skipped:])
    return Signature(parameters, len(parameters) - len(function.args.defaults))
