"""Makes tests/golden/models/llama-fp8: a checkpoint in E4M3 with a scale for each 128 x 128 block, as DeepSeek publishes them.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 && v/bin/python tests/golden/make_fp8.py

config.json, model.safetensors  matrices of the layers as F8_E4M3 with `*.weight_scale_inv` in F32, all else bf16
expected.json                   `weights`: of each matrix its size, sum and dot product with cos(0), cos(1), cos(2), ... in double,
                                as transformers' FP8 layers dequantise it, rounded to bf16; `cases` and `bf16_error` as make_models.py has them
"""
import json
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

import make_models

BLOCK = 128
# Blocks that are whole, cut at the right, at the bottom and at both.
SIZES = make_models.SIZES | dict(hidden_size=132, intermediate_size=200, num_hidden_layers=1, tie_word_embeddings=False)


def quantise(weight):
    """Codes and inverse scales, which are no powers of two."""
    rows, columns = weight.shape
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(down * BLOCK, across * BLOCK)
    padded[:rows, :columns] = weight.float()
    blocks = padded.view(down, BLOCK, across, BLOCK)
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.view(padded.shape)[:rows, :columns].contiguous(), scales


def main():
    torch.manual_seed(8)
    config = transformers.LlamaConfig(**SIZES)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    make_models.make_lively(model)
    folder = make_models.OUT / "llama-fp8"
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            tensors[name], tensors[name + "_scale_inv"] = quantise(tensor)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    written["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[BLOCK, BLOCK])
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")

    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith("_scale_inv")}
    for name in plain:
        if name + "_scale_inv" in tensors:
            plain[name] = _dequantize_fp8_weight(plain[name], tensors[name + "_scale_inv"], [BLOCK, BLOCK], torch.float32).bfloat16()
    with tempfile.TemporaryDirectory() as dequantised:
        model.load_state_dict(plain)
        model.save_pretrained(dequantised)
        again, exactly = (transformers.AutoModelForCausalLM.from_pretrained(dequantised, dtype=dtype, attn_implementation="eager").eval()
                          for dtype in (torch.bfloat16, torch.float32))
    weights = {}
    for name, parameter in again.named_parameters():
        if name.endswith("_proj.weight"):
            flat = parameter.detach().flatten().double()
            weights[name] = [len(flat), flat.sum().item(), (flat @ torch.arange(len(flat), dtype=torch.float64).cos()).item()]
    cases, errors = [], []
    with torch.no_grad():
        for length in make_models.LENGTHS:
            tokens = make_models.draw(exactly, length)
            rounded, exact = make_models.logprobs(again, tokens), make_models.logprobs(exactly, tokens)
            cases.append({"tokens": tokens, "logprobs": exact.tolist()})
            errors += (rounded - exact).abs().tolist()
    expected = {"cases": cases, "bf16_error": sum(errors) / len(errors), "weights": weights}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print("bf16 error", expected["bf16_error"], weights)


main()
