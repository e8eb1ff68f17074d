"""Unknown keys with the nearest name, and wrong types, at every depth."""

import math

import pydantic
import pytest

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import Fault, Frozen
from prime_bench.recipe.file import RecipeKeys
from prime_bench.recipe.job import Job
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.settings.training import TrainSpec


class _Inner(Frozen):
    width: int = 1
    name: str = ""


class _Outer(Frozen):
    ratio: float = 0.5
    flag: bool = False
    inner: _Inner = _Inner()
    many: list[_Inner] = []
    named: dict[str, _Inner] = {}
    maybe: _Inner | None = None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"ratoi": 1.0}, "at.ratoi: unknown key; did you mean `ratio`?"),
        ({"inner": {"widht": 1}}, "at.inner.widht: unknown key; did you mean `width`?"),
        ({"maybe": {"nmae": ""}}, "at.maybe.nmae: unknown key; did you mean `name`?"),
        ({"many": [{}, {"nam": ""}]}, "at.many.1.nam: unknown key; did you mean `name`?"),
        ({"named": {"a": {"widths": 1}}}, "at.named.a.widths: unknown key; did you mean `width`?"),
        ({"zzzzzz": 1}, "at.zzzzzz: unknown key"),
    ],
)
def test_an_unknown_key_has_its_path_and_the_nearest_name_of_its_own_table(table, message):
    with pytest.raises(UsageError) as caught:
        _Outer.parse(table, where="at")

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ({"ratio": "0.5"}, ("ratio",)),
        ({"ratio": True}, ("ratio",)),
        ({"ratio": math.nan}, ("ratio",)),
        ({"ratio": math.inf}, ("ratio",)),
        ({"flag": 1}, ("flag",)),
        ({"flag": "true"}, ("flag",)),
        ({"inner": {"width": True}}, ("inner", "width")),
        ({"inner": {"width": 1.0}}, ("inner", "width")),
        ({"inner": {"width": "1"}}, ("inner", "width")),
        ({"inner": {"name": 1}}, ("inner", "name")),
        ({"inner": 3}, ("inner",)),
        ({"many": {"width": 1}}, ("many",)),
    ],
)
def test_a_value_of_another_type_is_a_fault_and_never_turned_into_one(table, path):
    settings, faults = _Outer.check(table)

    assert settings is None
    assert [fault.path for fault in faults] == [path]


def test_a_whole_number_is_taken_for_a_real_one_and_means_the_same():
    assert _Outer.check({"ratio": 1})[0] == _Outer.check({"ratio": 1.0})[0]
    assert isinstance(_Outer.parse({"ratio": 1}, where="").ratio, float)


def test_all_faults_come_in_one_message():
    with pytest.raises(UsageError) as caught:
        _Outer.parse({"ratio": "a", "x": 1, "inner": {"width": 0.5, "y": 1}}, where="here")

    lines = caught.value.message.splitlines()
    assert {line.partition(":")[0] for line in lines} == {
        *("here.ratio", "here.x", "here.inner.width", "here.inner.y")
    }
    assert len(lines) == 4


def test_a_faulty_element_is_not_also_a_list_that_is_too_short():
    _, faults = DNNSettings.check({"hidden_units": [0]})

    assert [fault.path for fault in faults] == [("hidden_units", "0")]


def test_settings_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        PrimeConfig().rank = 3


def test_settings_survive_json():
    spec = TrainSpec(batch_size=7, learning_rate=3e-4)

    assert TrainSpec.parse(spec.plain(), where="") == spec


@pytest.mark.parametrize("model", [RecipeKeys, Job, TrainSpec, PrimeConfig])
def test_missing_keys_are_named(model):
    wanted = {
        field.alias or name for name, field in model.model_fields.items() if field.is_required()
    }
    settings, faults = model.check({})

    assert {fault.path[0] for fault in faults if fault.message == "missing"} == wanted
    assert (settings is None) == bool(wanted)


def test_a_fault_can_be_seen_from_further_out():
    assert str(Fault(("key",), "bad").below("a", "b")) == "a.b.key: bad"
    assert str(Fault((), "bad").below("a")) == "a: bad"
    assert str(Fault((), "bad")) == "bad"


def test_a_message_repeats_no_long_value_and_no_whole_file():
    with pytest.raises(UsageError) as caught:
        _Outer.parse({"ratio": "x" * 5000}, where="at")
    assert len(caught.value.message) < 300

    with pytest.raises(UsageError) as caught:
        _Outer.parse({"inner": {"name": "\ud800"}, "maybe": {"name": "x" * 5000}}, where="at")
    assert caught.value.message.startswith("at: invalid JSON")
    assert len(caught.value.message) < 300


def test_of_very_many_faults_the_first_are_named_and_the_others_counted():
    for n, more in (
        (100, []),
        (101, ["at: and 1 faults more"]),
        (1300, ["at: and 1,200 faults more"]),
    ):
        with pytest.raises(UsageError) as caught:
            _Outer.parse({f"key{i}": 1 for i in range(n)}, where="at")
        lines = caught.value.message.splitlines()
        assert [line.startswith(f"at.key{i}: unknown") for i, line in enumerate(lines[:100])] == (
            [True] * 100
        )
        assert lines[100:] == more


def test_a_long_value_is_cut_where_it_is_quoted():
    for n, shown in ((198, f'"{"x" * 198}"'), (199, f'"{"x" * 199}...')):
        _, (fault,) = _Outer.check({"ratio": "x" * n})
        assert fault.message.endswith(f", got {shown}")
    _, (fault,) = _Outer.check({"ratio": {"a": 1}})
    assert "got" not in fault.message
