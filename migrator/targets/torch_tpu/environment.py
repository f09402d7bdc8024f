"""What TorchTPU runs with; the pins are an extra of pyproject.toml."""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="torch_tpu",
    gigabytes=7,
    systems={"linux": ("x86_64", "amd64")},
    driver="torch_tpu",  # brings libtpu
    imports=("torch", "torch_tpu"),
    runs_with={"torch": ">=2.11,<=2.15.0", "torch_tpu": "==0.2.*"},
    names=(
        "torch-2.15.0",
        "torchvision-0.29.2",
        "numpy-2.4.6",
        "scipy-1.17.1",
        "PIL-13.0.0",
        "pandas-3.1.1",
    ),
)
