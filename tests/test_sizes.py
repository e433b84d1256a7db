import ast
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_files_have_600_lines_at_most_and_functions_80() -> None:
    files = [*chain.from_iterable((ROOT / name).rglob("*.py") for name in ("etlrun", "tests", "benchmarks"))]
    assert [str(path) for path in files if len(_lines(path)) > 600] == []
    functions = [
        f"{path}:{node.lineno} {node.name}"
        for path in files
        for node in ast.walk(ast.parse("\n".join(_lines(path))))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 80  # type: ignore[operator]
    ]
    assert functions == []


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
