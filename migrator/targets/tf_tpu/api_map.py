"""Sources for the words: TensorFlow's guide to TPUs, and our own runs without one."""

from migrator.targets.api_map import Snippet, TargetApi

# "local": a TPU of the machine itself. Without one, the resolver or the initialisation raises:
# NotFoundError by tensorflow-cpu, InternalError by tensorflow-tpu.
STRATEGY = """\
try:
    tpu = {tensorflow}.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
    {tensorflow}.config.experimental_connect_to_cluster(tpu)
    {tensorflow}.tpu.experimental.initialize_tpu_system(tpu)
    {name} = {tensorflow}.distribute.TPUStrategy(tpu)
except (ValueError, {tensorflow}.errors.NotFoundError, {tensorflow}.errors.InternalError) as error:
    {tensorflow}.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
    {name} = {tensorflow}.distribute.get_strategy()
"""  # noqa: E501

API = TargetApi(
    device="/TPU:0",
    strategy=Snippet(STRATEGY, ("os",)),
    calls={"list_devices": Snippet('{tensorflow}.config.list_logical_devices("TPU")')},
    profiler="tf.profiler.experimental",
    float64="float64 is emulated on a TPU, and slow",
)
