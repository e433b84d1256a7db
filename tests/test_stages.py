from dataclasses import replace
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import Field

from etlrun.stages import STAGES
from etlrun.stages.base import SPEED, Expected, Kind, Scope, Stage, described, field_metadata
from etlrun.stages.dataset import TfdsDataset
from etlrun.stages.extract import Interleave, Sequential, SkipCorrupt, Tfds
from etlrun.stages.flow import Feature, Flow, UnfitError
from etlrun.stages.image import CenterCrop, Decode, RandomFlip, Rescale, Resize, ScaleMinusOneOne, ScaleZeroOne
from etlrun.stages.load import Batch, Load, Prefetch, Shuffle
from etlrun.stages.model import MobileNetV2
from etlrun.stages.step import Map, Parse, Step
from etlrun.stages.trainer import EarlyStopping, Schedule
from tests.configs import raised
from tests.golden import Says

REGISTERED = [(group, name, stage) for group, names in STAGES.items() for name, stage in names.items()]
IMPLICIT = (TfdsDataset, Load, Shuffle, Batch, Prefetch, Map, EarlyStopping, Schedule, Parse, SkipCorrupt)
ALL_STAGES: list[type[Stage]] = [*(stage for _, _, stage in REGISTERED), *IMPLICIT]
FIELDS = [(stage, field) for stage in ALL_STAGES for field in field_metadata(stage)]
NAMES = [f"{stage.path}.{field}" for stage, field in FIELDS]
NO_VALUES = (
    "load.service", "trainer.fit.early_stopping", "trainer.fit.phases", "trainer.fit.schedule", "transform.map.at_once",
    "transform.map.steps",
)  # fmt: skip


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


TYPES: list[Any] = [
    bool, bool | Literal["auto"] | None, Literal["a", "b", "c"], Annotated[int, Field(ge=1, le=2**63 - 1)] | None,
    Annotated[int, Field(ge=0)], Annotated[int, Field(ge=2)], Annotated[int, Field(ge=1, le=10_000)] | Literal["all"],
    Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=0, lt=1)], tuple[Annotated[int, Field(ge=1)], ...],
    tuple[str, str] | None, Annotated[str, Expected("a size such as 20GB")] | Literal["all"], dict[str, int] | None,
    EarlyStopping,
]  # fmt: skip


def test_a_type_says_its_values(says: Says) -> None:
    says([described(annotation) for annotation in TYPES])


@pytest.mark.parametrize(("group", "name", "stage"), REGISTERED)
def test_a_path_and_the_keys_of_fields_are_where_configs_have_them(group: str, name: str, stage: type[Stage]) -> None:
    assert stage.path == f"{group}.{name}"
    block, fields = f"{group}.{name}" if group == "transform" else group, [*field_metadata(stage)]
    assert [stage.key(field) for field in fields] == [f"{block}.{field}" for field in fields]


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
    assert always == {"shuffle"} | random
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


FLOWS = (
    RECORD, ENCODED, PICTURE, SCALED, SCALED.replace(batch_size=32), decoded("uint8", 80, 60, -0.5, 12.25),
    Flow(features={name: Feature(dtype="float32", shape=(2,)) for name in "cab"}, targets=("b",)),
    SCALED.with_feature("label", Feature(dtype="string", format="text")),
)  # fmt: skip
GIVEN: list[tuple[Stage, Flow]] = [
    *((Tfds(decode=decode), RECORD) for decode in (False, True)),
    *((stage, RECORD) for stage in (Sequential(shuffle_files=False), INTERLEAVE, Parse())),
    (Decode(), ENCODED),
    *((RESIZE, of) for of in (PICTURE, SCALED)),
    *((ROUNDED, of) for of in (PICTURE, SQUARE)),
    *((CenterCrop(), of) for of in (PICTURE, PORTRAIT)),
    (RandomFlip(), PORTRAIT),
    *((Rescale(scale=scale, offset=offset), PICTURE) for scale, offset in ((2.0, 1.0), (-1.0, 0.0))),
    (ScaleZeroOne(), SQUARE),
    *((ScaleMinusOneOne(), of) for of in (SQUARE, PICTURE)),
    *((stage, SCALED) for stage in (SkipCorrupt(), Shuffle(buffer_size=8, seed=0))),
    *((stage, SCALED) for stage in (Batch(batch_size=8, drop_remainder=True), Prefetch(buffer_size="autotune"))),
    *((MODEL, of) for of in (SCALED, decoded("float32", 32, 32, 0, 1))),
]


def test_a_flow_is_told_in_words_and_each_stage_gives_one(says: Says) -> None:
    says([str(flow) for flow in FLOWS])
    says([f"{stage.path}: {flow} -> {stage.flow(flow)}" for stage, flow in GIVEN])


def test_a_cache_gives_what_it_takes() -> None:
    values = {"at": "transformed", "dir": None}
    assert [cache(**values).flow(SCALED) for cache in STAGES["cache"].values()] == [SCALED] * 3


SCALES = (ScaleZeroOne(), ScaleMinusOneOne())
OF_PIXELS = (RESIZE, CenterCrop(), RandomFlip(), Rescale(scale=1.0, offset=0.0), *SCALES, MODEL)
SMALL, OUTSIDE = decoded("float32", 31, 64, -1, 1), decoded("float32", 64, 64, -1.5, 1)
COMPLAINTS: list[tuple[Stage, Flow]] = [
    *((stage, of) for stage in OF_PIXELS for of in (RECORD, ENCODED)),
    *((Decode(), of) for of in (RECORD, PICTURE)),
    *((stage, of) for stage in SCALES for of in (SCALED, decoded(low=-255, high=0))),
    *((ROUNDED, of) for of in (SCALED, decoded(high=1))),
    *((MODEL, of) for of in (decoded("float32", low=-1, high=1), SMALL, SQUARE, OUTSIDE)),
]


def test_what_a_stage_does_not_take_is_told_with_a_remedy(says: Says) -> None:
    for stage, flow in COMPLAINTS:
        with pytest.raises(UnfitError) as caught:
            stage.flow(flow)
        assert str(caught.value) == caught.value.expected
        says(f"{stage.path} of {flow}: {caught.value.expected}\n    -> {caught.value.remedy}")
