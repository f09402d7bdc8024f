"""What an editor has open, and asks for."""

from __future__ import annotations

from lsprotocol import types

SCRIPT = """import torch


def main():
    x = torch.ones(2).cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()


if __name__ == "__main__":
    main()
"""
TO = {"target": "torchax"}
FIX_ALL = "source.fixAll.tpu-migrate"


def code_of(diagnostic: types.Diagnostic) -> str:
    return str(diagnostic.code)


def by_title(actions: list[types.CodeAction], start: str) -> types.CodeAction:
    return next(action for action in actions if action.title.startswith(start))
