"""What torch_xla runs with; the pins are an extra of pyproject.toml."""

from migrator.targets.environment import Environment

ENVIRONMENT = Environment(
    package="torch_xla",
    newest_with_tpu=(3, 12),  # of its libtpu
    systems={"linux": ("x86_64", "amd64")},
    driver="torch_xla",  # its extra
    imports=("torch", "torch_xla"),
    frameworks={
        "accelerate": "1.15",
        "transformers": "5.24",
        "peft": "0.21",
        "trl": "1.16",
        "diffusers": "0.42",
        "lightning": "2.6",
        "pytorch-lightning": "2.6",
    },
    # runtime/torch_xla/tpu_runtime/_versions.py says the same
    runs_with={"torch": "==2.9.*", "torch_xla": "==2.9.*"},
)
