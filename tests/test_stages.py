from dataclasses import replace
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import Field

from etlrun.stages import STAGES
from etlrun.stages.base import SPEED, Expected, Kind, Scope, Stage, described, field_metadata, parameters
from etlrun.stages.colour import RandomGrey
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, Tfds
from etlrun.stages.flow import Feature, Flow, UnfitError
from etlrun.stages.image import CenterCrop, Decode, RandomFlip, Rescale, Resize, ScaleMinusOneOne, ScaleZeroOne
from etlrun.stages.load import Batch, Load, Prefetch, Shuffle
from etlrun.stages.model import MobileNetV2
from etlrun.stages.step import Map, Parse, Step
from etlrun.stages.trainer import EarlyStopping, Schedule
from tests.configs import raised

REGISTERED = [(group, name, stage) for group, names in STAGES.items() for name, stage in names.items()]
IMPLICIT = (TfdsDataset, Load, Shuffle, Batch, Prefetch, Map, EarlyStopping, Schedule, Parse, SkipCorrupt)
ALL_STAGES: list[type[Stage]] = [*(stage for _, _, stage in REGISTERED), *IMPLICIT]
FIELDS = [(stage, field) for stage in ALL_STAGES for field in field_metadata(stage)]
NAMES = [f"{stage.path}.{field}" for stage, field in FIELDS]
NO_VALUES = (
    "load.service",
    "trainer.fit.early_stopping",
    "trainer.fit.phases",
    "trainer.fit.schedule",
    "transform.map.at_once",
    "transform.map.steps",
)


def with_image(image: Feature) -> Flow:
    """Examples of this image and a class."""
    return Flow(features={"image": image, "label": Feature(dtype="int64", is_class=True)}, targets=("label",))


def decoded(
    dtype: str = "uint8", height: int | None = None, width: int | None = None, low: float = 0, high: float = 255
) -> Flow:
    return with_image(Feature(dtype=dtype, shape=(height, width, 3), low=low, high=high))


ENCODED = with_image(Feature(dtype="string", format="image"))
RECORD = ENCODED.replace(record="serialised example")
PICTURE = decoded()
PORTRAIT = decoded(height=80, width=60)
SQUARE = decoded("float32", 64, 64)
SCALED = decoded("float32", 64, 64, -1, 1)
RESIZE = Resize(size=(64, 48), method="bilinear", antialias=False, dtype="float32")
ROUNDED = replace(RESIZE, dtype="uint8")
MODEL = MobileNetV2(alpha=1.0, weights=None, trainable=True, batch_norm_momentum=None)
INTERLEAVE = Interleave(
    shuffle_files=False, cycle_length=4, block_length=1, num_parallel_calls=None, deterministic=True
)


@pytest.mark.parametrize(("stage", "field"), FIELDS, ids=NAMES)
def test_a_field_carries_kinds_with_the_strongest_first_unless_no_config_has_its_value(
    stage: type[Stage], field: str
) -> None:
    kinds = [item for item in field_metadata(stage)[field] if isinstance(item, Kind)]
    assert bool(kinds) != (f"{stage.path}.{field}" in NO_VALUES)
    assert kinds == [kind for kind in Kind if kind in kinds]
    assert len(kinds) == 1 or SPEED not in kinds


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bool, "true or false"),
        (bool | Literal["auto"] | None, "true, false, auto or null"),
        (Literal["a", "b", "c"], "a, b or c"),
        (Annotated[int, Field(ge=1, le=2**63 - 1)] | None, "a positive integer, or null"),
        (Annotated[int, Field(ge=0)], "a non-negative integer"),
        (Annotated[int, Field(ge=2)], "an integer from 2"),
        (Annotated[int, Field(ge=1, le=10_000)] | Literal["all"], "an integer from 1 to 10,000, or all"),
        (Annotated[float, Field(gt=0, le=1)], "a number above 0, at most 1"),
        (Annotated[float, Field(ge=0, lt=1)], "a number in [0, 1)"),
        (tuple[Annotated[int, Field(ge=1)], ...], "a list of positive integers"),
        (tuple[str, str] | None, "a list of 2 strings, or null"),
        (Annotated[str, Expected("a size such as 20GB")] | Literal["all"], "a size such as 20GB, or all"),
        (dict[str, int] | None, "a mapping, or null"),
        (EarlyStopping, "a mapping"),
    ],
)
def test_a_type_says_its_values(annotation: Any, words: str) -> None:
    assert described(annotation) == words


@pytest.mark.parametrize(
    ("group", "name", "stage"), REGISTERED, ids=[f"{group}.{name}" for group, name, _ in REGISTERED]
)
def test_a_path_is_the_group_and_the_name_by_which_configs_call_a_stage(
    group: str, name: str, stage: type[Stage]
) -> None:
    assert stage.path == f"{group}.{name}"


@pytest.mark.parametrize(
    ("group", "name", "stage"), REGISTERED, ids=[f"{group}.{name}" for group, name, _ in REGISTERED]
)
def test_the_key_of_a_field_is_where_a_config_has_it(group: str, name: str, stage: type[Stage]) -> None:
    block = f"{group}.{name}" if group == "transform" else group
    assert [stage.key(field) for field in field_metadata(stage)] == [
        f"{block}.{field}" for field in field_metadata(stage)
    ]


def test_a_field_that_there_is_not_has_no_key() -> None:
    with pytest.raises(AttributeError, match=r"^Load has no field prefetched$"):
        Load.key("prefetched")


@pytest.mark.parametrize(
    ("stage", "points"), [(Parse, ("source",)), (Decode, ("decoded", "decode")), (CenterCrop, ("center_crop",))]
)
def test_a_step_names_the_points_after_it(stage: type[Step], points: tuple[str, ...]) -> None:
    assert stage().points == points


def test_stages_that_are_named_so_differ_from_pass_to_pass() -> None:
    random = {name for name in STAGES["transform"] if name.startswith("rand")} | {"cutout"}
    always = {stage.path.partition(".")[2] for stage in ALL_STAGES if cast("Any", stage).random is True}
    assert always == {"shuffle"} | random - {"random_grey"}
    assert [RandomGrey(probability=share).random for share in (0.5, 1.0)] == [True, False]
    orders = [replace(INTERLEAVE, shuffle_files=True).random, Sequential(shuffle_files=True).random, INTERLEAVE.random]
    assert orders == [True, True, False]


def test_what_a_graph_does_with_a_stage_stands_in_its_class() -> None:
    scopes = {stage: stage.scope for stage in ALL_STAGES if stage.scope is not Scope.ONCE}
    assert scopes == {Shuffle: Scope.EACH, Batch: Scope.EACH, Prefetch: Scope.AROUND}
    assert [stage for stage in ALL_STAGES if stage.only_reorders] == [Shuffle]
    assert [stage for stage in ALL_STAGES if stage.leaves_out] == [SkipCorrupt]
    assert [stage.path for stage in ALL_STAGES if stage.keeps] == ["cache.memory", "cache.disk"]


def test_an_order_is_one_where_there_is_one_shard_and_no_more_shards_are_open_than_there_are() -> None:
    shuffled = replace(INTERLEAVE, shuffle_files=True, cycle_length=3, block_length=5)
    alike = replace(INTERLEAVE, num_parallel_calls="autotune")
    assert [shuffled.canonical(shards) for shards in (1, 2, 9)] == [
        replace(alike, cycle_length=1),
        replace(alike, shuffle_files=True, cycle_length=2, block_length=5),
        replace(alike, shuffle_files=True, cycle_length=3, block_length=5),
    ]


@pytest.mark.parametrize(
    ("features", "handed"),
    [({"image": SQUARE.features["image"]}, "x"), ({"b": Feature(dtype="int8"), "a": Feature(dtype="int8")}, None)],
    ids=["one input", "two inputs"],
)
def test_a_model_is_handed_one_input_as_it_is_and_several_by_their_names(
    features: dict[str, Feature], handed: str | None
) -> None:
    flow = Flow(features={**features, "price": Feature(dtype="float32")}, targets=("price",))
    example = dict.fromkeys(features, "x") | {"price": "y"}
    assert flow.handed(example) == (handed or dict.fromkeys(features, "x"), "y")
    assert flow.columns == (*sorted(features), "price")
    assert raised(UnfitError, flow.feature, "weight") == f"a feature 'weight'; known are {', '.join(sorted(example))}"


def test_parameters_come_in_order_of_definition_with_values_and_kinds() -> None:
    found = [(parameter.name, parameter.value, parameter.kind) for parameter in parameters(INTERLEAVE)]
    assert found == [
        ("shuffle_files", False, Kind.ORDER),
        ("cycle_length", 4, Kind.ORDER),
        ("block_length", 1, Kind.ORDER),
        ("num_parallel_calls", None, Kind.SPEED),
        ("deterministic", True, Kind.ORDER),
    ]


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        (RECORD, "serialised example"),
        (ENCODED, "encoded image, label"),
        (PICTURE, "uint8 [?, ?, 3] in [0, 255], label"),
        (SCALED, "float32 [64, 64, 3] in [-1, 1], label"),
        (SCALED.replace(batch_size=32), "32 x float32 [64, 64, 3] in [-1, 1], label"),
        (decoded("uint8", 80, 60, -0.5, 12.25), "uint8 [80, 60, 3] in [-0.5, 12.25], label"),
        (
            Flow(features={name: Feature(dtype="float32", shape=(2,)) for name in "cab"}, targets=("b",)),
            "{a: float32 [2], c: float32 [2]}, b: float32 [2]",
        ),
        (
            SCALED.with_feature("label", Feature(dtype="string", format="text")),
            "float32 [64, 64, 3] in [-1, 1], label: text",
        ),
    ],
)
def test_a_flow_is_told_in_words(flow: Flow, text: str) -> None:
    assert str(flow) == text


@pytest.mark.parametrize(
    ("stage", "incoming", "outgoing"),
    [
        (Tfds(decode=False), RECORD, ENCODED),
        (Tfds(decode=True), RECORD, PICTURE),
        (Sequential(shuffle_files=False), RECORD, RECORD),
        (INTERLEAVE, RECORD, RECORD),
        (Parse(), RECORD, ENCODED),
        (Decode(), ENCODED, PICTURE),
        (RESIZE, PICTURE, decoded("float32", 64, 48)),
        (RESIZE, SCALED, decoded("float32", 64, 48, -1, 1)),
        (ROUNDED, PICTURE, decoded("uint8", 64, 48)),
        (ROUNDED, SQUARE, decoded("uint8", 64, 48)),
        (CenterCrop(), PICTURE, PICTURE),
        (CenterCrop(), PORTRAIT, decoded("uint8", 60, 60)),
        (RandomFlip(), PORTRAIT, PORTRAIT),
        (Rescale(scale=2.0, offset=1.0), PICTURE, decoded("float32", low=1, high=511)),
        (Rescale(scale=-1.0, offset=0.0), PICTURE, decoded("float32", low=-255, high=0)),
        (ScaleZeroOne(), SQUARE, decoded("float32", 64, 64, 0, 1)),
        (ScaleMinusOneOne(), SQUARE, SCALED),
        (ScaleMinusOneOne(), PICTURE, decoded("float32", low=-1, high=1)),
        (SkipCorrupt(), SCALED, SCALED),
        (Shuffle(buffer_size=8, seed=0), SCALED, SCALED),
        (Batch(batch_size=8, drop_remainder=True), SCALED, SCALED.replace(batch_size=8)),
        (Prefetch(buffer_size="autotune"), SCALED, SCALED),
        (MODEL, SCALED, SCALED),
        (MODEL, decoded("float32", 32, 32, 0, 1), decoded("float32", 32, 32, 0, 1)),
    ],
    ids=lambda value: value.path if isinstance(value, Stage) else "",
)
def test_what_a_stage_gives(stage: Stage, incoming: Flow, outgoing: Flow) -> None:
    assert stage.flow(incoming) == outgoing


def test_a_cache_gives_what_it_takes() -> None:
    values = {"at": "transformed", "dir": None}
    assert [cache(**values).flow(SCALED) for cache in STAGES["cache"].values()] == [SCALED] * 3


BEFORE, SCALING = (
    ("a decoded image", "put `decode` before it in the steps"),
    "keep one of the scaling steps and remove the other",
)
SCALE = ("pixels in [-1, 1] or [0, 1]", "end the steps with `scale_minus_one_one` (Keras) or `scale_zero_one` (Hub)")
ROUNDS = "pixels in [0, 255], since it rounds to uint8"
OF_PIXELS = (
    RESIZE,
    CenterCrop(),
    RandomFlip(),
    Rescale(scale=1.0, offset=0.0),
    ScaleZeroOne(),
    ScaleMinusOneOne(),
    MODEL,
)
COMPLAINTS: list[tuple[Stage, Flow, tuple[str, str]]] = [
    *((stage, incoming, BEFORE) for stage in OF_PIXELS for incoming in (RECORD, ENCODED)),
    *(
        (Decode(), of, ("an encoded image", "leave `decode` out of the steps, or set extract.decode=false"))
        for of in (RECORD, PICTURE)
    ),
    *(
        (stage, of, ("pixels in [0, 255]", "keep one of the scaling steps and remove the other"))
        for stage in (ScaleZeroOne(), ScaleMinusOneOne())
        for of in (SCALED, decoded(low=-255, high=0))
    ),
    *(
        (ROUNDED, of, (ROUNDS, "put the scaling after `resize`, or set transform.resize.dtype=float32"))
        for of in (SCALED, decoded(high=1))
    ),
    (MODEL, decoded("float32", low=-1, high=1), ("images of one size", "add `resize` to the steps")),
    (
        MODEL,
        decoded("float32", 31, 64, -1, 1),
        ("images of at least 32x32 pixels", "set transform.resize.size=[64,64] or larger"),
    ),
    (MODEL, SQUARE, SCALE),
    (MODEL, decoded("float32", 64, 64, -1.5, 1), SCALE),
]


@pytest.mark.parametrize(("stage", "incoming", "complaint"), COMPLAINTS, ids=str)
def test_what_a_stage_does_not_take_is_told_with_a_remedy(
    stage: Stage, incoming: Flow, complaint: tuple[str, str]
) -> None:
    with pytest.raises(UnfitError) as caught:
        stage.flow(incoming)
    assert str(caught.value) == caught.value.expected
    assert (caught.value.expected, caught.value.remedy) == complaint
