"""What PyTorch makes of the GPU: the figures of `tandem bench cuda`, and what the machine can do at most. JSON on the standard output.

gpu_peers.py SECONDS
"""

import json
import statistics
import sys
import time

import torch


def median(work, seconds):
    work()
    torch.cuda.synchronize()
    rounds, total = [], 0.0
    while len(rounds) < 3 or (total < seconds and len(rounds) < 10000):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        rounds.append(time.perf_counter() - start)
        total += rounds[-1]
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

    for m, n, k in ((8192, 8192, 8192), (512, 3072, 576), (4096, 4096, 4096)):
        a, b = torch.randn(m, k, **gpu), torch.randn(n, k, **gpu)
        product(f"gemm {m}x{n}x{k}", 2.0 * m * n * k, lambda a=a, b=b: a @ b.T)
    source = torch.empty(1 << 29, **gpu)
    target = torch.empty_like(source)
    moved("copy of 1 GiB, read and written", 4.0 * source.numel(), lambda: target.copy_(source))
    queries = torch.randn(1, 9, 2048, 64, **gpu)
    keys = torch.randn(1, 9, 2048, 64, **gpu)
    product(
        "attention, prefill of 2048", 2.0 * 2048 * 2049 * 9 * 64,
        lambda: torch.nn.functional.scaled_dot_product_attention(queries, keys, keys, is_causal=True),
    )
    x, weight = torch.randn(8192, 4096, **gpu), torch.randn(4096, **gpu)
    moved("RMSNorm 8192x4096", 4.0 * x.numel(), lambda: torch.nn.functional.rms_norm(x, (4096,), weight, 1e-5))
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "figures": figures}))


main()
