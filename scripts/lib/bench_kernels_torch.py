"""The workloads of `tandem bench kernels` by PyTorch (oneDNN below it); one JSON object a figure, by the names of ours.

bench_kernels_torch.py bf16|fp32 THREADS [products|attention|head|rows|optimizers...]
"""

import itertools
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SECONDS = 1.0
EXPERTS, TOP_K, EXPERT_ROWS, EXPERT_WIDTH = 64, 8, 512, 1024
ROWS, WIDTH = 16384, 1024
PRODUCTS = [(512, 3072, 576), (512, 576, 1536), (512, 6144, 1024), (64, 3072, 576), (64, 49152, 576), (16, 49152, 576),
            (4, 49152, 576), (1, 49152, 576), (2048, 4096, 4096)]


def median_seconds(work):
    work()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show(name, amount, work, unit="GFLOP/s"):
    print(json.dumps({"name": name, "value": amount / median_seconds(work) / 1e9, "unit": unit}), flush=True)


def products(dtype):
    for m, n, k in PRODUCTS:
        a, weight = torch.ones(m, k, dtype=dtype), torch.ones(n, k, dtype=dtype)
        show(f"gemm {m}x{n}x{k}", 2 * m * n * k, lambda: F.linear(a, weight))
    weights = torch.ones(EXPERTS, EXPERT_ROWS, EXPERT_WIDTH, dtype=dtype)
    for tokens in (512, 16):
        chosen = torch.randn(tokens, EXPERTS).topk(TOP_K).indices.flatten()
        counts = torch.bincount(chosen, minlength=EXPERTS).tolist()
        parts = torch.ones(tokens * TOP_K, EXPERT_WIDTH, dtype=dtype).split(counts)
        show(f"grouped gemm, {tokens} tokens, {TOP_K} of {EXPERTS} experts, {EXPERT_ROWS}x{EXPERT_WIDTH}",
             2 * tokens * TOP_K * EXPERT_ROWS * EXPERT_WIDTH,
             lambda: [F.linear(part, weights[expert]) for expert, part in enumerate(parts) if len(part)])


def attention(dtype):
    heads, kv_heads, size = 9, 3, 64

    for name, length in (("attention, prefill of 512, 9 of 3 heads of 64", 512), ("attention, prefill of 2048", 2048)):
        q = torch.full((1, heads, length, size), 0.25, dtype=dtype)
        k = torch.full((1, kv_heads, length, size), 0.5, dtype=dtype)
        show(name, 4 * heads * size * length * (length + 1) / 2,
             lambda: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True))
    # As many layers as no cache holds, one after the other.
    layers = [[torch.full((16, kv_heads, 1024, size), 0.5, dtype=dtype) for _ in "kv"] for _ in range(6)]
    q, turn = torch.full((16, heads, 1, size), 0.25, dtype=dtype), itertools.cycle(layers)
    show("attention, decode of 16 at 1024, keys and values", 2 * layers[0][0].nbytes,
         lambda: F.scaled_dot_product_attention(q, *next(turn), enable_gqa=True), "GB/s")


def head(dtype):
    rows, width, vocabulary = 1024, 576, 49152
    hidden, weight = torch.full((rows, width), 0.1, dtype=dtype), torch.full((vocabulary, width), 0.1, dtype=dtype)
    target = torch.arange(rows)
    show(f"log-probabilities, {rows}x{vocabulary}x{width}", 2 * rows * width * vocabulary,
         lambda: -F.cross_entropy(F.linear(hidden, weight).float(), target, reduction="none"))


def rows(dtype):
    count, size = ROWS * WIDTH, torch.finfo(dtype).bits // 8
    x, weight = torch.full((ROWS, WIDTH), 0.5, dtype=dtype), torch.ones(WIDTH, dtype=dtype)
    gate_up = torch.full((ROWS, 2 * WIDTH), 0.5, dtype=dtype)
    gate, up = gate_up[:, :WIDTH], gate_up[:, WIDTH:]
    angles = torch.outer(torch.arange(ROWS) % 512, torch.full((32,), 0.01))
    cosine, sine = angles.cos()[:, None].to(dtype), angles.sin()[:, None].to(dtype)
    left, right = x.view(ROWS, WIDTH // 64, 64).split(32, -1)

    def bytes_of(name, arrays, work):
        show(f"{name}, reads and writes", arrays * size * count, work, "GB/s")

    bytes_of("RMSNorm", 2, lambda: F.rms_norm(x, (WIDTH,), weight, 1e-5))
    bytes_of("SwiGLU", 3, lambda: F.silu(gate) * up)
    bytes_of("GeGLU", 3, lambda: F.gelu(gate, approximate="tanh") * up)
    bytes_of("RoPE", 2, lambda: torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1))


def optimizers(dtype):
    weight = torch.nn.Parameter(torch.ones(2**25))
    weight.grad = torch.ones(2**25)
    step = torch.optim.AdamW([weight], lr=1e-5, fused=True)
    show("AdamW, reads and writes", 28 * 2**25, step.step, "GB/s")  # fp32 throughout, without the bf16 that we write too
    for size in ((576, 1536), (2048, 2048)) if has_bf16 else ():  # its products are in bf16 whatever the matrix is
        matrix = torch.nn.Parameter(torch.ones(size))
        matrix.grad = torch.randn(size)
        shorter, longer = min(size), max(size)
        show(f"Muon {size[0]}x{size[1]}", 5 * 2 * shorter * shorter * (2 * longer + shorter),
             torch.optim.Muon([matrix], lr=1e-5).step)


# Where oneDNN has no bf16 of its own, torch computes it element by element: minutes for a product.
has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
if sys.argv[1] == "bf16" and not has_bf16:
    sys.exit()
dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[sys.argv[1]]
torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(1)
with torch.no_grad():
    for part in (products, attention, head, rows, optimizers):
        if len(sys.argv) == 3 or part.__name__ in sys.argv[3:]:
            part(dtype)
