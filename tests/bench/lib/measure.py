# SPDX-License-Identifier: Apache-2.0
"""What measure.sh does, for Python: prints figures as tests/run-bench reads them.  Turns
are a list of numbers; of two in the middle the median is their mean."""
import statistics


def spread(turns):
    """The lowest and the highest; nothing of one turn, which has no spread."""
    return (min(turns), max(turns)) if len(turns) > 1 else ()


def ratios(above, below):
    """Turn k to turn k, where both have as many."""
    if len(above) != len(below) or not all(below):
        return []
    return [a / b for a, b in zip(above, below)]


def tell(name, value, unit, limit="", spread=(), digits=3):
    words = [limit or "-", *(f"{v:.{digits}f}" for v in spread)] if spread else [limit]
    print("result", name, f"{value:.{digits}f}", unit, *filter(None, words), flush=True)


def measured(name, unit, turns, limit="", digits=3):
    """The median."""
    tell(name, statistics.median(turns), unit, limit, spread(turns), digits)


def compared(name, above, below, limit="", unit="ratio", digits=3):
    """The ratio of the medians, and the spread of the ratios of turns."""
    tell(name, statistics.median(above) / statistics.median(below), unit, limit,
         spread(ratios(above, below)), digits)
