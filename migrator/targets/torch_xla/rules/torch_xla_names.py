"""Names of torch_xla's modules, and code that its rules share."""

import ast
from collections.abc import Callable

from migrator.rule_api import Construct, Context, Decision

from ..markers import MARKERS

XM = "torch_xla.core.xla_model."
XR = "torch_xla.runtime."
MP = "torch_xla.distributed.xla_multiprocessing."
PL = "torch_xla.distributed.parallel_loader."
GROUP = "torch.distributed.init_process_group"
STARTS = (f"{MP}spawn", "torch_xla.launch")

Converter = Callable[[Context, Construct, ast.Call], Decision]


class Converters(dict[str, Converter]):
    """Functions that rewrite calls, by the names of the called functions."""

    def on(self, *keys: str) -> Callable[[Converter], Converter]:
        def register(converter: Converter) -> Converter:
            self.update(dict.fromkeys(keys, converter))
            return converter

        return register


def is_at_home(ctx: Context) -> bool:
    """Whether programs for torch_xla stay as they are."""
    return ctx.target.markers.library == MARKERS.library


def is_constant(node: ast.expr | None, *values: object) -> bool:
    if node is None:
        return None in values
    return isinstance(node, ast.Constant) and any(node.value is v for v in values)
