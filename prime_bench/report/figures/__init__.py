"""Figures of a report, drawn with matplotlib from the same quantities as the tables.

Each module is one kind of figure: `pairs` (every pair of runs), `differences` (estimates over
pairs), `sensitivity` (along a key of a grid), `curves` (epoch by epoch) and `gradients` (the
competition gap). A figure has three parts,
in this order in its module:

1. a frozen dataclass with the numbers to draw, and nothing of a record,
2. a function that makes these from a grid or from records of probes,
3. `draw_...`, decorated with `style.styled`, which turns them into a matplotlib `Figure`.

`gallery` calls 2 and 3 for every figure that a report has, and `save` writes the files. To add a
figure, write the three parts, call them in `gallery`, and test the drawing with made-up numbers as
`tests/report/figures/test_drawings.py` does.
"""

FIGURES = {
    "pairs": "Both scores of every pair, backbone by backbone",
    "wins": "Pairs won and lost, by backbone and seed",
    "forest": "Paired differences of each backbone with their intervals",
    "tradeoff": "What an arm gains, and what it costs in parameters and time",
    "controls": "PRIME against each control (the paper's Figure 4)",
    "sensitivity": "Validation and test AUC along a key of a grid",
    "curves": "Validation AUC by epoch of both arms",
    "load": "The largest load of PRIME's experts by epoch",
    "competition": "Gradient alignment of semantic and random groups (Figure 1)",
    "gap": "The competition gap of both arms (Figure 3)",
    "subgroups": "Paired differences within subgroups of the rows",
}
"""What the names of a figure's files begin with -> what it shows."""
