"""Makes tests/golden/adapters/: LoRA adapters for golden models as PEFT saves them, with what merging makes of the model.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 peft && v/bin/python tests/golden/make_adapters.py

adapter_config.json, adapter_model.safetensors  as PEFT's save_pretrained writes them
expected.json                                   of each matrix of the model after merge_and_unload in bf16: its sum and its dot
                                                product with cos(0), cos(1), cos(2), ... in double
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

for name, (base, options) in ADAPTERS.items():
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / base, dtype=torch.bfloat16)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    for tensor, parameter in adapted.named_parameters():
        if "lora_" in tensor:
            parameter.data = 0.3 * torch.randn(parameter.shape)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    expected = {}
    for tensor, parameter in adapted.merge_and_unload().named_parameters():
        if parameter.dim() == 2:
            flat = parameter.detach().flatten().double()
            expected[tensor] = [flat.sum().item(), (flat @ torch.arange(len(flat), dtype=torch.float64).cos()).item()]
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, len(expected), "matrices")
