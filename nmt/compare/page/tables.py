"""The paper's tables, in its layout, with its numbers beside ours."""

from nmt.compare.page import grids
from nmt.compare.page.markup import Markup, bdi, nothing, section, tag
from nmt.compare.report import ALL, PaperTable, Report


def render(report: Report) -> Markup:
    """Every table that was asked for."""
    if not report.tables:
        return section("tables", "Tables", nothing("No table of the paper was asked for."))
    return section("tables", "Tables", [_table(report, table) for table in report.tables])


def _table(report: Report, table: PaperTable) -> Markup:
    test = next(test for test in report.tests if test.name == table.test)
    rows = [row for row in test.rows if row.pairs and (table.buckets or row.name == ALL)]
    unit = f"; length in {test.unit}" if table.buckets and test.unit else ""
    return tag(
        "div",
        tag("h3", table.name, dir="auto"),
        tag("p", bdi(table.caption), " (", bdi(test.name), f"{unit})"),
        grids.scores(report, test, table.name, rows, table.systems, table.metrics, table.published),
        class_="part",
    )
