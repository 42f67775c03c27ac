"""How long our operators take beside PyTorch's own, turn by turn in one run.

    python examples/torch_ops/bench.py [LIBTANDEM_OPS_SO] [--seconds N] [--threads N]

Each row is the fastest turn of both, in milliseconds, which other work on the machine disturbs least, and their ratio: below 1 ours
is faster. Backward passes include the forward pass. `linear` packs its weight in each call, `linear_packed` once before. One thread
is the default, since both sides have threads of their own that wait actively after a call and would disturb the other's turn.
"""
import argparse
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("library", nargs="?", default="build/release/bin/libtandem_ops.so")
parser.add_argument("--seconds", type=float, default=2, help="for each row")
parser.add_argument("--threads", type=int, default=1)
given = parser.parse_args()
torch.set_num_threads(given.threads)
torch.ops.load_library(given.library)
tandem = torch.ops.tandem
torch.manual_seed(1)
WIDTH, VOCABULARY = 1024, 32768


def draw(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).bfloat16().requires_grad_()


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def row(name, ours, theirs):
    sides = (ours, theirs)
    times = ([], [])
    for side in sides:
        side()
    begin = time.perf_counter()
    while len(times[0]) < 5 or time.perf_counter() - begin < given.seconds:
        for side, of_side in zip(sides, times):
            of_side.append(seconds_of(side))
    a, b = (min(of_side) * 1e3 for of_side in times)
    print(f"{name:34} tandem {a:9.3f} ms   torch {b:9.3f} ms   ratio {a / b:5.2f}", flush=True)


def without_gradients(function):
    def work():
        with torch.no_grad():
            function()
    return work


def with_gradients(function, *leaves):
    def work():
        result = function()
        torch.autograd.grad(result, leaves, torch.ones_like(result))
    return work


def logprob(x, head, tokens):
    return F.linear(x, head).float().log_softmax(-1).gather(1, tokens[:, None])[:, 0]


print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), {given.threads} thread(s), bf16")
weight, norm, head = draw(3 * WIDTH, WIDTH, scale=1 / 32), draw(WIDTH), draw(VOCABULARY, WIDTH, scale=1 / 32)
packed = tandem.pack_weight(weight.detach())
for rows in (1, 16, 512):
    x = draw(rows, WIDTH)
    row(f"linear {rows}x{WIDTH}x{3 * WIDTH}", without_gradients(lambda: tandem.linear(x, weight)), without_gradients(lambda: F.linear(x, weight)))
    row(f"linear_packed {rows}x{WIDTH}x{3 * WIDTH}", without_gradients(lambda: tandem.linear_packed(x, packed, 3 * WIDTH)),
        without_gradients(lambda: F.linear(x, weight)))
x, tokens = draw(512, WIDTH), torch.randint(0, VOCABULARY, (512,))
row("linear 512, backward", with_gradients(lambda: tandem.linear(x, weight), x, weight), with_gradients(lambda: F.linear(x, weight), x, weight))
row(f"rms_norm 512x{WIDTH}", without_gradients(lambda: tandem.rms_norm(x, norm, 1e-6)), without_gradients(lambda: F.rms_norm(x, (WIDTH,), norm, 1e-6)))
row("rms_norm 512, backward", with_gradients(lambda: tandem.rms_norm(x, norm, 1e-6), x, norm),
    with_gradients(lambda: F.rms_norm(x, (WIDTH,), norm, 1e-6), x, norm))
query, key, value = (torch.randn(2, 512, heads, 64).bfloat16().transpose(1, 2).requires_grad_() for heads in (16, 4, 4))
attend = lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
row("attention 2x512, 16 of 64", without_gradients(lambda: tandem.attention(query, key, value)), without_gradients(attend))
row("attention 2x512, backward", with_gradients(lambda: tandem.attention(query, key, value), query, key, value),
    with_gradients(attend, query, key, value))
row(f"lm_head_logprob 512x{VOCABULARY}", without_gradients(lambda: tandem.lm_head_logprob(x, head, tokens)),
    without_gradients(lambda: logprob(x, head, tokens)))
row("lm_head_logprob 512, backward", with_gradients(lambda: tandem.lm_head_logprob(x, head, tokens), x, head),
    with_gradients(lambda: logprob(x, head, tokens), x, head))


def torch_fp8(x):
    blocks = x.float().view(x.shape[0], -1, 128)
    scales = (blocks.abs().amax(-1, keepdim=True) / 448).clamp(min=2**-126).log2().ceil().exp2()
    return (blocks / scales).to(torch.float8_e4m3fn).view(x.shape), scales[..., 0].to(torch.float8_e8m0fnu)


row(f"quantize_fp8 512x{WIDTH}", without_gradients(lambda: tandem.quantize_fp8(x)), without_gradients(lambda: torch_fp8(x)))
