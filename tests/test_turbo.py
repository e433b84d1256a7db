"""Images as pixels: by TensorFlow and TFDS, and in whole batches by libjpeg-turbo and OpenCV; strange images, too."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from etlrun.graph.identity import identity
from etlrun.planning.plan import at_cache
from etlrun.review.difference import compare
from etlrun.run.session import contexts_of
from etlrun.sources.base import open_source
from etlrun.stages.image import CenterCrop, Decode, Resize, Turbo
from tests import pictures
from tests.configs import TENSORFLOW, plan_of
from tests.encoded import LOSSLESS
from tests.golden import Says
from tests.pipelines import as_bytes, passes_of, training_pipeline, validation_of
from tests.programs import of_tiny
from tests.runs import complete_here, emulated, run_here, small
from tests.test_measures import plan_on, seen

RESIZED = "[resize,scale_minus_one_one]"
DECODES = ("extract=tfds", "extract.decode=true", f"transform.steps={RESIZED}", f"transform.eval_steps={RESIZED}")
KINDS: dict[str, tuple[type[np.number[Any]], tuple[int, int, int], bool]] = {
    "grey": (np.uint8, (28, 28, 1), True),
    "grey_of_any_size": (np.uint8, (28, 30, 1), False),
    "with_alpha": (np.uint8, (28, 30, 4), False),
    "of_16_bits": (np.uint16, (28, 30, 3), False),
    "grey_of_16_bits": (np.uint16, (28, 30, 1), True),
    "of_floats": (np.float32, (28, 30, 1), False),
}
"""What each dataset holds: dtype, shape, and whether its feature says the size."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data_dir of a dataset of 12 random images for each kind."""
    data_dir, rng = tmp_path_factory.mktemp("kinds"), np.random.default_rng(0)
    for name, (dtype, shape, is_fixed) in KINDS.items():
        numbers = rng.integers(0, 256 ** np.dtype(dtype).itemsize, (12, *shape)).astype(dtype)
        size = shape[:2] if is_fixed else (None, None)
        feature = tfds.features.Image(shape=(*size, shape[2]), dtype=dtype, encoding_format="png")
        pictures.write_images(data_dir, name, feature, list(numbers))
    return data_dir


@pytest.mark.parametrize("name", [name for name in KINDS if name != "of_floats"])
def test_what_decodes_changes_no_byte(name: str, kinds: Path, tmp_path: Path) -> None:
    def batches(*words: str) -> list[tuple[bytes, bytes, str]]:
        plan, module = of_tiny(kinds, tmp_path, f"dataset.name={name}", "cache=none", *words)
        with training_pipeline(plan) as pipeline:
            found = as_bytes(pipeline.dataset)
        assert as_bytes(module.train_dataset().take(len(found))) == found
        return found

    by_step, by_tfds = batches("extract=tfds", TENSORFLOW), batches(*DECODES)
    assert by_step == by_tfds
    assert len(by_step) == 2


def test_of_16_bits_the_upper_8_stay() -> None:
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    found = Decode.op(tf.io.encode_png(levels))
    np.testing.assert_array_equal(found, np.repeat(levels // 256, 3, axis=2))


def test_a_cache_that_one_has_filled_is_what_the_other_makes(kinds: Path, tmp_path: Path) -> None:
    words = (
        "dataset.name=of_16_bits", TENSORFLOW, "measure.digest=true", "cache=disk", f"cache.dir={tmp_path / 'caches'}",
    )  # fmt: skip
    digests = []
    for number, decodes in enumerate([DECODES, ("extract=tfds",), ("extract=tfds", "cache=none")]):
        summary = complete_here(tmp_path / str(number), emulated(kinds, *words, *decodes, "model.step_ms=0"))
        digests.append(summary["epochs"][0]["digest"])
    assert len(set(digests)) == 1


def test_images_of_floats_are_refused(kinds: Path, tmp_path: Path, says: Says) -> None:
    status, summary = run_here(tmp_path, emulated(kinds, "dataset.name=of_floats"))
    assert status == 1
    says(summary["error"])


SIZE = (32, 40)


def encoded(pixels: Any, style: str, **options: Any) -> bytes:
    """An image as Pillow writes it."""
    file = io.BytesIO()
    Image.fromarray(pixels).convert(options.pop("mode", "RGB")).save(file, style, **options)
    return file.getvalue()


def noise(height: int, width: int) -> Any:
    """Blobs of random colours."""
    rng = np.random.default_rng(height * width)
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return np.repeat(np.repeat(coarse, 8, axis=0), 8, axis=1)[:height, :width]


ARITHMETIC = base64.b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%"
    "yve$z$C;?Br2pFhLjfEf9w;LyPAe-;q;6eqq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@@4J"
    "01*fP5C9kh0U`hb5di}c0sqVZ3IGrg1pyEd1^?Or3<CiG0ucid06zfyq2@JkX>^-+^sxF~psXpr1^%Aft{?I3vS4ma6}^o!=z@g1"
    "0?44oC5~bT-D6?(6l`Hws$l=w"
)
"""24x16 pixels with arithmetic coding, which Pillow does not write: `jpegtran -arithmetic` has made it."""

ODD: Mapping[str, bytes] = {
    "progressive": encoded(noise(60, 50), "JPEG", progressive=True),
    "grey": encoded(noise(60, 50), "JPEG", mode="L"),
    "CMYK": encoded(noise(60, 50), "JPEG", mode="CMYK"),
    "arithmetic coding": ARITHMETIC,
    "4:4:4": encoded(noise(61, 51), "JPEG", subsampling=0),
    "one pixel": encoded(noise(1, 1), "JPEG"),
    "65,500 pixels wide": encoded(noise(3, 65_500), "JPEG"),
    "of its size": encoded(noise(*SIZE), "JPEG"),
    "PNG": encoded(noise(60, 50), "PNG"),
    "PNG of 16 bits": bytes(tf.io.encode_png(noise(60, 50).astype(np.uint16) * 257).numpy()),
    "animated PNG": encoded(
        noise(60, 50),
        "PNG",
        save_all=True,
        default_image=True,
        append_images=[Image.fromarray(255 - noise(60, 50)), Image.fromarray(noise(60, 50)[::-1])],
    ),
    "GIF": encoded(noise(60, 50), "GIF"),
    "BMP": encoded(noise(60, 50), "BMP"),
}


def by_turbo(data: bytes, *, size: tuple[int, int] | None, crop: bool = False, fast: bool = False) -> Any:
    """Without a size in that of the image, for which OpenCV copies it."""
    size = size or tuple(by_tensorflow(data, size=None).shape[:2])
    (image,) = Turbo.op([data], center_crop=crop, size=size, fast=fast)
    return image


def by_tensorflow(data: bytes, *, size: tuple[int, int] | None, crop: bool = False) -> Any:
    image = Decode.op(data)
    image = CenterCrop.op(image) if crop else image
    if size is None:
        return image.numpy()
    return Resize.op(image, size=size, method="bilinear", antialias=False, dtype="uint8").numpy()


@pytest.mark.parametrize("name", ODD)
def test_any_image_is_that_of_tensorflow_but_for_the_rounding_of_its_resize(name: str) -> None:
    np.testing.assert_array_equal(by_turbo(ODD[name], size=None), by_tensorflow(ODD[name], size=None))
    for crop in (False, True):
        found, expected = by_turbo(ODD[name], size=SIZE, crop=crop), by_tensorflow(ODD[name], size=SIZE, crop=crop)
        np.testing.assert_allclose(found, expected.astype(int), atol=1)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_a_fast_jpeg_of_its_size_is_that_of_tensorflow_without_fancy_upscaling(subsampling: str) -> None:
    data = encoded(noise(61, 51), "JPEG", subsampling=subsampling)
    expected = tf.io.decode_jpeg(data, channels=3, fancy_upscaling=False)
    np.testing.assert_array_equal(by_turbo(data, size=None, fast=True), expected)
    assert np.array_equal(expected, by_turbo(data, size=None)) == (subsampling == "4:4:4")


@pytest.mark.parametrize(
    "before", [b"", b"\xff", b"\xff\xfe\x00\x06\xff\xc0\xff\xda"], ids=["plain", "filled", "comment"]
)
def test_a_jpeg_without_loss_is_left_to_tensorflow_wherever_its_frame_is(before: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        by_turbo(LOSSLESS[:2] + before + LOSSLESS[2:], size=SIZE)


def test_a_batch_has_each_image_at_its_place_in_aligned_memory() -> None:
    images = Turbo.op([*ODD.values()], center_crop=False, size=SIZE, fast=False)
    assert images.__array_interface__["data"][0] % 64 == 0
    for image, data in zip(images, ODD.values(), strict=True):
        np.testing.assert_array_equal(image, by_turbo(data, size=SIZE))


@pytest.mark.parametrize(("height", "width", "factor"), [(600, 800, 8), (350, 290, 4), (150, 140, 2), (100, 70, 1)])
@pytest.mark.parametrize("crop", [False, True])
def test_a_large_jpeg_is_decoded_at_a_fraction_that_is_no_smaller_than_its_size(
    height: int, width: int, factor: int, *, crop: bool
) -> None:
    import simplejpeg

    data, size = encoded(noise(height, width), "JPEG", quality=95), (64, 32)
    least = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
    smaller = simplejpeg.decode_jpeg(data, fastdct=True, fastupsample=True, **least)
    assert smaller.shape == (*least.values(), 3)
    small_one = ODD["grey"]
    found, same = Turbo.op([data, small_one], center_crop=crop, size=size, fast=True)
    expected = by_tensorflow(encoded(smaller, "PNG"), size=size, crop=crop)
    np.testing.assert_allclose(found, expected.astype(int), atol=1)
    np.testing.assert_array_equal(same, by_turbo(small_one, size=size, crop=crop))


def stages_of(*overrides: str) -> list[str]:
    return [planned.stage.path.partition(".")[2] for planned in plan_of(*overrides).train]


def test_it_takes_the_batches_of_the_model_where_nothing_is_between(says: Says) -> None:
    says(" ".join(stages_of("cache=none")))
    says(" ".join(stages_of("cache=none", "load.shuffle_at=before_batch")))
    says(" ".join(stages_of("cache=none", "transform=augmented_224")))
    says(" ".join(stages_of("cache=memory")))
    says(" ".join(stages_of("cache=disk", "cache.at=source")))
    says(" ".join(stages_of("cache.at=decoded")))
    says(" ".join(stages_of("cache=none", "transform.resize.antialias=true")))


VARIANTS: Mapping[str, tuple[str, ...]] = {
    "batches": ("cache=none",),
    "serial": ("cache=none", "transform.num_parallel_calls=null", "extract=sequential"),
    "read by tfds": ("cache=none", "extract=tfds"),
    "shuffled late": ("cache=none", "load.shuffle_at=before_batch"),
    "in memory": ("cache=memory",),
    "in memory as read": ("cache=memory", "cache.at=source"),
    "in memory, decoded": ("cache=memory", "cache.at=decoded"),
    "on disk": ("cache=disk",),
    "on disk as read": ("cache=disk", "cache.at=source"),
    "on disk, decoded": ("cache=disk", "cache.at=decoded"),
}
STEPS: Mapping[str, tuple[str, ...]] = {
    "resized": (),
    "cropped and flipped": (
        "transform.steps=[decode,center_crop,resize,random_flip,scale_minus_one_one]",
        "transform.eval_steps=[decode,center_crop,resize,scale_minus_one_one]",
    ),
    "antialiased": ("transform.resize.antialias=true",),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
def test_the_examples_are_the_same_at_every_point(steps: str, tiny: Path, tmp_path: Path) -> None:
    plans = []
    for name in VARIANTS.keys() - {"serial", "read by tfds"}:  # which read in another order
        before_flip = (
            ("cache.at=resize",) if steps == "cropped and flipped" and name in ("in memory", "on disk") else ()
        )
        words = small(tiny, f"cache.dir={tmp_path}", *STEPS[steps], *VARIANTS[name], *before_flip)
        plans.append(plan_of(*words))
    found = [passes_of(plan) for plan in plans]
    assert all(passes == found[0] for passes in found)
    assert len({plan.fingerprint for plan in plans}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_program_decodes_the_same_batches(name: str, tiny: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(tiny, tmp_path, *VARIANTS[name], f"cache.dir={tmp_path / 'caches'}")
    passes = passes_of(plan)
    assert as_bytes(module.train_dataset())[: 2 * len(passes[0])] == [*passes[0], *passes[1]]
    plain = plan_of(*small(tiny, *VARIANTS[name], "cache=none"))
    assert as_bytes(module.validation_dataset()) == validation_of(plain)


def test_a_cache_of_it_is_another_one(tiny: Path) -> None:
    def key(*overrides: str) -> list[Any]:
        plan = plan_of(*small(tiny, "cache=disk", *overrides))
        context = contexts_of(plan, open_source(plan.spec.dataset), with_validation=False)["train"]
        return identity(at_cache(plan.train)[0], context)

    plain, turbo = key(TENSORFLOW), key()
    assert plain != turbo
    assert {"simplejpeg", "opencv-python-headless"} <= {name for name, _ in turbo} - {name for name, _ in plain}
    assert key("transform.num_parallel_calls=1") == turbo
    assert key("transform.decode.fast=true") != turbo


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_broken_image_is_named_or_skipped(on_corrupt: str, tiny: Path, tmp_path: Path) -> None:
    for name, data in (("text", b"no picture"), ("cut", pictures.jpeg(5)[:700])):
        damage = pictures.with_feature("image", pictures.feature_of(data))
        shard = pictures.damaged(tiny, tmp_path / name, damage)
        words = emulated(tmp_path / name, f"dataset.on_corrupt={on_corrupt}", "load.drop_remainder=false")
        errors: list[Any] = []
        for library in ("tensorflow", "turbo"):
            folder = tmp_path / f"{name}_{library}"
            status, summary = run_here(folder, [*words, "cache=none", f"transform.decode.library={library}"])
            assert status == (1 if on_corrupt == "raise" else 0)
            errors.append(summary.get("error") or [summary["skipped"], summary["epochs"][0]["examples"]])
        assert errors[0] == errors[1]
        if on_corrupt == "raise":
            assert errors[0].startswith(f"{shard}, record 5: found an image that can't be decoded")
        else:
            assert errors[0] == [{"train": 1, "validation": 0}, 37]


def test_a_run_measures_it_as_a_stage(tiny: Path, tmp_path: Path) -> None:
    words = emulated(tiny, "cache=none", "transform.resize.size=[256,256]", "model.step_ms=10", "trainer.epochs=3")
    summary = complete_here(tmp_path, [*words, "dataset.eval_split=null", "load.shuffle_buffer=0"])
    rows = {row["stage"]: row for row in summary["stages"]}
    assert list(rows) == ["extract.interleave", "load.batch", "transform.map", "transform.turbo", "load.prefetch"]
    assert rows["transform.turbo"]["cost_ms"] > 0
    assert rows["transform.turbo"]["examples"] > 0


SKIP = "dataset.on_corrupt=skip"
READS = {
    "uncached": ("cache=none",),
    "shuffled late": ("cache=none", "load.shuffle_at=before_batch"),
    "in memory": ("cache=memory",),
    "on disk": ("cache=disk",),
    "flipped": ("cache=none", "transform.steps=[decode,resize,random_flip,scale_minus_one_one]"),
    "from JPEGs": ("cache=memory", "cache.codec=jpeg90"),
}


def broken(shard: Path) -> None:
    """Give a shard a record without a label, two images that can't be decoded, and a PNG."""
    png = tf.io.encode_png(np.full((9, 9, 3), 200, np.uint8)).numpy()
    for place, data in {5: b"no image", 6: pictures.jpeg(5)[:700], 8: png}.items():
        pictures.with_feature("image", pictures.feature_of(data), places=(place,))(shard)
    pictures.with_feature("label", None, places=(1,))(shard)


@pytest.fixture(scope="module")
def with_broken(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("broken") / "data"
    pictures.damaged(tiny, data_dir, broken)
    return data_dir


@pytest.mark.parametrize("name", READS)
def test_images_are_decoded_in_batches_although_broken_ones_are_skipped(name: str) -> None:
    stages = [of.stage for of in plan_of(SKIP, *READS[name]).train]
    turbo = {stage.path: getattr(stage, "at_once", None) for stage in stages if "turbo" in stage.path}
    assert turbo.pop("transform.turbo") == 32
    turbo.pop("transform.after_turbo", None)
    assert turbo == ({"transform.turbo_after_cache": 0} if name == "from JPEGs" else {})


@pytest.mark.parametrize("name", READS)
def test_all_but_the_broken_images_are_those_of_sound_data(
    name: str, tiny: Path, with_broken: Path, tmp_path: Path
) -> None:
    """In the order of the data: in a shuffle, what is skipped shifts those behind it."""
    words = (*READS[name], "load.shuffle_buffer=0", f"cache.dir={tmp_path}", "dataset.split=train")
    words = (*words, "extract=sequential", "load.batch_size=1", "dataset.eval_split=null")
    skipping = plan_of(*small(with_broken, *words, SKIP))
    shards = len(list(tiny.rglob("*.tfrecord-*")))
    first = pictures.NUM_EXAMPLES // shards
    with training_pipeline(plan_of(*small(tiny, *words))) as pipeline:
        sound = as_bytes(pipeline.dataset)
    lost = [first + number for number in (1, 5, 6)]
    with training_pipeline(skipping) as pipeline:
        for _ in range(2):
            found = as_bytes(pipeline.dataset)
            expected = [batch for number, batch in enumerate(sound) if number not in lost]
            is_png = first + 8 - len(lost)
            assert len(found) == len(expected)
            if name != "flipped":  # whose seeds depend on the pass
                assert [*found[:is_png], *found[is_png + 1 :]] == [*expected[:is_png], *expected[is_png + 1 :]]
            assert found[is_png][0] != expected[is_png][0]
        assert [record.where.rpartition(" ")[2] for record in pipeline.context.losses.records or ()] == ["1", "5", "6"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncached", "flipped", "from JPEGs"])
def test_a_program_skips_the_same(name: str, with_broken: Path, tmp_path: Path) -> None:
    plan, module = of_tiny(with_broken, tmp_path, SKIP, *READS[name], "dataset.split='train[:75%]'")
    passes = [batch for found in passes_of(plan) for batch in found]
    assert as_bytes(module.train_dataset())[: len(passes)] == passes
    assert as_bytes(module.validation_dataset()) == validation_of(plan)


def test_a_batch_of_broken_images_is_an_empty_one(tiny: Path, tmp_path: Path) -> None:
    places = range(pictures.NUM_EXAMPLES // 4)
    all_broken = pictures.with_feature("image", pictures.feature_of(b"no image"), places=places)
    pictures.damaged(tiny, tmp_path / "data", all_broken)
    shards = sorted((tmp_path / "data").rglob("*.tfrecord-*"))
    for shard in (shards[0], shards[2]):
        all_broken(shard)
    words = (SKIP, "cache=none", "dataset.split=train", "dataset.eval_split=null", "extract=sequential")
    with training_pipeline(plan_of(*small(tmp_path / "data", *words))) as pipeline:
        assert sum(len(labels) // 8 for _, labels, _ in as_bytes(pipeline.dataset)) == pictures.NUM_EXAMPLES // 4


def test_all_its_nodes_belong_to_it(tiny: Path) -> None:
    serial = (
        "load.prefetch=0",
        "load.num_parallel_calls=null",
        "transform.num_parallel_calls=null",
    )  # reads no batch ahead
    costs = seen(plan_on(tiny, SKIP, "transform.decode.library=turbo", *serial))
    rows = {row.stage: row for row in costs.rows}
    assert [*rows][:4] == ["extract.interleave", "transform.map", "transform.turbo", "load.shuffle"]  # turbo skips
    assert rows["transform.map"].examples >= rows["load.shuffle"].examples > 0


def test_tensorflow_takes_the_names_of_its_parameters(with_broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    with training_pipeline(plan_of(*small(with_broken, SKIP, "cache=none"))) as pipeline:
        assert next(pipeline.repeated_alone(pipeline.stages, from_cache=False))
    assert "is not a valid node name" not in caplog.text


def of_simplejpeg(subsampling: str, height: int, width: int) -> bytes:
    """A JPEG with a subsampling that Pillow does not write."""
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(noise(height, width)), 92, colorsubsampling=subsampling)
    return data


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06" + bytes(6)
PHOTO, PNG = encoded(noise(61, 51), "JPEG", quality=90), encoded(noise(61, 51), "PNG")
_CMYK = bytearray(ODD["CMYK"])
_CMYK[_CMYK.index(b"Adobe") + 11] = 2
STRANGE: Mapping[str, bytes] = {
    **{f"{of}, {side}": of_simplejpeg(of, side, side + 3) for of in ("440", "411", "422") for side in (1, 15, 16, 33)},
    "YCCK": bytes(_CMYK),
    "EXIF's orientation": encoded(noise(61, 51), "JPEG", exif=TURNED),
    "quality of 5": encoded(noise(61, 51), "JPEG", quality=5),
    "quality of 100, progressive, 4:2:2": encoded(noise(61, 51), "JPEG", quality=100, progressive=True, subsampling=1),
    "optimized": encoded(noise(61, 51), "JPEG", optimize=True),
    "restarts": encoded(noise(61, 51), "JPEG", restart_marker_blocks=2),
    "garbage behind": PHOTO + b"garbage" * 40,
    "garbage before its end": PHOTO[:-2] + b"garbage" * 40 + PHOTO[-2:],
    **{f"JPEG, {share:.0%}": cut(PHOTO, share) for share in (0.02, 0.3, 0.6, 0.9, 0.99)},
    "JPEG, closed": cut(PHOTO, 0.6) + b"\xff\xd9",
    **{f"PNG, {share:.0%}": cut(PNG, share) for share in (0.02, 0.3, 0.9, 0.999)},
    "PNG, closed": cut(PNG, 0.6) + PNG[-12:],
    "PNG with a bad checksum": PNG[:-1] + b"\0",
    "PNG with a bad checksum inside": PNG[:80] + bytes([PNG[80] ^ 1]) + PNG[81:],
    "PNG with garbage behind": PNG + b"garbage",
    "no image": b"no image",
    "no bytes": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_image_has_the_pixels_of_tensorflow_or_is_refused_like_there(name: str) -> None:
    data, reason = STRANGE[name], ""
    try:
        expected = by_tensorflow(data, size=None)
    except tf.errors.InvalidArgumentError as error:
        reason = error.message
    if reason:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            Turbo.op([data], center_crop=False, size=SIZE, fast=False)
        assert caught.value.message == reason
    else:
        np.testing.assert_array_equal(by_turbo(data, size=None), expected)


def test_photos_have_the_pixels_of_tensorflow(photos: Path) -> None:
    records = tf.data.TFRecordDataset([str(path) for path in sorted(photos.rglob("cats_vs_dogs-train*"))])
    for record in records.shard(10, 0).as_numpy_iterator():
        data = tf.train.Example.FromString(record).features.feature["image"].bytes_list.value[0]
        expected = by_tensorflow(data, size=None)
        np.testing.assert_array_equal(by_turbo(data, size=None), expected)
        resized = by_tensorflow(data, size=(224, 224))
        apart = np.abs(by_turbo(data, size=(224, 224)).astype(int) - resized)
        assert apart.max() <= 1
        assert apart.mean() < 0.2


@pytest.mark.parametrize("word", ["transform.resize.antialias=true", "transform.resize.dtype=float32"])
def test_where_it_resizes_nothing_the_library_changes_the_speed_alone(word: str, tiny: Path) -> None:
    plans = [plan_of(*small(tiny, "cache=none", word, *library)) for library in ((), (TENSORFLOW,))]
    assert plans[0].fingerprint == plans[1].fingerprint
    assert passes_of(plans[0]) == passes_of(plans[1])
    (difference,) = compare(plans[0], plans[1]).differences
    assert (difference.path, difference.kind) == ("transform.decode.library", "speed")
    assert compare(plan_of(), plan_of(TENSORFLOW)).headline == "changes the data, from transform.decode on"
