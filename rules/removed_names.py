"""Names that PyTorch, NumPy and others no longer have in the versions that a TPU needs."""

import ast
from functools import partial

from migrator.rule_api import (
    UPGRADES,
    Construct,
    Delete,
    Edit,
    EditImport,
    Effort,
    Example,
    Family,
    Insert,
    Rule,
)
from migrator.rule_api.absent_imports import unused_names, without_unused
from migrator.rule_api.python import canonical, exported, taken_by
from migrator.rule_api.python_2_types import (
    Context,
    Decision,
    Keep,
    Replace,
    Rewrite,
    builtin,
    with_builtin,
)
from migrator.rule_api.renamed_names import renamed, with_new_names
from migrator.rule_api.upgrade_templates import reason_to_keep, report, with_code
from migrator.rule_api.upgrades import BUILTIN, Removed, removed, removed_builtins, removed_from

FAMILY = Family(UPGRADES, "Old versions", 99)

REMOVED = Rule(
    code="UPG001",
    of_python=True,
    name="removed-name",
    summary="a name that PyTorch, NumPy or another library no longer has",
    why="""Programs for GPUs often pin old versions; a TPU needs PyTorch 2.9 and NumPy 2. Some 500
names of torch, torchvision, NumPy, SciPy, Pillow, pandas, scikit-learn, Matplotlib and Python
itself are known.

What is the same under another name gets that. What has other arguments or results now is reported,
with what takes its place. Only programs that use a device are looked at, also those of Keras and
TensorFlow. Code that asks for the version first, or catches the error, stays. `--ignore UPG` leaves
all old names.""",
    references=(
        "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",
        "https://numpy.org/doc/stable/release/1.20.0-notes.html",
    ),
    effort=Effort.MINUTES,
    examples=(
        Example(
            """
            import numpy as np
            import torch
            x = torch.ones(3).cuda()
            y = np.array([np.Inf], dtype=np.float)
            """,
            after="""
            import numpy as np
            import torch
            x = torch.ones(3).to("{device}")
            y = np.array([np.inf], dtype=float)
            """,
        ),
        Example(
            """
            import torch
            from collections import Iterable
            from torch._six import inf
            from PIL import Image
            x = torch.full((3,), inf).cuda()
            print(isinstance(x, Iterable), Image.ANTIALIAS)
            """,
            after="""
            import torch
            from collections.abc import Iterable
            from math import inf
            from PIL import Image
            x = torch.full((3,), inf).to("{device}")
            print(isinstance(x, Iterable), Image.LANCZOS)
            """,
        ),
        Example(
            """
            import torch
            values, vectors = torch.eig(torch.eye(3).cuda(), eigenvectors=True)
            """,
            after="""
            import torch
            values, vectors = torch.eig(torch.eye(3).to("{device}"), eigenvectors=True)
            """,
            says={2: "use torch.linalg.eig, whose results are complex"},
        ),
        Example(
            """
            try:
                from torch._six import string_classes
            except ImportError:
                string_classes = str
            """,
            says={2: "the import fails, and the fallback is used"},
        ),
        Example(
            """
            import numpy as np
            from accelerate import Accelerator
            accelerator = Accelerator()
            integer = np.int if hasattr(np, "int") else int
            """,
            says={4: "the program asks for the version first"},
        ),
    ),
)


@REMOVED.on("removed", "*")
def through_module(ctx: Context, found: Construct) -> Decision | None:
    node, gone = found.node, removed(found.key)
    if gone is None:
        return None
    if (kept := reason_to_keep(ctx, node, found.key)) is not None:
        return kept
    assert isinstance(node, ast.Attribute)
    is_itself = found.key in (gone.name, canonical(gone.name))
    if is_itself and gone.code and not ctx.names.is_question(node):
        return with_code(ctx, gone, node)
    if found.key == "inspect.getargspec" and _is_of_first_fields(ctx, node):
        return renamed(ctx, node, found.key, "inspect.getfullargspec")
    if not gone.exact or not is_itself or ctx.names.is_question(node):
        return report(gone, found.key)
    if (own := builtin(gone)) is not None:
        return report(gone) if ctx.names.top.bindings.get(own) else with_builtin(ctx, node, own)
    if "." not in gone.instead:  # a module
        spelled, requires = ctx.code.module(gone.instead)
        return Rewrite([Replace(node, spelled)], requires)
    module, _, name = gone.instead.rpartition(".")
    if module in _LOADED and isinstance(node.ctx, ast.Load):
        inside = f"{{owner}}.{module.rpartition('.')[2]}.{name}"
        return Rewrite([Replace(node, inside, {"owner": node.value})])
    package, _, inside = module.partition(".")
    if inside and package in _WHOLE and isinstance(node.ctx, ast.Load):
        spelled, requires = ctx.code.module(package)
        return Rewrite([Replace(node, f"{spelled}.{inside}.{name}")], requires)
    return renamed(ctx, node, found.key, gone.instead)


def _is_of_first_fields(ctx: Context, node: ast.Attribute) -> bool:
    """Whether a call's result is only asked for what its successor has in the same place."""
    call = ctx.names.call_of(node)
    match ctx.names.parent(call) if call is not None else None:
        case ast.Attribute(attr="args" | "varargs" | "defaults"):
            return True
        case ast.Subscript(slice=ast.Constant(value=int(place))):
            return 0 <= place <= 3
    return False


@REMOVED.on("removed builtin", "*", node=ast.Name)
def without_import(ctx: Context, found: Construct, node: ast.Name) -> Decision | None:
    """`xrange`: a name that Python 2 had without an import."""
    if (kept := reason_to_keep(ctx, node, found.key)) is not None:
        return kept
    gone = removed_builtins()[found.key]
    if not gone.exact:
        return report(gone)
    module, _, name = gone.instead.rpartition(".")
    if module == BUILTIN.rstrip("."):
        shadowed = ctx.names.top.bindings.get(name)
        return report(gone) if shadowed else with_builtin(ctx, node, name)
    spelled, requires = ctx.code.module(module)
    return Rewrite([Replace(node, f"{spelled}.{name}")], requires)


@REMOVED.on("removed import", "*")
def imported(ctx: Context, found: Construct) -> Decision | None:
    gone, statement = removed_from(found.key), ctx.names.parent(found.node)
    if gone is None:
        return None
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    if (kept := reason_to_keep(ctx, statement, found.key)) is not None:
        return kept
    unused = unused_names(ctx, statement, _is_gone, partial(_is_replaced, ctx))
    used = [alias for alias in statement.names if alias not in unused]
    table = _new_names(statement, used) if isinstance(statement, ast.ImportFrom) else {}
    if found.node in unused and not table:
        return without_unused(found.node, statement, unused)
    if isinstance(statement, ast.Import):
        assert isinstance(found.node, ast.alias)
        return _module(ctx, statement, found.node, gone)
    if gone.exact and gone.name == found.key and "." not in gone.instead:
        return _of_its_own(ctx, statement, gone)
    plain = {alias: own for alias, own in _builtins(ctx, statement).items() if alias in used}
    if (plain or (unused and table)) and (found.key in table or found.node in [*plain, *unused]):
        return _at_once(ctx, found, statement, table, plain, unused)
    return with_new_names(ctx, found, table) if found.key in table else report(gone, found.key)


def _is_gone(name: str) -> bool:
    return removed_from(name) is not None


def _is_replaced(ctx: Context, use: ast.expr) -> bool:
    """Whether something else takes the place of a name through its module."""
    known = {each.node: each for each in ctx.constructs if each.kind == "removed"}
    at: ast.AST | None = use
    while isinstance(at, ast.Attribute | ast.Name):
        if at in known:
            return isinstance(through_module(ctx, known[at]), Rewrite)
        at = ctx.names.parent(at)
    return False


def _builtins(ctx: Context, statement: ast.ImportFrom) -> dict[ast.alias, str]:
    """Names of an import that stood for Python's own, if all their uses can be those."""
    found: dict[ast.alias, str] = {}
    scope = ctx.names.scope_of(statement)
    for alias in statement.names:
        name = taken_by(statement, alias)
        gone, local = removed_from(name), alias.asname or alias.name
        own = builtin(gone) if gone is not None and gone.exact and gone.name == name else None
        if own and not ctx.names.top.bindings.get(own):
            if len(scope.bindings.get(local, ())) == 1 and local not in exported(ctx.names):
                found[alias] = own
    return found


def _at_once(
    ctx: Context,
    found: Construct,
    statement: ast.ImportFrom,
    table: dict[str, str],
    plain: dict[ast.alias, str],
    unused: list[ast.alias],
) -> Decision:
    """All names of an import at once: Python's own ones, and those that nothing uses, need none."""
    moved = [alias for alias in statement.names if taken_by(statement, alias) in table]
    if found.node is not next(a for a in statement.names if a in [*plain, *unused, *moved]):
        return Keep("goes with what is imported with it")
    edits: list[Edit] = []
    drop, rename = [*plain, *unused], dict[ast.alias, str]()
    if moved:
        first = Construct(found.kind, taken_by(statement, moved[0]), moved[0])
        decision = with_new_names(ctx, first, table)
        assert isinstance(decision, Rewrite)
        edits = [edit for edit in decision.edits if not isinstance(edit, EditImport)]
        for edit in decision.edits:
            if isinstance(edit, EditImport):
                drop, rename = [*drop, *edit.drop], dict(edit.rename)
    scope = ctx.names.scope_of(statement)
    for alias, own in plain.items():
        uses = ctx.names.uses(alias.asname or alias.name, scope)
        edits += [Replace(use, own) for use in uses]
    whole = len(drop) == len(statement.names)
    edits.append(Delete(statement) if whole else EditImport(statement, drop, rename))
    return Rewrite(edits)


def _module(ctx: Context, statement: ast.Import, alias: ast.alias, gone: Removed) -> Decision:
    """A module that has another name now, and its uses."""
    if not gone.exact or gone.name != alias.name:
        return report(gone, alias.name)
    if "." in gone.name and alias.asname is None:
        return report(gone)
    if alias.asname is not None:
        text = gone.instead if alias.asname == gone.instead else f"{gone.instead} as {alias.asname}"
        return Rewrite([EditImport(statement, rename={alias: text})])
    scope = ctx.names.scope_of(statement)
    if len(scope.bindings.get(alias.name, ())) != 1 or gone.instead in ctx.names.by_id:
        text = f"{gone.instead} as {alias.name}"
        return Rewrite([EditImport(statement, rename={alias: text})])
    uses: list[Edit] = [Replace(u, gone.instead) for u in ctx.names.uses(alias.name, scope)]
    return Rewrite([EditImport(statement, rename={alias: gone.instead}), *uses])


def _of_its_own(ctx: Context, statement: ast.ImportFrom, gone: Removed) -> Decision:
    """`from sklearn.externals import joblib`: a module that is imported by itself now."""
    (alias,) = (a for a in statement.names if taken_by(statement, a) == gone.name)
    local = alias.asname or alias.name
    text = f"import {gone.instead}" + (f" as {local}" if local != gone.instead else "")
    more = len(statement.names) > 1
    gone_import = EditImport(statement, drop=[alias]) if more else Delete(statement)
    return Rewrite([Insert(ctx.names.tree, statement, [text]), gone_import])


def _new_names(statement: ast.ImportFrom, used: list[ast.alias]) -> dict[str, str]:
    """The used names of an import that only have to be imported from elsewhere."""
    taken = [taken_by(statement, alias) for alias in used]
    known = ((name, removed_from(name)) for name in taken)
    found = [gone for name, gone in known if gone is not None and gone.name == name]
    return {
        gone.name: gone.instead
        for gone in found
        if gone.exact and "." in gone.instead and builtin(gone) is None
    }


_WHOLE = ("keras", "tensorflow")  # packages whose import brings all of their modules
_LOADED = ("scipy.signal.windows",)  # with the package that had the name
