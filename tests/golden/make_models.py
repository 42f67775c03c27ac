"""Makes tests/golden/models/: tiny random checkpoints of odd shapes, one folder each, with what transformers computes of them.

    python -m venv v && v/bin/pip install torch==2.11.0 transformers==5.23.0 && v/bin/python tests/golden/make_models.py [NAME...]

config.json, model.safetensors  as transformers' save_pretrained writes them, in bf16
expected.json                   `cases`: tokens, and the log-probability of each but the first, in fp32 of the same bf16 weights;
                                `bf16_error`: mean absolute error of transformers' own bf16 against these;
                                `greedy`: a prompt, and the likeliest tokens that follow it in fp32, none of them near a tie;
                                `gradients`: of the mean of the last case's log-probabilities, in fp32: for each tensor of the
                                checkpoint its norm, and its dot product with cos(0), cos(1), cos(2), ... over its elements
"""
import json
import pathlib
import re
import shutil
import sys

import torch
import transformers

OUT = pathlib.Path(__file__).parent / "models"
LENGTHS = (2, 33, 67, 90)
SIZES = dict(vocab_size=101, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=64, intermediate_size=50,
             num_hidden_layers=2, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=None)
LATENT = {key: value for key, value in SIZES.items() if key != "head_dim"}
LATENT |= dict(num_key_value_heads=3, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14, n_routed_experts=7,
              n_group=1, topk_group=1, num_experts_per_tok=3, moe_intermediate_size=18, n_shared_experts=1, first_k_dense_replace=1,
              routed_scaling_factor=2.5, norm_topk_prob=True, num_mtp_layers=0, tie_word_embeddings=False)
YARN = dict(rope_type="yarn", rope_theta=1e4, original_max_position_embeddings=64)
EXPERTS = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=18, norm_topk_prob=True, mlp_only_layers=[1])

MODELS = {
    "llama": (transformers.LlamaConfig, SIZES | dict(tie_word_embeddings=True)),
    "qwen2": (transformers.Qwen2Config, SIZES | dict(tie_word_embeddings=False)),
    "glm4": (transformers.Glm4Config, SIZES | dict(tie_word_embeddings=False)),
    # Frequencies of all three kinds: kept, blended and divided; sequences go beyond the original context.
    "llama-llama3": (transformers.LlamaConfig,
                     SIZES | dict(rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                                       high_freq_factor=4.0, original_max_position_embeddings=64))),
    "llama-linear": (transformers.LlamaConfig, SIZES | dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0))),
    "qwen2-yarn": (transformers.Qwen2Config,
                   SIZES | dict(tie_word_embeddings=False,
                                rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=64))),
    # What cosines and sines are multiplied by as DeepSeek writes it, the range of the ramp not rounded.
    "llama-yarn-mscale": (transformers.LlamaConfig,
                          SIZES | dict(rope_parameters=dict(rope_type="yarn", rope_theta=5e3, factor=8.0, beta_fast=16.0, beta_slow=0.5,
                                                            mscale=1.5, mscale_all_dim=0.7, truncate=False,
                                                            original_max_position_embeddings=32))),
    # Windows that end within a page, at its end and beyond it, on some layers and on all.
    "mistral": (transformers.MistralConfig, SIZES | dict(sliding_window=29, tie_word_embeddings=False)),
    "qwen2-window": (transformers.Qwen2Config,
                     SIZES | dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=64, max_window_layers=1)),
    "qwen3": (transformers.Qwen3Config, SIZES | dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)),
    "qwen3-moe": (transformers.Qwen3MoeConfig, SIZES | EXPERTS | dict(num_hidden_layers=3, tie_word_embeddings=False)),
    # Weights that do not add up to one, experts in every second layer, one head for keys and queries.
    "qwen3-moe-plain": (transformers.Qwen3MoeConfig,
                        SIZES | EXPERTS | dict(num_attention_heads=1, num_experts=12, num_experts_per_tok=2, norm_topk_prob=False,
                                               mlp_only_layers=[], decoder_sparse_step=2, tie_word_embeddings=True)),
    # Sigmoids with a bias that bf16 cannot hold, a shared expert, a dense first layer, heads rotated by half.
    "glm4-moe": (transformers.Glm4MoeConfig,
                 SIZES | dict(num_hidden_layers=3, n_routed_experts=7, num_experts_per_tok=3, moe_intermediate_size=18,
                              n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.8, use_qk_norm=True,
                              attention_bias=True, num_mtp_layers=0, tie_word_embeddings=False)),
    # Heads of sizes that are no multiples of 64: without norms, with them, and of 20 elements with the first 10 rotated.
    "llama-heads-16": (transformers.LlamaConfig, SIZES | dict(head_dim=16, hidden_size=42, tie_word_embeddings=True)),
    "qwen3-heads-96": (transformers.Qwen3Config, SIZES | dict(head_dim=96, num_attention_heads=4, num_key_value_heads=2)),
    "glm4-moe-heads-20": (transformers.Glm4MoeConfig,
                          SIZES | dict(head_dim=20, num_hidden_layers=3, n_routed_experts=5, num_experts_per_tok=2,
                                       moe_intermediate_size=18, n_shared_experts=1, first_k_dense_replace=1, use_qk_norm=True,
                                       num_mtp_layers=0, tie_word_embeddings=False)),
    # Latents that end within a panel, before and behind the elements that say where; two of four groups of experts; scores
    # stretched by YaRN; an epsilon that tells the norms of layers from those of latents.
    "deepseek-v3": (transformers.DeepseekV3Config,
                    LATENT | dict(q_lora_rank=22, kv_lora_rank=38, num_hidden_layers=3, n_routed_experts=12, n_group=4,
                                          topk_group=2, n_shared_experts=2, routed_scaling_factor=1.8, attention_bias=True,
                                          rms_norm_eps=1e-3, rope_parameters=YARN | dict(factor=4.0, mscale=1.0, mscale_all_dim=0.7))),
    # Queries without a latent, halves rotated, weights of experts as they are, latents of more than a panel.
    "deepseek-v3-plain": (transformers.DeepseekV3Config,
                          LATENT | dict(q_lora_rank=None, kv_lora_rank=62, rope_interleave=False, norm_topk_prob=False)),
    # All experts one group, YaRN's ramp one step wide, whole panels.
    "kimi-k2": (transformers.DeepseekV3Config,
                LATENT | dict(q_lora_rank=40, kv_lora_rank=64, qk_rope_head_dim=64,
                                      rope_parameters=YARN | dict(factor=32.0, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))),
}
# Of the same class as another family's.
RENAMED = {"kimi-k2": "kimi_k2"}


def correction_biases(model):
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")}


def make_lively(model):
    """Weights large enough that every part matters, norms that are not one, routers that are seldom undecided; all exact in bf16."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape)
        if "norm" in name:
            values = 1 + 0.2 * noise
        elif name.endswith("mlp.gate.weight"):
            values = 0.6 * noise
        elif name.endswith("bias"):
            values = 0.5 * noise
        elif "embed" in name or "lm_head" in name:
            values = 0.3 * noise
        else:
            values = noise / parameter.shape[-1] ** 0.5
        parameter.data = values.to(torch.bfloat16).float()
    for bias in correction_biases(model).values():
        bias.copy_(0.3 * torch.randn(bias.shape))


def logprobs(model, tokens):
    scores = model(torch.tensor([tokens])).logits[0].float().log_softmax(-1)
    return scores[torch.arange(len(tokens) - 1), tokens[1:]]


def apart(scores, top_k):
    """The distance of the last that is chosen from the first that is not."""
    return scores.sort(descending=True).values.diff()[top_k - 1].abs() if top_k < len(scores) else float("inf")


def decided(model, tokens):
    """Whether rounding to bf16 leaves the last token at the same experts: only then does a comparison mean something."""
    if "num_experts_per_tok" not in model.config.to_dict():
        return True
    top_k = model.config.num_experts_per_tok
    routers = model(torch.tensor([tokens]), output_router_logits=True).router_logits
    biases = list(correction_biases(model).values())
    if biases:
        scores, margin = [r[-1].sigmoid() + bias for r, bias in zip(routers, biases, strict=True)], 0.03
    else:
        scores, margin = [r[-1] for r in routers], 0.15
    groups, top_k_groups = getattr(model.config, "n_group", 1), getattr(model.config, "topk_group", 1)
    if groups > 1:
        sums = [s.view(groups, -1).topk(2).values.sum(-1) for s in scores]
        if not all(apart(s, top_k_groups) > margin for s in sums):
            return False
        scores = [s.view(groups, -1)[of.topk(top_k_groups).indices].flatten() for s, of in zip(scores, sums)]
    return all(apart(s, top_k) > margin for s in scores)


def draw(model, length):
    tokens = []
    while len(tokens) < length:
        token = torch.randint(model.config.vocab_size, ()).item()
        if decided(model, tokens + [token]):
            tokens.append(token)
    return tokens


def follow(model, prompt, count):
    """The likeliest tokens one after the other; None where two are nearly as likely."""
    tokens = list(prompt)
    for _ in range(count):
        best = model(torch.tensor([tokens])).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < 0.01:
            return None
        tokens.append(best.indices[0].item())
    return tokens[len(prompt):]


def greedy(model, tokens):
    for length in range(40, len(tokens)):
        if followed := follow(model, tokens[:length], 24):
            return {"prompt": tokens[:length], "tokens": followed}
    raise ValueError("every continuation comes near a tie")


def by_checkpoint_name(name, gradient):
    """The tensors of the checkpoint that a parameter in memory stands for: experts lie together there."""
    experts = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)", name)
    if not experts:
        yield name, gradient
        return
    prefix, kind = experts.groups()
    for expert, one in enumerate(gradient):
        if kind == "down_proj":
            yield f"{prefix}.{expert}.down_proj.weight", one
        else:
            gate, up = one.chunk(2)
            yield f"{prefix}.{expert}.gate_proj.weight", gate
            yield f"{prefix}.{expert}.up_proj.weight", up


def gradients(model, tokens):
    model.zero_grad()
    logprobs(model, tokens).mean().backward()
    found = {}
    for name, parameter in model.named_parameters():
        for tensor, gradient in by_checkpoint_name(name, parameter.grad):
            flat = gradient.flatten().double()
            ramp = torch.arange(len(flat), dtype=torch.float64).cos()
            found[tensor] = [flat.norm().item(), (flat @ ramp).item()]
    return found


def make(name):
    kind, sizes = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    config = kind(**sizes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    make_lively(model)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    cases = []
    for length in LENGTHS:
        with torch.no_grad():
            tokens = draw(model, length)
            cases.append({"tokens": tokens, "logprobs": logprobs(model, tokens).tolist()})
    with torch.no_grad():
        followed = greedy(model, cases[-1]["tokens"])
    grads = gradients(model, cases[-1]["tokens"])
    exact = {name: bias.clone() for name, bias in correction_biases(model).items()}
    model.to(torch.bfloat16)
    for tensor, bias in exact.items():
        module, _, buffer = tensor.rpartition(".")
        setattr(model.get_submodule(module), buffer, bias)
    model.save_pretrained(folder)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    errors = []
    with torch.no_grad():
        for case in cases:
            errors += (logprobs(again, case["tokens"]) - torch.tensor(case["logprobs"])).abs().tolist()
    if name in RENAMED:
        written = json.loads((folder / "config.json").read_text())
        written["model_type"] = RENAMED[name]
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    expected = {"cases": cases, "bf16_error": sum(errors) / len(errors), "greedy": followed, "gradients": grads}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(name, "bf16 error", expected["bf16_error"], "of a mean logprob of", sum(cases[-1]["logprobs"]) / (LENGTHS[-1] - 1))


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
