"""What `show dataset` prints of a prepared table: text, or a page with pictures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prime_bench.base.characters import visible

_EVALUATED = ("valid", "test")
_SPLIT_HEADER = ("split", "rows", "positives", "click rate", "against training")
_BACKBONE_HEADER = ("backbone", "parameters", "weights and Adam")
_FIELD_HEADER = [
    *("field", "meaning", "ids", "oov valid", "oov test", "untrained valid", "untrained test"),
    *("missing train", "missing valid", "missing test"),
]


def text(table: Mapping[str, Any]) -> str:
    """The description as text, a table for splits, fields and backbones each."""
    from prime_bench.cli.output import table_text

    splits = [
        [
            name,
            f"{split['rows']:,}",
            f"{split['positives']:,}",
            percent(split["click_rate"]),
            "" if name == "train" else drift(split),
        ]
        for name, split in table["splits"].items()
    ]
    fields = [
        [
            field["name"],
            field["semantic"] or "",
            "numeric" if field["kind"] == "numeric" else f"{field['vocabulary_size']:,}",
            *(share(field["out_of_vocabulary"], split) for split in _EVALUATED),
            *(share(field["untrained"], split) for split in _EVALUATED),
            *(share(field["missing"], split) for split in ("train", *_EVALUATED)),
        ]
        for field in table["fields"]
    ]
    backbones = [
        [row["name"], f"{row['parameters']:,}", f"{row['bytes'] / 1e6:,.0f} MB"]
        for row in table["backbones"]
    ]
    return "\n\n".join(
        [
            f"{visible(table['dataset'])}: {visible(table['path'])}\n"
            f"fingerprint {table['fingerprint'][:12]}, "
            f"{verified_text(table['verified'])}, "
            f"{table['vocabulary_total']:,} ids",
            table_text(splits, header=_SPLIT_HEADER, n_words=1),
            table_text(fields, header=_FIELD_HEADER, n_words=1),
            "oov: rows whose value has no id of its own (rare, new, or missing). untrained: rows"
            " whose id no training row has.",
            table_text(backbones, header=_BACKBONE_HEADER, n_words=1),
            *(visible(f"note: {note}") for note in table["notes"]),
            *(visible(f"warning: {text}") for text in table["warnings"]),
        ]
    )


def page(tables: Sequence[Mapping[str, Any]]) -> str:
    """The descriptions as one HTML page that needs no other file."""
    from prime_bench.report.formats.templates import html_templates

    environment = html_templates().overlay()
    own = {"percent": percent, "drift": drift, "log10": math.log10, "verified_text": verified_text}
    environment.filters = environment.filters | own
    template = environment.get_template("dataset.html.j2")
    return template.render(tables=tables, curves=[_curve(table) for table in tables])


def verified_text(verified: bool | str) -> str:
    """What is known of the raw files of a table, from `verified` of its manifest."""
    return "own data" if verified == "own" else "verified" if verified else "unverified"


def percent(value: float) -> str:
    """A share as a text: `17.50 %` for 0.175."""
    return f"{100 * value:.2f} %"


def drift(split: Mapping[str, Any]) -> str:
    """How far a split's click rate is from that of training: in points and standard errors."""
    points = f"{100 * split['difference']:+.2f} points"
    error = split["standard_error"]
    return f"{points} ({split['difference'] / error:+.1f} standard errors)" if error else points


def share(shares: Mapping[str, float] | None, split: str) -> str:
    """The share of one split as a text; empty where it is unknown."""
    return "" if shares is None else percent(shares[split])


def _curve(table: Mapping[str, Any]) -> dict[str, Any]:
    """Click rates in file order as points of polylines in a box of 1000 x 200."""
    splits = table["splits"]
    total = sum(split["rows"] for split in splits.values())
    highest = max(rate for split in splits.values() for rate in split["click_rates"]) or 1.0
    lines, before = [], 0
    for name, split in splits.items():
        rates = split["click_rates"]
        points = [
            (
                1000 * (before + split["rows"] * (i + 0.5) / len(rates)) / total,
                200 * (1 - rate / highest),
            )
            for i, rate in enumerate(rates)
        ]
        line = {"name": name, "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points)}
        line |= {"start": 1000 * before / total, "click_rate": split["click_rate"]}
        before += split["rows"]
        lines.append(line | {"end": 1000 * before / total})
    return {"highest": highest, "lines": lines}
