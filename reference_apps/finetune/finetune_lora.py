"""Fine-tune by LoRA, in a loop of one's own: Accelerate and PEFT.

python finetune_lora.py --epochs 3
accelerate launch finetune_lora.py --epochs 3
"""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup

from dataset import Completions, Padded
from model import language_model
from options import Options, parse_args
from record import Record


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: PeftModel, loader: DataLoader) -> float:
    """The mean loss of all batches."""
    model.eval()
    losses = [accelerator.gather_for_metrics(model(**batch).loss.repeat(8)) for batch in loader]
    return torch.cat(losses).mean().item()


def run(options: Options) -> Record:
    """Train; returns losses and the adapters."""
    set_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = False  # runs on different cards are compared
    accelerator = Accelerator(gradient_accumulation_steps=2)
    record = Record("lora")

    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=16,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(language_model(options.seed), lora)
    if accelerator.is_main_process:
        model.print_trainable_parameters()

    train_set = Completions(options.data / "train.jsonl")
    eval_set = Completions(options.data / "eval.jsonl")
    collate = Padded(options.length)
    train_loader = DataLoader(
        train_set, batch_size=8, shuffle=True, collate_fn=collate, pin_memory=True, drop_last=True
    )
    eval_loader = DataLoader(eval_set, batch_size=8, collate_fn=collate, pin_memory=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps = len(train_loader) * options.epochs // accelerator.gradient_accumulation_steps
    scheduler = get_cosine_schedule_with_warmup(optimizer, 2, steps)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )

    for epoch in range(options.epochs):
        model.train()
        for batch in train_loader:
            began = time.perf_counter()
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            record.add(loss=loss.item())
            record.took(time.perf_counter() - began)
        record.add(eval_loss=evaluate(accelerator, model, eval_loader))
        accelerator.print(f"epoch {epoch}: loss {record.last('eval_loss'):.4f}")

    accelerator.wait_for_everyone()
    adapted = accelerator.unwrap_model(model)
    adapted.save_pretrained(options.output / "lora", save_function=accelerator.save)
    record.keep(p for p in adapted.parameters() if p.requires_grad)
    if torch.cuda.is_available():
        accelerator.print(f"peak memory {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    return record


if __name__ == "__main__":
    run(parse_args()).show()
