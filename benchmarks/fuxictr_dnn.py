"""A DNN as a user of FuxiCTR 2.3.10 writes it, on its BaseModel, over the same fields as ours."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import DNNSettings

# isort: split
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel

LABEL = "click"
MAX_NORM = 10.0


def feature_map(schema: Schema, folder: Path) -> FeatureMap:
    """The same fields for FuxiCTR."""
    fields = FeatureMap("benchmark", str(folder))
    fields.features = OrderedDict(
        (
            field.name,
            {
                "type": "categorical",
                "source": "",
                "vocab_size": field.vocabulary_size,
                "padding_idx": 0,
            },
        )
        for field in schema.categorical
    )
    fields.labels = [LABEL]
    fields.num_fields = len(fields.features)
    fields.set_column_index()
    return fields


class FuxiDNN(BaseModel):  # type: ignore[misc]
    """MLP(vec(E)), with FuxiCTR's own loss, regularizer, optimizer and loop."""

    def __init__(self, fields: FeatureMap, settings: DNNSettings, *, folder: Path) -> None:
        super().__init__(
            fields,
            model_id="DNN",
            gpu=-1,
            embedding_regularizer=settings.embedding_l2,
            net_regularizer=settings.network_l2,
            verbose=0,
            model_root=str(folder),
            metrics=["AUC", "logloss"],
        )
        self.embedding_layer = FeatureEmbedding(fields, settings.embedding_dim)
        self.mlp: nn.Module = MLP_Block(
            input_dim=settings.embedding_dim * fields.num_fields,
            output_dim=1,
            hidden_units=list(settings.hidden_units),
            hidden_activations="ReLU",
            output_activation=None,
            dropout_rates=settings.net_dropout,
            batch_norm=settings.batch_norm,
        )
        self.compile("adam", "binary_crossentropy", 1e-3)
        self.reset_parameters()
        self.model_to_device()
        self._max_gradient_norm = MAX_NORM

    def forward(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """A column (B,) of ids a field -> `y_pred` (B, 1)."""
        embeddings = self.embedding_layer(self.get_inputs(inputs))
        return {"y_pred": self.output_activation(self.mlp(embeddings.flatten(start_dim=1)))}


def columns(schema: Schema, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """A batch as FuxiCTR's parquet loader gives it: int64 ids, float64 labels."""
    names = [field.name for field in schema.categorical]
    found = {name: ids[:, i].long().contiguous() for i, name in enumerate(names)}
    return {**found, LABEL: labels.to(torch.float64)}
