"""PyTorch's functions for linear algebra and Fourier transforms that have another signature now."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.rule_api import Construct, Context, Decision, Example, Replace, Report, Rewrite, Rule
from migrator.rule_api.upgrade_templates import reason_to_keep, report
from migrator.rule_api.upgrades import removed_methods, removed_names

FUNCTIONS = Rule(
    code="UPG002",
    name="old-signature",
    summary="a function of PyTorch that is gone, and whose successor takes or gives something else",
    why="""`torch.symeig`, `torch.solve`, `torch.rfft` and others of their time became functions of
`torch.linalg` and `torch.fft`, with other arguments, other defaults and complex numbers. Where the
call shows what it asks for, it is replaced by one that gives the same; otherwise it is
reported.""",
    references=("https://docs.pytorch.org/docs/stable/linalg.html",),
    examples=(
        Example(
            """
            import torch
            x = torch.eye(3).cuda()
            values, vectors = torch.symeig(x, eigenvectors=True)
            rank = torch.matrix_rank(x)
            """,
            after="""
            import torch
            x = torch.eye(3).to("{device}")
            values, vectors = torch.linalg.eigh(x, UPLO="U")
            rank = torch.linalg.matrix_rank(x)
            """,
        ),
        Example(
            """
            import torch
            x = torch.ones(4, 8, 8).cuda()
            y = torch.rfft(x, 2, onesided=False)
            """,
            after="""
            import torch
            x = torch.ones(4, 8, 8).to("{device}")
            y = torch.view_as_real(torch.fft.fftn(x, dim=(-2, -1)))
            """,
        ),
        Example(
            """
            import torch
            x = torch.eye(3).cuda()
            values, vectors = torch.eig(x, eigenvectors=True)
            """,
            after="""
            import torch
            x = torch.eye(3).to("{device}")
            values, vectors = torch.eig(x, eigenvectors=True)
            """,
        ),
        Example(
            """
            import torch
            solution, factors = torch.solve(b, a)
            print(factors)
            """,
            says={2: "with the arguments the other way round"},
        ),
        Example(
            """
            import torch
            if hasattr(torch, "rfft"):
                y = torch.rfft(x, 2)
            """,
            says={3: "the program asks for the version first"},
        ),
    ),
)


class _Unclear(Exception):
    """The call doesn't show what it asks for."""


@dataclass(frozen=True)
class _Given:
    """The arguments of a call by their names."""

    ctx: Context
    call: ast.Call
    values: Mapping[str, ast.expr]

    def literal(self, name: str, default: object = None) -> object:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, ast.Constant):
            raise _Unclear
        return value.value

    def optional(self, name: str, keyword: str = "") -> str:
        """`, tol={tol}` if it was given."""
        return f", {keyword or name}={{{name}}}" if name in self.values else ""


def _symeig(given: _Given) -> str:
    given.literal("eigenvectors", False)
    side = "U" if given.literal("upper", True) else "L"
    return f"{{torch}}.linalg.eigh({{input}}, UPLO={given.ctx.code.quoted(side)})"


def _matrix_rank(given: _Given) -> str:
    tolerance, symmetric = given.optional("tol"), given.optional("symmetric", "hermitian")
    return f"{{torch}}.linalg.matrix_rank({{input}}{tolerance}{symmetric})"


def _upper(given: _Given) -> str:
    """`, upper=True`, which was the default, and is not."""
    return ", upper=True" if given.literal("upper", True) else ""


def _potrf(given: _Given) -> str:
    return f"{{torch}}.linalg.cholesky({{input}}{_upper(given)})"


def _potrs(given: _Given) -> str:
    return f"{{torch}}.cholesky_solve({{b}}, {{u}}{_upper(given)})"


def _potri(given: _Given) -> str:
    return f"{{torch}}.cholesky_inverse({{u}}{_upper(given)})"


def _fourier(given: _Given) -> tuple[str, str]:
    """The dimensions and the norm of a transform."""
    number = given.literal("signal_ndim")
    if number not in (1, 2, 3):
        raise _Unclear
    assert isinstance(number, int)
    dims = ", ".join(map(str, range(-number, 0)))
    norm = f", norm={given.ctx.code.quoted('ortho')}" if given.literal("normalized", False) else ""
    return f", dim=({dims}{',' if number == 1 else ''})", norm


_COMPLEX = "{torch}.view_as_complex({input}.contiguous())"


def _rfft(given: _Given) -> str:
    dims, norm = _fourier(given)
    kind = "rfftn" if given.literal("onesided", True) else "fftn"
    return f"{{torch}}.view_as_real({{torch}}.fft.{kind}({{input}}{dims}{norm}))"


def _irfft(given: _Given) -> str:
    dims, norm = _fourier(given)
    sizes = given.optional("signal_sizes", "s")
    if given.literal("onesided", True):
        return f"{{torch}}.fft.irfftn({_COMPLEX}{sizes}{dims}{norm})"
    if sizes:
        raise _Unclear
    return f"{{torch}}.fft.ifftn({_COMPLEX}{dims}{norm}).real"


def _fft(given: _Given) -> str:
    dims, norm = _fourier(given)
    return f"{{torch}}.view_as_real({{torch}}.fft.fftn({_COMPLEX}{dims}{norm}))"


def _ifft(given: _Given) -> str:
    dims, norm = _fourier(given)
    return f"{{torch}}.view_as_real({{torch}}.fft.ifftn({_COMPLEX}{dims}{norm}))"


_SIGNAL = ("input", "signal_ndim", "normalized")
_OLD: Mapping[str, tuple[Sequence[str], Callable[[_Given], str]]] = {
    "symeig": (("input", "eigenvectors", "upper"), _symeig),
    "matrix_rank": (("input", "tol", "symmetric"), _matrix_rank),
    "potrf": (("input", "upper"), _potrf),
    "potrs": (("b", "u", "upper"), _potrs),
    "potri": (("u", "upper"), _potri),
    "rfft": ((*_SIGNAL, "onesided"), _rfft),
    "irfft": ((*_SIGNAL, "onesided", "signal_sizes"), _irfft),
    "fft()": (_SIGNAL, _fft),
    "ifft": (_SIGNAL, _ifft),
}


@FUNCTIONS.on("removed", *(f"torch.{name}" for name in _OLD))
def function(ctx: Context, found: Construct) -> Decision:
    name = found.key.removeprefix("torch.")
    if (kept := reason_to_keep(ctx, found.node, found.key)) is not None:
        return kept
    called = found.node if isinstance(found.node, ast.Call) else ctx.names.call_of(found.node)
    plain = removed_names().get(found.key)
    return _upgraded(ctx, name, called) or (
        report(plain) if plain else Report("torch.fft is a module; use torch.fft.fftn")
    )


@FUNCTIONS.on("removed method", "symeig", "rfft", "irfft")
def method(ctx: Context, found: Construct) -> Decision:
    """`x.rfft(2)`"""
    assert isinstance(found.node, ast.Call) and isinstance(found.node.func, ast.Attribute)
    if (kept := reason_to_keep(ctx, found.node, f"torch.{found.key}")) is not None:
        return kept
    changed = _upgraded(ctx, found.key, found.node, found.node.func.value)
    return changed or report(removed_methods()[found.key])


def _upgraded(
    ctx: Context, name: str, call: ast.Call | None, owner: ast.expr | None = None
) -> Decision | None:
    """The call of today's function; None if the old one doesn't show what it asks for."""
    parameters, write = _OLD[name]
    values = None if call is None else _bound(call, parameters, owner)
    if call is None or values is None:
        return None
    try:
        template = write(_Given(ctx, call, values))
    except _Unclear:
        return None
    spelled, requires = ctx.code.torch()
    template = template.replace("{torch}", spelled)
    holes = {key: value for key, value in values.items() if f"{{{key}}}" in template}
    return Rewrite([Replace(call, template, holes)], requires)


def _bound(
    call: ast.Call, parameters: Sequence[str], owner: ast.expr | None
) -> dict[str, ast.expr] | None:
    """The arguments by their parameters; None for a call that doesn't fit, or uses `*`."""
    given = [*([owner] if owner is not None else []), *call.args]
    if len(given) > len(parameters) or any(isinstance(each, ast.Starred) for each in given):
        return None
    values = dict(zip(parameters, given, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in parameters or keyword.arg in values:
            return None
        values[keyword.arg] = keyword.value
    return values if parameters[0] in values else None


@FUNCTIONS.on("removed", "torch.solve", "torch.gesv")
def solve(ctx: Context, found: Construct) -> Decision:
    """`torch.solve(b, a)[0]`: only the solution is used, and not the factors."""
    if (kept := reason_to_keep(ctx, found.node, found.key)) is not None:
        return kept
    plain, call = report(removed_names()[found.key]), ctx.names.call_of(found.node)
    if call is None or call.keywords or len(call.args) != 2:
        return plain
    if not any(isinstance(each, ast.Name | ast.Attribute) for each in call.args):
        return plain  # they are evaluated in the other order
    ending = ""
    match ctx.names.parent(call):
        case ast.Subscript(slice=ast.Constant(value=0), ctx=ast.Load()) as taken:
            replaced: ast.expr = taken
        case ast.Attribute(attr="solution", ctx=ast.Load()) as taken:
            replaced = taken
        case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name() as factors])]):
            if any(ctx.names.uses(factors.id, ctx.names.scope_of(factors))):
                return plain
            replaced, ending = call, ", None"
        case _:
            return plain
    spelled, requires = ctx.code.torch()
    holes = {"a": call.args[1], "b": call.args[0]}
    solved = f"{spelled}.linalg.solve({{a}}, {{b}}){ending}"
    return Rewrite([Replace(replaced, solved, holes)], requires)
