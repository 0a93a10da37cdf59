"""Scores by source length, their intervals and paired tests, and all that shows them.

`scoring` turns translations into a `report.Report`, plain data; `diagnosis` adds signs of
under-translation and examples, `attention` what the models attend to, `published` the paper's
numbers. `text`, `page` and `plot` show a report, and `ranking` puts many systems in order. Only
`attention` knows models.
"""
