"""How exactly float32 is multiplied.

A TPU multiplies float32 in one bfloat16 pass unless told otherwise; a GPU does not. So ``setup``
asks for full float32, and a script that allowed TF32 gets the nearest there is.
"""

import logging

import torch_xla.backends

# torch's words (torch.set_float32_matmul_precision) and XLA's; "default" is XLA's own word.
_XLA_WORDS = {"highest": "highest", "high": "high", "medium": "default", "default": "default"}


def set_matmul_precision(precision: str | bool) -> None:
    """Set the precision of float32 matrix products and convolutions.

    ``"highest"`` (or False, TF32 not allowed): float32, six bfloat16 passes on a TPU.
    ``"high"`` (or True, TF32 allowed): three passes, about TF32 or better.
    ``"medium"`` or ``"default"``: one bfloat16 pass, the fastest.
    Raises ValueError for any other word.
    """
    if isinstance(precision, bool):
        precision = "high" if precision else "highest"
    if precision not in _XLA_WORDS:
        raise ValueError(f"unknown matmul precision {precision!r}: one of {', '.join(_XLA_WORDS)}")
    wanted = _XLA_WORDS[precision]
    if torch_xla.backends.get_mat_mul_precision() == wanted:
        return
    # torch_xla 2.9 warns "setting multiple times" at the first call already.
    torch_xla.backends.logger.addFilter(_drop)
    try:
        torch_xla.backends.set_mat_mul_precision(wanted)
    finally:
        torch_xla.backends.logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False
