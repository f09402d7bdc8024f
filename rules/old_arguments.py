"""Arguments that functions no longer take, or that they have to be given now."""

import ast
import re

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
from migrator.rule_api.upgrade_templates import reason_to_keep
from migrator.rule_api.upgrades import METHOD, keyword_only, removed_arguments

ARGUMENTS = Rule(
    code="UPG003",
    of_python=True,
    name="old-argument",
    summary="an argument that a function no longer takes, or has no default any more",
    why="""An argument with another name gets that. One that did nothing for the result goes:
`verbose` of a scheduler, which printed. Others are reported. transformers' `Trainer` takes
`processing_class` for `tokenizer`, and its arguments have the names of transformers 5.
`yaml.load` is told the loader that was its default, and `torch.stft` what it once returned.
Arguments that librosa, pandas and scikit-learn now take by their names alone get them.
Matplotlib's styles of seaborn have the names of its version 0.8.""",
    references=(
        "https://matplotlib.org/stable/api/prev_api_changes/api_changes_3.8.0.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://github.com/yaml/pyyaml/blob/main/CHANGES",
    ),
    examples=(
        Example(
            """
            import torch
            from torch.optim.lr_scheduler import StepLR
            from torchvision.utils import save_image
            x = torch.ones(3, 3).cuda()
            scheduler = StepLR(optimizer, 30, verbose=True)
            save_image(x, path, range=(-1, 1))
            """,
            after="""
            import torch
            from torch.optim.lr_scheduler import StepLR
            from torchvision.utils import save_image
            x = torch.ones(3, 3).to("{device}")
            scheduler = StepLR(optimizer, 30)
            save_image(x, path, value_range=(-1, 1))
            """,
        ),
        Example(
            """
            import torch
            import yaml
            x = torch.ones(3).cuda()
            config = yaml.load(open("config.yaml"))
            """,
            after="""
            import torch
            import yaml
            x = torch.ones(3).to("{device}")
            config = yaml.load(open("config.yaml"), Loader=yaml.FullLoader)
            """,
        ),
        Example(
            """
            import torch
            from librosa.filters import mel
            basis = torch.from_numpy(mel(22050, 1024, 80, fmax=8000)).cuda()
            """,
            after="""
            import torch
            from librosa.filters import mel
            basis = torch.from_numpy(mel(sr=22050, n_fft=1024, n_mels=80, fmax=8000)).to("{device}")
            """,
        ),
        Example(
            """
            import yaml
            config = yaml.load(open("config.yaml"))
            """,
            says={2: "nothing here uses a device"},
        ),
        Example(
            """
            import torch
            from torch.optim.lr_scheduler import StepLR
            scheduler = StepLR(optimizer, 30, verbose=args.verbose)
            """,
            says={3: "no longer takes verbose"},
        ),
    ),
)


@ARGUMENTS.on("removed argument", "*")
def argument(ctx: Context, found: Construct) -> Decision:
    keyword, call = found.node, ctx.names.parent(found.node)
    assert isinstance(keyword, ast.keyword) and keyword.arg and isinstance(call, ast.Call)
    gone = removed_arguments()[found.key, keyword.arg]
    if (kept := reason_to_keep(ctx, call, found.key)) is not None:
        return kept
    given = {each.arg for each in call.keywords}
    if gone.exact and gone.instead not in given and not _is_off(keyword):
        return Rewrite([EditCall(call, rename={keyword.arg: gone.instead})])
    if isinstance(keyword.value, ast.Constant) and (not gone.exact or _is_off(keyword)):
        if _is_off(keyword) or keyword.arg in _WITHOUT:
            note = "" if _is_off(keyword) else _WITHOUT[keyword.arg]
            return Rewrite([EditCall(call, drop=[keyword])], note=note)
    instead = f"; use {gone.instead}" if gone.instead else ""
    return Report(f"{found.key.removeprefix(METHOD)} no longer takes {keyword.arg}{instead}")


# Arguments that change no numbers.
_WITHOUT = {
    "verbose": "it no longer prints its steps",
    "logging_dir": "TensorBoard's files are in the output folder's `runs`",
    "overwrite_output_dir": "it does so",
}
_ON = ("save_safetensors",)


def _is_off(keyword: ast.keyword) -> bool:
    """Whether an argument says what is so without it."""
    usual = (True,) if keyword.arg in _ON else (False, None)
    return isinstance(keyword.value, ast.Constant) and keyword.value.value in usual


@ARGUMENTS.on("without names", "*")
def without_names(ctx: Context, found: Construct) -> Decision:
    """`librosa.filters.mel(rate, size)`: their order is that of the time when they needed none."""
    call, now = found.node, keyword_only()[found.key]
    assert isinstance(call, ast.Call)
    if (kept := reason_to_keep(ctx, call, found.key)) is not None:
        return kept
    without, given = call.args[now.takes :], {each.arg for each in call.keywords}
    names = now.named[: len(without)]
    unclear = len(names) < len(without) or bool(given & {None, *names})
    if not now.exact or unclear or any(isinstance(each, ast.Starred) for each in call.args):
        gone = " and ".join(now.named)
        return Report(f"{found.key} takes {gone} by name only; use {now.instead}")
    parts = {f"part{place}": each for place, each in enumerate(call.args)}
    shown = [f"{{part{place}}}" for place in range(now.takes)]
    shown += [f"{name}={{part{now.takes + place}}}" for place, name in enumerate(names)]
    parts |= {f"{each.arg}": each.value for each in call.keywords}
    shown += [f"{each.arg}={{{each.arg}}}" for each in call.keywords]
    holes = {"function": call.func, **parts}
    return Rewrite([Replace(call, f"{{function}}({', '.join(shown)})", holes)])


@ARGUMENTS.on("extra argument", "*")
def extra(ctx: Context, found: Construct) -> Decision:
    """`StepLR(optimizer, 30, 0.1, -1, True)`"""
    call = ctx.names.parent(found.node)
    assert isinstance(call, ast.Call) and isinstance(found.node, ast.expr)
    if (kept := reason_to_keep(ctx, call, found.key)) is not None:
        return kept
    if not isinstance(found.node, ast.Constant):
        return Report(f"{found.key} no longer takes verbose")
    note = _WITHOUT["verbose"] if found.node.value else ""
    return Rewrite([EditCall(call, drop=[found.node])], note=note)


@ARGUMENTS.on("loader", "*", node=ast.Call)
def without_loader(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    """PyYAML 6 has no default any more; that of PyYAML 5 was this one."""
    if (kept := reason_to_keep(ctx, node, "yaml.load")) is not None:
        return kept
    spelled, requires = ctx.code.module("yaml")
    put = {"Loader": f"{spelled}.FullLoader"}
    return Rewrite([EditCall(node, put=put)], requires, "PyYAML 6 has to be told")


@ARGUMENTS.on("pairs", "*", node=ast.Call)
def without_return_complex(ctx: Context, found: Construct, node: ast.Call) -> Decision:
    """PyTorch has no default any more; for real numbers, that of PyTorch 1 was this one."""
    if (kept := reason_to_keep(ctx, node, "torch.stft")) is not None:
        return kept
    if _COMPLEX.search(ctx.source.text):  # then the signal may be complex, too
        return Report("PyTorch has to be told return_complex; False if the signal is real")
    put = {"return_complex": "False"}
    return Rewrite([EditCall(node, put=put)], note="PyTorch 2 has to be told")


@ARGUMENTS.on("style", "*")
def old_style(ctx: Context, found: Construct) -> Decision:
    """Matplotlib 3.8 has seaborn's styles under the name of seaborn's version only."""
    text = found.node
    assert isinstance(text, ast.Constant) and isinstance(text.value, str)
    if (kept := reason_to_keep(ctx, text, found.key)) is not None:
        return kept
    written = ctx.source.code(text)
    return Rewrite([Replace(text, written.replace("seaborn", "seaborn-v0_8", 1))])


@ARGUMENTS.on("pairs of istft", "*", node=ast.Call)
def of_pairs(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    """`torch.istft` took real pairs, and takes complex numbers alone since PyTorch 2.0."""
    given = ctx.names.only_value(call.args[0])
    known = {each.node for each in ctx.constructs if each.kind == "pairs"}
    if given not in known and _MAKES_COMPLEX.search(ctx.source.text):
        return None
    if (kept := reason_to_keep(ctx, call, "torch.istft")) is not None:
        return kept
    if given not in known or given is call.args[0] or _COMPLEX.search(ctx.source.text):
        return Report("takes complex numbers: give it torch.view_as_complex(…) of real pairs")
    spelled, requires = ctx.code.torch()
    pairs = Replace(call.args[0], f"{spelled}.view_as_complex({{pairs}})", {"pairs": call.args[0]})
    return Rewrite([pairs], requires)


_MAKES_COMPLEX = re.compile(r"complex|polar|\dj\b|fft")
_COMPLEX = re.compile(r"(?<!return_)complex")
