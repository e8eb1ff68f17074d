"""What importing fuxictr through us does to a process; each test has a fresh interpreter."""

import subprocess
import sys

import pytest


def interpret(code: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layers_come_without_preprocessing_and_its_dependencies():
    out = interpret(
        "import sys\n"
        "import prime_bench.backbones.fuxi\n"
        "heavy = {'ray', 'pandas', 'polars', 'pyarrow', 'sklearn', 'scipy', 'h5py'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print([name for name in sys.modules if name.startswith('fuxictr.preprocess')])\n"
        "print('fuxictr.pytorch.layers' in sys.modules)\n",
        "-W",
        "error",
    )
    assert out.splitlines() == ["[]", "[]", "True"]


def test_a_users_own_import_of_preprocessing_works_afterwards(tmp_path):
    out = interpret(
        "import numpy as np\n"
        "import prime_bench.backbones.fuxi\n"
        "from fuxictr.pytorch.layers.embeddings import pretrained_embedding\n"
        f"path = {str(tmp_path / 'emb.npz')!r}\n"
        "np.savez(path, key=np.arange(3), value=np.ones((3, 2)))\n"
        "key, value = pretrained_embedding.load_pretrain_emb(path)\n"
        "print(key.tolist(), value.shape)\n"
        "import fuxictr.preprocess\n"
        "print(fuxictr.preprocess.FeatureProcessor.__module__)\n"
        "print(fuxictr.preprocess.tokenizer.load_pretrain_emb.__module__)\n"
    )
    assert out.splitlines() == [
        "[0, 1, 2] (3, 2)",
        "fuxictr.preprocess.feature_processor",
        "fuxictr.preprocess.tokenizer",
    ]


def test_a_preprocessing_that_is_there_already_is_left_alone():
    out = interpret(
        "import sys, types\n"
        "names = 'fuxictr.preprocess', 'fuxictr.preprocess.tokenizer'\n"
        "mine = {name: types.ModuleType(name) for name in names}\n"
        "mine[names[1]].load_pretrain_emb = None\n"
        "sys.modules.update(mine)\n"
        "import prime_bench.backbones.fuxi\n"
        "print(all(sys.modules[name] is mine[name] for name in names))\n"
    )
    assert out.split() == ["True"]


@pytest.mark.parametrize("missing", ["fuxictr", "yaml"])
def test_a_missing_package_is_a_fault_of_the_environment(missing):
    out = interpret(
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from prime_bench.base.errors import EnvironmentFault\n"
        "try:\n"
        "    import prime_bench.backbones.fuxi\n"
        "except EnvironmentFault as fault:\n"
        "    print(fault)\n"
        "print([name for name in sys.modules if name.startswith('fuxictr.preprocess')])\n"
    )
    assert missing in out
    assert "hint: pip install fuxictr==2.3.10" in out
    assert out.splitlines()[-1] == "[]"
