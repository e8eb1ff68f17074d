"""A training step of every backbone against the same model composed the way FuxiCTR composes it.

    python benchmarks/backbones.py [--threads 1 --clock cpu] [--device cuda] [--backbones AFM,PNN]

Ours has one table with offsets; FuxiCTR's layers have an nn.Embedding a field in a Python loop, a
second set of them for the linear term, and their own products of pairs. Both models have the same
weights and are checked to give the same logits; then both do forward and backward on the same
batch, in turn, so that a machine whose speed drifts slows both. No optimiser step. AutoInt, GDCN
and MaskNet have blocks that FuxiCTR's package lacks: there both sides have our blocks, and only
embeddings and linear term differ.

Settings are those of `recipes/main13.toml` on Avazu. `--clock cpu` counts the process's own CPU
time: what to use on a machine that others use, with one thread.
"""

import argparse
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, nn

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import below.
from prime_bench.assemble import build_backbone
from prime_bench.backbones import fuxi  # noqa: F401
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone
from prime_bench.catalog import BACKBONES
from prime_bench.data.schema import Field, Schema
from prime_bench.integrations.fuxictr import load_checkpoint
from prime_bench.recipe.file import load_recipe

# isort: split
from fuxictr.features import FeatureMap
from fuxictr.pytorch import layers

Columns = dict[str, Tensor]
Composition = tuple[dict[str, nn.Module], Callable[[Any, Columns, Tensor], Tensor]]
"""Layers by FuxiCTR's names, and (model, columns, E (B, F, k)) -> logits (B, 1)."""


def feature_map(schema: Schema) -> FeatureMap:
    """The same fields for FuxiCTR."""
    fields = FeatureMap("benchmark", ".")
    fields.features = OrderedDict(
        (field.name, {"type": "categorical", "vocab_size": field.vocabulary_size, "padding_idx": 0})
        for field in schema.categorical
    )
    fields.num_fields = len(fields.features)
    return fields


class Composed(nn.Module):
    """FuxiCTR's embeddings under the layers of one model; columns -> logits (B,)."""

    def __init__(self, schema: Schema, composition: Composition, width: int) -> None:
        super().__init__()
        self.embedding_layer = layers.FeatureEmbedding(feature_map(schema), width)
        parts, self.logit = composition
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, columns: Columns) -> Tensor:
        """One column (B,) of ids a field."""
        return self.logit(self, columns, self.embedding_layer(columns)).squeeze(-1)


def mlp(width: int, settings: Any, *, widths: Any = None, width_out: int | None = 1) -> nn.Module:
    """FuxiCTR's MLP with the settings' keys."""
    return layers.MLP_Block(
        input_dim=width,
        hidden_units=list(widths or settings.hidden_units),
        output_dim=width_out,
        dropout_rates=settings.net_dropout,
        batch_norm=settings.batch_norm,
    )


def compose_dnn(schema: Schema, settings: Any) -> Composition:
    """MLP(z)."""
    parts = {"mlp": mlp(settings.input_width(schema.shape), settings)}
    return parts, lambda m, _x, e: m.mlp(e.flatten(1))


def compose_widedeep(schema: Schema, settings: Any) -> Composition:
    """LR(x) + MLP(z)."""
    parts = {
        "lr_layer": layers.LogisticRegression(feature_map(schema), use_bias=False),
        "dnn": mlp(settings.input_width(schema.shape), settings),
    }
    return parts, lambda m, x, e: m.lr_layer(x) + m.dnn(e.flatten(1))


def compose_deepfm(schema: Schema, settings: Any) -> Composition:
    """FM(x) + MLP(z)."""
    parts = {
        "fm": layers.FactorizationMachine(feature_map(schema)),
        "mlp": mlp(settings.input_width(schema.shape), settings),
    }
    return parts, lambda m, x, e: m.fm(x, e) + m.mlp(e.flatten(1))


def compose_nfm(schema: Schema, settings: Any) -> Composition:
    """LR(x) + MLP(pooled products)."""
    parts = {
        "lr_layer": layers.LogisticRegression(feature_map(schema), use_bias=False),
        "bi_pooling_layer": layers.InnerProductInteraction(schema.shape.n_fields, "bi_interaction"),
        "dnn": mlp(settings.embedding_dim, settings),
    }
    return parts, lambda m, x, e: m.lr_layer(x) + m.dnn(m.bi_pooling_layer(e))


def compose_pnn(schema: Schema, settings: Any) -> Composition:
    """MLP([z, inner products])."""
    n_fields = schema.shape.n_fields
    parts = {
        "inner_product_layer": layers.InnerProductInteraction(n_fields, "inner_product"),
        "dnn": mlp(settings.top_width(schema.shape), settings),
    }
    return parts, lambda m, _x, e: m.dnn(torch.cat([e.flatten(1), m.inner_product_layer(e)], dim=1))


def compose_afm(schema: Schema, settings: Any) -> Composition:
    """LR(x) + attended products."""
    dropout_weights, dropout_sum = (nn.Dropout(p) for p in settings.attention_dropout)
    k, a = settings.embedding_dim, settings.attention_dim
    parts = {
        "product_layer": layers.InnerProductInteraction(
            schema.shape.n_fields, "elementwise_product"
        ),
        "lr_layer": layers.LogisticRegression(feature_map(schema), use_bias=True),
        "attention": nn.Sequential(
            nn.Linear(k, a), nn.ReLU(), nn.Linear(a, 1, bias=False), nn.Softmax(dim=1)
        ),
        "weight_p": nn.Linear(k, 1, bias=False),
        "dropout1": dropout_weights,
        "dropout2": dropout_sum,
    }

    def logit(m: Any, columns: Columns, embeddings: Tensor) -> Tensor:
        products = m.product_layer(embeddings)  # (B, P, k)
        pooled = (m.dropout1(m.attention(products)) * products).sum(dim=1)
        return m.lr_layer(columns) + m.weight_p(m.dropout2(pooled))

    return parts, logit


def compose_fwfm(schema: Schema, settings: Any) -> Composition:
    """Weighted inner products, and FeLV's linear part."""
    shape = schema.shape
    assert settings.linear_type == "FeLV"  # noqa: S101
    parts = {
        "interaction_weight": nn.Linear(shape.n_pairs, 1),
        "inner_product_layer": layers.InnerProductInteraction(shape.n_fields, "inner_product"),
        "linear_weight_layer": layers.FeatureEmbedding(feature_map(schema), settings.embedding_dim),
    }

    def logit(m: Any, columns: Columns, embeddings: Tensor) -> Tensor:
        linear = (embeddings * m.linear_weight_layer(columns)).sum((1, 2)).view(-1, 1)
        return m.interaction_weight(m.inner_product_layer(embeddings)) + linear

    return parts, logit


def compose_dcn(schema: Schema, settings: Any) -> Composition:
    """fc([cross(z), MLP(z)])."""
    d, widths = settings.input_width(schema.shape), settings.dnn_hidden_units
    parts = {
        "crossnet": layers.CrossNet(d, settings.num_cross_layers),
        "dnn": mlp(d, settings, widths=widths, width_out=None),
        "fc": nn.Linear(d + widths[-1], 1),
    }
    return parts, lambda m, _x, e: m.fc(
        torch.cat([m.crossnet(e.flatten(1)), m.dnn(e.flatten(1))], dim=1)
    )


def compose_dcnv2(schema: Schema, settings: Any) -> Composition:
    """fc([cross(z), MLP(z)]), the parallel structure."""
    d, widths = settings.input_width(schema.shape), settings.parallel_dnn_hidden_units
    parts = {
        "crossnet": layers.CrossNetV2(d, settings.num_cross_layers),
        "parallel_dnn": mlp(d, settings, widths=widths, width_out=None),
        "fc": nn.Linear(d + widths[-1], 1),
    }
    return parts, lambda m, _x, e: m.fc(
        torch.cat([m.crossnet(e.flatten(1)), m.parallel_dnn(e.flatten(1))], dim=1)
    )


def compose_fibinet(schema: Schema, settings: Any) -> Composition:
    """LR(x) + MLP([bilinear(E), bilinear(SENET(E))])."""
    n_fields, k, kind = schema.shape.n_fields, settings.embedding_dim, settings.bilinear_type
    parts = {
        "senet_layer": layers.SqueezeExcitation(n_fields, settings.reduction_ratio),
        "bilinear_interaction1": layers.BilinearInteractionV2(n_fields, k, kind),
        "bilinear_interaction2": layers.BilinearInteractionV2(n_fields, k, kind),
        "lr_layer": layers.LogisticRegression(feature_map(schema), use_bias=False),
        "dnn": mlp(settings.site_width("top_input", schema.shape), settings),
    }

    def logit(m: Any, columns: Columns, embeddings: Tensor) -> Tensor:
        plain = m.bilinear_interaction1(embeddings)
        excited = m.bilinear_interaction2(m.senet_layer(embeddings))
        return m.lr_layer(columns) + m.dnn(torch.cat([plain, excited], dim=1).flatten(1))

    return parts, logit


COMPOSED: dict[str, Callable[[Schema, Any], Composition]] = {
    "DNN": compose_dnn,
    "WideDeep": compose_widedeep,
    "DeepFM": compose_deepfm,
    "NFM": compose_nfm,
    "PNN": compose_pnn,
    "AFM": compose_afm,
    "FwFM": compose_fwfm,
    "DCN": compose_dcn,
    "DCNv2": compose_dcnv2,
    "FiBiNET": compose_fibinet,
}


class Adapted(nn.Module):
    """One of our backbones, its tables exchanged for FuxiCTR's: columns -> logits (B,)."""

    def __init__(self, schema: Schema, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        for path, module in list(backbone.named_modules()):
            if isinstance(module, FieldEmbedding):
                owner, _, name = path.rpartition(".")
                setattr(backbone.get_submodule(owner), name, self._tables(schema, module))

    def _tables(self, schema: Schema, ours: FieldEmbedding) -> nn.Module:
        table = ours.table
        assert table is not None  # noqa: S101
        embedding = layers.FeatureEmbedding(feature_map(schema), table.shape[1])
        parts = torch.split(table.detach(), list(schema.shape.vocabulary_sizes))
        for field, rows in zip(schema.categorical, parts, strict=True):
            embedding.embedding_layer.embedding_layers[field.name].weight.data.copy_(rows)
        return OnColumns(embedding)

    def forward(self, columns: Columns) -> Tensor:
        """The backbone hands its first argument to the embeddings only."""
        return self.backbone(columns, None)


class OnColumns(nn.Module):
    """FuxiCTR's embedding where a backbone calls ours."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, columns: Columns, _numerics: None) -> Tensor:
        """Columns -> (B, F, k)."""
        return self.embedding(columns)


def build_pair(name: str, schema: Schema, settings: dict[str, Any]) -> tuple[Backbone, nn.Module]:
    """Our backbone and FuxiCTR's composition, with the same weights."""
    ours = build_backbone(name, schema, settings, seed=0)
    with torch.no_grad():
        for parameter in ours.embedding_parameters():
            parameter.normal_(std=0.1)  # larger than at the start, so that equality says something
    if name not in COMPOSED:
        twin = build_backbone(name, schema, settings, seed=0)
        twin.load_state_dict(ours.state_dict())
        return ours, Adapted(schema, twin)
    parsed = BACKBONES[name].settings.parse(settings, where=name)
    theirs = Composed(schema, COMPOSED[name](schema, parsed), parsed.embedding_dim)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.1)
    load_checkpoint(ours, theirs.state_dict())
    return ours, theirs


def step(model: nn.Module, inputs: tuple[Any, ...], labels: Tensor) -> None:
    """Forward, loss, backward."""
    F.binary_cross_entropy_with_logits(model(*inputs), labels).backward()


def compare(
    name: str, schema: Schema, settings: dict[str, Any], options: argparse.Namespace
) -> list[Any]:
    """A row of the table: median milliseconds of both, their ratio, the largest difference."""
    device = torch.device(options.device)
    ours, theirs = (model.to(device) for model in build_pair(name, schema, settings))
    generator = torch.Generator().manual_seed(0)
    columns = {
        field.name: torch.randint(
            field.vocabulary_size or 0, (options.rows,), generator=generator
        ).to(device)
        for field in schema.categorical
    }
    ids = torch.stack(list(columns.values()), dim=1).int()
    labels = torch.rand(options.rows, generator=generator).round().to(device)
    sides = [(ours, (ids, torch.empty(options.rows, 0, device=device))), (theirs, (columns,))]
    with torch.no_grad():
        first, second = (model.eval()(*inputs) for model, inputs in sides)
        difference = ((first - second).abs() / (1 + second.abs())).max().item()
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times_ms: tuple[list[float], list[float]] = ([], [])
    for repetition in range(options.warmup + options.repeat):
        for side in (0, 1) if repetition % 2 else (1, 0):
            model, inputs = sides[side]
            model.train().zero_grad(set_to_none=True)
            wait()
            start = clock()
            step(model, inputs, labels)
            wait()
            times_ms[side].append((clock() - start) * 1e3)
    mine, fuxictr = (statistics.median(times[options.warmup :]) for times in times_ms)
    blocks = "FuxiCTR" if name in COMPOSED else "ours"
    return [name, mine, fuxictr, fuxictr / mine, blocks, difference]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Training step of ours against FuxiCTR's layers.")
    parser.add_argument("--rows", type=int, default=4096, help="rows of a batch")
    parser.add_argument("--fields", type=int, default=22, help="categorical fields")
    parser.add_argument("--vocabulary", type=int, default=100_000, help="ids of all fields")
    parser.add_argument("--repeat", type=int, default=15, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, default=3, help="steps that do not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backbones", default=",".join(BACKBONES), help="names, with commas")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = load_recipe("main13").backbones
    size = options.vocabulary // options.fields
    schema = Schema(
        fields=[
            Field(name=f"C{i}", kind="categorical", vocabulary_size=size)
            for i in range(options.fields)
        ]
    )
    rows = [
        compare(name, schema, settings[name]["avazu"].plain(), options)
        for name in options.backbones.split(",")
    ]
    print(
        f"{options.rows} rows, {options.fields} fields, {size * options.fields} ids, "
        f"{options.device}, {options.threads} threads, {options.clock} time, torch "
        f"{torch.__version__}"
    )
    headers = ["backbone", "ours ms", "FuxiCTR ms", "FuxiCTR / ours", "blocks", "logits differ by"]
    print(tabulate(rows, headers=headers, floatfmt=("", ".1f", ".1f", ".2f", "", ".0e")))


if __name__ == "__main__":
    main()
