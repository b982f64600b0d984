"""Print one SHA-256 over the names and contents of the files under the given paths (a stamp for builds and stages).

Usage: python digest.py PATH...     with paths relative to the current folder, which is the checkout

Files that git ignores do not count; where there is no git (an unpacked source distribution) caches and builds do not.
A path that does not exist counts as absent, so that its appearance changes the hash.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

SKIPPED_FOLDERS = {"__pycache__", "target", ".venv", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def listed_by_git(paths: list[str]) -> list[str] | None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    try:
        found = subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [os.fsdecode(name) for name in found.stdout.split(b"\0") if name]


def listed_by_walking(paths: list[str]) -> list[str]:
    names = []
    for path in paths:
        if Path(path).is_file():
            names.append(path)
        for folder, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            names += [str(Path(folder, name)) for name in files if not name.endswith((".pyc", ".so", ".pyd"))]
    return names


def main(paths: list[str]) -> None:
    if not paths:
        sys.exit("digest.py: name at least one path")
    names = listed_by_git(paths)
    if names is None:
        names = listed_by_walking(paths)
    total = hashlib.sha256()
    for name in sorted(set(names)):
        if Path(name).is_file():
            total.update(f"{name}\0{hashlib.sha256(Path(name).read_bytes()).hexdigest()}\n".encode())
    print(total.hexdigest())


if __name__ == "__main__":
    main(sys.argv[1:])
