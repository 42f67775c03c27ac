"""Writes reward_losses.jsonl: batches of pairs with a linear head over their states, and the loss and gradients of TRL.

TRL's RewardTrainer (trl/trainer/reward_trainer.py, compute_loss), written out in float64 and sharing nothing with ours:

    loss = -nn.functional.logsigmoid(rewards_chosen - rewards_rejected - margin).mean()
    loss += center_rewards_coefficient * torch.mean((rewards_chosen + rewards_rejected) ** 2)

with rewards = states @ weight + bias. Gradients by rewards, head and states are taken by complex steps of 1e-30, which are
exact to the last digits.  python3 tests/golden/make_reward_losses.py   (Needs Python alone.)
"""

import cmath
import json
import pathlib
import random
import struct

STEP = 1e-30


def float32(number):
    """The nearest float32: what heads and states hold."""
    return struct.unpack("f", struct.pack("f", number))[0]


def log_sigmoid(x):
    return -cmath.log(1 + cmath.exp(-x)) if x.real > 0 else x - cmath.log(1 + cmath.exp(x))


def loss_of_rewards(rewards, margins, center):
    chosen, rejected = rewards[0::2], rewards[1::2]
    pairs = len(margins)
    loss = sum(-log_sigmoid(c - r - m) for c, r, m in zip(chosen, rejected, margins)) / pairs
    return loss + center * sum((c + r) ** 2 for c, r in zip(chosen, rejected)) / pairs


def rewards_of(head, states):
    return [sum(w * x for w, x in zip(head, state)) + head[-1] for state in states]


def slope(function, numbers, at):
    moved = [complex(number) for number in numbers]
    moved[at] += 1j * STEP
    return function(moved).imag / STEP


def case(source):
    width, pairs = source.randint(1, 6), source.randint(1, 5)
    states = [[float32(source.gauss(0, 1)) for _ in range(width)] for _ in range(2 * pairs)]
    head = [float32(source.gauss(0, source.choice([0.1, 1, 4]))) for _ in range(width + 1)]
    margins = [source.choice([0, 0, 0.5, source.uniform(-1, 3)]) for _ in range(pairs)]
    center = source.choice([0, 0.01, 0.5])
    rewards = rewards_of([complex(w) for w in head], states)

    def of_head(numbers):
        return loss_of_rewards(rewards_of(numbers, states), margins, center)

    def of_state(row):
        return lambda numbers: loss_of_rewards(rewards_of(head, states[:row] + [numbers] + states[row + 1:]), margins, center)

    return {"states": states, "head": head, "margins": margins, "center": center,
            "rewards": [r.real for r in rewards],
            "value": loss_of_rewards(rewards, margins, center).real,
            "by_rewards": [slope(lambda r: loss_of_rewards(r, margins, center), [r.real for r in rewards], i)
                           for i in range(len(rewards))],
            "by_head": [slope(of_head, head, i) for i in range(width + 1)],
            "by_states": [[slope(of_state(row), state, i) for i in range(width)] for row, state in enumerate(states)]}


def main():
    source = random.Random(7)
    out = pathlib.Path(__file__).parent / "reward_losses.jsonl"
    out.write_text("".join(json.dumps(case(source)) + "\n" for _ in range(24)))


if __name__ == "__main__":
    main()
