"""Loops that make text token by token: the forms that are known, and what only looks like them."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from helpers import TARGETS, run

from migrator.diagnostics import Severity
from tests.engine.projects import Files
from tests.engine.projects import migrate as project

HEAD = """import torch
model = GPT().cuda()
"""

FORM = """@torch.no_grad()
def generate(model, idx, count):
    for _ in range(count):
        part = idx[:, -8:]
        logits = model(part)
        logits = logits[:, -1, :]
        new = logits.argmax(-1, keepdim=True)
        idx = torch.cat((idx, new), dim=1)
    return idx
"""

EDITED = """@torch.no_grad()
def generate(model, idx, count):
    tokens = tpu_runtime.TokenBuffer(idx)
    for _ in range(count):
        part = tokens.window(8)
        logits = model(part)
        logits = tokens.last(logits)
        new = logits.argmax(-1, keepdim=True)
        tokens.append(new)
    idx = tokens.tokens
    return idx
"""


def migrated(source: str, target: str = "torchax") -> str:
    """What is below the head, with the edit of text that grows."""
    text = run(HEAD + source, target, unsafe=True).source.decode()
    return text.partition("GPT()")[2].partition("\n")[2].replace("        torch_xla.sync()\n", "")


@pytest.mark.parametrize("target", TARGETS)
def test_the_form(target: str) -> None:
    assert migrated(FORM, target) == EDITED


@pytest.mark.parametrize("importer", ["", "from chapter import generate\nprint(torch.ones(1))\n",
                                      "from chapter import generate\nmodel.cuda()\n"])  # fmt: skip
def test_a_program_without_a_device_is_edited_where_another_takes_it_to_one(
    tmp_path: Path, importer: str
) -> None:
    """A chapter runs by itself on the CPU, and a later one imports it for a GPU."""
    main = 'if __name__ == "__main__":\n    print(generate(GPT(), prompt, 9))\n'
    files: Files = {
        "chapter.py": f"import torch\n\n{FORM}\n{main}",
        "train.py": f"import torch\n{importer}",
    }
    edited = project(tmp_path, files, "torch_xla", unsafe=True)["chapter.py"]
    assert ("TokenBuffer" in edited) is ("torch_xla.sync()" in edited) is ("cuda" in importer)


@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("part = idx[:, -8:]", "part = idx", "part = tokens.window()"),
        ("part = idx[:, -8:]", "part = idx if idx.size(1) <= n else idx[:, -n:]",
         "part = tokens.window(n)"),
        ("part = idx[:, -8:]", "part = idx if idx.shape[1] < n else idx[:, -n:]",
         "part = tokens.window(n)"),
        ("logits = model(part)", "logits, _ = model(part)", "logits, _ = model(part)"),
        ("logits = model(part)", "logits = model(part).logits", "logits = model(part).logits"),
        ("logits = logits[:, -1, :]", "logits = logits.logits[:, -1] / 2",
         "logits = tokens.last(logits.logits) / 2"),
        ("model(part)", "model(part, None, use_cache=False)",
         "model(part, None, use_cache=False)"),
        ("dim=1", "dim=-1", "tokens.append(new)"),
        ("        idx = torch", "        if new == 3:\n            break\n        idx = torch",
         "tokens.append(new)"),
        ("        logits = model", "        with torch.no_grad():\n            logits = model",
         "logits = tokens.last(logits)"),
        ("for _ in range(count):", "while True:", "tokens.append(new)"),
    ],
)  # fmt: skip
def test_other_forms(old: str, new: str, edited: str) -> None:
    source = FORM.replace(old, new)
    assert source != FORM
    text = migrated(source)
    assert edited in text
    assert "TokenBuffer(idx)" in text and "torch.cat" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        logits = logits[:, -1, :]\n", "        logits = logits[:, 0, :]\n"),
        (
            "        logits = logits[:, -1, :]\n",
            "        first = logits[:, -1]\n        print(logits)\n",
        ),
        ("        new =", "        print(idx)\n        new ="),
        ("        new =", "        print(part)\n        new ="),
        ("model(part)", "model(part, new)"),
        ("model(part)", "model(part, cache=cache)"),
        ("model(part)", "model(part, mask=idx != 0)"),
        ("        logits = model(part)", "        logits, past = model(part)\n        print(past)"),
        ("        logits = model(part)", "        logits = model(part) + model(part)"),
        ("part = idx[:, -8:]", "part = idx[:, -8:-1]"),
        ("part = idx[:, -8:]", "part = idx if idx.size(1) <= 9 else idx[:, -8:]"),
        ("part = idx[:, -8:]", "part = idx.flip(1)"),
        ("dim=1", "dim=0"),
        ("(idx, new)", "(new, idx)"),
        ("(idx, new)", "(idx, new, new)"),
        ("    return idx", "    else:\n        pass\n    return idx"),
        ("    return idx", "    return idx, logits, part"),
        ("        idx = torch", "        if new > 3:\n            idx = torch"),
        ("    return idx", "    return lambda: idx"),
        ("for _ in range(count)", "while idx.size(1) < count"),
        ("for _ in range(count)", "while part.size(1) < count"),
        ("for _ in", "for idx in"),
        ("for _ in", "for part in"),
        ("    for", "    global idx\n    for"),
        ("        part =", "        idx = idx_of()\n        part ="),
        ("        idx = torch", "        idx += 0\n        idx = torch"),
        ("        idx = torch", "        idx = other(new)\n        idx = torch"),
        ("    return idx", "        del idx\n    return"),
        ("    for", "    stop = lambda: part.shape\n    for"),
        ("    return idx", "    if count:\n        part = 3\n    return idx, part"),
        ("    return idx", "    part += 1\n    return idx"),
        ("        logits = logits[", "        logits /= places\n        logits = logits["),
        (
            "        logits = logits[",
            "        if new:\n            logits = new\n        logits = logits[",
        ),
        (
            "        logits = logits[",
            "        if new:\n            break\n        logits = logits[",
        ),
        ("logits = logits[:, -1, :]", "logits = (lambda: logits[:, -1, :])()"),
        ("dim=1", "dim=1, out=buffer"),
        ("model(part)", "model(**part)"),
    ],
)
def test_what_only_looks_like_it(old: str, new: str) -> None:
    source = FORM.replace(old, new)
    assert source != FORM
    assert "TokenBuffer" not in migrated(source)


@pytest.mark.parametrize(
    "body",
    [
        # the window of the round before
        """        new = model(part)[:, -1].argmax(-1, keepdim=True)
        idx = torch.cat((idx, new), dim=1)
        part = idx
""",
        # the last position is looked for when there is one more
        """        logits = model(idx)
        idx = torch.cat((idx, new), dim=1)
        new = logits[:, -1].argmax(-1, keepdim=True)
""",
        """        part = idx
        idx = torch.cat((idx, new), dim=1)
        new = model(part)[:, -1].argmax(-1, keepdim=True)
""",
    ],
)
def test_tokens_are_appended_between_the_window_and_the_last_position(body: str) -> None:
    head, tail = FORM.split("        part", 1)[0], "    return idx\n"
    assert "TokenBuffer" not in migrated(head + body + tail)


@pytest.mark.parametrize(
    "around",
    [
        "    try:\n{loop}    except KeyboardInterrupt:\n        pass\n",
        "    with contextlib.suppress(StopIteration):\n{loop}",
        "    for _ in prompts:\n        print(part)\n{loop}",
        "    for _ in prompts:\n        print(logits)\n{loop}",
        "    while part.max() < 3:\n{loop}",
    ],
)
def test_what_is_around_may_see_the_text_as_it_was(around: str) -> None:
    source = FORM.replace(
        "        logits = logits[:, -1, :]\n        new = logits.", "        new = logits[:, -1]."
    )
    start, end = source.index("    for"), source.index("    return")
    loop = textwrap.indent(source[start:end], "    ")
    text = source[:start] + around.format(loop=loop) + source[end:]
    assert "TokenBuffer" in migrated(source) and "TokenBuffer" not in migrated(text)


def test_other_functions_may_have_variables_of_these_names() -> None:
    other = "def forward(part, idx, logits):\n    return part, idx, logits\n"
    assert migrated(FORM + other) == EDITED + other


def test_a_buffer_without_limit_may_be_longer_than_a_table_of_positions() -> None:
    net = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return self.words(x){}\n"
    places = net.format(" + self.places(torch.arange(x.size(1)))")
    no_limit = FORM.replace("idx[:, -8:]", "idx")
    assert "TokenBuffer" in migrated(net.format("") + no_limit)
    assert "TokenBuffer" in migrated(places + FORM)
    assert "TokenBuffer" not in migrated(places + no_limit)


def test_two_loops_with_the_same_names() -> None:
    loop = FORM[FORM.index("    for") : FORM.index("    return")]
    text = migrated(FORM.replace(loop, loop + loop))
    assert text.count("tokens = tpu_runtime.TokenBuffer(idx)") == 2 and "torch.cat" not in text


def test_without_unsafe_it_is_advice() -> None:
    result = run(HEAD + FORM, "torchax")
    assert result.source.decode().endswith(FORM)
    (said,) = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert said.code == "TOK001" and "--unsafe" in said.message


def test_a_model_that_keeps_the_last_position_is_told_where_it_is() -> None:
    source = """class Net(torch.nn.Module):
    def forward(
        self,
        x,
        targets: Optional[Tensor] = None,
    ):
        return x[:, -1:], None

    @torch.no_grad()
    def generate(self, tokens, last):
        for _ in range(last):
            new = self(tokens)[0][:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, new], 1)
        return tokens
"""
    text = migrated(source)
    optional = ": Optional[Tensor] = None,\n"
    assert f"        targets{optional}        last_position{optional}    ):\n" in text
    chosen = "x[:, -1:] if last_position is None else x.index_select(1, last_position)"
    assert f"return ({chosen}), None" in text
    assert "self(token_buffer.window(), last_position=token_buffer.position)[0][:, -1]" in text
    ast.parse(text)


@pytest.mark.parametrize("parameters", ["self, x, *more", "self, x, **more", "self, x, *, y=0"])
def test_a_model_that_can_not_be_told_stays(parameters: str) -> None:
    source = f"""class Net(torch.nn.Module):
    def forward({parameters}):
        return self.head(x[:, -1:])

    @torch.no_grad()
    def generate(self, idx):
        for _ in range(9):
            idx = torch.cat([idx, self(idx)[:, -1].argmax(-1, keepdim=True)], 1)
        return idx
"""
    assert migrated(source) == source


NET = """class Net(torch.nn.Module):
    def forward(self, x, targets=None):
        {body}

    @torch.no_grad()
    def generate(self, idx):
        for _ in range(9):
            idx = torch.cat([idx, self(idx)[:, -1].argmax(-1, keepdim=True)], 1)
        return idx
"""
BRANCHES = """if targets is {no}None:
            logits = self.head(x)
        else:
            logits = self.head(x[:, [-1], :])
        return logits"""


EARLY = """if targets is {no}None:
            return self.head(x[:, [-1], :])
        return self.head(x)"""


@pytest.mark.parametrize("body", [BRANCHES.format(no="not "), EARLY.format(no="")])
def test_the_branch_that_the_call_comes_to(body: str) -> None:
    assert "last=tokens.position" in migrated(NET.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        BRANCHES.format(no=""),
        EARLY.format(no="not "),
        "if self.all:\n            return self.head(x)\n        " + EARLY.format(no=""),
        "return self.head(x)[:, -1:]",
        "return self.head(x) + x[:, -1:]",
        "x[:, -1:] = 0\n        return self.head(x)",
        "self.state = x[:, -1:]\n        return self.head(x)",
        "if self.all:\n            return self.head(x)\n        return self.head(x[:, -1:])",
        "x = torch.cat([self.prefix, x], 1)\n        return self.head(x[:, -1:])",
    ],
)
def test_a_model_that_may_return_other_positions_stays(body: str) -> None:
    assert "TokenBuffer" not in migrated(NET.format(body=body))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def forward", "    @checked\n    def forward"),
        ("    def forward", "    def __call__(self, x):\n        return 1\n\n    def forward"),
        (
            "class Net(",
            "class Sub(Net):\n    def forward(self, x):\n        return x\n\nclass Net(",
        ),
        ("class Net(", "script = torch.jit.script(Net())\n\nclass Net("),
    ],
)
def test_a_forward_that_may_be_another_function_stays(old: str, new: str) -> None:
    source = NET.format(body="return self.head(x[:, -1:])")
    assert "TokenBuffer" in migrated(source)
    assert "TokenBuffer" not in migrated(source.replace(old, new, 1))


COLLECTED = """@torch.no_grad()
def generate(model, idx, count):
    logits = model(idx)
    for _ in range(count):
        new = logits[:, -1].argmax(-1, keepdim=True)
        idx = torch.cat((idx, new), dim=1)
        logits = model(new)
    return idx
"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_only_joined_is_joined_once(target: str) -> None:
    assert migrated(COLLECTED, target) == (
        """@torch.no_grad()
def generate(model, idx, count):
    logits = model(idx)
    collected = [idx]
    for _ in range(count):
        new = logits[:, -1].argmax(-1, keepdim=True)
        collected.append(new)
        logits = model(new)
    idx = torch.cat(collected, dim=1)
    return idx
"""
    )


def test_tokens_that_are_chosen_in_two_ways_are_collected() -> None:
    chosen = "        new = logits[:, -1].argmax(-1, keepdim=True)\n"
    ways = (
        "        if sample:\n            new = torch.multinomial(logits[:, -1], 1)\n"
        "        else:\n            _, new = torch.topk(logits[:, -1], 1)\n"
    )
    assert chosen in COLLECTED
    assert "collected.append(new)" in migrated(COLLECTED.replace(chosen, ways))
    held = ways.replace("torch.multinomial(logits[:, -1], 1)", "first")
    assert "collected" not in migrated(COLLECTED.replace(chosen, held))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("logits = model(new)", "logits = model(idx)[:, -1:]"),
        ("logits = model(new)", "logits = model(new, idx.shape[1])"),
        ("logits = model(new)", "logits = model(new)\n        new[0] = 3"),
        ("logits = model(new)", "logits = model(new)\n        new.add_(1)"),
        ("logits = model(new)", "logits = model(new)\n        new += 1"),
        ("logits = model(new)", "logits = look(new)"),
        ("(idx, new)", "(new, idx)"),
        ("(idx, new)", "(idx, new, new)"),
        ("dim=1", "dim=0"),
        ("new = logits[:, -1].argmax(-1, keepdim=True)", "new = self.token"),
        ("    return idx", "    else:\n        print()\n    return idx"),
        ("    for _", "    show = lambda: idx\n    for _"),
    ],
)
def test_what_more_than_a_join_may_look_at(old: str, new: str) -> None:
    assert old in COLLECTED
    assert "collected" not in migrated(COLLECTED.replace(old, new))
