"""Whether a row of a result depends on what is beside it: our operators and PyTorch's own, side by side.

    python examples/torch_ops/batch_invariance.py [LIBTANDEM_OPS_SO]

A batch is computed whole; then parts of it, and all with other numbers of threads; a prompt is attended to whole, and then a token
at a time, as a sampler does. Printed is how many of those answers have other bits than the batch has there, and by how much they
differ at most.
"""
import sys

import torch
import torch.nn.functional as F

torch.ops.load_library(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/libtandem_ops.so")
tandem = torch.ops.tandem
torch.manual_seed(1)
ROWS, WIDTH, VOCABULARY = 256, 1024, 8192


def draw(*shape):
    return torch.randn(*shape).bfloat16()


def changed(function, batch, threads=(1, 2, 3)):
    """Of `function` of parts of the batch, under so many threads: (answers with other bits, answers, largest difference)."""
    torch.set_num_threads(2)
    whole = function(*batch)
    different, count, largest = 0, 0, 0.0
    for number in threads:
        torch.set_num_threads(number)
        for begin, end in ((0, 1), (len(whole) // 2, len(whole) // 2 + 1), (0, 7), (0, 16), (5, len(whole) - 3), (0, len(whole))):
            if begin >= end:
                continue
            part = function(*(x[begin:end] for x in batch))
            different += not torch.equal(part, whole[begin:end])
            largest = max(largest, (part.float() - whole[begin:end].float()).abs().max().item())
            count += 1
    return different, count, largest


def changed_by_position(function, query, key, value):
    """The same of each position by itself, behind those before it."""
    torch.set_num_threads(2)
    whole = function(query, key, value, True)
    parts = [(function(query[:, :, at:at + 1], key[:, :, :at + 1], value[:, :, :at + 1], False), whole[:, :, at:at + 1])
             for at in range(whole.shape[2])]
    largest = max((one.float() - other.float()).abs().max().item() for one, other in parts)
    return sum(not torch.equal(one, other) for one, other in parts), len(parts), largest


weight, norm, head = draw(VOCABULARY, WIDTH) / 24, draw(WIDTH), draw(VOCABULARY, WIDTH) / 24
x, tokens = draw(ROWS, WIDTH), torch.randint(0, VOCABULARY, (ROWS,))
query, key, value = (draw(8, 300, heads, 64).transpose(1, 2) for heads in (8, 4, 4))
CASES = [
    ("linear", (x,), lambda x: tandem.linear(x, weight), lambda x: F.linear(x, weight)),
    ("rms_norm", (x,), lambda x: tandem.rms_norm(x, norm, 1e-6), lambda x: F.rms_norm(x, (WIDTH,), norm, 1e-6)),
    ("attention", (query, key, value), tandem.attention,
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)),
    ("lm_head_logprob", (x, tokens), lambda x, t: tandem.lm_head_logprob(x, head, t),
     lambda x, t: F.linear(x, head).float().log_softmax(-1).gather(1, t[:, None])[:, 0]),
]
rows = [(name, changed(ours, batch), changed(theirs, batch)) for name, batch, ours, theirs in CASES]
rows.append(("attention, decode", changed_by_position(lambda q, k, v, _: tandem.attention(q, k, v), query, key, value),
             changed_by_position(lambda q, k, v, all_of: F.scaled_dot_product_attention(q, k, v, is_causal=all_of, enable_gqa=True),
                                 query, key, value)))
print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, bf16: answers with other bits than in the batch")
for name, a, b in rows:
    print(f"{name:18} tandem {a[0]:3} of {a[1]:3}, by {a[2]:.1e}    torch {b[0]:3} of {b[1]:3}, by {b[2]:.1e}")
if any(a[0] for _, a, _ in rows):
    sys.exit("an operator of tandem depends on the batch: please report it")
