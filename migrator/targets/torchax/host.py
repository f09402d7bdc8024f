"""Variables that JAX and torchax's runtime read."""

from migrator.targets.host import Host, Slow

_GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin")

HOST = Host(
    device_variable="JAX_PLATFORMS",
    older_device_variables=("JAX_PLATFORM_NAME",),
    plugins=dict.fromkeys(("cuda", "rocm", "gpu"), _GPU_PLUGINS),
    tpu={"JAX_PLATFORMS": "tpu,cpu"},
    cpu={"JAX_PLATFORMS": "cpu"},
    virtual={"XLA_FLAGS": "{own} --xla_force_host_platform_device_count={count}"},
    float64={"JAX_ENABLE_X64": "1"},
    hasty={"XLA_FLAGS": "{own} --xla_backend_optimization_level=0"},
    dump={"JAX_DUMP_IR_TO": "{folder}", "JAX_DUMP_IR_MODES": "stablehlo"},
    compiles_for_tpu=True,
    has_tpu_compiler=True,
    variables={
        "JAX_PLATFORMS": "what JAX runs on, in this order; none other than these",
        "JAX_PLATFORM_NAME": "older spelling of JAX_PLATFORMS, for the default device",
        "JAX_ENABLE_X64": "64-bit types on the device; results are tested without",
        "JAX_DISABLE_JIT": "compile nothing",
        "JAX_DEFAULT_MATMUL_PRECISION": (
            "of float32 products; tpu_runtime.setup() decides instead"
        ),
        "JAX_COMPILATION_CACHE_DIR": "where compiled programs are kept",
        "TPU_RUNTIME_PROGRAMS": "a folder for the programs as a TPU gets them",
        "TPU_RUNTIME_EAGER": "compile no training step",
        "TPU_RUNTIME_FLASH": "attention's TPU kernel: off, or interpret",
    },
    families=("JAX_", "TPU_RUNTIME_PROGRAMS", "TPU_RUNTIME_EAGER", "TPU_RUNTIME_FLASH"),
    slow={
        "TPU_RUNTIME_EAGER": Slow("runs training steps operator by operator"),
        "JAX_DISABLE_JIT": Slow("runs programs operator by operator"),
        "TPU_RUNTIME_FLASH": Slow("runs attention in an interpreter", frozenset({"interpret"})),
    },
)
