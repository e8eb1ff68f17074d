"""The Jinja2 templates of the folder `reports/templates`."""

from functools import cache

import jinja2
import markupsafe

from prime_bench.base.characters import visible_lines
from prime_bench.base.files import bundled_folder


@cache  # and with it the compiled templates
def text_templates() -> jinja2.Environment:
    """Return the templates of Markdown, which escape nothing: texts are escaped before."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(bundled_folder("reports") / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def latex_templates() -> jinja2.Environment:
    """Return the templates of LaTeX, whose delimiters are `<<` and `<%` in place of braces."""
    return text_templates().overlay(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )


@cache
def html_templates() -> jinja2.Environment:
    """Return the templates of HTML, which escape every text and show what cannot be seen."""
    return text_templates().overlay(autoescape=True, finalize=_finalize)


def _finalize(value: object) -> object:
    """A text with its control characters as escapes; finished markup (`| safe`) as it is."""
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return visible_lines(value)
    return value
