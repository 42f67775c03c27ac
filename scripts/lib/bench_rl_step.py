"""One step of reinforcement learning as a plain PyTorch loop takes it, on the very tokens of a recorded step.

bench_rl_step.py MODEL THREADS < EPISODES      (the lines of `tandem episodes RUN --tokens` that belong to one batch)

Turn by turn the conversations so far are padded to one batch and sampled to the length of the longest answer, as
transformers' `generate` does; then all episodes that were trained go through forward, backward and AdamW, eight at a time.
Tools take no time here. Prints one JSON object.
"""

import json
import sys
import time

import torch
import transformers

MICRO_BATCH = 8


def turns_of(episode):
    """(prompt, sampled) lengths of each turn: the prompt is the whole conversation before it."""
    turns, at, sampled = [], 0, episode["sampled"]
    while at < len(sampled):
        if not sampled[at]:
            at += 1
            continue
        end = at
        while end < len(sampled) and sampled[end]:
            end += 1
        turns.append((at, end - at))
        at = end
    return turns


def pad(rows, side):
    longest = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        fill = [0] * (longest - len(row))
        ids.append(fill + row if side == "left" else row + fill)
        mask.append([0] * len(fill) + [1] * len(row) if side == "left" else [1] * len(row) + [0] * len(fill))
    return torch.tensor(ids), torch.tensor(mask)


def roll_out(model, episodes):
    turns = [turns_of(e) for e in episodes]
    for turn in range(max(map(len, turns))):
        active = [(e, t[turn]) for e, t in zip(episodes, turns) if turn < len(t)]
        ids, mask = pad([e["tokens"][:prompt] for e, (prompt, _) in active], "left")
        said = max(length for _, (_, length) in active)
        with torch.inference_mode():
            model.generate(
                ids, attention_mask=mask, do_sample=True, top_k=0, min_new_tokens=said, max_new_tokens=said, pad_token_id=0
            )


def train(model, optimizer, episodes):
    tokens = sum(map(sum, (e["sampled"] for e in episodes)))
    for first in range(0, len(episodes), MICRO_BATCH):
        part = episodes[first : first + MICRO_BATCH]
        ids, mask = pad([e["tokens"] for e in part], "right")
        sampled, _ = pad([e["sampled"] for e in part], "right")
        advantage = torch.tensor([e["advantage"] for e in part], dtype=torch.float32)[:, None]
        logits = model(ids, attention_mask=mask).logits[:, :-1].float()
        logprobs = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None])[..., 0]
        (-(advantage * logprobs * sampled[:, 1:]).sum() / tokens).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(int(sys.argv[2]))
    episodes = [json.loads(line) for line in sys.stdin]
    trained = [e for e in episodes if e["advantage"]]
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
    train(model, optimizer, trained[:MICRO_BATCH])  # the first pass makes its buffers
    begin = time.perf_counter()
    roll_out(model, episodes)
    middle = time.perf_counter()
    train(model, optimizer, trained)
    end = time.perf_counter()
    print(json.dumps({"rollout_seconds": middle - begin, "train_seconds": end - middle, "seconds": end - begin}))


main()
