"""The HTML report in a browser."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TO = ("--target", "torchax", "--check")
SCRIPT = """import torch

# one
# two
# three
# four
# five
# six
# seven
# eight
model = torch.nn.Linear(2, 2)
needle_in_equal_text = 1
x = torch.ones(2).cuda()
stream = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph()


def run(device="cuda"):
    \"\"\"Text
    of two lines.\"\"\"
    torch.cuda.empty_cache()
    return model(x.to(device))
"""
BOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title"]},
        {"cell_type": "code", "id": "b", "execution_count": None, "metadata": {}, "outputs": [],
         "source": ["import torch\n", "y = torch.ones(2).cuda()"]},
    ],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip
PROJECT = {
    "app/train.py": SCRIPT,
    "app/book.ipynb": json.dumps(BOOK),
    "app/clean.py": "print('nothing here')\n",
    "lib/broken.py": "import torch\nx = torch.ones(2).cuda(\n",
    "lib/moves.py": "import torch\ny = torch.zeros(3).cuda()\nz = y.to('cuda')\n",
}
EVIL = "<img src=x onerror=alert(1)>"


def chromium() -> str | None:
    """The browser of the machine; None: that of playwright itself."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = [os.environ.get("CHROMIUM"), *map(shutil.which, names)]
    return next(filter(None, found), None)


def sections(page: Page) -> list[str]:
    """The paths of the files that are shown."""
    return page.locator(".file:visible h2").all_inner_texts()


def part(page: Page, name: str) -> Locator:
    """The section of a file."""
    return page.locator(".file", has=page.locator("h2", has_text=name))


def focused(page: Page) -> str:
    """The change or finding, or the file, that has the keyboard's focus, and its file."""
    return str(
        page.evaluate(
            "[document.activeElement.matches('h2') ? 'h2' : document.activeElement.className,"
            " document.activeElement.closest('.file').querySelector('h2').textContent].join(' ')"
        )
    )


def count(page: Page, text: str) -> None:
    """Wait until the page says so."""
    page.wait_for_function("t => document.querySelector('#count').textContent === t", arg=text)
