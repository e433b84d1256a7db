"""Folders of caches that hold other things, too: these are nobody's but their owner's."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etlrun.cache.store import Store
from etlrun.cli import main as cli
from etlrun.system.errors import WorldError
from tests.runs import emulated
from tests.stores import KEY, PICTURES, keeper_of, published, tree

Captured = pytest.CaptureFixture[str]
OTHER = "0123456789abcdef0123"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "caches")


def say(capsys: Captured, *words: str) -> list[str]:
    capsys.readouterr()
    cli.main(["cache", *words])
    return capsys.readouterr().out.splitlines()


def filled(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("mine")


def test_gc_and_ls_leave_alone_what_has_no_name_of_a_cache(store: Store, capsys: Captured) -> None:
    published(store)
    for name in (
        "photos",
        "thesis.filling",
        "notes.gone.1",
        f"{KEY}x",
        f"{KEY[:-1]}",
        f"{KEY.upper()}.filling",
        f"{KEY}.filling.old",
        f"{KEY}.gone.1",
        f"{KEY}\n",
    ):
        filled(store.folder / name, "a.jpg", "cache.json")
    (store.folder / "photos" / "dangling").symlink_to("nowhere")
    (store.folder / "a.filling").write_text("mine")
    before = {name: kept for name, kept in tree(store.folder).items() if not name.startswith(f"{KEY}/")}
    before.pop(KEY)
    table = say(capsys, "ls", "--dir", str(store.folder))
    assert [line.split()[0] for line in table] == ["key", KEY, "1"]
    assert say(capsys, "gc", "--dir", str(store.folder), "--max-bytes", "0", "--yes")[1:] == [
        f"0 caches (0.0 MB) in {store.folder}"
    ]
    assert tree(store.folder) == before


def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "\udcff"
    published(Store(folder))
    out = say(capsys, "ls", "--dir", str(folder))
    assert out[-1] == rf"1 cache (0.0 MB) in {tmp_path}/\udcff"


def linked(path: Path) -> None:
    filled(path.parent.parent / "elsewhere", "cache.json", "part_00000.bin")
    path.symlink_to(path.parent.parent / "elsewhere")


STRANGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder of somebody's": (
        lambda path: filled(path, "cache.json", "photo.jpg"),
        "a folder that holds photo.jpg has the name of a cache",
    ),
    "a folder of folders": (
        lambda path: filled(path / "part_00000.bin", "photo.jpg"),
        "a folder that holds part_00000.bin has the name of a cache",
    ),
    "a name that is no text": (
        lambda path: filled(path, "\udcff.jpg"),
        r"a folder that holds \xff.jpg has the name of a cache",
    ),
    "a file": (lambda path: path.write_text("mine"), "a file has the name of a cache"),
    "a link": (linked, "a link has the name of a cache"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "a link has the name of a cache"),
}
each_stranger = pytest.mark.parametrize(("make", "reason"), STRANGERS.values(), ids=STRANGERS)


@each_stranger
@pytest.mark.parametrize("suffix", ["", ".filling", ".gone.0123abcd"])
def test_strangers_under_the_name_of_a_cache_are_named_and_kept(
    make: Callable[[Path], object], reason: str, suffix: str, store: Store, capsys: Captured
) -> None:
    published(store)
    make(store.folder / f"{OTHER}{suffix}")
    before = tree(store.folder.parent)
    end = [f"ignored {OTHER}{suffix}: {reason}", f"1 cache (0.0 MB) in {store.folder}"]
    assert say(capsys, "ls", "--dir", str(store.folder))[2:] == end
    assert say(capsys, "gc", "--dir", str(store.folder), "--max-bytes", "9999", "--yes") == end
    assert tree(store.folder.parent) == before


@each_stranger
@pytest.mark.parametrize("suffix", ["", ".filling"])
def test_a_run_goes_without_a_cache_whose_name_something_else_has(
    make: Callable[[Path], object], reason: str, suffix: str, store: Store
) -> None:
    store.folder.mkdir()
    make(store.folder / f"{KEY}{suffix}")
    before = tree(store.folder.parent)
    said: list[str] = []
    keeper = keeper_of(store, said.append)
    keeper.prepare()
    fill = keeper.begin()
    keeper.add(fill, PICTURES[0], fill)
    keeper.publish(fill)
    keeper.close()
    assert keeper.passes == ["uncached"]
    assert said == [f"the cache {KEY} could not be opened in {store.folder}: {reason}; passes run without it"]
    assert tree(store.folder.parent) == before


def test_of_a_claimed_folder_only_the_files_of_a_cache_go(store: Store) -> None:
    claim = store.claim(KEY)
    assert claim is not None
    (claim.folder / "part_00000.bin").write_bytes(b"half")
    (claim.folder / "notes.txt").write_text("mine")
    claim.release()
    assert (claim.folder / "notes.txt").read_text() == "mine"
    shutil.rmtree(claim.folder)
    claim = store.claim(KEY)
    assert claim is not None
    (claim.folder / "part_00000.bin").write_bytes(b"half")
    claim.release()
    assert not claim.folder.exists()


@pytest.mark.parametrize("words", [("ls",), ("gc", "--max-bytes", "0", "--yes"), ("rm", KEY)], ids=["ls", "gc", "rm"])
def test_a_folder_that_is_not_there_is_not_made(words: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", *words, "--dir", str(tmp_path / "typo")])
    assert caught.value.code == 1
    assert capsys.readouterr().err == (
        f"etlrun: 1 fault\n  --dir: found {tmp_path / 'typo'}, which is not a folder; expected a folder of caches, "
        "cache.dir of the runs\n    -> omit --dir for the user's cache folder\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a file", "Not a directory"), ("x" * 300, "File name too long")],
    ids=["a file", "a long name"],
)
def test_why_tells_of_a_folder_that_can_be_none(
    name: str, reason: str, tiny: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / name
    (tmp_path / "a file").write_text("mine")
    words = emulated(tiny, "cache=disk", f"cache.dir='{folder}'", "dataset.eval_split=null")
    with pytest.raises(SystemExit):
        cli.main(["cache", "why", *words])
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  cache why: found {folder}: {reason}; expected a folder that can be written to",
        "    -> run it as a user with permission, or choose another folder",
    ]
    assert (tmp_path / "a file").read_text() == "mine"


def test_the_home_of_nobody_is_told(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        cli.main(["cache", "ls", "--dir", "~nobody-of-this-name/caches"])
    assert capsys.readouterr().err == (
        "etlrun: 1 fault\n  cache.dir: found ~nobody-of-this-name/caches, in the home of an unknown user; "
        "expected a folder that can be written to\n    -> give the full path\n"
    )


def test_looking_leaves_nothing_behind(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say(capsys, "ls", "--dir", str(tmp_path)) == [f"0 caches (0.0 MB) in {tmp_path}"]
    assert say(capsys, "gc", "--dir", str(tmp_path), "--max-bytes", "0", "--yes") == [
        f"0 caches (0.0 MB) in {tmp_path}"
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert say(capsys, "ls") == [f"0 caches (0.0 MB) in {tmp_path / 'etlrun'}"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text(""), "a file or a broken link has this name"),
        (lambda path: path.symlink_to("nowhere"), "a file or a broken link has this name"),
        (lambda path: filled(path / "lock"), "Is a directory"),
    ],
    ids=["a file", "a dead link", "a lock that is a folder"],
)
def test_what_can_be_no_folder_of_caches_is_told(make: Callable[[Path], object], reason: str, store: Store) -> None:
    make(store.folder)
    with pytest.raises(WorldError) as caught:
        keeper_of(store, print).prepare()
    path = store.folder / "lock" if store.folder.is_dir() else store.folder
    assert str(caught.value) == (
        f"cache.dir: found {path}: {reason}; expected a folder that can be written to\n"
        "    -> set cache.dir to another folder, or cache=none"
    )
