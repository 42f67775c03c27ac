"""The workloads of `tandem bench engine` and `tandem bench trainer`, by transformers and PyTorch; one JSON object a figure.

bench_transformers.py MODEL THREADS
"""

import json
import statistics
import sys
import time

import torch
import transformers

CONTEXT, SAID = 256, 24
ROUNDS = 3


def median_seconds(work):
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show(name, value):
    print(json.dumps({"name": name, "value": value, "unit": "tok/s"}), flush=True)


def prefill(model, count):
    ids = torch.randint(0, model.config.vocab_size, (count, 512))
    with torch.inference_mode():
        show(f"prefill {count}x512", count * 512 / median_seconds(lambda: model(ids, logits_to_keep=1)))


def decode(model, count):
    ids = torch.randint(0, model.config.vocab_size, (count, CONTEXT))
    attention = torch.ones_like(ids)

    def generate(said):
        with torch.inference_mode():
            model.generate(
                ids, attention_mask=attention, do_sample=True, top_k=0, min_new_tokens=said, max_new_tokens=said, pad_token_id=0
            )

    whole, first = median_seconds(lambda: generate(SAID)), median_seconds(lambda: generate(1))
    show(f"decode {count} at {CONTEXT}", count * (SAID - 1) / (whole - first))


def train(model):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (8, 320))
    labels = ids.clone()
    labels[:, :64] = -100

    def step():
        loss = model(ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    show("step, 8 x 320 tokens apart", 8 * 320 / median_seconds(step))


def block(model):
    """Forward and backward pass of one layer, as PyTorch trains: weights in fp32, products in bf16."""
    layer = model.model.layers[0].float().train()
    x = torch.randn(1, 1024, model.config.hidden_size, requires_grad=True)
    turns = model.model.rotary_emb(x, torch.arange(1024)[None])

    def both_ways():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x, position_embeddings=turns)
        (y[0] if isinstance(y, tuple) else y).float().sum().backward()
        layer.zero_grad()

    show("a layer forward and backward, 1024 tokens", 1024 / median_seconds(both_ways))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(int(sys.argv[2]))
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
    for count in (1, 8):
        prefill(model, count)
    for count in (1, 16, 64):
        decode(model, count)
    train(model)
    block(model)


main()
