"""Variables that JAX and Keras read."""

from migrator.targets.host import Host, Slow

_GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin")

HOST = Host(
    device_variable="JAX_PLATFORMS",
    older_device_variables=("JAX_PLATFORM_NAME",),
    plugins=dict.fromkeys(("cuda", "rocm", "gpu"), _GPU_PLUGINS),
    tpu={"JAX_PLATFORMS": "tpu,cpu"},
    cpu={"JAX_PLATFORMS": "cpu"},
    virtual={"XLA_FLAGS": "{own} --xla_force_host_platform_device_count={count}"},
    hasty={"XLA_FLAGS": "{own} --xla_backend_optimization_level=0"},
    dump={"JAX_DUMP_IR_TO": "{folder}", "JAX_DUMP_IR_MODES": "stablehlo"},
    compiles_for_tpu=True,
    has_tpu_compiler=True,
    variables={
        "KERAS_BACKEND": "what Keras computes with",
        "JAX_PLATFORMS": "what JAX runs on, in this order; none other than these",
        "JAX_DISABLE_JIT": "compile nothing",
        "JAX_DEFAULT_MATMUL_PRECISION": "of float32 products; migrated scripts set it themselves",
    },
    families=("KERAS_",),
    slow={"JAX_DISABLE_JIT": Slow("runs programs operator by operator")},
)
