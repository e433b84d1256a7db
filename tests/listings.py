"""A table of images in files, or of their bytes, and configs that read it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tests.pictures import jpeg

COUNT = 48
STEPS = "decode, {resize: [32, 40]}, random_flip, scale_minus_one_one"
PHOTO, BYTES = f"photo: {{of: path, steps: [read, {STEPS}]}}", f"photo: {{of: data, steps: [{STEPS}]}}"
AREA = "area: {of: area, steps: [standardize]}"
TARGETS = {"number": "{price: number}", "class": "{kind: class}", "labels": "{tags: {labels: '|'}}"}


def write_listings(folder: Path) -> None:
    """Write a table in CSV with the paths of images in a folder beside it, and one in Parquet with their bytes, too."""
    (folder / "images").mkdir()
    rows = []
    for number in range(COUNT):
        (folder / "images" / f"{number}.jpg").write_bytes(jpeg(number))
        kind, tags = "bright" if number % 2 else "dark", "|".join(["old", "new"][: number % 3])
        rows.append({"path": f"images/{number}.jpg", "area": number % 7 + 0.5, "price": 10.0 * number, "kind": kind})
        rows[-1]["tags"] = tags
    table = pa.Table.from_pylist(rows)
    lines = ["path,area,price,kind,tags", *(",".join(map(str, row.values())) for row in rows)]
    (folder / "listings.csv").write_text("\n".join(lines) + "\n")
    data = pa.array([jpeg(number) for number in range(COUNT)], pa.binary())
    pyarrow.parquet.write_table(table.append_column("data", data), folder / "listings.parquet")


def words_of(folder: Path, *others: str, columns: str = f"{PHOTO}, {AREA}", target: str = "number") -> list[str]:
    """Arguments of a run of the table beside images, or of their bytes, which trains two towers."""
    name = "listings.parquet" if "data" in columns else "listings.csv"
    base = (
        "dataset=table", f"dataset.files={folder / name}", f"dataset.dir={folder / 'kept'}",
        f"dataset.target={TARGETS[target]}", "dataset.order=file", "transform=columns",
        f"transform.columns='{{{columns}}}'", "extract=sequential", "load.shuffle=full", "load.batch_size=8",
        "cache=none", "model=two_towers", "model.base=MobileNetV2", "model.weights=null", "model.units=[4]",
        "trainer.epochs=2",
    )  # fmt: skip
    given = {word.partition("=")[0] for word in others}
    return [*(word for word in base if word.partition("=")[0] not in given), *others]


def emulated(folder: Path, *others: str, **columns: str) -> list[str]:
    kept = [word for word in words_of(folder, *others, **columns) if not word.startswith("model")]
    return [*kept, "model=emulated", "model.step_ms=0"]
