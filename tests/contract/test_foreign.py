"""Classes of somebody else's package: named in a recipe, checked, run, reported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.catalog import find_backbone, find_plugin
from prime_bench.cli.main import exit_code
from prime_bench.contract import __main__ as contract
from prime_bench.contract.__main__ import check
from prime_bench.recipe.file import load_recipe

GUIDE = (Path(__file__).parents[2] / "docs" / "your-own-plugin.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)[0]
RECIPE = re.findall(r"```toml\n(schema.*?)```", GUIDE, flags=re.DOTALL)[0]
FLAT = """
from torch import nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.layers import reset_linears
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.settings.interface import BackboneSettings


class FlatSettings(BackboneSettings):
    def parameters(self, shape):
        return self.embedding_dim * shape.embedding_rows + self.input_width(shape) + 1

    def macs(self, shape):
        return self.input_width(shape)


class Flat(Backbone):
    Settings = FlatSettings

    def __init__(self, schema, settings):
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.out = nn.Linear(settings.input_width(schema.shape), 1)
        reset_linears(self)

    def forward(self, ids, numerics):
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)
        return self.out(z).squeeze(-1)

    def embedding_parameters(self):
        return list(self.embedding.parameters())
"""
POINTS = """\
[prime_bench.plugins]
gate = my_gate:Gate
[prime_bench.backbones]
flat = my_flat.model:Flat
"""


def install(folder, *, gate=CODE):
    """A distribution with a module, a package and entry points, as pip leaves it."""
    folder.mkdir(exist_ok=True)
    (folder / "my_gate.py").write_text(gate, encoding="utf-8")
    (folder / "my_flat").mkdir(exist_ok=True)
    (folder / "my_flat" / "__init__.py").write_text("")
    (folder / "my_flat" / "model.py").write_text(FLAT)
    info = folder / "my_models-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with the package, which this process and those that it starts find."""
    install(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.startswith(("my_gate", "my_flat"))]:
        del sys.modules[name]


@pytest.fixture
def here(site, capfd):
    """The command line in this process, which has torch already."""
    assert site.is_dir()

    def call(*arguments):
        code = exit_code(list(arguments))
        return code, "".join(capfd.readouterr())

    return call


@pytest.fixture
def prime_bench(site):
    """The command line in a process that finds the package."""
    assert site.is_dir()

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "prime_bench", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.mark.long
def test_the_guide_is_true_and_so_is_a_backbone(here, prime_bench, site, tmp_path):
    code, printed = here("check", "flat")
    assert code == 0, printed
    assert "pass  budget" in printed
    assert {finding.fault for finding in check("my_gate:Gate")} == {None}
    (tmp_path / "gate.toml").write_text(RECIPE + "\n[backbone.flat]\n")
    assert here("prepare", "--recipe", "gate.toml")[0] == 0

    # Each job with such code has a worker of its own. PRIME's would add two.
    only = ("--only", "arm=dense", "--only", "arm=gate")
    code, printed = here("run", "gate.toml", *only, "--slots", "1", "--threads-per-job", "1")

    assert code == 0, printed
    assert "4 jobs done" in printed
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/record.json")]
    coded = {tuple(sorted(record["job"].get("code", ()))) for record in records}
    assert coded == {(), ("my_gate:Gate",), ("flat",), ("flat", "my_gate:Gate")}
    _, printed = here("report", "gate.toml", *only, "--format", "json")
    pairs = {pair["backbone"]: pair["arms"] for pair in json.loads(printed)["pairs"]}
    assert set(pairs) == {"DNN", "flat"}
    assert all(set(arms) == {"dense", "gate"} for arms in pairs.values())
    scores = [pairs["DNN"][arm]["test_auc"] for arm in ("dense", "gate")]
    assert scores[0] != scores[1]

    install(site, gate=CODE.replace("torch.tanh", "torch.sin"))
    planned = json.loads(prime_bench("plan", "gate.toml", *only, "--json").stdout)
    assert {job["arm"] for job in planned["jobs"] if job["state"] == "pending"} == {"gate"}
    changed = json.loads(prime_bench("report", "gate.toml", "--format", "json").stdout)
    assert all("gate" not in pair["arms"] for pair in changed["pairs"])


FAULTS = {
    "class": (
        "class Gate(Plugin)",
        "class Gate(torch.nn.Module)",
        "class",
        "not derived from Plugin",
    ),
    "numbers": (
        "return torch.sigmoid(self.logit(z, dense_logit))",
        "return 2 * torch.sigmoid(self.logit(z, dense_logit))",
        *("probabilities", "a probability is not in [0, 1]"),
    ),
    "chance": (
        "self.bias = nn.Parameter(torch.zeros(()))",
        "self.bias = nn.Parameter(torch.tensor(float(id(self) % 10**6)))",
        *("building", "two builds of one seed differ"),
    ),
    "counting": (
        "        h = F.layer",
        "        self.bias.data.add_(1)\n        h = F.layer",
        *("evaluation", "an evaluation changes a weight or a buffer"),
    ),
    "stays": (
        "+ self.bias)",
        "+ 0 * self.bias)",
        *("gradients", "`plugin.bias` has not moved after 4 steps"),
    ),
    "torch_building": (
        "generator=generator",
        "",
        "building",
        "draws from torch's global generator",
    ),
    "numpy_building": (
        "self.settings = settings",
        "self.settings = settings; __import__('numpy').random.rand()",
        *("building", "building draws from NumPy's global generator"),
    ),
    "torch_step": (
        "        h = F.layer",
        "        z = F.dropout(z, 0.5, self.training)\n        h = F.layer",
        *("random streams", "draws from torch's global generator"),
    ),
    "torch_evaluation": (
        "self.scale * torch.tanh(",
        "self.scale * torch.tanh(torch.rand(()) + ",
        *("evaluation", "evaluation draws from torch's global generator"),
    ),
    "not_neutral": (
        "self.scale = nn.Parameter(torch.zeros",
        "self.scale = nn.Parameter(torch.ones",
        *("neutral start", "not neutral: the first predictions differ from the Dense arm's"),
    ),
    "parameters": (
        "return input_width + 2",
        "return 2 * input_width",
        *("budget", "the formula of parameters is off by +14"),
    ),
    "macs": ("return input_width\n", "return 16\n", "budget", "the formula of macs is off by -8"),
    "shape": (
        "return torch.sigmoid(self.logit(z, dense_logit))",
        "return torch.sigmoid(self.logit(z, dense_logit)).unsqueeze(1)",
        *("probabilities", "torch.float32 (1, 1), not torch.float32 (1,)"),
    ),
    "unused": (
        "self.bias = ",
        "self.unused = nn.Parameter(torch.zeros(3)); self.bias = ",
        *("gradients", "`plugin.unused` gets no gradient"),
    ),
    "logarithms": (
        "nn.functional.logsigmoid(-logit)",
        "nn.functional.logsigmoid(logit)",
        *("logarithms", "exp of log(1 - p) is off by"),
    ),
}


TOP = "        self.top_layers, self.top_parameters = ['out'], ['out.weight']\n"
FLAT_FAULTS = {
    "class": (
        "class Flat(Backbone)",
        "class Flat(nn.Module)",
        *("class", "it is not derived from Backbone"),
    ),
    "no_sites": ("self.sites = ", "self.places = ", "sites", "has no `sites`, an nn.ModuleDict"),
    "no_embedding": (
        "identity_sites(settings.sites)",
        "identity_sites(['top_input'])",
        *("sites", "there is no site `embedding`"),
    ),
    "more_sites": (
        "identity_sites(settings.sites)",
        "identity_sites(['embedding', 'more'])",
        *("sites", "`sites` of settings and model differ"),
    ),
    "flat": (
        "(self.embedding(ids, numerics)).flatten(1)",
        "(self.embedding(ids, numerics).flatten(1))",
        *("sites", "the site `embedding` sees (16, 16), not (B, F, k) = (16, 4, 4)"),
    ),
    "not_passed": (
        "class FlatSettings(BackboneSettings):",
        "class FlatSettings(BackboneSettings):\n    inner_sites = property(lambda _: ('cross_1',))",
        *("sites", "the site `cross_1` is not passed"),
    ),
    "width": (
        "class FlatSettings(BackboneSettings):",
        "class FlatSettings(BackboneSettings):\n    site_width = lambda *_: 7",
        *("sites", "the site `embedding` has width 16, the settings 7"),
    ),
    "top_layers": (
        "        reset_linears(self)\n",
        f"        reset_linears(self)\n{TOP}",
        *("Top-NN", "top_layers are [(16, 1)], hidden_layers of the settings []"),
    ),
    "top_kind": (
        "        reset_linears(self)\n",
        "        reset_linears(self)\n        self.top_layers = ['embedding']\n",
        *("Top-NN", "a top layer is not an nn.Linear"),
    ),
    "top_names": (
        "        reset_linears(self)\n",
        "        reset_linears(self)\n        self.top_parameters = ['out.wait']\n",
        *("Top-NN", "top_parameters has `out.wait`, the model has no such parameter"),
    ),
    "no_tables": (
        "list(self.embedding.parameters())",
        "[]",
        *("Top-NN", "embedding_parameters are not its own"),
    ),
    "others_tables": (
        "list(self.embedding.parameters())",
        "[nn.Parameter(self.out.weight)]",
        *("Top-NN", "embedding_parameters are not its own"),
    ),
    "random": (
        "        return self.out(z).squeeze(-1)",
        "        z = z + 0 * self.out.weight.new_empty(()).normal_()\n"
        "        return self.out(z).squeeze(-1)",
        *("random streams", "a training step without dropout draws from torch's global generator"),
    ),
    "numeric": (
        "        return self.out(z).squeeze(-1)",
        "        return self.out(z).squeeze(-1).double()",
        *("probabilities", "a batch of 1 row gives torch.float64 (1,), not torch.float32 (1,)"),
    ),
    "single": (
        "        return self.out(z).squeeze(-1)",
        "        return self.out(z).squeeze()",
        *("probabilities", "a batch of 1 row gives torch.float32 (), not torch.float32 (1,)"),
    ),
    "macs": (
        "return self.input_width(shape)\n",
        "return 16\n",
        *("budget", "with 6 fields the formula of macs is off by -8: 16 in all, the model has 24"),
    ),
    "parameters": (
        "self.input_width(shape) + 1",
        "self.input_width(shape)",
        *("budget", "with 4 fields the formula of parameters is off by -1: "),
    ),
    "raises": (
        "        return self.out(z).squeeze(-1)",
        "        raise ValueError('no luck')",
        *("gradients", "ValueError: no luck"),
    ),
    "prime": (
        'z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)',
        'site = self.sites["embedding"]\n'
        "        factor = 1 + len(site._forward_hooks)\n"
        "        z = site(self.embedding(ids, numerics)).flatten(1) * factor",
        *("PRIME around it", "with PRIME around it the first predictions differ"),
    ),
}


@pytest.mark.parametrize(
    ("code", "name", "rules", "old", "new", "rule", "reason"),
    [
        *(pytest.param(CODE, "Gate", "_OF_ARMS", *FAULTS[f], id=f) for f in FAULTS),
        *(pytest.param(FLAT, "Flat", "_OF_BACKBONES", *FLAT_FAULTS[f], id=f) for f in FLAT_FAULTS),
    ],
)
def test_a_faulty_class_fails_with_the_reason(
    tmp_path, monkeypatch, code, name, rules, old, new, rule, reason
):
    assert old in code
    (tmp_path / "faulty.py").write_text(code.replace(old, new), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    monkeypatch.setattr(contract, rules, {rule: getattr(contract, rules)[rule]})

    (finding,) = check(f"faulty:{name}")

    assert finding.rule == rule
    assert reason in (finding.fault or "nothing")


def test_state_that_is_not_saved_fails(tmp_path, monkeypatch):
    code = CODE.replace(
        "        self.bias",
        "        self.hidden = torch.empty(()).normal_(generator=generator)\n        self.bias",
    ).replace("torch.tanh(", "torch.tanh(self.hidden + ")
    (tmp_path / "faulty_state.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    faults = {finding.rule: finding.fault for finding in check("faulty_state:Gate")}

    assert "gives other predictions" in faults["state dict"]
    assert {rule for rule, fault in faults.items() if fault} == {"state dict"}


def test_a_declared_absence_of_the_neutral_start_passes(tmp_path, monkeypatch):
    code = CODE.replace('label = "Gate"', 'label = "Gate"\n    starts_neutral = False')
    code = code.replace(
        "self.scale = nn.Parameter(torch.zeros", "self.scale = nn.Parameter(torch.ones"
    )
    (tmp_path / "declared.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    findings = check("declared:Gate")
    assert [finding.fault for finding in findings] == [None] * 10
    assert [finding.rule for finding in findings] == [
        *("class", "building", "probabilities", "logarithms", "evaluation", "random streams"),
        *("neutral start", "gradients", "budget", "state dict"),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Gate", "cannot be imported: ModuleNotFoundError"),
        ("json:Gate", "cannot be imported: AttributeError"),
        ("json:dumps", "is not a class but function"),
        ("json:JSONDecoder", "has no `Settings`"),
        ("prme", "unknown plug-in `prme`; did you mean `prime`?"),
    ],
)
def test_an_unknown_name_is_reported(name, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        find_plugin(name)
    with pytest.raises(UsageError):
        find_backbone(name)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check(name)
    lines = caught.value.message.splitlines()
    assert len(lines) == len(set(lines))


def test_a_recipe_says_where_the_name_stands(tmp_path):
    path = tmp_path / "gate.toml"
    path.write_text(RECIPE.replace("my_gate:Gate", "no_such_module:Gate"))

    where = r"gate.toml:7: arm.gate.plugin: `no_such_module:Gate`.*; run `pip install -e \.`"
    with pytest.raises(UsageError, match=where):
        load_recipe(path)
    path.write_text(RECIPE.replace("my_gate:Gate", "fractions:Gate"))
    with pytest.raises(UsageError, match="; classes of fractions: Fraction"):
        load_recipe(path)
