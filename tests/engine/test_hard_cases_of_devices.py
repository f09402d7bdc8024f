"""More of the hard cases of real code (see constructs.md): streams, choices, texts, types."""

from __future__ import annotations

import pytest
from helpers import DEVICE, TARGETS, assert_sound, reported, run

from tests.engine.cases import becomes, left


def test_15_prefetcher_on_a_stream() -> None:
    becomes(
        """\
        import torch

        class CUDAPrefetcher:
            def __init__(self, loader, opt):
                self.loader = iter(loader)
                self.stream = torch.cuda.Stream()
                self.preload()

            def preload(self):
                with torch.cuda.stream(self.stream):
                    self.batch = next(self.loader).to(self.device, non_blocking=True)

            def next(self):
                torch.cuda.current_stream().wait_stream(self.stream)
                return self.batch
        """,
        """\
        import torch

        class CUDAPrefetcher:
            def __init__(self, loader, opt):
                self.loader = iter(loader)
                self.preload()

            def preload(self):
                self.batch = next(self.loader).to(self.device, non_blocking=True)

            def next(self):
                return self.batch
        """,
    )


def test_16_choice_as_default_and_in_a_list() -> None:
    becomes(
        """\
        import torch
        def load(name, device: str = "cuda" if torch.cuda.is_available() else "cpu"):
            return build(name).to(device)
        devices = ["cpu"] + ["cuda"] if torch.cuda.is_available() else []
        for device in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
            devices.append(torch.ones(1, device=device))
        """,
        """\
        import torch
        import tpu_runtime
        def load(name, device: str = "@"):
            return build(name).to(device)
        devices = ["cpu"] + ["@"] if tpu_runtime.is_available() else []
        for device in ["cpu"] + (["@"] if tpu_runtime.is_available() else []):
            devices.append(torch.ones(1, device=device))
        """,
    )


@pytest.mark.parametrize(
    ("target", "device", "imports"),
    [
        ("torchax", 'th.device("jax")', "import torch as th\nimport tpu_runtime\n"),
        (
            "torch_xla",
            "torch_xla.device()",
            "import torch as th\nimport torch_xla\nimport tpu_runtime\n",
        ),
    ],
)
def test_17_f_string_without_placeholder(target: str, device: str, imports: str) -> None:
    result = run(
        'import torch as th\ndevice = th.device(f"cuda")\n'
        'backend = "gloo" if not th.cuda.is_available() else "nccl"\n',
        target,
    )
    assert_sound(result, target)
    assert result.source.decode().startswith(f"{imports}device = {device}\n")
    assert '"gloo" if not tpu_runtime.is_available() else "nccl"' in result.source.decode()


def test_18_device_comparison_and_keys() -> None:
    for target in TARGETS:
        result = run(
            'import torch\nif attr.device != torch.device("cuda"):\n'
            '    attr = attr.to(torch.device("cuda"))\n'
            'config = {"cuda_callback": {"target": "main.CUDACallback"}}\n',
            target,
        )
        assert_sound(result, target)
        text = result.source.decode()
        assert 'torch.device("cuda")' not in text
        assert 'config = {"cuda_callback": {"target": "main.CUDACallback"}}\n' in text
        assert not reported(result)


def test_18_default_indices_do_not_make_devices_differ() -> None:
    """On torch_xla `x.device` is xla:0, which differs from torch.device("xla")."""
    result = run('import torch\nif attr.device != torch.device("cuda"):\n    move()\n', "torch_xla")
    assert b"attr.device != torch_xla.device()" in result.source


def test_19_device_option_that_is_normalised_by_text() -> None:
    source = """\
        device = str(device).strip().lower().replace('cuda:', '').replace('none', '')
        os.environ['CUDA_VISIBLE_DEVICES'] = device
        log = f"CUDA:{d} ({name})"
        """
    left(source, "'cuda:'", code="DEV002")


def test_20_text_of_an_error() -> None:
    becomes(
        """\
        try:
            run(x.cuda())
        except RuntimeError as e:
            if "CUDA out of memory. " in str(e):
                pass
        """,
        """\
        try:
            run(x.to("@"))
        except RuntimeError as e:
            if "CUDA out of memory. " in str(e):
                pass
        """,
    )


def test_21_getattr_default_and_keys_by_device_type() -> None:
    becomes(
        """\
        device = getattr(args, 'device', 'cuda')
        name = getattr(args, 'implementation', 'cuda')
        backend = {"cuda": "nccl", "hpu": "hccl"}.get(kind)
        """,
        """\
        device = getattr(args, 'device', '@')
        name = getattr(args, 'implementation', 'cuda')
        backend = {"cuda": "nccl", "hpu": "hccl"}.get(kind)
        """,
    )


def test_21_partial_autocast() -> None:
    becomes(
        """\
        from functools import partial
        import torch
        amp = partial(torch.amp.autocast, device_type=device.type, dtype=torch.float16)
        """,
        """\
        from functools import partial
        import torch
        import tpu_runtime
        amp = partial(tpu_runtime.autocast, device_type=device.type, dtype=torch.float16)
        """,
    )


def test_22_names_of_types_and_keys_of_a_format() -> None:
    left(
        """\
        import torch
        half = param.type() in ['torch.cuda.HalfTensor', 'torch.FloatTensor']
        states = {"torch_cuda_manual_seed": torch.cuda.get_rng_state_all()}
        """,
        "'torch.cuda.HalfTensor'",
        "torch.cuda.get_rng_state_all",
    )


def test_23_an_int_is_the_device() -> None:
    for target in TARGETS:
        result = run(
            "import torch\ndevice = rank % torch.cuda.device_count()\n"
            "torch.cuda.set_device(device)\nmodel = model.to(device)\n"
            "x = torch.zeros(2, device=device)\n",
            target,
        )
        assert_sound(result, target)
        text = result.source.decode()
        name = DEVICE[target]
        assert text.endswith(f'model = model.to("{name}")\nx = torch.zeros(2, device="{name}")\n')
        assert "set_device" not in text and "torch.cuda" not in text
        assert not reported(result)


def test_24_assert_with_two_conditions() -> None:
    becomes(
        """\
        import torch
        assert torch.cuda.is_available() and x.is_cuda, "CUDA tensors only"
        """,
        """\
        import torch
        import tpu_runtime
        assert tpu_runtime.is_available() and x.device.type == "@", "CUDA tensors only"
        """,
    )


def test_24_toolkit_version() -> None:
    left(
        "import torch\nif torch.version.cuda is None:\n    raise RuntimeError\n",
        "torch.version.cuda",
        code="CUD005",
    )


def test_25_steps_that_are_no_optimizer_steps() -> None:
    left("scheduler.step()\nobs = env.step(a)\nself.step()  # cuda\n")


OPTIONS = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--place", default="cpu")
parser.add_argument("--number", type=int, default=0)
args = parser.parse_args()


def moved(x, device="cpu"):
    return x.to({})


moved(torch.ones(2), "cuda")
"""


@pytest.mark.parametrize(
    "chosen",
    [
        'torch.device(args.place if torch.cuda.is_available() else "cpu")',
        'torch.device(args.place) if torch.cuda.is_available() else torch.device("cpu")',
        'device if torch.cuda.is_available() else "cpu"',
        '"cpu" if not torch.cuda.is_available() else device',
    ],
)
def test_a_choice_of_the_user_is_not_lost(chosen: str) -> None:
    result = run(OPTIONS.format(chosen))
    assert chosen.replace("torch.cuda.", "tpu_runtime.") in result.source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_a_number_in_place_of_the_cpu_is_a_device(target: str) -> None:
    chosen = 'args.number if torch.cuda.is_available() else "cpu"'
    text = run(OPTIONS.format(chosen), target).source.decode()
    assert "args.number" not in text and "is_available" not in text
