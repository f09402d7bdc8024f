"""Failures: what to do where a file can't be written."""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT)  # further files will not fit, either
_ADVICE = {
    **dict.fromkeys(FULL, "make room on that disk, and run it again"),
    errno.EFBIG: "the limit on the size of files is too low (ulimit -f)",
}
_IN_PLACE = {
    errno.EBUSY: "it is mounted, or in use: release it, or write a copy with -o DIR",
    errno.ETXTBSY: "it is running: end that, or write a copy with -o DIR",
    errno.EROFS: "its disk can only be read: write a copy with -o DIR",
    errno.EACCES: "you may not write there: change the rights, or write a copy with -o DIR",
    errno.EPERM: "it may be marked as unchangeable (chattr): write a copy with -o DIR",
}


def advice(error: OSError, *, in_place: bool = False) -> str:
    """How to go on after an error, as a sentence behind what it says; "" where that is unknown."""
    number = error.errno or 0
    known = _ADVICE.get(number) or (_IN_PLACE.get(number) if in_place else None)
    return f". {known[0].upper()}{known[1:]}" if known else ""
