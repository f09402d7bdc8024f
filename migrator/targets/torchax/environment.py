"""What torchax runs with; the pins are an extra of pyproject.toml."""

from migrator.targets.environment import Damage, Environment

ENVIRONMENT = Environment(
    package="torchax",
    gigabytes=7,
    asked={"scipy": "scipy>=1.14"},  # by jax
    driver="libtpu",
    imports=("torch", "jax", "torchax"),
    frameworks={
        "accelerate": "1.15",
        "transformers": "5.24",
        "peft": "0.21",
        "trl": "1.16",
        "diffusers": "0.42",
        "lightning": "2.6",
        "pytorch-lightning": "2.6",
    },
    # runtime/torchax/tpu_runtime/_versions.py says the same
    runs_with={"torch": ">=2.9,<2.13", "torchax": "==0.0.13"},
    import_limits={"torch": "<2.13"},
    cpu_torch=True,  # it calls PyTorch from Python alone
    damage=Damage(by="torch_xla"),  # it contains an old torchax/ that overwrites the real one
)
