"""What the functions of a query are, by a hash of their sources: a plan's text shows their names alone.

A helper that is imported decides as much as the query's own file. So the hash covers, beside that file, every module
that it imports, directly or not, and that is the author's: none of Python's, of Spark's or of LMerge's own, and of the
packages that are installed only the one which the query itself belongs to.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

_FRAMEWORK: Final = frozenset(("pyspark", "lmerge", "replicas"))
_SHIPPED: Final = "replicas.queries."
_INSTALLED: Final = tuple(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def code_hash(module: ModuleType) -> str:
    """Return the hash for the module of a query; the same for the same sources, wherever they lie."""
    if module.__file__ is None:
        return hashlib.sha256().hexdigest()
    own = Path(module.__file__).read_bytes()
    sources: dict[str, bytes] = {}
    waiting = [(own, module.__package__ or "")]
    while waiting:
        for name in _imports(*waiting.pop()):
            path = None if name in sources or name == module.__name__ else _path(name, module.__name__)
            if path is not None:
                sources[name] = path.read_bytes()
                is_package = path.name == "__init__.py"
                waiting.append((sources[name], name if is_package else name.rpartition(".")[0]))
    found = hashlib.sha256(own)
    for name, source in sorted(sources.items()):
        found.update(b"\0%b\0%b" % (name.encode(), source))
    return found.hexdigest()


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yield the names that a source imports, wherever in it, and those of the packages around them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # counted from the package, up
                around = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*around, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]  # a module, or something in the one before
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _path(name: str, query: str) -> Path | None:
    """Return the source of a module that counts; None if it does not, or if there is no such module."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or (top in _FRAMEWORK and not name.startswith(_SHIPPED)):
        return None
    # First the package alone, which does not import it: an installed one may be large, and needed only in a worker.
    if top != query.partition(".")[0] and _is_installed(_find(top)):
        return None
    return _find(name)


def _is_installed(path: Path | None) -> bool:
    return path is not None and any(path.is_relative_to(directory) for directory in _INSTALLED)


def _find(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a name in a module, or an import that only some machines can make
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.origin.endswith(".py") else None
