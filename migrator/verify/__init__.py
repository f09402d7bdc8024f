"""Run a migrated app on its target and compare its numbers with those of the original."""

from .errors import VerifyError
from .result import OutputResult, VerifyResult
from .verification import verify_app

__all__ = ["OutputResult", "VerifyError", "VerifyResult", "verify_app"]
