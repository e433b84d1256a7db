"""Files of columns whose types are rare: what is read of them, and damage that their checksums tell."""

from __future__ import annotations

import struct
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from etlrun.sources.rows.keeping import kept_of
from etlrun.system.errors import EtlrunError
from tests.tables import a_table, message, values


def test_times_of_int96_are_those_that_were_written(tmp_path: Path) -> None:
    days = [datetime(9999, 12, 31), datetime(2024, 1, 2, 3, 4, 5, 6), None, datetime(1066, 10, 14)]  # noqa: DTZ001
    table = pa.table({"until": pa.array(days, pa.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert values(kept_of(a_table(str(tmp_path / "a.parquet"), tmp_path / "kept"))) == {"until": days}


def test_checksums_of_pages_tell_damage(tmp_path: Path) -> None:
    table = pa.table({"x": [number + 0.123456789 for number in range(200)]})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    assert kept_of(a_table(str(path), tmp_path / "kept")).known.rows == {"train": 200}
    data = bytearray(path.read_bytes())
    data[data.find(struct.pack("<d", 100.123456789)) + 7] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(EtlrunError) as caught:
        kept_of(a_table(str(path), tmp_path / "kept"))
    assert message(tmp_path, caught.value) == (
        "a.parquet: found a Parquet file that is cut off or damaged: could not verify page integrity, CRC checksum "
        "verification failed for page_ordinal 0; expected a complete one\n    -> write or copy it again"
    )
