"""Prints what a run reached, from its summary.json, on one screen.

Usage: show_result.py RUN
"""

import json
import pathlib
import sys


def percent(value):
    return "   -  " if value is None else f"{100 * value:5.1f}%"


def measured(part):
    """A pass rate with its interval, such as "41.2% (38.0 to 44.5)"."""
    if not part:
        return "-"
    low, high = part.get("ci95") or (None, None)
    interval = "" if low is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return percent(part.get("pass_rate")) + interval


def gained(part):
    if not part or part.get("points") is None:
        return "-"
    low, high = part.get("ci95") or (None, None)
    interval = "" if low is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * part['points']:+.1f} points{interval}"


def main(run):
    summary = json.loads((run / "summary.json").read_text())
    heldout = summary.get("heldout") or {}
    before = heldout.get("before") or {}
    print()
    print(f"Held-out tasks: {before.get('n_tasks', '-')}, {before.get('n_samples', '-')} samples; 95 % intervals over tasks")
    print(f"{'':14} {'warm start':24} {'after training':24} gain")
    for name, part in (("temperature 1", heldout), ("greedy", heldout.get("greedy") or {})):
        print(f"{name:14} {measured(part.get('before')):24} {measured(part.get('after')):24} {gained(part.get('gain'))}")
    floors = heldout.get("floors") or {}
    if floors:
        print("floors         " + ", ".join(f"{name} {percent(rate).strip()}" for name, rate in floors.items()))
    kinds = heldout.get("kinds") or {}
    if kinds:
        print("\nby kind, temperature 1")
        for kind, part in kinds.items():
            print(f"  {kind:12} {percent(part.get('before'))} -> {percent(part.get('after'))}")
    steps, seconds = summary.get("steps"), summary.get("wall_seconds")
    if steps is not None and seconds is not None:
        print(f"\n{steps} steps in {seconds / 60:.1f} min")
    print(f"model          {run / 'export'}")
    if (run / "report.html").exists():
        print(f"report         {run / 'report.html'}")
    print("\nNext:")
    print(f"  build/release/bin/tandem run configs/quickstart.yaml run.seed=2      another seed")
    print(f"  build/release/bin/tandem run configs/tiny.yaml                       the same loop in a minute")
    print(f"  build/release/bin/tandem generate --model {run / 'export'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
