"""The README's example does what the README shows."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_five_minutes_with_the_library_put_out_what_is_printed(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    match = re.search(r"```sh\n(cat > r1\.jsonl.*?)```\n\n((?:    [^\n]*\n)+)", readme, re.DOTALL)
    assert match is not None
    script = match[1].replace(".venv/bin/lmerge", str(Path(sys.executable).parent / "lmerge"))
    result = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, check=True, text=True)  # noqa: S607
    assert result.stdout.splitlines() == [line.strip() for line in match[2].splitlines()]


def test_the_python_example_returns_what_its_comments_say() -> None:
    readme = (ROOT / "README.md").read_text()
    match = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert match is not None
    names: dict[str, object] = {}
    for line in match[1].splitlines():
        code, _, comment = line.partition("#")
        if code.strip().startswith("merge.process"):
            assert repr(eval(code, names)) == comment.strip()  # noqa: S307
        elif code.strip():
            exec(code, names)  # noqa: S102
