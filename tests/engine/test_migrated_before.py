"""Programs that were migrated for one target, and go on to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.errors import UsageError
from migrator.files.discover import bundled_target
from migrator.pipeline.normalise import foreign
from migrator.runs.run import undo
from migrator.runs.run_report import Report
from migrator.targets import RUNTIME, targets
from tests.helpers import COPY, REPOSITORY, migrated, read_tree, reported, run, write_tree

WAYS = [
    (first, then)
    for first in ("torchax", "torch_xla")
    for then in ("torchax", "torch_xla", "torch_tpu")
    if first != then
]
SCRIPT = """import torch

device = torch.device("cuda")
model = torch.nn.Linear(4, 2).to(device)
with torch.autocast("cuda", dtype=torch.bfloat16):
    model(torch.ones(2, 4, device=device))
torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated(), torch.cuda.get_device_name())
"""


def left(report: Report, root: Path) -> set[tuple[str, str]]:
    """The files and codes of what needs manual changes."""
    return {
        (file.path.relative_to(root).as_posix(), d.code)
        for file in report.files
        for d in file.result.diagnostics
        if d.outcome is Outcome.REPORTED
    }


@pytest.fixture(scope="module", params=["torchax", "torch_xla"])
def apps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference apps, migrated."""
    out = tmp_path_factory.mktemp("apps") / str(request.param)
    migrate_paths([REPOSITORY / "reference_apps"], request.param, config=COPY, output=out)
    return out


@pytest.mark.parametrize("then", ["torchax", "torch_xla", "torch_tpu"])
def test_apps_go_on_as_far_as_their_originals(apps: Path, then: str) -> None:
    if then == apps.name:
        return
    direct = migrate_paths([REPOSITORY / "reference_apps"], then)
    report = migrate_paths([apps], then, config=COPY)
    assert left(report, apps) <= left(direct, REPOSITORY / "reference_apps")
    for file in report.files:
        assert not foreign(file.result.source, targets()[then]), file.path
    assert {path.parent for path in report.obsolete} & {path.parent for path in report.companions}


@pytest.mark.parametrize(("first", "then"), WAYS)
def test_a_script_becomes_what_its_original_becomes(first: str, then: str) -> None:
    between = migrated(SCRIPT, first, entry=True)
    assert migrated(between, then, entry=True) == migrated(SCRIPT, then, entry=True)


@pytest.mark.parametrize(("first", "then"), WAYS)
def test_the_runtime_is_replaced_and_comes_back(tmp_path: Path, first: str, then: str) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    migrate_paths([tmp_path], first, config=COPY, write=True, allow_dirty=True)
    before = read_tree(tmp_path, runtime=True)
    migrate_paths([tmp_path], then, config=COPY, write=True, allow_dirty=True)
    runtime = tmp_path / RUNTIME
    assert bundled_target(runtime) == then
    fresh = tmp_path.parent / f"{tmp_path.name}_{then}"
    write_tree(fresh, {"train.py": SCRIPT})
    migrate_paths([fresh], then, config=COPY, write=True, allow_dirty=True)
    assert read_tree(tmp_path, runtime=True) == read_tree(fresh, runtime=True)
    undo([tmp_path])
    assert read_tree(tmp_path, runtime=True) == before


def test_a_copy_has_no_part_of_the_old_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path / "a", {"train.py": SCRIPT})
    migrate_paths([tmp_path / "a"], "torchax", config=COPY, output=tmp_path / "b")
    migrate_paths([tmp_path / "b"], "torch_tpu", config=COPY, output=tmp_path / "c")
    migrate_paths([tmp_path / "a"], "torch_tpu", config=COPY, output=tmp_path / "d")
    assert read_tree(tmp_path / "c", runtime=True) == read_tree(tmp_path / "d", runtime=True)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("other.py", "import tpu_runtime\ntpu_runtime.shard(model)"),  # nothing of GPUs is like it
        ("config.py", 'DEVICE = "jax"'),  # may be the device, and may be not
    ],
)
def test_a_runtime_that_is_needed_stays(tmp_path: Path, name: str, line: str) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    migrate_paths([tmp_path], "torchax", config=COPY, write=True, allow_dirty=True)
    with (tmp_path / name).open("a") as file:
        file.write(f"{line}\n")
    before = read_tree(tmp_path, runtime=True)
    with pytest.raises(UsageError, match=f"is torchax's runtime, which .*{name} would still"):
        migrate_paths([tmp_path], "torch_tpu", config=COPY, write=True, allow_dirty=True)
    assert read_tree(tmp_path, runtime=True) == before


@pytest.mark.parametrize("name", ["shard", "TokenBuffer"])
def test_a_program_with_what_has_no_counterpart_stays(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    migrate_paths([tmp_path], "torchax", config=COPY, write=True, allow_dirty=True)
    with (tmp_path / "train.py").open("a") as file:
        file.write(f"tpu_runtime.{name}(model)\n")
    before = read_tree(tmp_path, runtime=True)
    report = migrate_paths([tmp_path], "torch_tpu", config=COPY, write=True, allow_dirty=True)
    assert read_tree(tmp_path, runtime=True) == before
    assert ("train.py", "MIG001") in left(report, tmp_path)


def test_a_part_of_a_project_does_not_lose_its_runtime(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT, "other.py": SCRIPT})
    migrate_paths([tmp_path], "torchax", config=COPY, write=True, allow_dirty=True)
    with pytest.raises(UsageError, match=r"other\.py would still need; migrate all of"):
        migrate_paths(
            [tmp_path / "train.py"], "torch_tpu", config=COPY, write=True, allow_dirty=True
        )


def test_names_of_runtimes_without_a_counterpart_are_reported() -> None:
    source = "import tpu_runtime\ntpu_runtime.setup()\ntpu_runtime.shard(model)\n"
    result = run(source, "torch_tpu", entry=True)
    assert reported(result) == ["tpu_runtime.shard"]
    assert not result.changed


def test_groups_of_ranks_go_on() -> None:
    source = (
        "import torch.distributed as dist\n"
        'dist.init_process_group("xla", init_method="xla://", rank=0)\n'
    )
    assert '("jax", rank=0)' in migrated(source, "torchax")
    assert "get_default_backend_for_device(device), rank=0)" in migrated(source, "torch_tpu")


@pytest.mark.parametrize(
    "line",
    [
        'backend = "jax"',
        'if os.environ["KERAS_BACKEND"] == "jax":\n    x = 1',
        'x = {"jax": 1, "torch": 2}[name]',
        'import_module("jax")',
    ],
)
@pytest.mark.parametrize("target", ["torch_xla", "torch_tpu"])
def test_the_word_jax_is_no_device_by_itself(line: str, target: str) -> None:
    source = f"import torch\nx = torch.ones(2).cuda()\n{line}\n"
    assert line in migrated(source, target)


def test_a_question_put_before_that_for_cuda_goes() -> None:
    source = (
        "import torch\n\n\ndef best():\n    if torch.cuda.is_available():\n"
        '        return torch.device("cuda")\n    if torch.backends.mps.is_available():\n'
        '        return torch.device("mps")\n    return torch.device("cpu")\n'
    )
    between = migrated(source, "torchax")
    assert between.count("if ") == 3
    assert migrated(between, "torch_xla") == migrated(source, "torch_xla")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("if x.device.type == \"xla\":\n    x = pad(x)\n", "torchax"),
        ("if x.device.type == \"cuda\":\n    f(x)\nelif x.device.type == \"xla\":\n    g(x)\n",
         "torchax"),
        ("x = x.cuda()\ny = x.to(\"cpu\") if x.device.type == \"xla\" else x\n", "torch_tpu"),
        ("z = y.cuda()\nif on_tpu:\n    x = x.to(\"xla\")\n", "torch_tpu"),
    ],
)  # fmt: skip
def test_a_branch_for_another_target_stays(source: str, target: str) -> None:
    assert '"xla"' in migrated(f"import torch\n{source}", target)
