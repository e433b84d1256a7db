"""Ports that other machines can't reach, of servers that bind theirs to all interfaces whatever address they are given.

TensorFlow's servers have no option for it. Its libraries call `bind` through their tables of relocations (ELF), whose
entries are replaced in this process; afterwards the system is asked where the process really listens.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_DYNAMIC, _HEADER_BYTES = 2, 56
"""Type of the program header with a library's dynamic section, and the size of a header."""
_STRINGS, _STRINGS_BYTES, _SYMBOLS, _RELA, _RELA_BYTES, _CALLS, _CALLS_BYTES = 5, 10, 6, 7, 8, 23, 2
"""Tags of a dynamic section: names, symbols, and two tables of relocations, with sizes."""
_WITHOUT_NAME = 0x6FFFFFF9
"""Tag of the number of relocations that name no symbol."""
_OF_FUNCTION = {"x86_64": (6, 7), "aarch64": (1025, 1026)}
"""Types of the relocations that hold the address of a function, by machine."""
_ANY, _LOCAL = (bytes(4), bytes(16)), (socket.inet_aton("127.0.0.1"), bytes(10) + b"\xff\xff\x7f\0\0\1")
"""All interfaces, and loopback, as IPv4 and as IPv6."""
_PLACES = {socket.AF_INET: (4, 0), socket.AF_INET6: (8, 1)}
"""Where an address of a family stands in its structure, and which of the two it is."""
_LISTENS = "0A"
_READ_AND_WRITE = 3
_Bind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
_Each = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_held: list[Any] = []
"""Functions that libraries call, which have to stay."""


class _Info(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
    )


def bind_to_loopback(library: bytes = b"tensorflow") -> None:
    """Let libraries whose path contains `library` bind ports to loopback alone, from now on in this process.

    Where that can't be done, nothing is changed: `is_open` tells.
    """
    kinds = _OF_FUNCTION.get(os.uname().machine)
    if sys.platform != "linux" or kinds is None or _held:
        return
    libc = ctypes.CDLL(None)
    real = _Bind(ctypes.cast(libc.bind, ctypes.c_void_p).value or 0)

    def bind(descriptor: int, address: int, size: int) -> int:
        place, version = _PLACES.get(ctypes.c_uint16.from_address(address).value, (0, 0))  # type: ignore[call-overload]
        if place and ctypes.string_at(address + place, len(_ANY[version])) == _ANY[version]:
            ctypes.memmove(address + place, _LOCAL[version], len(_LOCAL[version]))
        return int(real(descriptor, address, size))

    hook = _Bind(bind)
    _held.extend((real, hook))
    for place in _places(libc, library, b"bind", kinds):
        page = place - place % mmap.PAGESIZE
        if not libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, _READ_AND_WRITE):
            ctypes.c_uint64.from_address(place).value = ctypes.cast(hook, ctypes.c_void_p).value or 0


def is_shared(port: int) -> bool:
    """Return whether another process, too, listens at `port`, as far as the system tells."""
    try:
        own = {*_descriptors()}
    except OSError:
        return False
    rows = [row for row in _listening() if int(row[1].rpartition(":")[2], 16) == port]
    return any(f"socket:[{row[9]}]" not in own for row in rows)


def is_open() -> bool:
    """Return whether this process listens on a port that is not bound to loopback alone, or that is unknown."""
    try:
        own = {*_descriptors()}
        listening = [row[1].partition(":")[0] for row in _listening() if f"socket:[{row[9]}]" in own]
    except OSError:
        return True
    return not listening or not all(address.endswith("0100007F") for address in listening)


def _listening() -> list[list[str]]:
    """Return the rows of the system's tables of the ports at which processes listen."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in _lines(Path(f"/proc/net/{name}"))]
    return [row for row in rows if row[3] == _LISTENS]


def _descriptors() -> Iterator[str]:
    """Yield what the open files of this process are."""
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder itself
            yield str(path.readlink())


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else []


def _places(libc: Any, library: bytes, name: bytes, kinds: tuple[int, ...]) -> Iterator[int]:
    """Yield the addresses at which the loaded libraries hold the address of the function of that name."""
    found: list[tuple[int, int]] = []

    def each(info: int, _size: int, _data: int) -> int:
        of = _Info.from_address(info)
        headers = (of.headers + _HEADER_BYTES * place for place in range(of.count))
        if library in (of.name or b""):
            found.extend((of.base, of.base + _number(header + 16)) for header in headers if _kind(header) == _DYNAMIC)
        return 0

    libc.dl_iterate_phdr(_Each(each), None)
    for base, section in found:
        tags: dict[int, int] = {}
        while tag := _number(section):
            tags[tag], section = _number(section + 8), section + 16  # noqa: PLW2901 - it walks
        others = 24 * tags.get(_WITHOUT_NAME, 0)  # millions, which come first
        tables = [(tags.get(_RELA, 0) + others, tags.get(_RELA_BYTES, 0) - others)]
        tables.append((tags.get(_CALLS, 0), tags.get(_CALLS_BYTES, 0)))
        strings = (ctypes.c_char * tags[_STRINGS_BYTES]).from_address(tags[_STRINGS])
        ends = [of.start() for of in re.finditer(re.escape(name) + b"\0", strings)]  # names share their ends
        for table, size in tables:
            if size > 0:
                offsets, symbols = _of_functions(_array(table, size, np.uint64).reshape(-1, 3), kinds)
                yield from (base + int(of) for of in offsets[np.isin(_names(tags[_SYMBOLS], symbols), ends)])


def _of_functions(rows: npt.NDArray[Any], kinds: tuple[int, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the offsets and the numbers of the symbols of the relocations of functions."""
    own = rows[np.isin(rows[:, 1] & 0xFFFFFFFF, kinds)]
    return own[:, 0], own[:, 1] >> 32


def _names(symbols: int, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the places of the names of symbols in the table of strings."""
    if not len(numbers):
        return numbers
    found: npt.NDArray[Any] = _array(symbols, 24 * (int(numbers.max()) + 1), np.uint32).reshape(-1, 6)[numbers, 0]
    return found


def _array(address: int, size: int, dtype: Any) -> npt.NDArray[Any]:
    return np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), dtype=dtype)


def _number(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _kind(address: int) -> int:
    return int(ctypes.c_uint32.from_address(address).value)
