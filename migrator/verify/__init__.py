"""Run a migrated app on its target and compare its numbers with those of the original.

from migrator.verify import verify_app, verify_script
"""

from typing import TYPE_CHECKING, Any

__all__ = ["VerifyResult", "verify_app", "verify_script"]

if TYPE_CHECKING:
    from .verification import verify_app, verify_script
    from .verify_result import VerifyResult


def __getattr__(name: str) -> Any:
    """Import the implementation only when it is needed, which --help does not."""
    if name in __all__:
        from . import verification

        return getattr(verification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
