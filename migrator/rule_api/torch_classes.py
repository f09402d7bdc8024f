"""Classes of libraries for CUDA that torch has, with mostly the same arguments."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.rule_api import Context, Decision, EditCall, Replace, Report, Rewrite

ANY = (True, False)  # an argument without effect on the result


@dataclass(frozen=True)
class Counterpart:
    """A class of torch with mostly the same arguments."""

    module: str
    name: str
    positions: int  # positional arguments that are the same
    only: Mapping[str, tuple[object, ...]]  # arguments that torch has not, and values without it
    defaults: Mapping[str, str] = field(default_factory=dict)  # where torch has others
    renamed: Mapping[str, str] = field(default_factory=dict)  # arguments with another name


def made_by_torch(ctx: Context, node: ast.expr, counterpart: Counterpart) -> Decision:
    """With the class of torch instead, if the arguments mean the same there."""
    call = ctx.names.call_of(node)
    if call is None:
        if counterpart.module == "torch.nn" and not counterpart.defaults:
            name, requires = _spelled(ctx, counterpart)
            return Rewrite([Replace(node, name)], requires)
        return Report(f"the class itself is passed on; its defaults are not {counterpart.name}'s")
    given = {k.arg: k for k in call.keywords}
    if None in given or any(isinstance(a, ast.Starred) for a in call.args):
        return Report("its arguments are unpacked (*, **); write them out")
    if len(call.args) > counterpart.positions:
        return Report(f"its arguments by position are not those of {counterpart.name}; name them")
    own = [given[name] for name in counterpart.only if name in given]
    for keyword in own:
        allowed = counterpart.only[keyword.arg or ""]
        if _value(keyword) not in allowed and allowed is not ANY:
            text = ctx.source.code(keyword.value)
            return Report(f"torch's {counterpart.name} has no counterpart for {keyword.arg}={text}")
    by_position = ("params", "lr") if counterpart.module == "torch.optim" else ("shape", "eps")
    said = {*given, *by_position[: len(call.args)]}
    put = {name: value for name, value in counterpart.defaults.items() if name not in said}
    renamed = {old: new for old, new in counterpart.renamed.items() if old in given}
    name, requires = _spelled(ctx, counterpart)
    edit = EditCall(call, function=name, drop=own, put=put, rename=renamed)
    return Rewrite([edit], requires)


def _value(keyword: ast.keyword) -> object:
    """A literal; otherwise its source text, which equals no default."""
    return keyword.value.value if isinstance(keyword.value, ast.Constant) else ast.dump(keyword)


def _spelled(ctx: Context, counterpart: Counterpart) -> tuple[str, tuple[str, ...]]:
    """`optim.AdamW` or `torch.optim.AdamW`, as the file spells it."""
    module = ctx.names.spelled(counterpart.module)
    if module is not None:
        return f"{module}.{counterpart.name}", ()
    torch, requires = ctx.code.torch()
    return f"{torch}{counterpart.module.removeprefix('torch')}.{counterpart.name}", requires
