"""The 25 hard cases of real code (see constructs.md): rewritten, reported or left alone."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import DEVICE, TARGETS, assert_sound, outcomes, reported, run

from tests.engine.cases import becomes, left

# `@` stands for the target's device in expected text.


@pytest.mark.parametrize("define", ["impl = 'cuda'\n", "impl = choose()\n", ""])
def test_01_name_of_an_implementation_beside_a_device(define: str) -> None:
    before = f"{define}if impl == 'cuda' and x.device.type == 'cuda':\n    fast(x)\n"
    for target in TARGETS:
        result = run(before, target)
        assert_sound(result, target)
        after = before.replace("type == 'cuda'", f"type == '{DEVICE[target]}'")
        assert result.source.decode() == after
        assert reported(result) == ["'cuda'"] * (2 if "'cuda'" in define else 1)


def test_01_as_a_parameter() -> None:
    """CUDA's own implementation is none for a TPU: the other one runs there."""
    left(
        """\
        def conv(x, impl='cuda'):
            assert impl in ['ref', 'cuda']
            if impl == 'cuda' and x.device.type == 'cuda':
                return fast(x)
        """,
        "'cuda'",
    )


def test_02_global_string_that_a_config_file_overrides() -> None:
    """It stays a string: the type check of the config file compares types."""
    becomes(
        """\
        device = 'cuda' # examples: 'cpu', 'cuda', 'cuda:0', or try 'mps'
        exec(open('configurator.py').read())
        x = x.to(device)
        """,
        """\
        device = '@' # examples: 'cpu', 'cuda', 'cuda:0', or try 'mps'
        exec(open('configurator.py').read())
        x = x.to(device)
        """,
    )


def test_03_device_type_from_a_device() -> None:
    becomes(
        """\
        device = "cuda"
        device_type = 'cuda' if 'cuda' in device else 'cpu'
        if device == "cuda" or device.startswith('cuda'):
            run(device_type)
        """,
        """\
        device = "@"
        device_type = '@' if '@' in device else 'cpu'
        if device == "@" or device.startswith('@'):
            run(device_type)
        """,
    )


def test_04_dummy_scaler_in_except() -> None:
    """It is for an old PyTorch alone, and goes with its last use."""
    fallback = """\
        try:
            from torch.cuda.amp import GradScaler
        except ImportError:
            # for PyTorch < 1.6
            class GradScaler:
                def step(self, optimizer):
                    optimizer.step()
"""
    call = "        scaler = GradScaler(enabled=args.mixed_precision)\n"
    off = '        scaler = torch.amp.GradScaler("cpu", enabled=False)\n'
    torch = "        import torch\n"
    becomes(f"{torch}{fallback}{call}", f"{torch}{off}")
    becomes(f"{fallback}{call}", f"{torch}{off}")
    for use in ("        scaler: GradScaler = None\n", '        __all__ = ["GradScaler"]\n'):
        becomes(f"{torch}{fallback}{use}{call}", f"{torch}{fallback}{use}{off}")
    told = fallback.replace("            # for", "            HAS_AMP = False\n            # for")
    becomes(f"{torch}{told}{call}", f"{torch}{told}{off}")


def test_05_custom_fwd_by_hasattr() -> None:
    source = dedent("""\
        import torch
        if hasattr(torch.amp, "custom_fwd"):
            from torch.amp import custom_fwd
        else:
            from torch.cuda.amp import custom_fwd

        class F(torch.autograd.Function):
            @staticmethod
            @custom_fwd
            def forward(ctx, x):
                return x

        g = custom_fwd(run)
        """)
    for target in TARGETS:
        result = run(source, target)
        assert result.source.decode() == source
        assert [c for c in outcomes(result) if c[2] == "custom_fwd"] == [
            ("PRE003", "kept", "custom_fwd")
        ] * 2


def test_05_custom_fwd_that_casts_is_reported() -> None:
    """It would pass bfloat16 through, where the program wants float32."""
    source = dedent("""\
        import torch
        from torch.cuda.amp import custom_bwd, custom_fwd

        class F(torch.autograd.Function):
            @staticmethod
            @custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, x):
                return x.exp()

            @staticmethod
            @custom_bwd
            def backward(ctx, g):
                return g
        """)
    for target in TARGETS:
        assert [c[:2] for c in outcomes(run(source, target)) if c[2].startswith("custom")] == [
            ("PRE003", "reported"), ("PRE003", "kept"),
        ]  # fmt: skip


def test_05_custom_fwd_wrapped_by_device_type() -> None:
    source = dedent("""\
        import torch
        if hasattr(torch.amp, "custom_fwd"):
            from torch.amp import custom_fwd as wrap
            custom_fwd = wrap(device_type="cuda")
        else:
            from torch.cuda.amp import custom_fwd

        @custom_fwd
        def forward(ctx, x):
            return x
        """)
    for target in TARGETS:
        found = [construct for _, _, construct in outcomes(run(source, target))]
        assert found.count("custom_fwd") == 1


def test_06_autocast_module_as_decorator_and_in_a_with_of_several() -> None:
    before = """\
        import torch
        import torch.cuda.amp as amp

        @amp.autocast(enabled=False)
        def rope(x):
            return x

        with amp.autocast(dtype=torch.bfloat16), torch.no_grad(), sync():
            y = rope(x)
        """
    after = {
        "torchax": """\
        import torch
        import tpu_runtime

        @tpu_runtime.autocast(enabled=False)
        def rope(x):
            return x

        with tpu_runtime.autocast(), torch.no_grad(), sync():
            y = rope(x)
        """,
        "torch_xla": """\
        import torch

        @torch.autocast("xla", dtype=torch.bfloat16, enabled=False)
        def rope(x):
            return x

        with torch.autocast("xla", dtype=torch.bfloat16), torch.no_grad(), sync():
            y = rope(x)
        """,
    }
    for target in TARGETS:
        result = run(dedent(before), target)
        assert_sound(result, target)
        assert result.source.decode() == dedent(after[target])


def test_07_tensor_type_on_self_over_several_lines() -> None:
    becomes(
        """\
        import torch

        class Model:
            def __init__(self, opt):
                self.FloatTensor = torch.cuda.FloatTensor if self.use_gpu() \\
                    else torch.FloatTensor

            def zeros(self, n):
                return self.FloatTensor(n).zero_()
        """,
        """\
        import torch
        import tpu_runtime

        class Model:
            def __init__(self, opt):
                self.FloatTensor = tpu_runtime.FloatTensor if self.use_gpu() \\
                    else torch.FloatTensor

            def zeros(self, n):
                return self.FloatTensor(n).zero_()
        """,
    )


def test_08_tensor_alias_as_constructor_and_type() -> None:
    becomes(
        """\
        import torch
        cuda = True if torch.cuda.is_available() else False
        Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
        valid = Tensor(imgs.shape[0], 1).fill_(1.0)
        z = Tensor(np.random.normal(0, 1, (4, 2)))
        real = imgs.type(Tensor)

        def labels(x):
            Tensor = torch.cuda.LongTensor if cuda else torch.LongTensor
            return x.type(Tensor)
        """,
        """\
        import torch
        import tpu_runtime
        cuda = True if tpu_runtime.is_available() else False
        Tensor = tpu_runtime.FloatTensor if cuda else torch.FloatTensor
        valid = Tensor(imgs.shape[0], 1).fill_(1.0)
        z = Tensor(np.random.normal(0, 1, (4, 2)))
        real = tpu_runtime.cast(imgs, Tensor)

        def labels(x):
            Tensor = tpu_runtime.LongTensor if cuda else torch.LongTensor
            return tpu_runtime.cast(x, Tensor)
        """,
    )


def test_09_out_of_a_legacy_constructor() -> None:
    becomes(
        """\
        import torch
        n = torch.max(lengths).item()
        ids = torch.arange(0, n, out=torch.cuda.LongTensor(n))
        """,
        """\
        import torch
        import tpu_runtime
        n = torch.max(lengths).item()
        ids = torch.arange(0, n, out=tpu_runtime.LongTensor(n))
        """,
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ('"torch.cuda.FloatTensor"', "tpu_runtime.FloatTensor"),
        ("torch.cuda.HalfTensor", "tpu_runtime.HalfTensor"),
        (
            '"torch.cuda.HalfTensor" if fast else "torch.FloatTensor"',
            "tpu_runtime.HalfTensor if fast else torch.FloatTensor",
        ),
    ],
)
def test_10_default_tensor_type(kind: str, expected: str) -> None:
    becomes(
        f"""\
        import torch
        torch.set_default_tensor_type({kind})
        model = build()
        torch.set_default_tensor_type(torch.FloatTensor)
        """,
        f"""\
        import torch
        import tpu_runtime
        tpu_runtime.set_default_tensor_type({expected})
        model = build()
        tpu_runtime.set_default_tensor_type(torch.FloatTensor)
        """,
    )


@pytest.mark.parametrize("kind", ["kind", '"torch.cuda.IntTensor"'])
def test_10_default_tensor_type_that_is_not_known_stays(kind: str) -> None:
    source = f"import torch\ntorch.set_default_tensor_type({kind})\nmodel = build()\n"
    for target in TARGETS:
        result = run(source, target)
        assert result.source.decode() == source
        assert ("DEV004", "reported", "torch.set_default_tensor_type") in outcomes(result)
        assert not [o for o in outcomes(result) if o[1] == "rewritten"]


def test_11_lambda_that_hides_cuda() -> None:
    becomes(
        """\
        import torch
        USE_CUDA = torch.cuda.is_available()
        Variable = lambda *a, **k: autograd.Variable(*a, **k).cuda() if USE_CUDA else None
        """,
        """\
        import torch
        import tpu_runtime
        USE_CUDA = tpu_runtime.is_available()
        Variable = lambda *a, **k: autograd.Variable(*a, **k).to("@") if USE_CUDA else None
        """,
    )


def test_12_flags_named_cuda() -> None:
    left(
        """\
        parser.add_argument('--cuda', action='store_false', help='use CUDA')

        @dataclass
        class Args:
            cuda: bool = True

        class Trainer:
            def __init__(self, args):
                self.cuda = args.cuda and not args.cpu
                if self.cuda:
                    run()
        """
    )


def test_13_methods_named_cuda() -> None:
    left(
        """\
        import torch.nn as nn

        class Net(nn.Module):
            def cuda(self, *a, **k):
                return super().cuda(*a, **k)

        net = Net()
        net.cuda()
        model.cuda = wrapper(model.cuda)
        """,
        "super().cuda",
        "net.cuda",
        "model.cuda",
        code="MOV001",
    )


def test_14_map_location_lambda() -> None:
    """Storages cannot move to a TPU, so `storage.to(device)` would fail."""
    state = "import torch\nnet.load_state_dict(torch.load(path, map_location={}))\n"
    mapped = "lambda storage, loc: storage.cuda(device_id)"
    becomes(state.format(mapped), state.format('"cpu"'))
    for target in TARGETS:
        result = run(f"import torch\nstate = torch.load(path, map_location={mapped})\n", target)
        assert_sound(result, target)
        assert b"storage.to(" not in result.source
        assert len(outcomes(result)) == 2
