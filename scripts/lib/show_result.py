"""Prints what a run reached, from its summary.json, on one screen.

Usage: show_result.py RUN
"""

import json
import os
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


def curve_of(run, marks=40):
    """Success on training tasks over the steps, as blocks."""
    try:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return ""
    shares = [line["success"] for line in lines if line.get("success") is not None]
    wide = max(1, -(-len(shares) // marks))
    parts = [shares[at : at + wide] for at in range(0, len(shares), wide)]
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * sum(part) / len(part)))] for part in parts)


def main(run):
    tandem = os.environ.get("TANDEM", "build/release/bin/tandem")
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
    curve = curve_of(run)
    if curve:
        print(f"\ntraining tasks, each mark the mean of some steps, from 0 to 100 %\n  {curve}")
    steps, seconds = summary.get("steps"), summary.get("wall_seconds")
    if steps is not None and seconds is not None:
        print(f"\n{steps} steps in {seconds / 60:.1f} min")
    print(f"model          {run / 'export'}")
    if (run / "report.html").exists():
        print(f"report         {run / 'report.html'}")
    if (run / "curve.svg").exists():
        print(f"picture        {run / 'curve.svg'}")
    print(f"transcripts    {run / 'report.html'} shows some; all of them: {tandem} episodes {run} --export openai")
    print("\nNext:")
    print(f"  {tandem} view {run}")
    print(f"  {tandem} agent --workspace DIR --model {run / 'export'} --end-on-change \"In app.ini, set cache_limit to 40.\"")
    print(f"  {tandem} tasks new my-tasks")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
