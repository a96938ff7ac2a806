"""Whether an environment of the user's is still the file that data were made from."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from recipe.preflight.data_file import manifest_of


def changed(path: Path, environment: str, files: Mapping[str, str]) -> Iterator[str]:
    """A line for each environment whose file is another one now.

    Args:
        path: a file of data.
        environment: whose data it has, where the manifest beside it does not name several.
        files: environments of the user's -> their files.
    """
    manifest = manifest_of(path)
    sources = manifest.get("made_from", {environment: manifest})
    for name, source in sources.items() if isinstance(sources, Mapping) else ():
        before = source.get("environment_sha256") if isinstance(source, Mapping) else None
        if before is None or name not in files or not Path(str(files[name])).expanduser().is_file():
            continue
        if sha256(Path(files[name]).expanduser().read_bytes()).hexdigest() != before:
            yield (
                f"{files[name]} was changed after {path.parent} was made from it: its tasks, and "
                "which of them are held out, may be others now"
            )
