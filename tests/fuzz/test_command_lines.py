"""Commands with options and values from click's own list and odd ones."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from prime_bench import api
from prime_bench.base.errors import DataError
from prime_bench.cli.main import cli

Call = Callable[..., tuple[int, str, str]]
WORK = (
    "prepare",
    "prepare_recipe",
    "write_raw",
    "run",
    "check",
    "doctor",
    "predict",
    "open_engine",
)
"""What takes minutes or needs a network: what a command does before it is tried here."""
LIKELY = (
    "quick",
    "apg",
    "x.toml",
    "runs",
    "dense",
    "prime",
    "DNN",
    "synthetic",
    "avazu",
    "0123",
    ".",
)


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[Any, click.Command]]:
    """Every command that is not a group, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(leaves(cli))


def value_of(parameter: click.Parameter, chance: random.Random, odd: list[str]) -> str:
    """A value that the parameter takes, or any other."""
    if isinstance(parameter.type, click.Choice) and chance.random() < 0.7:
        return str(chance.choice(list(parameter.type.choices)))
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        return chance.choice(("1", "2", "7", chance.choice(odd)))
    return chance.choice(
        (chance.choice(LIKELY), "a=b", "training.max_epochs=1", chance.choice(odd))
    )


def command_line(chance: random.Random, odd: list[str]) -> list[str]:
    """A command with some of its options and arguments."""
    words, command = chance.choice(list(COMMANDS.items()))
    line = list(words)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if chance.random() < 0.25:
                line.append(chance.choice(parameter.opts))
                if not parameter.is_flag and chance.random() < 0.95:
                    line.append(value_of(parameter, chance, odd))
        else:
            n_values = chance.choice((1, 1, 1, 0, 2))
            line += [value_of(parameter, chance, odd) for _ in range(n_values)]
    if chance.random() < 0.1:
        line.insert(chance.randrange(len(line) + 1), chance.choice(odd))
    # What no shell can hand over: a zero byte, and a surrogate that stands for no byte.
    return [word.replace("\x00", "").replace("\ud800", "\udcff") for word in line]


@pytest.mark.parametrize("seed", range(60))
def test_a_random_command_line_ends_with_a_code_of_ours(
    made_up: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    odd_words: list[str],
    seed: int,
) -> None:
    assert made_up

    def stopped(*_arguments: object, **_options: object) -> None:
        raise DataError("stopped here")

    for name in WORK:
        monkeypatch.setattr(api, name, stopped)
    chance = random.Random(seed)
    for _ in range(3):
        line = command_line(chance, odd_words)
        call(line, allowed=(0, 1, 2, 3, 4), what=f"seed {seed}: {line}")
    assert len(list(Path("runs").iterdir())) >= len(made_up)
