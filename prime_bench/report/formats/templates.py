"""The Jinja2 templates below `reports/templates`."""

import jinja2

from prime_bench.base.files import bundled_folder


def text_templates() -> jinja2.Environment:
    """For Markdown: nothing is escaped, since every text comes escaped for its format."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(bundled_folder("reports") / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def latex_templates() -> jinja2.Environment:
    """Delimiters that LaTeX does not use: its own braces and percent signs stay as they are."""
    return text_templates().overlay(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )


def html_templates() -> jinja2.Environment:
    """For HTML: every text is escaped on its way out."""
    return text_templates().overlay(autoescape=True)
