"""Thousands of repositories on the workers of a scheduler: here three, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import REPOSITORY, write_tree

from migrator import migrate_paths
from migrator.runs.executors import executor_at
from migrator.runs.run_report import Report
from tests.engine.test_programs import SHARED

pytestmark = pytest.mark.thorough("a cluster")
REPOSITORIES = 12
GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n" * 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import distributed

    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=None
    ) as all_:
        yield all_


@pytest.fixture
def repositories(tmp_path: Path) -> list[Path]:
    return [
        write_tree(
            tmp_path / f"r{n}", {**SHARED, "ops.py": GPU, "conf.yaml": "gpus: 1\n", ".git/x": ""}
        )
        for n in range(REPOSITORIES)
    ]


def content(report: Report) -> list[object]:
    files = [(f.path, f.result.source, f.result.diagnostics, f.unsafe) for f in report.files]
    return [files, dict(report.companions), report.notes, report.errors, report.exit_code]


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def test_a_worker_that_is_killed_does_not_matter(cluster: Any, repositories: list[Path]) -> None:
    """Its groups are done by others; every byte is that of one process."""
    import distributed

    alone = content(migrate_paths(repositories))
    with distributed.Client(cluster) as client:
        processes = [*client.run(os.getpid).values()]
    killed: list[int] = []

    def kill(done: int, _total: int) -> None:
        if not killed:
            killed.append(done)
            os.kill(processes[0], signal.SIGKILL)

    with executor_at(address(cluster)) as executor:
        report = migrate_paths(repositories, progress=kill, executor=executor)
    assert killed and killed[0] < len(report.files)  # in the middle
    assert content(report) == alone


def test_the_command_says_the_same(cluster: Any, repositories: list[Path]) -> None:
    command = [sys.executable, "-m", "migrator", *map(str, repositories), "--target", "torchax"]
    here, there = (
        subprocess.run(
            [*command, "--diff", *more], cwd=REPOSITORY, capture_output=True, check=False
        )
        for more in ((), ("--executor", address(cluster)))
    )
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
    assert there.returncode == 1 and there.stdout
