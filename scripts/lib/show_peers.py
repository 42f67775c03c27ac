"""The table of scripts/bench-peers and scripts/bench-kernels: medians, and our ratio to the best peer of the same round.

show_peers.py RESULTS
"""

import collections
import json
import statistics
import sys


def main():
    figures = collections.defaultdict(lambda: collections.defaultdict(dict))  # name -> who -> round -> value
    units = {}
    for line in open(sys.argv[1]):
        figure = json.loads(line)
        units[figure["name"]] = figure["unit"]
        figures[figure["name"]][figure["who"]][figure["round"]] = figure["value"]
    peers = sorted({who for each in figures.values() for who in each} - {"tandem"})
    width = max(36, 2 + max(len(name) for name, who in figures.items() if len(who) > 1))
    print(f"{'':{width}}" + "".join(f"{who:>14}" for who in ["tandem", *peers]) + "            to the best (range over rounds)")
    for name, who in figures.items():
        if len(who) < 2:
            continue
        cells = [f"{statistics.median(who[each].values()):14.4g}" if who.get(each) else f"{'':14}" for each in ["tandem", *peers]]
        ratios = [ours / max(who[each][turn] for each in peers if each in who) for turn, ours in who["tandem"].items()]
        print(f"{name:{width}}{''.join(cells)} {units[name]:8}{statistics.median(ratios):.2f}x  ({min(ratios):.2f} to {max(ratios):.2f})")


main()
