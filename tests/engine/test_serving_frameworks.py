"""Modules that a framework loads: they set the target up, or it is said what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from tests.engine.projects import Files, migrate

NET = "import torch\n\n\nclass Net:\n    def run(self, n):\n        return torch.ones(n).cuda()\n"
COG = """
from net import Net


class Predictor:
    def setup(self):
        self.net = Net()

    def predict(self, n: int):
        return self.net.run(n)
"""
TORCHSERVE = """
import torch
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def inference(self, data):
        return data.cuda()
"""
BENTOML = """
import bentoml
import torch


@bentoml.service(resources={"gpu": 1})
class Service:
    def __init__(self):
        self.net = torch.nn.Linear(2, 2).cuda()
"""
RAY = """
import ray
import torch


@ray.remote
class Actor:
    def run(self, x):
        return torch.ones(2).cuda()
"""
FASTAPI = """
from fastapi import FastAPI
from net import Net

app = FastAPI()
net = Net()


@app.get("/")
def predict(n: int):
    return net.run(n)


@app.get("/health")
def health():
    return "ok"


@app.get("/later")
async def later(n: int):
    return net.run(n)
"""
CELERY = """
from celery import Celery
import torch

app = Celery("tasks")


@app.task
def infer(x):
    return torch.tensor(x).cuda().sum().item()
"""
LIGHTNING = """
from lightning.pytorch.cli import LightningCLI

cli = LightningCLI()
"""
GUARD = '\nif __name__ == "__main__":\n    '
LOADED: dict[str, tuple[Files, str]] = {
    "cog": ({"cog.yaml": 'predict: "src/predict.py:Predictor"\n', "src/predict.py": COG,
             "src/net.py": NET}, "src/predict.py"),
    "torchserve": ({"handler.py": TORCHSERVE}, "handler.py"),
    "bentoml": ({"service.py": BENTOML}, "service.py"),
    "ray": ({"actors.py": RAY, "main.py": f"from actors import Actor\n{GUARD}Actor.remote()\n"},
            "actors.py"),
    "fastapi": ({"app.py": FASTAPI, "net.py": NET}, "app.py"),
    "celery": ({"tasks.py": CELERY}, "tasks.py"),
    "lightning": ({"main.py": LIGHTNING}, "main.py"),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LOADED)
def test_a_module_that_a_framework_loads_is_set_up(tmp_path: Path, name: str, target: str) -> None:
    files, module = LOADED[name]
    out = migrate(tmp_path, files, target)
    assert out[module].count("tpu_runtime.setup()") == 1
    assert "setup()" not in out.get("net.py", "") + out.get("src/net.py", "")
    assert migrate(tmp_path / "again", dict(out), target) == out


def test_an_application_that_a_program_imports_is_that_programs(tmp_path: Path) -> None:
    main = f"import uvicorn\nfrom app import app\n{GUARD}uvicorn.run(app)\n"
    out = migrate(tmp_path, {"app.py": FASTAPI, "net.py": NET, "main.py": main})
    assert "setup()" in out["main.py"] and out["app.py"] == FASTAPI


def test_what_uses_no_device_is_left_to_its_framework(tmp_path: Path) -> None:
    files: Files = {
        "cog.yaml": 'predict: "predict.py:Predictor"\n',
        "predict.py": COG.replace("net", "plain"),
        "plain.py": "class Net:\n    pass\n",
        "tasks.py": CELERY.replace(".cuda()", ""),
    }
    assert migrate(tmp_path, files) == files


def _reported(root: Path, files: Files, target: str) -> list[tuple[str, int, str]]:
    report = migrate_paths([write_tree(root, files)], target)
    return [(d.code, d.range.line, d.message) for _, d in report.diagnostics(Outcome.REPORTED)]


@pytest.mark.parametrize("target", TARGETS)
def test_what_ray_runs_of_a_script_is_reported(tmp_path: Path, target: str) -> None:
    """It gets the class by value, and never runs the script."""
    plain = "\n\n@ray.remote\ndef plain(x):\n    return x\n"
    ((code, line, message),) = _reported(
        tmp_path, {"main.py": f"{RAY}{plain}{GUARD}ray.get(Actor.remote())\n"}, target
    )
    assert (code, line) == ("DST004", 6)
    assert "let it begin with tpu_runtime.setup()" in message


@pytest.mark.parametrize("target", TARGETS)
def test_a_task_of_celery_is_told_of_its_processes(tmp_path: Path, target: str) -> None:
    ((code, _, message),) = _reported(tmp_path, {"tasks.py": CELERY}, target)
    assert code == "DST004" and "--pool=solo" in message


FLASK = """
import torch
from flask import Flask

app = Flask(__name__)
net = torch.nn.Linear(2, 2).cuda()


@app.route("/")
def predict():
    return str(net(torch.ones(1, 2).cuda()).sum().item())
"""
GRADIO = """
import gradio
import torch


def predict(n):
    return torch.ones(int(n)).cuda().sum().item()


with gradio.Blocks() as demo:
    n, out, button = gradio.Number(), gradio.Number(), gradio.Button()
    start = gradio.Button()
    start.click(predict, n, out)
    start.click(lambda x: x, n, out)

demo.launch()
"""
SERVE = """
import torch
from ray import serve


@serve.deployment
class Model:
    async def __call__(self, request):
        return torch.ones(2).cuda().sum().item()
"""
BENTO_API = f"{BENTOML}\n    @bentoml.api\n    def run(self, n: int):\n        return self.net(n)\n"
THREADED: dict[str, tuple[Files, int]] = {
    "fastapi": ({"app.py": FASTAPI, "net.py": NET}, 9),
    "flask": ({"app.py": FLASK}, 9),
    "gradio": ({"app.py": GRADIO}, 13),
    "serve": ({"app.py": SERVE}, 6),
    "bentoml": ({"app.py": BENTO_API}, 11),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", THREADED)
def test_functions_that_run_in_threads_of_a_server(tmp_path: Path, name: str, target: str) -> None:
    """Coroutines, and functions that leave the device alone, aren't spoken of."""
    files, line = THREADED[name]
    found = [(code, at) for code, at, _ in _reported(tmp_path, files, target)]
    assert found == ([("DST005", line)] if target == "torchax" else [])
