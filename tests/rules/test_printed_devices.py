"""Printed texts that name the device beside them."""

import pytest
from helpers import migrated

HEAD = "import torch\n\n\ndef device_of(args, gpu, other):\n    d = torch.device({})\n"


def line(device: str, text: str) -> str:
    """What becomes of a line beside a device."""
    return migrated(f"{HEAD.format(device)}    {text}\n    return d\n").splitlines()[-2].strip()


@pytest.mark.parametrize(
    ("device", "text", "after"),
    [
        (
            "'cuda:{}'.format(args.gpu)",
            "print('Use GPU: cuda:{}'.format(args.gpu))",
            "print('Use GPU: jax')",
        ),
        ('f"cuda:{gpu}"', 'logger.info(f"on cuda:{gpu}, now")', 'logger.info("on jax, now")'),
        ('"cuda:%d" % gpu', 'print("on cuda:%d" % gpu)', 'print("on jax")'),
        ('"cuda:" + str(gpu)', 'print("on cuda:" + str(gpu))', 'print("on jax")'),
        ('"cuda:0"', 'print("on cuda:0, now")', 'print("on jax, now")'),
        # Written another way, it is the same.
        ('f"cuda:{gpu}"', 'print("on cuda:{}".format(gpu))', 'print("on jax")'),
    ],
)
def test_a_text_names_the_device_that_is_used(device: str, text: str, after: str) -> None:
    assert line(device, text) == after


@pytest.mark.parametrize(
    "text",
    [
        'print("on cuda:{}".format(other))',
        'print("on cuda:{} of {}".format(gpu, other))',
        'print(f"on {other}, cuda:{gpu}")',
        'print("no cuda here")',
        'note("on cuda:{}".format(gpu))',
        'print("on cuda:0")',
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert line('"cuda:{}".format(gpu)', text) == text


def test_a_text_beside_a_device_that_stays() -> None:
    source = (
        "import torch\n\n\ndef device_of(ranks):\n"
        "    print('on cuda:{}'.format(ranks.pop()))\n"
        "    return torch.device('cuda:{}'.format(ranks.pop()))\n"
    )
    assert migrated(source) == source


def test_one_text_of_two_devices_changes_once() -> None:
    device = 'f"cuda:{gpu}"'
    source = (
        f"{HEAD.format(device)}    print(f'on cuda:{{gpu}}')\n"
        '    x = torch.ones(3, device=f"cuda:{gpu}")\n'
        "    return d, x\n"
    )
    text = migrated(source)
    assert "print('on jax')" in text and "cuda" not in text
