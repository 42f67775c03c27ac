"""Makes a mixture of experts of a dense Llama model: each MLP becomes N experts, of which a token takes k.

    python3 examples/mixture.py models/dense models/mixture --experts 4 --top-k 2

The experts begin as copies of the MLP and the gates sum to 1, so the mixture says what the dense model says (sparse
upcycling, Komatsuzaki et al., arXiv 2212.05055). Routers begin as small random weights; experts grow apart in training.
The architecture is that of GLM-4 mixtures without shared experts. Needs Python alone.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import struct


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dense", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if not 1 <= asked.top_k <= asked.experts:
        parser.error("--top-k must be between 1 and --experts")
    config = json.loads((asked.dense / "config.json").read_text())
    if config["model_type"] != "llama":
        parser.error(f"{asked.dense / 'config.json'}: the model is of the family {config['model_type']}, not llama")

    if asked.out.exists():
        parser.error(f"{asked.out} is there already")

    draw, width = random.Random(asked.seed), config["hidden_size"]
    tensors = {}
    for name, tensor in read_safetensors(asked.dense / "model.safetensors").items():
        mlp = re.fullmatch(r"(model\.layers\.\d+\.mlp)\.(gate|up|down)_proj\.weight", name)
        if not mlp:
            tensors[name] = tensor
            continue
        for expert in range(asked.experts):
            tensors[f"{mlp[1]}.experts.{expert}.{mlp[2]}_proj.weight"] = tensor
        if mlp[2] == "gate":
            tensors[mlp[1] + ".gate.weight"] = (
                "BF16", [asked.experts, width], bf16(draw.gauss(0, 0.02) for _ in range(asked.experts * width)))
            tensors[mlp[1] + ".gate.e_score_correction_bias"] = (
                "F32", [asked.experts], struct.pack(f"<{asked.experts}f", *[0.0] * asked.experts))

    config.update(architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", n_routed_experts=asked.experts,
                  num_experts_per_tok=asked.top_k, moe_intermediate_size=config["intermediate_size"],
                  first_k_dense_replace=0, n_shared_experts=0, n_group=1, topk_group=1, norm_topk_prob=True,
                  routed_scaling_factor=1.0, use_qk_norm=False, partial_rotary_factor=1.0)
    asked.out.mkdir(parents=True)
    for file in asked.dense.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, asked.out)
    (asked.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(asked.out / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
