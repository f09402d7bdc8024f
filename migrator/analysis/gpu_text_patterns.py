"""What a line of text says of GPUs: a command for a shell, a setting in YAML, JSON or TOML."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from migrator.analysis.cuda_libraries import MODULES, may_concern_device
from migrator.analysis.python_requirements import cloned
from migrator.formats.shell import words

DEVICES = "(?:cuda|xpu|npu|mps)"
_FOR_CUDA = "|".join(sorted(module for module in MODULES if "." not in module))
_PIP = re.compile(
    r"""(?<![\w.-])(?:pip(?:[\d.]*|env)(?:\s+-\S+)*(?:\s+|["'],\s*["'])install"""
    r"""|(?:uv|poetry|pdm)(?:\s+-\S+)*\s+add)\b"""
)
_CONDA = re.compile(
    r"\b(?:conda|mamba|micromamba|pixi)\s+(?:-\S+\s+)*(?:install|create|add)\b.*(?:torch|cuda)",
    re.DOTALL,
)
# How Hydra sets a key in a configuration: `trainer.n_gpus=8`, `+model.device=cuda`
_SET = r"(?<!\S)[\"']?\+{0,2}(?:[\w/@-]+\.)+"
OVERRIDE = re.compile(rf"{_SET}(?P<key>(?:\w+_)?(?:gpus?|cuda)(?:_\w+)?)=\[?-?\d")
_GPU_COMMAND = re.compile(
    r"\bcuda\b|\bnvcc\b|nvidia/|torch\.distributed\.|CUDA_VISIBLE_DEVICES|--n?gpus?\b"
    rf"|\bnccl\b|NCCL_|{OVERRIDE.pattern.replace('?P<key>', '?:')}"
    rf"|{_SET}accelerator=[\"']?(?:gpu|cuda)\b"
)
_SAYS = re.compile(r"""\s*(?:(?:then|else|do)\s+)?(?:echo|printf)\s+(?:"[^"$`]*"|'[^']*')\s*""")
# What starts programs on GPUs, by what it is.
_STARTS = {
    "launcher": re.compile(
        r"(?<![\w/.-])(?:torchrun|horovodrun|deepspeed(?=\s+[-\w$./{}]*(?:\s|=|\.py))"
        r"|(?:mpirun|mpiexec)\b(?=.*\bpython)|accelerate\s+launch)\b"
        r"|-m\s+(?:torch\.distributed\.(?:launch|run)|accelerate\.commands\.launch)\b",
        re.DOTALL,
    ),
    "slurm": re.compile(
        r"^#SBATCH.*(?:gpu|\s-G)|\b(?:srun|sbatch|salloc)\b.*(?:gres=\S*gpu|--gpus|\s-G\s)",
        re.DOTALL,
    ),
    "container": re.compile(
        r"\b(?:docker|podman)\b.*(?:--gpus\b|--runtime[= ]nvidia)|nvidia-docker"
        r"|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES)|\b(?:singularity|apptainer)\b.*--nv\b",
        re.DOTALL,
    ),
    "image": re.compile(r"^\s*FROM\s.*(?:nvidia|nvcr\.io|cuda|pytorch/pytorch)", re.I),
}

# `--device cuda:0`, also as two words of a list, in one line or two; `trainer.device=cuda`
DEVICE_OPTION = re.compile(
    r"""(?P<option>--device(?:[ =]|["'],\s*|["']?,?\s*\n\s*(?:-\s+)?)"""
    rf"""|{_SET}(?:\w+_)?device=)(?P<quote>["']?)"""
    rf"""{DEVICES}(?P<index>:\d+)?(?P=quote)(?=[\s;|&)"'\],]|$)"""
)

# What is between a key and its value, in YAML and JSON or in TOML
_IS = r"""\s*(?::|=(?=\s*["'])|(?<=\s)=(?=\s))\s*"""
# `device: cuda:0`, `"device": "cuda"`, also in `{…}`, `device = "cuda"`
DEVICE_SETTING = re.compile(
    rf"""(?P<before>(?<![\w.-])["']?(?:[\w.-]*[_.-])?device["']?{_IS}(?P<quote>["']?))"""
    rf"""{DEVICES}(?P<index>:\d+)?"""
    r"""(?P<after>(?P=quote)\s*(?:[,}\]]|\Z))""",
    re.IGNORECASE,
)
# `where: cuda:0`, which is a device where a program takes it for one
PLACE_SETTING = re.compile(
    rf"""(?P<before>(?<![\w.-])["']?(?P<key>\w+)["']?{_IS}(?P<quote>["']?))"""
    rf"""{DEVICES}(?P<index>:\d+)?"""
    r"""(?P<after>(?P=quote)\s*(?:[,}\]]|\Z))""",
    re.IGNORECASE,
)
# `attn_implementation: flash_attention_2` of transformers, and `--attn_implementation=…`
_FLASH = r"(?:flash_attention_[23]|kernels-community/(?:vllm-)?flash-attn\d?)"
ATTENTION_SETTING = re.compile(
    rf"""(?P<before>(?<![\w.-])["']?_?attn_implementation["']?{_IS}(?P<quote>["']?))"""
    rf"""{_FLASH}(?P<after>(?P=quote)\s*(?:[,}}\]]|\Z))"""
)
# `use_flash_attention_2: true`, its older form
FLASH_SETTING = re.compile(
    rf"""(?P<before>(?<![\w.-])["']?use_flash_attention_2["']?{_IS})(?P<yes>(?i:true|yes|on))"""
    r"""(?P<after>\s*(?:[,}\]]|\Z))"""
)
ATTENTION_OPTION = re.compile(
    rf"""(?P<option>--attn[-_]implementation[ =]["']?){_FLASH}(?=["']?(?:[\s;|&)]|$))"""
)
_GPU_SETTING = re.compile(
    rf"""[\w.-]+["']?{_IS}["']?(?:cuda(?::\d+)?|(?:multi_)?gpu)["']?\s*(?:[,}}\]]|\Z)"""
    r"""|(?<![\w.-])["']?(?!\w+_per_)(?:\w*_)?(?:n_?)?(?:gpus?|cuda|gpu_?ids?|gpu_num|use_gpu)["']?"""
    rf"""{_IS}\[?["']?(?:-?\d|true|all\b)"""
    rf"""|(?:^|[{{,])\s*["']?devices["']?{_IS}\[\s*["']?(?:\d|cuda\b)"""
    rf"""|--device[ =]["']?{DEVICES}\b""",
    re.IGNORECASE,
)
_BACK_END = re.compile(rf"""[\w.-]+["']?{_IS}["']?[nhx]ccl["']?\s*(?:[,}}\]]|\Z)""", re.I)
_ACCELERATOR = re.compile(
    rf"""(?<![\w.-])["']?accelerator["']?{_IS}["']?(?:gpu|cuda|mps|xpu|npu|hpu)["']?\s*(?:[,}}\]]|\Z)""",
    re.IGNORECASE,
)


def has_settings(content: bytes) -> bool:
    """A cheap test: False for a configuration that says nothing of GPUs, and for data."""
    return len(content) < _MAX_SETTINGS and _SPEAKS_OF_GPUS.search(content) is not None


_SPEAKS_OF_GPUS = re.compile(
    rb"cuda|CUDA_VISIBLE|(?i:gpu)|gcr\.io/kaggle-|[nhx]ccl|(?i:nvidia)|torch|devices|\b(?:xpu|npu|mps)\b"
    rb"|\b(?:fp16|tf32|ACCELERATE_|distributed_type)|flash_attention_|DeepSpeed|deepspeed|\bzero_"
    + rb"|(?:_target_|_component_|class_path)[\"']?\s*:\s*[\"']?(?:%b)\b"
    % _FOR_CUDA.encode()
)
_CONTAINER_SETTING = re.compile(
    r"""(?<![\w.-])(?:runtime|driver)["']?\s*:\s*["']?nvidia\b|capabilities["']?\s*:\s*\[.*\bgpu\b"""
    r"""|^\s*(?:-\s+)+["']?gpu["']?\s*\Z|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES)"""
    r"""|nvidia\.com/gpu|(?<![\w.-])image["']?\s*:.*(?:nvidia|nvcr\.io|cuda|pytorch/pytorch)"""
)
# `mixed_precision: fp16` of accelerate, `fp16: true` of Trainer and DeepSpeed
_HALF = re.compile(
    rf"""(?<![\w.-])["']?(?:mixed_precision["']?{_IS}["']?fp(?:16|8)\b"""
    rf"""|(?:fp16|fp16_full_eval|tf32)["']?{_IS}(?:\{{|["']?(?i:true|yes|on)\b))"""
    r"""|ACCELERATE_MIXED_PRECISION(?:["']?\s*:|=)\s*["']?fp(?:16|8)\b"""
)
# What accelerate, Lightning and DeepSpeed are told to shard by.
_SHARDED = re.compile(
    r"""(?<![\w.-])["']?(?:distributed_type["']?\s*:\s*["']?(?:DEEPSPEED|FSDP|MEGATRON_LM)\b"""
    r"""|strategy["']?\s*:\s*["']?(?:deepspeed|fsdp|colossalai)"""
    r"""|(?:_target_|class_path)["']?\s*:\s*["']?(?:\w+\.)*(?:DeepSpeed|FSDP)Strategy\b"""
    r"""|zero_optimization["']?\s*:\s*(?:\{|$)|zero_stage["']?\s*:\s*["']?[1-3])"""
)
# A class that is named in Hydra's, torchtune's or Lightning's way.
NAMED_CLASS = re.compile(
    r"""(?:_target_|_component_|class_path)["']?\s*:\s*["']?"""
    rf"""(?P<module>{_FOR_CUDA})(?:\.\w+)+"""
)
# `- "xformers==0.0.22"`, in a list of packages
LISTED_PACKAGE = re.compile(
    r"""\s*-\s+["']?(?P<name>[A-Za-z][\w.-]*)(?:\[[\w,-]+\])?\s*(?:[=~>]=)\s*\d"""
)
_HALF_OPTION = re.compile(
    r"(?<!\S)--(?:mixed_precision[ =]fp(?:16|8)|(?:fp16|fp16_full_eval|tf32)(?![\w-])"
    r"(?![ =](?i:false|0|no)\b))|ACCELERATE_MIXED_PRECISION=fp(?:16|8)"
)
# Which machine a Kaggle kernel asks for, and an image that no TPU has
_KAGGLE = re.compile(
    r""""(?:docker_image"\s*:\s*"gcr\.io/kaggle-|enable_gpu"\s*:\s*"?(?i:true)\b"""
    r"""|enable_tpu"\s*:\s*"?(?i:false)\b|machine_shape"\s*:\s*"Nvidia)"""
)
# By what they say, those that say most first.
_SETTINGS = {
    "kaggle": _KAGGLE,
    "device": DEVICE_SETTING,
    "attention": ATTENTION_SETTING,
    "flash": FLASH_SETTING,
    "container": _CONTAINER_SETTING,
    "back end": _BACK_END,
    "accelerator": _ACCELERATOR,
    "variable": re.compile(r"""\bCUDA_VISIBLE_DEVICES(?:["']?\s*:|=)\s*[^\s,}\]]*"""),
    "gpu": _GPU_SETTING,
    "half": _HALF,
    "sharded": _SHARDED,
    "class": NAMED_CLASS,
}
# One of these words is in each of them.
_OF_SETTINGS = re.compile(
    r"cuda|gpu|[xn]pu|hpu|mps|ccl|nvidia|nvcr|pytorch/|devices|fp16|tf32|mixed_precision"
    r"|distributed_type|enable_tpu|gcr\.io/kaggle|flash_attention_|strategy|zero_|_target_"
    r"|_component_|class_path|[=~>]=",
    re.IGNORECASE,
)
_MAX_SETTINGS = 100_000  # bytes; what is longer was not written by a person


def setting(text: str, done: Collection[str] = ()) -> str | None:
    """What a line of a configuration says of GPUs, beside what is `done` already."""
    if _OF_SETTINGS.search(text) is None:
        return None
    said = without_comment(text)
    for key, pattern in _SETTINGS.items():
        if key in done:
            said = pattern.sub("", said)
        elif pattern.search(said):
            return key
    listed = LISTED_PACKAGE.match(said)
    return (
        "package"
        if listed and "package" not in done and may_concern_device(listed["name"])
        else None
    )


def without_comment(text: str) -> str:
    """A line up to its comment, without white space at its end."""
    return re.split(r"(?:^|(?<=\s))#", text, maxsplit=1)[0].rstrip()


# One of these words, in lower case, is in each command of which `_key` says something.
_OF_COMMANDS = (
    "torch", "cuda", "gpu", "nvidia", "nvcc", "nvcr", "--nv", "nccl", "clone", "pip", "uv",
    "poetry", "pdm", "xrt_", "horovod", "deepspeed", "mpi", "accelerate", "-g", "--device",
    "fp16", "fp8", "tf32", "flash_attention_", ".device=",
)  # fmt: skip


def command(text: str, done: Collection[str] = (), kept: Collection[str] = ()) -> str | None:
    """What a line of a script has to do with GPUs, if anything, beside what is `done` already.

    Of a command that is `kept`, or was rewritten, what stands beside its launcher is asked, too.
    """
    lower = text.lower()
    if not any(word in lower for word in _OF_COMMANDS):
        return None
    if not text.startswith("#SBATCH"):
        text = "\n".join(map(without_comment, text.split("\n")))
    text = re.sub(r"\\\r?\n", " ", text)
    if "device" in done:
        text = DEVICE_OPTION.sub("", text)
    if "attention" in done:
        text = ATTENTION_OPTION.sub("", text)
    for part in (text, *_commands(text)):
        key = _key(part)
        if key in done and key in kept and key in _STARTS:
            key = _key(_STARTS[key].sub(" ", part))
        if key is not None and key not in done:
            return key
    return None


def _commands(text: str) -> Iterator[str]:
    """The commands of a line."""
    start = end = 0
    for word in words(text):
        if word.text:
            end = word.end
            continue
        if end > start:
            yield text[start:end]
        start = end = word.end
    if end > start:
        yield text[start:end]


_VARIABLE = re.compile(r"\b(?:CUDA_VISIBLE_DEVICES|NCCL_\w*)")


def mentions_variables_alone(text: str) -> bool:
    """Whether a command says no more of GPUs than variables of the environment."""
    return bool(_VARIABLE.search(text)) and not speaks_of_gpus(text)


def speaks_of_gpus(text: str) -> bool:
    """Whether a command does, in any other way than by the variables of the environment."""
    return bool(_GPU_COMMAND.search(_VARIABLE.sub("", text)))


_ON_A_PATH = re.compile(
    r"\s*(?:(?:export|ENV|setenv)\s+)?(?:CUDA_(?:HOME|PATH|ROOT)|(?:LD_LIBRARY_|LIBRARY_|C)?PATH)"
    r"(?:=|\s+)[^\s;&|`]+\s*"
)


def puts_folders_on_a_path(text: str) -> bool:
    """`export PATH=/usr/local/cuda/bin:$PATH`, and no more."""
    return _ON_A_PATH.fullmatch(without_comment(text)) is not None


NOT_HALF = "a TPU has no hardware for float16 or TF32: bf16 is what it computes in"
HIDES = "hides all GPUs, and no TPU: what is meant for the CPU has to name it"
_HIDES = re.compile(
    r"""\bCUDA_VISIBLE_DEVICES(?:=(?:(?:""|''|(?P<quote>["']?)-1(?P=quote))(?=[\s;&|)"'\],]|$)"""
    r"""|(?=[\s;&|)]|$))|\s+=\s*(?:-1)?\s*$|\s+(?:""|''|["']?-1["']?)\s*$"""
    r"""|["']?:\s*(?:\\?["'](?:-1)?\\?["']|-1|null|~)?\s*(?:[,}\]]|$))""",
    re.MULTILINE,
)


def hides_gpus(text: str) -> bool:
    """Whether a line sets CUDA_VISIBLE_DEVICES to none of them: `""` or `-1`."""
    return _HIDES.search(without_comment(text)) is not None


def _key(text: str) -> str | None:
    if _SAYS.fullmatch(text):
        return None
    if re.search(r"\bgit\s+clone\b", text) and cloned(text) is not None:
        return "clone"
    if _PIP.search(text):
        return "pip" if may_concern_device(text) else None
    if _CONDA.search(text):
        return "conda"
    if re.search(r"\bnvidia-smi\b", text):
        return "nvidia-smi"
    if re.search(r"\bXRT_[A-Z]|pytorch-xla-env-setup", text):
        return "xla"
    for key, pattern in _STARTS.items():
        if pattern.search(text):
            return key
    if DEVICE_OPTION.search(text) or re.search(rf"--device[ =][\"']?{DEVICES}\b", text):
        return "device"
    if ATTENTION_OPTION.search(text):
        return "attention"
    if _GPU_COMMAND.search(text):
        return "gpu"
    return "half" if _HALF_OPTION.search(text) else None
