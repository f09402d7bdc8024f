"""`Normalize` with three numbers for images of one channel, as old torchvision took it."""

import pytest
import torch
from helpers import constructs, migrated, run

HEAD = "import torch\nfrom torchvision import datasets, transforms\n\nx = torch.ones(3).cuda()\n"
NORMALIZE = "transforms.Normalize(mean=(0.5, 0.4, 0.3), std=[0.2, 0.2, 0.2])"
AFTER = "transforms.Normalize(mean=(0.5,), std=[0.2])"
MNIST = "y = datasets.MNIST('data', transform=t)"


@pytest.mark.parametrize(
    "lines",
    [
        f"t = transforms.Compose([transforms.Scale(8), {NORMALIZE}])\n{MNIST}",
        f"y = datasets.FashionMNIST('a', True, transforms.Compose([{NORMALIZE}]))",
        f"t = {NORMALIZE}\n{MNIST}",
    ],
)  # fmt: skip
def test_the_first_numbers_are_taken(lines: str) -> None:
    assert AFTER in migrated(f"{HEAD}{lines}\n")


def test_it_is_what_torchvision_did() -> None:
    """`for t, m, s in zip(tensor, mean, std): t.sub_(m).div_(s)`"""
    from torchvision import transforms

    image = torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(0))
    pairs = zip(image, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2), strict=False)
    expected = torch.stack([(channel - mean) / std for channel, mean, std in pairs])
    torch.testing.assert_close(eval(AFTER, {"transforms": transforms})(image), expected)
    with pytest.raises(RuntimeError, match="doesn't match"):
        eval(NORMALIZE, {"transforms": transforms})(image)


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (f"t = transforms.Compose([grey, {NORMALIZE}])\n{MNIST}", True),
        (f"t = transforms.Compose([transforms.Grayscale(3), {NORMALIZE}])\n{MNIST}", True),
        (f"t = transforms.Compose([{NORMALIZE}])\nz = datasets.CIFAR10('a', transform=t)\n{MNIST}",
         True),
        (f"t = transforms.Compose([{NORMALIZE}])\nz = datasets.CIFAR10('a', transform=t)", False),
        (f"if a:\n    t = {NORMALIZE}\n    {MNIST}\nelse:\n    t = None", True),
        (f"if a:\n    t = {NORMALIZE}\n    t = None\n    {MNIST}", False),
        ("t = transforms.Compose([transforms.Normalize((0.5,), (0.2,))])\n" + MNIST, False),
    ],
)  # fmt: skip
def test_otherwise_it_stays(lines: str, reported: bool) -> None:
    assert lines in migrated(f"{HEAD}{lines}\n")
    found = [str(d.outcome) for d in constructs(run(f"{HEAD}{lines}\n")) if d.code == "UPG005"]
    assert found == (["reported"] if reported else [])
