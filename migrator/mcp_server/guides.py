"""What an agent can read: pages of codes, guides of targets, and how to work."""

from __future__ import annotations

from migrator.analysis.python_requirements import pinned
from migrator.by_hand import cures
from migrator.errors import UsageError
from migrator.report.explain import every_code, markdown, pages
from migrator.targets import find_target

INSTRUCTIONS = """Brings GPU programs (PyTorch, Keras, TensorFlow) to TPUs. Rules rewrite what they
can show to be right; `remaining` lists the rest, which you finish; `verify` runs the original and
the result, and judges. Begin with `assess`, or with the prompt `finish`."""

_WORK = """Bring {path} to a TPU by the target {target}.

1. `assess` {path}: which programs are there, and what is automatic.
2. `migrate` {path} without `write`, and read the diff. Then with `write`: git must hold the files.
3. Before you change anything by hand, `record` each program: what it computes now is what `verify`
   compares with. Otherwise your mistake would be in the original and in its migration alike. A
   program that only runs on a GPU is recorded there (`tpu-migrate record`); without a GPU, test the
   part that you write against a reference, and say that the program was not compared as a whole.
4. `remaining` {path}: for each place, read its reason and the example in `by_hand`, and change the
   code. A place with `keeps` comes first: what hangs on it is rewritten once it is gone; `migrate`
   again. Where there is no example, read `explain` CODE, and compare what you write with the
   original's own tests or a reference on the CPU.
5. `verify` each program that `remaining` names with its `golden`, `quick` first, then without. It
   needs arguments that make it short, the same as for `record`.
6. If numbers differ: `first` names the first value and its line. What comes later may follow from
   it, so mend that place alone and verify again. If it isn't clear, `layers` names the module and
   `bisect` the operation. A difference in `steps` or in the shape of a value is another program,
   not rounding.
7. Done is: `remaining` is empty, or each place is answered for; `verify` passes without `quick`.

Never do this, and if it seems needed, say so instead:
* loosen a tolerance, delete or skip a comparison, end a run before what differs;
* drop a mask, a detach, a scale, a seed or a cast because the code then runs;
* catch an error and go on, or fall back to the CPU without a word;
* use `unsafe` without naming what it may change;
* claim that something ran on a TPU: `verify` without a TPU runs on the CPU, as `device` says, and
  `compile_for` compiles for a TPU and runs nothing on one.

In the end say what was verified, by which command, on which device, and what is left.
"""


def page_of(code: str) -> str:
    """A code's page. Raises UsageError for one that there isn't."""
    found = every_code().get(code.upper())
    if found is None:
        raise UsageError(f"there is no code {code}")
    return markdown(found)


def index() -> str:
    return pages()["README.md"]


def target_guide(name: str) -> str:
    """What a target is and needs. Raises UsageError for an unknown one."""
    target = find_target(name)
    able = [own for cure in cures() if (own := cure.for_target(target)) is not None]
    needs = [f"* {pin.text}" for pin in pinned(target)]
    known = [f"* {', '.join(own.codes)}: {own.title}" for own in able]
    parts = [
        f"# {target.name}", f"{target.summary}. See <{target.home}>.",
        f'Its device is "{target.api.device}". float64: {target.api.float64}.',
        "It needs:\n\n" + "\n".join(needs),
        f"`tpu-migrate doctor --target {target.name}` says whether it runs here.",
    ]  # fmt: skip
    if known:
        parts.append("By hand (`explain` CODE has the examples):\n\n" + "\n".join(known))
    return "\n\n".join(parts) + "\n"


def how_to_work(path: str, target: str) -> str:
    return _WORK.format(path=path, target=target)
