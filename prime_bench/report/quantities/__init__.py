"""Typed numbers of a report, from records to statistics. No text is made here.

`records.gather` groups the records by what they are compared in, and `layout` says which data sets,
backbones, arms and seeds a report has. With `choose`, `choice` leaves only the chosen points in
both. `grid.build_grid` pairs the runs with those of a baseline and computes levels and differences.
A cell of a table names a statistic (`statistics`), which takes a `Selection` of these runs and
returns a quantity (`values`) with the ids of its jobs.
"""
