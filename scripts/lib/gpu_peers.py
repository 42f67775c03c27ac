"""What PyTorch makes of the GPU: the figures of `tandem bench cuda`, and what the machine can do at most. JSON on the standard output.

gpu_peers.py SECONDS
"""

import json
import statistics
import sys
import time

import torch

AT_ONCE = 10  # put on the stream before one wait, as `tandem bench cuda` does


def median(work, seconds):
    work()
    torch.cuda.synchronize()
    rounds, total = [], 0.0
    while len(rounds) < 3 or (total < seconds and len(rounds) < 10000):
        start = time.perf_counter()
        for _ in range(AT_ONCE):
            work()
        torch.cuda.synchronize()
        took = time.perf_counter() - start
        rounds.append(took / AT_ONCE)
        total += took
    return statistics.median(rounds)


def main():
    seconds = float(sys.argv[1])
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    gpu = {"device": "cuda", "dtype": torch.bfloat16}
    figures = []

    def product(name, flops, work):
        figures.append({"name": name, "value": flops / median(work, seconds) / 1e9, "unit": "GFLOP/s"})

    def moved(name, size, work):
        figures.append({"name": name, "value": size / median(work, seconds) / 1e9, "unit": "GB/s"})

    shapes = [(8192, 8192, 8192)] + [(m, 3072, 576) for m in (1, 16, 64, 512, 4096)] + [(m, 4096, 4096) for m in (1, 64, 4096)]
    for m, n, k in shapes:
        a, b = torch.randn(m, k, **gpu), torch.randn(n, k, **gpu)
        product(f"gemm {m}x{n}x{k}", 2.0 * m * n * k, lambda a=a, b=b: a @ b.T)
    for rows in (1, 64, 1024):
        hidden, head = torch.randn(rows, 576, **gpu), torch.randn(49152, 576, **gpu)
        product(f"log-sums {rows}x49152x576", 2.0 * rows * 49152 * 576, lambda a=hidden, b=head: torch.logsumexp((a @ b.T).float(), -1))
    source = torch.empty(1 << 29, **gpu)
    target = torch.empty_like(source)
    moved("copy of 1 GiB, read and written", 4.0 * source.numel(), lambda: target.copy_(source))
    attention = torch.nn.functional.scaled_dot_product_attention
    for length in (2048, 8192):
        queries, keys = torch.randn(1, 9, length, 64, **gpu), torch.randn(1, 3, length, 64, **gpu)
        product(
            f"attention, prefill of {length}", 2.0 * length * (length + 1) * 9 * 64,
            lambda q=queries, k=keys: attention(q, k, k, is_causal=True, enable_gqa=True),
        )
    for rows in (1, 64):
        queries, keys = torch.randn(rows, 9, 1, 64, **gpu), torch.randn(rows, 3, 4096, 64, **gpu)
        moved(f"attention, decode of {rows} at 4096", 2.0 * 2 * keys.numel(), lambda q=queries, k=keys: attention(q, k, k, enable_gqa=True))
    x, weight = torch.randn(8192, 4096, **gpu), torch.randn(4096, **gpu)
    moved("RMSNorm 8192x4096", 4.0 * x.numel(), lambda: torch.nn.functional.rms_norm(x, (4096,), weight, 1e-5))
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "figures": figures}))


main()
