from pathlib import Path

from etlrun.cache.store import Identity, Store, first_difference, nearest
from tests.stores import IDENTITY, published


def test_the_first_difference_is_named() -> None:
    assert first_difference(IDENTITY, IDENTITY) is None
    assert first_difference(IDENTITY, [["dataset", "pictures/1.0.0"], ["size", [4, 6]]]) == ("size", [4, 5], [4, 6])
    assert first_difference(IDENTITY, IDENTITY[:1]) == ("size", [4, 5], None)
    assert first_difference(IDENTITY[:1], IDENTITY) == ("size", None, [4, 5])


def test_the_nearest_cache_has_most_in_common(tmp_path: Path) -> None:
    store = Store(tmp_path / "caches")
    others: list[Identity] = [
        [["dataset", "other"], ["size", [4, 5]], ["flip", True]],
        [["dataset", "pictures/1.0.0"], ["size", [4, 5]], ["flip", True]],
    ]
    keys = [published(store, identity) for identity in others]
    near = nearest(IDENTITY, store.entries())
    assert near is not None
    assert near.key == keys[1]
    assert nearest(IDENTITY, []) is None
