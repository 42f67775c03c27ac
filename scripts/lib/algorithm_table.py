"""The table of scripts/bench-algorithms: FOLDER "SEEDS" ROW..."""
import json
import pathlib
import sys

folder, seeds, rows = pathlib.Path(sys.argv[1]), sys.argv[2].split(), sys.argv[3:]


def percent(row, moment):
    shares = []
    for seed in seeds:
        summary = json.loads((folder / f"{row}-{seed}" / "summary.json").read_text())
        shares.append(f"{100 * summary['heldout'][moment]['pass_rate']:.1f}")
    return ", ".join(shares)


print("| keys | before | after |\n|---|---|---|")
for row in rows:
    keys = (folder / f"{row}.row").read_text().split()[1:]
    shown = " ".join(f'"{key.replace("*", " ")}"' if "*" in key else key for key in keys)
    print(f"| {f'`{shown}`' if keys else '(none: `dr_grpo`, one update)'} | {percent(row, 'before')} | {percent(row, 'after')} |")
