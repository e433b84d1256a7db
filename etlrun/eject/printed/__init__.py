"""Functions of programs, as they stand there: only their source is used, with that of the functions that they call.

Of functions of one name, a program has that of the kind of its dataset (`folder`, `rows`), or that of `records`. What
is a program's own is NOWHERE here: constants, as classes of datasets have them.
"""

from typing import Any

NOWHERE: Any = object()
"""What stands for constants, and for functions that each kind of dataset has."""
