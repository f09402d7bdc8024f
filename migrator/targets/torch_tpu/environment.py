"""What TorchTPU runs with."""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="torch_tpu",
    pins=("torch==2.15.0", "torch_tpu==0.2.0", "numpy>=2,<3"),
    pythons=((3, 12), (3, 13)),
    systems={"linux": ("x86_64", "amd64")},
    driver="torch_tpu",
    imports=("torch", "torch_tpu"),
    runs_with={"torch": ">=2.11,<2.16"},
)
