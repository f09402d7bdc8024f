"""Methods that arrays, data frames, fonts, dictionaries and iterators no longer have."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.upgrade_templates import reason_to_keep, report, with_code
from migrator.rule_api.upgrades import removed_frame_methods, removed_methods

METHODS = Rule(
    code="UPG004",
    of_python=True,
    name="old-method",
    summary="a method that objects no longer have",
    why="""`d.iteritems()` is Python 2's, `a.tostring()` NumPy 1's, `next` was a method. The kind of
an object is not always known: a method that a class of the project defines is left alone. Those of
pandas' frames and series are known where the source shows what they are of.""",
    references=("https://docs.python.org/3/whatsnew/3.0.html",),
    examples=(
        Example(
            """
            import torch
            x = torch.ones(3).cuda()
            for name, value in weights.iteritems():
                print(name)
            images = iter(loader).next()
            """,
            after="""
            import torch
            x = torch.ones(3).to("{device}")
            for name, value in weights.items():
                print(name)
            images = next(iter(loader))
            """,
        ),
        Example(
            """
            import torch
            x = torch.ones(3).cuda()
            width, height = draw.textsize(label)
            """,
            after="""
            import torch
            x = torch.ones(3).to("{device}")
            width, height = draw.textsize(label)
            """,
            says={3: "use textbbox"},
        ),
        Example(
            """
            import pandas as pd
            import torch
            table = pd.read_csv("train.csv")
            rows = [table.get_value(0, "name")]
            rows.append(table.ix[0])
            x = torch.tensor(table[["a", "b"]].as_matrix()).cuda()
            """,
            after="""
            import pandas as pd
            import torch
            table = pd.read_csv("train.csv")
            rows = [table.at[0, "name"]]
            rows.append(table.ix[0])
            x = torch.tensor(table[["a", "b"]].to_numpy()).to("{device}")
            """,
            says={5: "`.loc` for labels"},
        ),
        Example(
            """
            import torch
            for name, value in weights.iteritems():
                print(name)
            """,
            says={2: "nothing here uses a device"},
        ),
        Example(
            """
            from accelerate import Accelerator
            from mylib import Layers

            class Weights(Layers):
                def iteritems(self):
                    return iter(self.layers)

            accelerator = Accelerator()
            print(*weights.iteritems())
            """,
            says={9: "but Weights (line 4) has iteritems"},
        ),
    ),
)


@METHODS.on("removed method", "fit_generator", "evaluate_generator", "predict_generator")
def of_generator(ctx: Context, found: Construct) -> Decision:
    """`fit` takes generators, too. How one is read ahead is not its matter any more."""
    call, gone = found.node, removed_methods()[found.key]
    assert isinstance(call, ast.Call)
    if (kept := reason_to_keep(ctx, call, found.key)) is not None:
        return kept
    drop = [keyword for keyword in call.keywords if keyword.arg in _READING]
    if len(call.args) > 1 or not {k.arg for k in call.keywords} - _READING <= _TAKEN:
        return report(gone)
    return Rewrite([EditCall(call, method=gone.instead, drop=drop, rename={"generator": "x"})])


_READING = {"max_queue_size", "pickle_safe", "use_multiprocessing", "workers"}
_TAKEN = {
    "callbacks", "class_weight", "epochs", "generator", "initial_epoch", "shuffle", "steps",
    "steps_per_epoch", "validation_data", "validation_freq", "validation_steps", "verbose",
}  # fmt: skip


@METHODS.on("removed method", "*")
def method(ctx: Context, found: Construct) -> Decision:
    call, gone = found.node, removed_methods()[found.key]
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    if (kept := reason_to_keep(ctx, call, found.key)) is not None:
        return kept
    if owner := ctx.values.defines(found.key):
        return Report(f"{gone.since} no longer has it, but {owner}: see whose this is")
    if gone.code:
        return with_code(ctx, gone, call.func, call.func.value)
    if gone.exact and not call.args and not call.keywords:
        return Rewrite([EditCall(call, method=gone.instead)])
    return report(gone)


@METHODS.on("removed of frame", "*")
def of_frame(ctx: Context, found: Construct) -> Decision:
    node, gone = found.node, removed_frame_methods()[found.key]
    assert isinstance(node, ast.Attribute)
    if (kept := reason_to_keep(ctx, node, gone.name)) is not None:
        return kept
    if gone.exact:
        return Rewrite([Replace(node, f"{{owner}}.{gone.instead}", {"owner": node.value})])
    return with_code(ctx, gone, node, node.value) if gone.code else report(gone)
