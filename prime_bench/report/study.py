"""The report of a study: the tables and figures of its recipes as one report, written to a folder.

study.tex       every table, to be compiled
report.html     every table and figure on one page, with the jobs behind each number
<table>.tex     each table alone, and <table>.csv in full precision
<figure>.pdf    each figure, also as .svg and .png
manifest.json   digests of the files and of the records behind each table
index.md        what is where, and the verdict on each claim; written last
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole, writing
from prime_bench.recipe.study import Study, StudyRecipe
from prime_bench.report.document import make_report
from prime_bench.report.figures.gallery import figures_of
from prime_bench.report.figures.save import NamedFigure, labelled, write_figures
from prime_bench.report.formats import latex
from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.markdown import escaped
from prime_bench.report.formats.render import write_report
from prime_bench.report.manifest import earlier_files, write_manifest
from prime_bench.report.quantities.records import ReportRecords, gather
from prime_bench.report.request import jobs_of_recipe
from prime_bench.report.sources import RecordSource
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report, Table
from prime_bench.report.view import ReportView, compared_with

INDEX, DOCUMENT = "index.md", "study.tex"
_BEGIN = "  \\begin{document}\n"


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """The tables and figures of a study, and what of it has no records yet."""

    study: Study
    view: ReportView
    """All tables and figures. A notebook shows it."""
    figures: Sequence[NamedFigure]
    tables_of: dict[str, list[str]]
    """Recipe of the study -> names of its tables; empty for one without records."""

    @property
    def missing(self) -> list[str]:
        """Recipes that have no record."""
        return [name for name, tables in self.tables_of.items() if not tables]

    @property
    def verdicts(self) -> list[tuple[str, str, str]]:
        """Each claim of the paper, the verdict on it, and the numbers behind that; empty where the
        study does not compare with the paper.
        """
        tables = [table for table in self.view.report.tables if table.name == "claims"]
        rows = [row for table in tables for block in table.blocks for row in block.rows]
        found = [[printed(cell).text for cell in row.cells] for row in rows]
        return [(claim, verdict, numbers) for claim, verdict, numbers in found]

    def write(self, folder: Path) -> list[Path]:
        """Write every file of the report; the same records give the same bytes. Tables and figures
        of an earlier report in the folder that this one does not have are deleted.

        Raises EnvironmentFault where the folder cannot be written to.
        """
        report = self.view.report
        with writing(folder):
            # An earlier report is not whole while its files are replaced by those of this one.
            (folder / INDEX).unlink(missing_ok=True)
        files = write_report(report, folder, format="latex")
        for name, paths in write_report(self.view.with_pictures(), folder, format="html").items():
            files[name] = list(dict.fromkeys([*files[name], *paths]))
        write_whole(folder / DOCUMENT, self._document())
        figures = write_figures(self.figures, folder)
        written = [*(path for paths in files.values() for path in paths), *figures]
        # The folder is the study's own. They have no link in the index.
        for path in earlier_files(folder, written=written):
            path.unlink(missing_ok=True)
        written.append(write_manifest(report, folder, files=files, figures=figures))
        write_whole(folder / INDEX, "\n".join(self._index()) + "\n")
        return list(dict.fromkeys([*written, folder / DOCUMENT, folder / INDEX]))

    def _document(self) -> str:
        """LaTeX of all tables, which has the label on every page when it is compiled alone."""
        text = self.view.render("latex")
        if not self.study.label:
            return text
        head = rf"\footnotesize\hfil {latex.escaped(self.study.label)}\hfil"
        foot = r"\hfil\thepage\hfil"
        style = (
            "  \\makeatletter\n"
            rf"  \def\ps@label{{\def\@oddhead{{{head}}}\def\@oddfoot{{{foot}}}"
            "\n"
            r"    \let\@evenhead\@oddhead\let\@evenfoot\@oddfoot}"
            "\n"
            "  \\makeatother\n  \\pagestyle{label}\n"
        )
        return text.replace(_BEGIN, style + _BEGIN, 1)

    def _index(self) -> Iterator[str]:
        yield f"# {escaped(self.study.title)}"
        if self.study.label:
            yield f"\n**{escaped(self.study.label)}.**"
        yield f"\nMade by `prime-bench study {self.study.argument}`. All tables and figures with"
        yield f"the jobs behind: [report.html](report.html); as LaTeX: [{DOCUMENT}]({DOCUMENT})."
        if self.verdicts:
            yield "\n## Claims\n\n| claim | verdict | numbers |\n|---|---|---|"
            for row in self.verdicts:
                yield f"| {' | '.join(map(escaped, row))} |"
        yield "\n## Tables\n\n| table | files |\n|---|---|"
        for table in self.view.report.tables:
            yield f"| {escaped(table.title)} | {_links(table.name, ('tex', 'csv'))} |"
        if self.figures:
            yield "\n## Figures\n\n| figure | files |\n|---|---|"
            for item in self.figures:
                title = escaped(f"{item.title}, {item.data}")
                yield f"| {title} | {_links(item.name, ('pdf', 'svg', 'png'))} |"
        if self.missing:
            yield f"\nWithout a record: {', '.join(self.missing)}."


def _links(name: str, suffixes: Sequence[str]) -> str:
    return ", ".join(f"[{name}.{suffix}]({name}.{suffix})" for suffix in suffixes)


def study_report(study: Study, source: RecordSource) -> StudyReport:
    """Make the report of a study from the records of a folder.

    A table or figure of a name that an earlier recipe has too gets the recipe's name before its
    own. Raises DataError where there is no record of any recipe.
    """
    reports: list[Report] = []
    figures: list[NamedFigure] = []
    tables_of: dict[str, list[str]] = {}
    for item in study.recipes:
        selected, made = _of_recipe(study, item, source)
        taken = {table.name for report in reports for table in report.tables}
        tables = [_distinct(table, item.recipe.name, taken) for table in made.tables]
        tables_of[item.recipe.name] = [table.name for table in tables] if made.records else []
        if made.records:
            reports.append(replace(made, tables=tuple(tables)))
            figures += _figures(item, selected, taken={figure.name for figure in figures})
    if not reports:
        broken = "".join(f"\n{fault}" for fault in source.unreadable)
        raise DataError(
            f"{source.path}: no record of the recipes of {study.name} here{broken}",
            hint=f"make some: prime-bench study {study.argument}",
        )
    merged, _ = compared_with(_merged(study, reports, source), against=study.against, check=None)
    if study.label:
        merged = replace(
            merged,
            title=f"{study.title}. {study.label}",
            tables=tuple(
                replace(table, caption=f"{study.label}. {table.caption}") for table in merged.tables
            ),
        )
        figures = [labelled(figure, study.label) for figure in figures]
    drawn = {figure.name: figure for figure in figures}
    return StudyReport(
        study=study,
        view=ReportView(report=merged, _records=None, _drawn=drawn),
        figures=figures,
        tables_of=tables_of,
    )


def _of_recipe(
    study: Study, item: StudyRecipe, source: RecordSource
) -> tuple[ReportRecords, Report]:
    recipe = item.recipe
    jobs = jobs_of_recipe(recipe, source, name=f"{study.name}: {recipe.name}")
    selected = gather(
        source.records,
        recipe=jobs.narrowed(item.only),
        probes=source.probes,
        unreadable=source.unreadable,
    )
    names = item.tables or jobs.tables or ["main" if jobs.kind == "train" else jobs.kind]
    definitions = {str(name): load_definition(name) for name in names}
    return selected, make_report(selected, definitions=definitions)


def _distinct(table: Table, recipe: str, taken: set[str]) -> Table:
    if table.name not in taken:
        return table
    label = f"{table.label}-{recipe}" if table.label else ""
    return replace(
        table, name=f"{recipe}_{table.name}", title=f"{table.title} ({recipe})", label=label
    )


def _figures(
    item: StudyRecipe, selected: ReportRecords, *, taken: set[str]
) -> Iterator[NamedFigure]:
    wanted = item.figures
    for figure in figures_of(selected, baseline="dense") if wanted != [] else ():
        if wanted is None or figure.name.partition("-")[0] in wanted:
            name = figure.name
            if name in taken:
                own = item.recipe.name
                title = f"{figure.title} ({own})"
                yield replace(figure, name=f"{own}-{name}", title=title)
            else:
                yield figure


def _merged(study: Study, reports: Sequence[Report], source: RecordSource) -> Report:
    tables = tuple(table for report in reports for table in report.tables)
    jobs = sorted({job_id for table in tables for job_id in table.jobs})
    records = {record.job_id: record for report in reports for record in report.records}
    return Report(
        title=study.title,
        tables=tables,
        blocks=tuple(block for report in reports for block in report.blocks),
        records=tuple(records.values()),
        record_digests={job_id: source.digest(job_id) for job_id in jobs},
        degenerate=frozenset().union(*(report.degenerate for report in reports)),
    )
