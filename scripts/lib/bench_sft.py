"""Steps of supervised training as a plain PyTorch loop takes them, on the samples that `tandem sft` learns from.

bench_sft.py chats FILE...                             transcripts out of the sections of texts in Markdown
bench_sft.py train MODEL THREADS TOKENS STEPS < SAMPLES   (the lines of `tandem sft --show N --json`)
bench_sft.py show OURS THEIRS                          the medians of both and the ratio
"""

import json
import pathlib
import statistics
import sys
import time

MICRO_BATCH = 8


def chats(paths):
    for path in map(pathlib.Path, paths):
        for section in path.read_text().split("\n## ")[1:]:
            title, _, text = section.partition("\n")
            if len(text) < 200:
                continue
            asked = {"role": "user", "content": f"What does {path.name} say about: {title}?"}
            print(json.dumps({"messages": [asked, {"role": "assistant", "content": text.strip()[:1500]}]}))


def batches(samples, tokens):
    batch, size = [], 0
    for sample in samples:
        if batch and size + len(sample["ids"]) > tokens:
            yield batch
            batch, size = [], 0
        batch.append(sample)
        size += len(sample["ids"])


def train(folder, threads, tokens, steps):
    import torch
    import transformers

    torch.set_num_threads(int(threads))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    samples = [json.loads(line) for line in sys.stdin]

    def loss_of(part, trained):
        longest = max(len(sample["ids"]) for sample in part)
        ids = torch.zeros(len(part), longest, dtype=torch.long)
        labels = torch.full((len(part), longest), -100)
        mask = torch.zeros(len(part), longest, dtype=torch.long)
        for row, sample in enumerate(part):
            length = len(sample["ids"])
            ids[row, :length] = torch.tensor(sample["ids"])
            mask[row, :length] = 1
            said = torch.tensor(sample["mask"], dtype=torch.bool)
            labels[row, :length][said] = ids[row, :length][said]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids, attention_mask=mask).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), reduction="sum") / trained

    for step, batch in zip(range(1, int(steps) + 1), batches(samples, int(tokens))):
        start = time.perf_counter()
        trained = sum(sum(map(bool, sample["mask"][1:])) for sample in batch)
        batch.sort(key=lambda sample: len(sample["ids"]))  # the least padding there can be
        loss = 0.0
        for first in range(0, len(batch), MICRO_BATCH):
            part = loss_of(batch[first : first + MICRO_BATCH], trained)
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        count = sum(len(sample["ids"]) for sample in batch)
        seconds = time.perf_counter() - start
        print(json.dumps({"event": "step", "step": step, "sample_tokens": count, "seconds": seconds, "loss": loss}), flush=True)


def show(ours, theirs):
    speeds = {}
    for name, path in (("tandem sft", ours), ("PyTorch", theirs)):
        events = map(json.loads, pathlib.Path(path).read_text().splitlines())
        # The first step of a program fetches its memory.
        timed = [event for event in events if event["event"] == "step" and event["step"] > 1]
        speeds[name] = [event["sample_tokens"] / event["seconds"] for event in timed]
        low, middle, high = min(speeds[name]), statistics.median(speeds[name]), max(speeds[name])
        print(f"{name:12} {middle:6.0f} tok/s  ({low:.0f} to {high:.0f}, {len(timed)} steps)")
    print(f"ratio        {statistics.median(speeds['tandem sft']) / statistics.median(speeds['PyTorch']):6.2f} x")


{"chats": lambda *paths: chats(paths), "train": train, "show": show}[sys.argv[1]](*sys.argv[2:])
