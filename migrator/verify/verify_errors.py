"""The exceptions of this package."""


class VerifyError(Exception):
    """Nothing could be verified: wrong usage, or something is missing. The text says what to do."""


class NothingRecorded(VerifyError):
    """A run ended before its script began."""
