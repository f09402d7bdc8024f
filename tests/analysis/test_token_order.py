"""Loops that make text: where it may change by another name, it is joined in its place."""

from __future__ import annotations

import pytest

from tests.analysis.test_token_loops import COLLECTED, FORM, migrated

CHANGES = [
    ("    for", "    prompt = idx\n    for", "        {last}\n        prompt[0] = 3"),
    ("    for", "    rows = [idx]\n    for", "        {last}\n        rows[0] += 1"),
    ("    for", "    for", "        {last}\n        change(idx.shape)"),
    ("    return idx", "    idx[:, 0] = 4\n    return idx", "        {last}"),
    ("    return idx", "    idx.clamp_(max=3)\n    return idx", "        {last}"),
]


@pytest.mark.parametrize(("old", "new", "end"), CHANGES)
@pytest.mark.parametrize("form", [FORM, COLLECTED])
def test_text_that_may_change_by_another_name_is_joined_in_its_place(
    form: str, old: str, new: str, end: str
) -> None:
    *_, last, _ = form.splitlines()
    source = form.replace(last, end.format(last=last.strip())).replace(old, new)
    text = migrated(source)
    assert "TokenBuffer" not in text and "collected" not in text


@pytest.mark.parametrize("rounds", ["range(start(idx))", "steps(idx, count)"])
def test_a_header_that_may_change_the_text_runs_before_it_is_read(rounds: str) -> None:
    source = "from mine import start, steps\n" + FORM.replace("range(count)", rounds)
    assert "TokenBuffer" not in migrated(source)


def test_what_a_function_of_the_file_only_computes_changes_no_text() -> None:
    pick = "def pick(logits):\n    return torch.argmax(logits, -1, True)\n\n\n"
    chosen = FORM.replace("logits.argmax(-1, keepdim=True)", "pick(logits)")
    assert "TokenBuffer" in migrated(pick + chosen)
    writes = pick.replace("    return", "    logits[:] = 0\n    return")
    assert "TokenBuffer" not in migrated(writes + chosen)
