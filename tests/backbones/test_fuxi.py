"""What importing fuxictr through us does to a process; each test has an interpreter without it."""

import json
import subprocess
import sys

import pytest

# Each program runs in a copy of a process that has imported torch, which takes a second and a half.
COPIES = """
import json, os, sys, torch
for line in sys.stdin:
    code, said = json.loads(line)
    if os.fork() == 0:
        for descriptor in (1, 2): os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), descriptor)
        exec(code, {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def interpret(tmp_path_factory):
    """Run a program in a process of its own; returns what it prints."""
    said = tmp_path_factory.mktemp("said")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", COPIES], text=True, **pipes) as process:

        def interpret(code: str) -> str:
            file = said / str(len(list(said.iterdir())))
            process.stdin.write(json.dumps([code, str(file)]) + "\n")
            process.stdin.flush()
            ended = process.stdout.readline()
            assert ended == "0\n", file.read_text()
            return file.read_text()

        yield interpret


def test_layers_come_without_preprocessing_and_its_dependencies(interpret):
    out = interpret(
        "import sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "import prime_bench.backbones.fuxi\n"
        "heavy = {'ray', 'pandas', 'polars', 'pyarrow', 'sklearn', 'scipy', 'h5py'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print([name for name in sys.modules if name.startswith('fuxictr.preprocess')])\n"
        "print('fuxictr.pytorch.layers' in sys.modules)\n"
    )
    assert out.splitlines() == ["[]", "[]", "True"]


def test_a_users_own_import_of_preprocessing_works_afterwards(interpret, tmp_path):
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


def test_a_preprocessing_that_is_there_already_is_left_alone(interpret):
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
def test_a_missing_package_is_a_fault_of_the_environment(interpret, missing):
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
