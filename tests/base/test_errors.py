import pytest

from prime_bench.base.errors import (
    DataError,
    EnvironmentFault,
    UsageError,
    UserError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("kind", "code"), [(UsageError, 2), (DataError, 3), (EnvironmentFault, 4), (UserError, 2)]
)
def test_each_mistake_has_its_exit_code(kind, code):
    assert kind("x").exit_code == code


def test_a_hint_stands_on_its_own_line():
    assert str(UserError("no", hint="do so")) == "no\n\nhint: do so"
    assert str(UserError("no")) == "no"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("max_epoch", ["max_epochs", "patience"], "; did you mean `max_epochs`?"),
        ("dcnV2", ["DCN", "DCNv2"], "; did you mean `DCNv2`?"),
        ("zzz", ["DCN", "DCNv2"], ""),
        ("DNN", [], ""),
        ("ab", ["abxx", "abx"], "; did you mean `abx`?"),
        # Of very many names none is looked for, nor one for a very long one.
        ("name1", [f"name{i}" for i in range(2, 202)], "; did you mean `name91`?"),
        ("name1", [f"name{i}" for i in range(2, 203)], ""),
        ("x" * 200, ["x" * 199], f"; did you mean `{'x' * 199}`?"),
        ("x" * 201, ["x" * 199], ""),
    ],
)
def test_the_nearest_name_is_offered(name, known, expected):
    assert did_you_mean(name, known) == expected
