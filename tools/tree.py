"""What the checks share: which files belong to the repository."""

import os
import subprocess
import sys
from pathlib import Path

SKIPPED_FOLDERS = ("build", "runs", "carry", ".")


def files(root):
    """Paths relative to `root`: tracked and new files, but none that git ignores."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    result = subprocess.run(listing, capture_output=True, check=False)
    # A tarball has no git, and a folder inside another checkout is not that checkout.
    if result.returncode == 0 and (Path(root) / ".git").exists():
        names = [name for name in result.stdout.decode().split("\0") if name]
    else:
        names = walked(root)
    return sorted(Path(name) for name in names if (Path(root) / name).is_file())


def walked(root):
    for folder, folders, names in os.walk(root):
        if Path(folder) == Path(root):
            folders[:] = [f for f in folders if not f.startswith(SKIPPED_FOLDERS)]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def report(problems, passed):
    """Prints one line a problem and ends the program: 1 if there are any."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s)" if problems else passed)
    sys.exit(1 if problems else 0)
