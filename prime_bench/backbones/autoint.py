"""AutoInt: self-attention over fields, beside an MLP (AutoInt+) and a linear term.

    X_0 = E,    X_{l+1} = attention_l(X_l),    l = fc(vec(X_L)) [+ MLP(z; h; 1)] [+ LR(x)]

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k, a width
of an attention layer, L layers. Song et al., AutoInt: Automatic Feature Interaction Learning via
Self-Attentive Neural Networks, CIKM 2019; as FuxiCTR 2.3.10's AutoInt, whose parameter names these
are. The Top-NN is the MLP with its output layer; plain AutoInt has none.
"""

from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.attention import SelfAttention
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.initial import mlp_with_head, reset_linears
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.linear import LinearTerm
from prime_bench.data.schema import Schema
from prime_bench.settings.autoint import AutoIntSettings


class AutoInt(Backbone):
    """Sites: `embedding` (B, F, k) and, with an MLP, `top_input` (B, d)."""

    dnn: nn.Module | None
    lr_layer: LinearTerm | None

    def __init__(self, schema: Schema, settings: AutoIntSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.lr_layer = LinearTerm(schema) if settings.use_wide else None
        self.self_attention = nn.Sequential(
            *(SelfAttention(width, settings) for width in settings.layer_inputs)
        )
        self.dnn = None
        if settings.dnn_hidden_units:
            self.dnn = fuxi.mlp(
                settings.input_width(schema.shape),
                settings.dnn_hidden_units,
                width_out=1,
                dropout=settings.net_dropout,
                batch_norm=settings.batch_norm,
            )
        self.fc = nn.Linear(schema.shape.n_fields * settings.attention_dim, 1)
        reset_linears(self)
        has_top = self.dnn is not None
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn") if has_top else ([], [])

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        logit: Tensor = self.fc(self.self_attention(embeddings).flatten(1))  # (B, F a) -> (B, 1)
        if self.dnn is not None:
            logit = logit + self.dnn(self.sites["top_input"](embeddings.flatten(1)))
        logit = logit.squeeze(-1)
        return logit if self.lr_layer is None else logit + self.lr_layer(ids, numerics)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The tables, width k and, with a linear term, width 1, and the numeric fields' weights."""
        linear = [] if self.lr_layer is None else self.lr_layer.embedding_parameters()
        return [*self.embedding.parameters(), *linear]
