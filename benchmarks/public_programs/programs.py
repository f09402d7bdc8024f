"""The public programs: the file of a checkout that runs, and what it is told."""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    name: str
    file: str  # in the folder of all checkouts
    arguments: str = ""
    beside: tuple[str, ...] = ()  # what it imports from its own folder
    needs: tuple[str, ...] = ()  # stand-ins that not all may see


_CAUSAL = (
    "--model_name_or_path openai-community/gpt2 --dataset_name Salesforce/wikitext "
    "--dataset_config_name wikitext-2-raw-v1 --block_size 32 --num_train_epochs 1 --output_dir out "
)
_GLUE = (
    "--model_name_or_path google-bert/bert-base-cased --task_name mrpc --num_train_epochs 1 "
    "--per_device_train_batch_size 16 --output_dir out "
)
_ALWAYS = "--report_to none"
_TRAIN = f"--do_train --do_eval {_ALWAYS}"
_TRANSFORMERS = "transformers/examples/pytorch"
_LIGHTNING = "pytorch-lightning/examples"
_CLI = (
    "--trainer.max_epochs=1 --trainer.limit_train_batches=8 --trainer.limit_val_batches=2 "
    "--trainer.limit_test_batches=2 --trainer.limit_predict_batches=2"
)

PROGRAMS = [
    Program("accelerate `nlp_example.py`", "accelerate/examples/nlp_example.py"),
    Program(
        "accelerate `cv_example.py`", "accelerate/examples/cv_example.py", "--data_dir images",
        needs=("timm",),
    ),
    Program(
        "transformers `run_clm.py`", f"{_TRANSFORMERS}/language-modeling/run_clm.py",
        f"{_CAUSAL} {_TRAIN}",
    ),
    Program(
        "transformers `run_clm_no_trainer.py`",
        f"{_TRANSFORMERS}/language-modeling/run_clm_no_trainer.py", _CAUSAL,
    ),
    Program(
        "transformers `run_glue.py`", f"{_TRANSFORMERS}/text-classification/run_glue.py",
        f"{_GLUE} {_TRAIN} --max_seq_length 32",
    ),
    Program(
        "transformers `run_glue_no_trainer.py`",
        f"{_TRANSFORMERS}/text-classification/run_glue_no_trainer.py", f"{_GLUE} --max_length 32",
    ),
    Program(
        "stanford_alpaca `train.py`", "stanford_alpaca/train.py",
        "--model_name_or_path facebook/opt-125m --data_path alpaca_data.json --output_dir out "
        f"--num_train_epochs 1 --per_device_train_batch_size 4 {_ALWAYS}",
        ("utils.py",),
    ),
    Program(
        "diffusers `train_unconditional.py`",
        "diffusers/examples/unconditional_image_generation/train_unconditional.py",
        "--dataset_name huggan/flowers-102-categories --model_config_name_or_path tiny-unet "
        "--resolution 16 --train_batch_size 4 --num_epochs 2 --use_ema --lr_warmup_steps 2 "
        "--eval_batch_size 2 --ddpm_num_inference_steps 3 --dataloader_num_workers 0",
    ),
    Program(
        "diffusers `train_text_to_image.py`",
        "diffusers/examples/text_to_image/train_text_to_image.py",
        "--pretrained_model_name_or_path stable-diffusion --resolution 16 --random_flip --use_ema "
        "--dataset_name lambdalabs/naruto-blip-captions --train_batch_size 4 --max_train_steps 6 "
        "--gradient_accumulation_steps 2 --output_dir out",
    ),
    Program(
        "TRL `sft.py`", "trl/trl/scripts/sft.py",
        "--model_name_or_path Qwen/Qwen2-0.5B --dataset_name trl-lib/Capybara --max_length 128 "
        "--num_train_epochs 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 "
        f"--logging_steps 1 --output_dir out {_ALWAYS}",
    ),
    Program(
        "PEFT `olora_finetuning.py`", "peft/examples/olora_finetuning/olora_finetuning.py",
        "--base_model Qwen/Qwen2-0.5B --batch_size 4 --cutoff_len 128 --dtype float32 "
        "--eval_step 4 --save_step 4",
    ),
    Program(
        "Lightning `backbone_image_classifier.py` (MNIST)",
        f"{_LIGHTNING}/pytorch/basics/backbone_image_classifier.py", _CLI,
    ),
    Program(
        "Lightning `autoencoder.py`", f"{_LIGHTNING}/pytorch/basics/autoencoder.py",
        _CLI,
    ),
    Program(
        "Lightning `generative_adversarial_net.py`",
        f"{_LIGHTNING}/pytorch/domain_templates/generative_adversarial_net.py",
    ),
    Program(
        "Fabric `train_fabric.py` (MNIST)", f"{_LIGHTNING}/fabric/image_classifier/train_fabric.py",
        "--epochs 1",
    ),
]  # fmt: skip
