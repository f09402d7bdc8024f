"""Variables that TensorFlow reads."""

from migrator.targets.host import Host

HOST = Host(
    # logical CPUs, of which only what records a program here knows
    virtual={"TPU_MIGRATE_LOGICAL_DEVICES": "{count}"},
    variables={
        "TPU_NAME": "the TPU that migrated scripts connect to; the machine's own, if unset",
        "TF_CONFIG": "workers of MultiWorkerMirroredStrategy",
        "TF_XLA_FLAGS": "flags of TensorFlow's XLA",
    },
    families=(  # not TF_ alone: Terraform's begin so, too
        *("TF_CONFIG", "TF_CPP_", "TF_DETERMINISTIC_", "TF_DISABLE_", "TF_DUMP_", "TF_ENABLE_"),
        *("TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_USE_", "TF_XLA_"),
    ),
)
