"""Where packages come from."""

from __future__ import annotations

CPU = "https://download.pytorch.org/whl/cpu"
