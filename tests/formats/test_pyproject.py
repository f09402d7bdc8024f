"""pyproject.toml: its tables of requirements."""

from __future__ import annotations

import re
import tomllib

import pytest
from helpers import constructs, run

from tests.formats.manifests import PIPFILE, PIXI, POETRY, TORCHAX, migrated, reported

TORCH = "torch==2.9.0", "torch_xla[tpu]==2.9.0"


PROJECT = """[build-system]
requires = ["setuptools", "torch"]

# what it is
[project]
name = "torch-things"  # torch

    # indented
description = \"\"\"
dependencies = ["torch"]
\"\"\"
dependencies = [
    "numpy", # n
    'torch>=2.0',  # the model
    "torchvision[extra]>=0.1",
    "flash-attn; sys_platform == 'linux'",
]

[project.optional-dependencies]
all = ["tqdm", "torch"]
"x.y" = ["torchaudio"]

[[tool.uv.index]]
name = "pytorch-cu121"
url = 'https://download.pytorch.org/whl/cu121'
"""


TPU = ["torch~=2.9.0", "torch_xla[tpu]~=2.9.0"]
TPU_EXTRA = 'tpu = [\n    "torch~=2.9.0",\n    "torch_xla[tpu]~=2.9.0",\n]\n'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_project_keeps_its_layout(end: str) -> None:
    after = migrated(PROJECT.replace("\n", end), "pyproject.toml").replace(end, "\n")
    assert after == (
        PROJECT.replace('"x.y" = ["torchaudio"]\n', f'"x.y" = ["torchaudio"]\n{TPU_EXTRA}')
        .replace("whl/cu121", "whl/cpu")
        .replace('["setuptools", "torch"]', '["setuptools", "torch==2.9.0"]')
    )
    assert tomllib.loads(after)["project"]["optional-dependencies"]["tpu"] == TPU
    assert list(reported(PROJECT, "pyproject.toml")) == ["flash-attn; sys_platform == 'linux'"]


def test_places_are_those_of_the_file() -> None:
    found = {d.construct: str(d.range) for d in constructs(run(PROJECT, path="pyproject.toml"))}
    assert found["torch>=2.0"] == "14:6" and found["torchaudio"] == "21:11"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_poetry(end: str) -> None:
    after = migrated(POETRY.replace("\n", end), "pyproject.toml").replace(end, "\n")
    assert after == (
        POETRY.replace('"^2.0"', '"==2.9.0"\ntorch_xla = {version = "==2.9.0", extras = ["tpu"]}')
        .replace("^0.15", "==0.24.0")
        .replace("cu118", "cpu")
    )
    assert reported(POETRY, "pyproject.toml") == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'torch = {version = "^2.0", optional = true}',
            '`torch_xla = {version = "==2.9.0", extras = ["tpu"]}`',
        ),
        ('torch = [{version = "^2", markers = "a"}]', '`torch = "==2.9.0"`'),
        ('torch = {git = "https://github.com/pytorch/pytorch"}', '`torch = "==2.9.0"`'),
        ('[tool.poetry.dependencies.torch]\nversion = "^2.0"\nsource = "x"', "torch_xla"),
        ('xformers = "*"', "scaled_dot_product_attention"),
        ('numpy = "^1.26"', "numpy>=2,<3"),
        ('torch-scatter = {version = "2.1+pt20cu118"}', "built for CUDA"),
    ],
)
def test_entries_of_poetry_that_a_person_has_to_look_at_are_named(line: str, message: str) -> None:
    text = f"[tool.poetry.dependencies]\n{line}\n"
    assert migrated(text, "pyproject.toml") == text
    (found,) = reported(text, "pyproject.toml").values()
    assert message in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch_xla = "^2.1"', 'torch_xla = {version = "==2.9.0", extras = ["tpu"]}'),
        (
            'torch-xla = { version = "^2.1" }',
            'torch-xla = { version = "==2.9.0", extras = ["tpu"] }',
        ),
        ('torch_xla = {extras=[], version="2"}', 'torch_xla = {extras=["tpu"], version="==2.9.0"}'),
        (
            'torch_xla = {version = "2.1", extras = ["pallas"], source = "a"}',
            'torch_xla = {version = "==2.9.0", extras = ["tpu", "pallas"], source = "a"}',
        ),
        (
            'torch_xla = {version = "2.1", extras = ["tpu"]}',
            'torch_xla = {version = "==2.9.0", extras = ["tpu"]}',
        ),
    ],
)
@pytest.mark.parametrize(
    ("path", "table"),
    [("pyproject.toml", "[tool.poetry.dependencies]"), ("Pipfile", "[packages]"),
     ("pixi.toml", "[pypi-dependencies]")],
)  # fmt: skip
def test_a_table_says_extras_beside_the_version(
    path: str, table: str, before: str, after: str
) -> None:
    assert migrated(f"{table}\n{before}\n", path) == f"{table}\n{after}\n"


def test_constraints_of_uv_have_no_extras() -> None:
    text = '[tool.uv]\nconstraint-dependencies = ["torch_xla[tpu]~=2.1", "torch"]\n'
    assert migrated(text, "pyproject.toml") == text.replace("[tpu]~=2.1", "==2.9.0").replace(
        '"torch"', '"torch==2.9.0"'
    )


def test_a_pipfile() -> None:
    after = migrated(PIPFILE, "Pipfile", "torchax")
    assert after == (
        PIPFILE.replace("whl/cu113/", "whl/cpu")
        .replace('1.11.0+cu113"}', '2.9.0"}\n' + "\n".join(
            f'{name} = "=={version}"' for name, version in (t.split("==") for t in TORCHAX[1:])
        ))
        .replace('torchvision = "*"', 'torchvision = "==0.24.0"')
        .replace("--device cuda", "--device jax")
    )  # fmt: skip
    assert set(reported(PIPFILE, "Pipfile")) == {'apex = {git = "https://github.com/NVIDIA/apex"}',
                                                 "3.8"}  # fmt: skip


def test_pixi_in_a_file_of_its_own_and_in_that_of_the_project() -> None:
    after = PIXI.replace(
        '{ version = ">=2", index = "https://download.pytorch.org/whl/cu124" }',
        '{ version = "==2.9.0", index = "https://download.pytorch.org/whl/cpu" }, '
        'torch_xla = {version = "==2.9.0", extras = ["tpu"]}',
    ).replace("--device cuda", "--device xla")
    assert migrated(PIXI, "pixi.toml") == after
    found = reported(PIXI, "pixi.toml")
    assert set(found) == {'pytorch-gpu = ">=2.1"', 'cuda-version = "12.*"', 'cuda = "12"'}
    assert (
        '`torch = "==2.9.0"`, `torch_xla = {version = "==2.9.0", extras = ["tpu"]}`'
        in found['pytorch-gpu = ">=2.1"']
    )
    inside = re.sub(r"(?m)^\[", "[tool.pixi.", PIXI)
    assert migrated(inside, "pyproject.toml") == re.sub(r"(?m)^\[", "[tool.pixi.", after)


def test_where_uv_takes_packages_from() -> None:
    text = """[project]
dependencies = ["torch"]
[tool.uv]
find-links = ["https://download.pytorch.org/whl/torch_stable.html"]
index = [{ name = "cpu", url = "https://download.pytorch.org/whl/cpu" },
         { name = "cu128", url = "https://download.pytorch.org/whl/cu128" }]
[tool.uv.sources]
torch = [{ index = "cpu", extra = "cpu" }, { index = "cu128", extra = "cu128" }]
torchvision = { git = "https://github.com/pytorch/vision" }
torch-scatter = { url = "https://example.org/torch_scatter-2.1+pt20cu118-cp311-none-any.whl" }
flash-attn = { index = "cpu" }
"""
    assert migrated(text, "pyproject.toml") == text.replace(
        '["torch"]', '["torch==2.9.0", "torch_xla[tpu]==2.9.0"]'
    )
    found = reported(text, "pyproject.toml")
    assert "one of several" in found.pop("https://download.pytorch.org/whl/cu128")
    assert [key.partition(" ")[0] for key in found] == [
        "find-links", "torchvision", "torch-scatter", "flash-attn",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "key",
    ["[dependency-groups]\ngpu", "[tool.hatch.envs.gpu]\ndependencies",
     "[tool.hatch.envs.gpu]\nextra-dependencies", "[tool.pdm.dev-dependencies]\ngpu",
     "[tool.uv]\noverride-dependencies", "[tool.rye]\ndev-dependencies",
     "[tool.tox.env.py311]\ndeps"],
)  # fmt: skip
def test_lists_of_other_tools(key: str) -> None:
    text = f"{key} = ['tqdm', 'torchvision>=0.1']\n"
    assert migrated(text, "pyproject.toml") == text.replace(">=0.1", "==0.24.0")


def test_inline_tables_hold_lists() -> None:
    text = '[project]\noptional-dependencies = { a = ["torch"], "b.c" = ["xformers"] }\n'
    assert migrated(text, "pyproject.toml") == text.replace(
        '"torch"', '"torch==2.9.0", "torch_xla[tpu]==2.9.0"'
    )
    assert list(reported(text, "pyproject.toml")) == ["xformers"]


@pytest.mark.parametrize(
    "text",
    [
        '[project]\ndependencies = ["tor\\u0063h", "torchvision"]\n',
        '[project]\ndependencies = ["torch"\n',
    ],
)
def test_toml_that_is_not_understood_stays(text: str) -> None:
    assert migrated(text, "pyproject.toml") == text
