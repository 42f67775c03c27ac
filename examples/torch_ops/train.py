"""A model of one layer that learns a sequence by our operators: what a training step with them looks like.

    python examples/torch_ops/train.py [LIBTANDEM_OPS_SO]

Run it again, with any OMP_NUM_THREADS: the losses are the same to the last digit.
"""
import sys

import torch

torch.ops.load_library(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/libtandem_ops.so")
tandem = torch.ops.tandem
torch.manual_seed(1)
WIDTH, HEADS, VOCABULARY, LENGTH = 64, 4, 64, 33


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        def matrix(rows, columns):
            return torch.nn.Parameter((torch.randn(rows, columns) / columns**0.5).bfloat16())

        self.embedding = matrix(VOCABULARY, WIDTH)
        self.qkv, self.out = matrix(3 * WIDTH, WIDTH), matrix(WIDTH, WIDTH)
        self.before, self.final = (torch.nn.Parameter(torch.ones(WIDTH).bfloat16()) for _ in range(2))

    def forward(self, tokens):
        x = self.embedding[tokens[:, :-1]]
        batch, length, _ = x.shape
        qkv = tandem.linear(tandem.rms_norm(x, self.before), self.qkv).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
        mixed = tandem.attention(query, key, value).transpose(1, 2).flatten(2)
        x = tandem.rms_norm(x + tandem.linear(mixed, self.out), self.final)
        return tandem.lm_head_logprob(x, self.embedding, tokens[:, 1:])


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
start = torch.randint(0, VOCABULARY, (16, 1))
tokens = (start + 5 * torch.arange(LENGTH)) % VOCABULARY  # each token says the next one
for step in range(1, 61):
    loss = -model(tokens).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(f"step {step}: loss {loss.item():.9f}")
