"""Figures of a report, drawn with matplotlib from the same quantities as the tables.

Each module is one kind of figure: `pairs` (every pair of runs), `differences` (estimates over
pairs), `curves` (epoch by epoch) and `gradients` (the competition gap). A figure has three parts,
in this order in its module:

1. a frozen dataclass with the numbers to draw, and nothing of a record,
2. a function that makes these from a grid or from records of probes,
3. `draw_...`, decorated with `style.styled`, which turns them into a matplotlib `Figure`.

`gallery` calls 2 and 3 for every figure that a report has, and `save` writes the files. To add a
figure, write the three parts, call them in `gallery`, and test the drawing with made-up numbers as
`tests/report/figures/test_drawings.py` does.
"""
