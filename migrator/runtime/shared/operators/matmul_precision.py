"""How exactly float32 is multiplied.

A TPU multiplies float32 in one bfloat16 pass unless told otherwise; a GPU does not. So ``setup``
asks for full float32, and a script that allowed TF32 gets the nearest there is.
"""

from ..device import multiply_by

# torch's words (torch.set_float32_matmul_precision) and XLA's; "default" is XLA's own word.
_WORDS = {"highest": "highest", "high": "high", "medium": "default", "default": "default"}


def set_matmul_precision(precision: str | bool) -> None:
    """Set the precision of float32 matrix products and convolutions.

    ``"highest"`` (or False, TF32 not allowed): float32, six bfloat16 passes on a TPU.
    ``"high"`` (or True, TF32 allowed): three passes, about TF32 or better.
    ``"medium"`` or ``"default"``: one bfloat16 pass, the fastest.
    Raises ValueError for any other word.
    """
    if isinstance(precision, bool):
        precision = "high" if precision else "highest"
    if precision not in _WORDS:
        raise ValueError(f"unknown matmul precision {precision!r}: one of {', '.join(_WORDS)}")
    multiply_by(_WORDS[precision])
