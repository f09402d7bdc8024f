"""Kernels that are written in Python: with Triton, or with numba."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.file_facts import FileFacts
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, parameters

from .kernel import Kernel, KernelCall
from .search import Search, Use, on_one_line, values, with_other_names

_COMPILERS = {"triton.jit": "Triton", "triton.runtime.jit.jit": "Triton", "numba.cuda.jit": "numba"}
_LANGUAGE = ("tl", "triton", "language")
_LOADS = ("load",)
_STORES = ("store", "atomic_")
_BASES = ("make_block_ptr", "make_tensor_descriptor", "advance", "cast")


def language_of(names: Names, function: ast.FunctionDef) -> str:
    """Triton or numba, if a function is a kernel, or is called by some; "" otherwise."""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if language := _COMPILERS.get(names.qualified(called) or ""):
            return "" if _is_for_kernels(decorator) else language
    for use in names.by_id.get(function.name, ()):  # f = triton.jit(f)
        call = names.parents.get(use)
        if isinstance(call, ast.Call) and call.args[:1] == [use]:
            if language := _COMPILERS.get(names.qualified(call.func) or ""):
                return language
    return ""


def _is_for_kernels(decorator: ast.expr) -> bool:
    """`cuda.jit(device=True)`: kernels call it."""
    given = decorator.keywords if isinstance(decorator, ast.Call) else ()
    return any(k.arg == "device" for k in given)


def python_kernels(
    project: ProjectFacts, facts: FileFacts, search: Search
) -> Iterator[tuple[Kernel, Sequence[Use]]]:
    """The kernels at the top of a file, with what launches them. Not those that only other kernels
    call."""
    for function in facts.names.tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        language = language_of(facts.names, function)
        if not language:
            continue
        uses = [u for use in search.uses(project.path, function) for u in with_other_names(use)]
        launches = [use for use in uses if _launch(use) is not None]
        if not launches and any(_is_in_kernel(use) for use in uses):
            continue
        reads, writes = _touched(function, language)
        said = f"{function.name}({ast.unparse(function.args)})"
        taken = [argument.arg for argument, _ in parameters(function.args)]
        places = [_place(use) for use in launches]
        kernel = Kernel(
            project.path, function.lineno, language, function.name, said, taken, reads, writes,
            places,
        )  # fmt: skip
        yield kernel, launches


def _launch(use: Use) -> ast.Call | None:
    """`kernel[grid](x, n)`, whatever the kernel is wrapped in."""
    below: ast.AST = use.node
    for node in use.around():
        if isinstance(node, ast.Call) and node.func is below and isinstance(below, ast.Subscript):
            return node
        if isinstance(node, ast.stmt):
            return None
        below = node
    return None


def _place(use: Use) -> KernelCall:
    call = _launch(use)
    assert call is not None
    return KernelCall(
        use.path, call.lineno, on_one_line(ast.unparse(call)), values(use.names, call)
    )


def _is_in_kernel(use: Use) -> bool:
    around = use.definition()
    return isinstance(around, ast.FunctionDef) and bool(language_of(use.names, around))


def _touched(function: ast.FunctionDef, language: str) -> tuple[Sequence[str], Sequence[str]]:
    """The parameters that a kernel reads from, and those that it writes to."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    pointers = _Pointers(function, parameters)
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    read: set[str] = set()
    written: set[str] = set()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr=name) as called) if language == "Triton":
                of_module = (dotted(called.value) or "").split(".")[0] in _LANGUAGE
                pointer = node.args[0] if of_module and node.args else called.value
                if name in _LOADS:
                    read |= pointers.of(pointer)
                elif name.startswith(_STORES):
                    written |= pointers.of(pointer)
            case ast.Subscript(value=ast.Name() as array) if language == "numba":
                (read if isinstance(node.ctx, ast.Load) else written).update(pointers.of(array))
    return [p for p in parameters if p in read], [p for p in parameters if p in written]


class _Pointers:
    """The parameters that pointers in a kernel begin at: `x_ptr` for `x_ptr + row * stride`."""

    def __init__(self, function: ast.FunctionDef, parameters: Sequence[str]) -> None:
        self.parameters = parameters
        self.values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.values.setdefault(target.id, []).append(node.value)

    def of(self, node: ast.expr, depth: int = 0) -> set[str]:
        match node:
            case ast.Name(id=name) if name in self.parameters:
                return {name}
            case ast.Name(id=name) if depth < 6:
                return set().union(*(self.of(v, depth + 1) for v in self.values.get(name, ())))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
                return self.of(left, depth)
            case ast.Call(func=ast.Attribute(attr=name), args=args, keywords=keywords) if (
                name in _BASES
            ):
                given = [k.value for k in keywords if k.arg in ("base", "ptr")] or args[:1]
                return set().union(*(self.of(each, depth + 1) for each in given))
            case ast.Call(func=ast.Attribute(attr="to", value=value)):
                return self.of(value, depth)
        return set()
