"""Numbers that two runs print: which are compared, and how closely."""

from dataclasses import replace

import pytest

from migrator.verify.comparisons import Comparison
from migrator.verify.script_result import ScriptResult
from tests.verify.support import held, recording


def printed(golden: str, run: str, rounded: str | None = None) -> Comparison:
    again = [recording(printed=rounded)] if rounded is not None else []
    return held(recording(printed=golden), recording(printed=run), *again)


def test_one_unit_in_the_last_place_passes_and_two_do_not() -> None:
    assert printed("loss 0.12345", "loss 0.12346").passed
    assert not printed("loss 0.12345", "loss 0.12347").passed
    assert printed("loss 1.5e-03", "loss 1.6e-03").passed
    assert not printed("timestep 5 loss 1.5", "timestep 5 loss 1.9").passed


def test_integers_beside_fractions_are_compared_exactly() -> None:
    assert printed("loss 0.5 right 15/64", "loss 0.5 right 15/64").passed
    found = printed("loss 0.5 right 15/64", "loss 0.5 right 16/64")
    assert found.first is not None and (found.first.want, found.first.got) == (15, 16)
    assert printed("loss 0.5 right 15/64", "loss 0.5 right 16/64", "loss 0.5 right 14/64").passed


@pytest.mark.parametrize("line", [
    "epoch 1 took 3.25 s", "step 3: 12.5 ms", "elapsed 0.25", "1.5 it/s",
    "Step: 12ms | Tot: 1.5ms | Loss: 0.5\b\b\b\b\b",
    " 50%|█████     | 1/2 [00:01<00:01, 1.05it/s]",
    "round: 100%|███| 1/1 [00:01<00:00, 1.05batch/s]",
    "Generating train split: 96 examples [00:00, 1200.5 examples/s]",
    "Data (t): 0.125 Batch (t): 0.5, 22.5/s", "memory 1.5 GiB",
    "Arcade Learning Environment (version 0.12.5+8a8fafb)", "v1.5.0",
    "=> BatchTime(s)/BatchSize(img): 0.4450/64", "data_time 0.015 batch_time 0.125",
    "/x/y.py:3: UserWarning: 1.5", "12 samples", "just text",
])  # fmt: skip
def test_times_and_warnings_and_text_are_nothing_to_compare(line: str) -> None:
    found = printed(line, line.replace("5", "7"))
    assert not found.findings and not found.passed


@pytest.mark.parametrize(("text", "golden", "run", "passed"), [
    ("Accuracy of the model on the 128 images: {} %", "39.84375", "39.0625", True),
    ("Accuracy of the model on the 128 images: {} %", "39.84375", "31.25", False),
    ("loss: 0.3452, Accuracy: {}/64", "15", "16", True),
    ("loss: 0.3452, Accuracy: {}/64", "15", "18", False),
    ("acc 0.5000 loss {}", "0.3452", "0.3460", False),
    ("val_acc: {}", "0.5000", "0.4900", True),
    ("top-1 {}, lr 0.1", "0.8125", "0.8000", True),
    ("top-1 0.8125, lr {}", "0.100", "0.110", False),
    ("accident {}", "0.8125", "0.8000", False),
])  # fmt: skip
def test_a_few_decisions_may_fall_otherwise(text: str, golden: str, run: str, passed: bool) -> None:
    assert printed(text.format(golden), text.format(run)).passed is passed


def test_the_times_beside_a_loss_are_left_out() -> None:
    """What transformers' Trainer says at the end, HiFi-GAN and SupContrast at each step."""
    for text in (
        "{{'train_runtime': '{}', 'train_steps_per_second': '0.5', 'train_loss': '{}'}}",
        "s/b : {}, Gen Loss Total : {}",
        "Train: [1][3/8]\tBT {} (0.602)\tDT 0.005 (0.041)\tloss {} (3.5)",
    ):
        assert printed(text.format("2.427", "4.2000"), text.format("16.57", "4.2000")).passed
        assert not printed(text.format("2.427", "4.2000"), text.format("2.427", "4.3000")).passed


def test_lines_that_a_carriage_return_writes_over_are_lines() -> None:
    found = printed("\rloss 0.5\rloss 0.25\n", "\rloss 0.5\rloss 0.75\n")
    assert [f.passed for f in found.findings] == [True, False]


@pytest.mark.parametrize("bar", [
    "\r  0%|          | 0/4 [00:00<?, ?it/s]",
    "\r 25%|██▌       | 1/4 [1:00:00<00:00,  8.23it/s]",
    "\rtrain: 100%|███| 1.5k/1.5k [00:01<00:00, 1.05batch/s, lr=0.5]",
    "\r3it [00:00,  5.5it/s]",
])  # fmt: skip
def test_a_progress_bar_hides_no_line(bar: str) -> None:
    """It is drawn every so often, so that other lines are behind it each time."""
    found = printed(f"{bar}loss 0.5\nloss 0.25\n", f"loss 0.5\n{bar}loss 0.25\n{bar}\n")
    assert found.passed and len(found.findings) == 2
    assert not printed(f"{bar}loss 0.5\n", f"{bar}loss 0.75\n").passed


@pytest.mark.parametrize(
    "line",
    [
        "loss 0.5 top5 idx [3, 1, 2, 9]",
        "step 1 grad norm 1.5 for layer2 shape [32, 10]",
        "Generated 5 tokens [464, 2746] score -1.25",
        "of 2 boxes [10, 20, 30.5, 40.25]",
    ],
)
def test_a_list_of_numbers_is_no_progress_bar(line: str) -> None:
    assert printed(line, line).passed
    assert not printed(line, line.replace("5", "9")).passed


def test_what_a_progress_bar_tells_in_brackets_is_left_out() -> None:
    bar = "\r 10%|█ | 1/10 [00:00<00:01, 8.0it/s, losses=[0.5, 0.25], lr=0.1]"
    assert not printed(f"{bar}{bar}", bar).findings


def test_colours_are_no_numbers() -> None:
    found = printed("\x1b[32mloss 0.5\x1b[0m", "loss 0.5")
    assert found.passed and len(found.findings) == 1


def test_nan_fails_and_words_with_nan_in_them_do_not() -> None:
    assert not printed("loss nan", "loss nan").passed
    assert printed("finance 0.5 information", "finance 0.5 information").passed


def test_a_share_of_nothing_is_the_same_in_both() -> None:
    assert printed("loss 0.5, recall: nan%", "loss 0.5, recall: nan%").passed
    assert not printed("loss 0.5, recall: nan%", "loss 0.5, recall: 25.00%").passed
    assert not printed("loss 0.5, recall: 25.00%", "loss 0.5, recall: nan%").passed
    assert not printed("recall 0.5, loss: nan", "recall 0.5, loss: nan").passed


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Mon Nov 23 14:57:58 2026", "Tue Nov  1 15:00:03 2026"),
        ("from the checkpoint", "INFO: from the checkpoint"),
        ("from /tmp/a/original/logs/last.ckpt", "from /tmp/a-1/compiled/logs/last.ckpt"),
        ("2026-11-23 14:57:58,123", "2026-11-24 00:00:01,999"),
        ("2026-11-23T14:57:58.5", "2026-12-01T04:01:00.25"),
        ("[12:00:01]", "[9:59:59]"),
    ],
)
def test_when_something_was_printed_is_no_number(one: str, other: str) -> None:
    found = printed(f"{one} loss: 0.50", f"{other} loss: 0.50")
    assert found.passed and len(found.findings) == 1
    assert not printed(f"{one} loss: 0.50", f"{other} loss: 0.60").passed


def test_numbers_that_are_aligned_otherwise_are_the_same() -> None:
    found = printed("x [0.5    0.25 ]\ny   0.5", "x [0.5000 0.25]\ny 0.5000")
    assert found.passed and len(found.findings) == 3


def test_a_line_that_is_not_printed_fails() -> None:
    found = printed("loss 0.5\naccuracy 0.75", "loss 0.5")
    assert [f.reason for f in found.findings if not f.passed] == ["is not printed"]


def test_a_line_that_the_original_prints_once_only_is_not_asked_for() -> None:
    """`datasets` says how it fills its cache, and says nothing where it is full."""
    golden, run = recording(printed="loss 0.5\nrows 7.0"), recording(printed="loss 0.5")
    assert held(golden, run, run).passed
    assert not held(golden, run, golden).passed
    cut = replace(run, ended="stopped")
    assert not held(golden, run, cut).passed


def test_a_script_that_only_prints_text_is_no_pass() -> None:
    same = held(recording(printed="hello"), recording(printed="hello"))
    result = ScriptResult("t.py", "torchax", stepwise=same)
    assert not result.passed and result.exit_code == 1


def test_a_warning_and_its_line_are_not_printed_by_the_program() -> None:
    warned = 't.py:9: UserWarning: converting\nConsider 1.5.\n  print(f"{loss:.6f}")\n0.25\n'
    assert [f.place for f in printed(warned, "0.25").findings] == ["#"]
    model = "t.py:9: UserWarning: no forward: Net(\n  (drop): Dropout(p=0.5)\n)\n  warnings.warn(\n"
    assert [f.place for f in printed(f"{model}0.25\n", "0.25").findings] == ["#"]


def test_a_device_has_another_name_on_the_target() -> None:
    found = printed("lr 0.5 on cuda:0\nover 'nccl' 0.25", "lr 0.5 on jax:0\nover 'jax' 0.25")
    assert found.passed and len(found.findings) == 2
    assert not printed("lr 0.5 on cuda", "lr 0.5 on the cpu").passed


def test_infinity_is_a_number_like_others() -> None:
    assert printed("peak inf, loss 0.5", "peak inf, loss 0.5").passed
    assert not printed("peak inf, loss 0.5", "peak -inf, loss 0.5").passed
    assert not printed("peak nan, loss 0.5", "peak nan, loss 0.5").passed


def test_a_gpu_has_another_name_on_the_target() -> None:
    golden, run = recording(printed="NVIDIA A100 | CPU 0.5"), recording(printed="cpu | CPU 0.5")
    assert not held(golden, run).passed
    golden.machine["device"], run.machine["device"] = "NVIDIA A100", "CPU"
    assert held(golden, run).passed


def test_a_type_that_a_tpu_has_instead_is_the_same_text() -> None:
    assert printed("torch.float16 0.5", "torch.bfloat16 0.5").passed
    assert printed("torch.float64 torch.int64 0.5", "torch.float32 torch.int32 0.5").passed
    assert not printed("torch.float32 0.5", "torch.bfloat16 0.5").passed


def test_a_printed_tensor_is_compared_without_its_device_and_graph() -> None:
    golden = "loss tensor(0.500, device='cuda:0', grad_fn=<MeanBackward0>)"
    assert printed(golden, "loss tensor(0.500, device='jax:0', requires_grad=True)").passed
    assert printed(golden, "loss tensor(0.500,\n       grad_fn=<MeanBackward0>)").passed
    assert not printed(golden, "loss tensor(0.600, device='jax:0', requires_grad=True)").passed
    assert not printed(golden, "loss tensor(0.500, dtype=torch.bfloat16)").passed


def test_a_printed_tensor_may_end_in_another_line() -> None:
    golden = "x tensor([0.5, 0.25], dtype=torch.bfloat16,\n       grad_fn=<SliceBackward0>)"
    run = "x tensor([0.5, 0.25], device='xla:0',\n       dtype=torch.bfloat16, grad_fn=<S>)"
    assert printed(golden, run).passed
    assert printed(
        "tensor([], size=(0, 2)) 1.5", "tensor([], device='xla:0',\n  size=(0, 2)) 1.5"
    ).passed
    assert not printed(golden, run.replace("bfloat16", "int8")).passed


def test_a_number_that_was_read_from_a_tensor_of_16_bits_is_as_coarse() -> None:
    golden = replace(recording(printed="sum 12.0625 mean 0.9424"), halves=[12.0625])
    for text, passed in (("12.1250", True), ("12.5000", False)):
        assert held(golden, recording(printed=f"sum {text} mean 0.9424")).passed is passed
    assert not held(golden, recording(printed="sum 12.0625 mean 0.9470")).passed
