"""Makes tests/golden/adapters/: LoRA adapters for golden models as PEFT saves them, with what merging makes of the model.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 peft && v/bin/python tests/golden/make_adapters.py

adapter_config.json, adapter_model.safetensors  as PEFT's save_pretrained writes them
expected.json                                   of each matrix of the model after merge_and_unload in bf16: its sum and its dot
                                                product with cos(0), cos(1), cos(2), ... in double; of its tokens
                                                below, the log-probability of each but the first by PEFT in fp32
training/                                       an adapter for tests/golden/sft/model, and of steps on the chats there (make_sft.py
                                                goes first) the loss and the gradient's norm, by PEFT in fp32 with torch's AdamW
"""
import json
import pathlib
import shutil

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
ADAPTERS = {
    "lora": ("llama", dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"])),
    "rslora": ("qwen2", dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear")),
}


def save(adapted, folder, base):
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    config["target_modules"].sort()  # PEFT keeps a set, whose order differs from run to run.
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


for name, (base, options) in ADAPTERS.items():
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / base, dtype=torch.bfloat16)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    for tensor, parameter in adapted.named_parameters():
        if "lora_" in tensor:
            parameter.data = 0.3 * torch.randn(parameter.shape)
    save(adapted, folder, base)
    base_config = adapted.get_base_model().config
    tokens = torch.randint(3, base_config.vocab_size, (1, 40), generator=torch.Generator().manual_seed(7))
    exact = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / base, dtype=torch.float32), folder)
    with torch.no_grad():
        logprobs = exact(tokens).logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0]
    expected = {"tokens": tokens[0].tolist(), "logprobs": logprobs.tolist(), "matrices": {}}
    for tensor, parameter in adapted.merge_and_unload().named_parameters():
        if parameter.dim() == 2:
            flat = parameter.detach().flatten().double()
            expected["matrices"][tensor] = [flat.sum().item(), (flat @ torch.arange(len(flat), dtype=torch.float64).cos()).item()]
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, len(expected["matrices"]), "matrices")

OPTIMIZER = dict(learning_rate=1e-2, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.01, max_grad_norm=1.0)
SFT = json.loads((HERE / "sft" / "expected.json").read_text())
torch.manual_seed(11)
folder = HERE / "adapters" / "training"
shutil.rmtree(folder, ignore_errors=True)
model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "sft" / "model", dtype=torch.float32)
adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6,
                                                     target_modules=["q_proj", "o_proj", "up_proj", "down_proj"]))
for tensor, parameter in adapted.named_parameters():
    if "lora_" in tensor:
        parameter.data = 0.1 * torch.randn(parameter.shape)
save(adapted, folder, "sft/model")
width = max(len(chat["ids"]) for chat in SFT["chats"])
ids, seen, labels = (torch.full((len(SFT["chats"]), width), value) for value in (0, 0, -100))
for row, chat in enumerate(SFT["chats"]):
    length = len(chat["ids"])
    ids[row, :length], seen[row, :length] = torch.tensor(chat["ids"]), 1
    labels[row, :length] = torch.tensor([token if said else -100 for token, said in zip(chat["ids"], chat["mask"], strict=True)])
factors = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(factors, lr=OPTIMIZER["learning_rate"], betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
                              eps=OPTIMIZER["epsilon"], weight_decay=OPTIMIZER["weight_decay"])
steps = []
for _ in range(6):
    optimizer.zero_grad()
    loss = adapted(input_ids=ids, attention_mask=seen, labels=labels).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(factors, OPTIMIZER["max_grad_norm"])
    optimizer.step()
    steps.append({"loss": loss.item(), "grad_norm": norm.item()})
(folder / "expected.json").write_text(json.dumps({"optimizer": OPTIMIZER, "steps": steps}) + "\n")
print("training", steps)
