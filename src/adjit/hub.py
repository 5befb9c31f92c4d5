"""Models of folders and weights of URLs: PyTorch's `torch.hub`, with its cache folder.

Programs of repositories are not fetched: a folder that is there already is `load`ed with `source="local"`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlparse

from .absent import absent
from .serialization import load as load_file

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # of a file name: the begin of its SHA-256
READ_DATA_CHUNK = 1 << 17
_FILE = "hubconf.py"
_set: str | None = None


def _get_torch_home() -> str:
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Tell the folder of what is fetched: `$TORCH_HOME/hub`, as for PyTorch, unless `set_dir` was called.

    Example:
        >>> adjit.hub.get_dir().endswith("hub")
        True
    """
    return os.path.join(_get_torch_home(), "hub") if _set is None else _set


def set_dir(d: str | os.PathLike[str]) -> None:
    """Say where what is fetched goes.

    Example:
        >>> before = adjit.hub.get_dir()
        >>> adjit.hub.set_dir("models")
        >>> adjit.hub.get_dir()
        'models'
        >>> adjit.hub.set_dir(before)
    """
    global _set
    _set = os.path.expanduser(d)


def _entry(repo_or_dir: Any, source: str) -> ModuleType:
    """The program `hubconf.py` of a folder."""
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(
            f"adjit.hub fetches no programs: clone {repo_or_dir} and call it with its folder and "
            'source="local"'
        )
    folder = Path(os.path.expanduser(repo_or_dir))
    path = str(folder)
    sys.path.insert(0, path)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", folder / _FILE)
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder / _FILE} is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(path)
    missing = [
        n for n in getattr(module, "dependencies", None) or () if not importlib.util.find_spec(n)
    ]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _source_of(place: Any) -> str:
    return "local" if Path(os.path.expanduser(place)).is_dir() else "github"


def _callable_of(module: ModuleType, model: str) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def load(
    repo_or_dir: Any, model: str, *args: Any, source: str = "github", trust_repo: Any = None,
    force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call an entry of the `hubconf.py` of a folder, which gives a model.

    Args:
        repo_or_dir: the folder.
        model: the name of a function there; it gets the other arguments.
        source: "local". The further arguments of PyTorch, for repositories of others, are accepted.

    Raises:
        NotImplementedError: for `source="github"`: programs are not fetched.
        RuntimeError: if there is no such function, or a package that the file names as needed is missing.

    Example:
        >>> from pathlib import Path
        >>> text = "import adjit\\ndef small(width):\\n    return adjit.nn.Linear(width, 1)"
        >>> written = Path("hubconf.py").write_text(text)
        >>> adjit.hub.load(".", "small", 3, source="local")
        Linear(in_features=3, out_features=1, bias=True)
    """
    return _callable_of(_entry(repo_or_dir, source), model)(*args, **kwargs)


def list(
    github: Any, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
    verbose: bool = True,
) -> Any:  # fmt: skip
    """List the entries of the `hubconf.py` of a folder: its functions whose names begin with no underscore.

    Example:
        >>> from pathlib import Path
        >>> written = Path("hubconf.py").write_text("def small():\\n    return 1")
        >>> adjit.hub.list(".")
        ['small']
    """
    found = vars(_entry(github, _source_of(github))).items()
    return [name for name, value in found if callable(value) and not name.startswith("_")]


def help(
    github: Any, model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: Any = None,
) -> Any:  # fmt: skip
    """Give the docstring of an entry of the `hubconf.py` of a folder.

    Example:
        >>> from pathlib import Path
        >>> written = Path("hubconf.py").write_text("def small():\\n    'A small one.'")
        >>> adjit.hub.help(".", "small")
        'A small one.'
    """
    return _callable_of(_entry(github, _source_of(github)), model).__doc__


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what a URL gives to a file, which is whole or not there.

    Args:
        url: with the scheme http, https or file.
        dst: the path of the file.
        hash_prefix: the begin of the SHA-256 that the bytes must have.
        progress: accepted; nothing is shown.

    Raises:
        RuntimeError: if the bytes have another hash.
        OSError: if there is nothing at the URL, or the file cannot be written.

    Example:
        >>> from pathlib import Path
        >>> written = Path("weights.bin").write_bytes(b"12")
        >>> adjit.hub.download_url_to_file(Path("weights.bin").resolve().as_uri(), "copy.bin")
        >>> Path("copy.bin").read_bytes()
        b'12'
    """
    import urllib.request  # which takes time, and few programs need it

    target = Path(os.path.expanduser(dst))
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "adjit.hub"})
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".partial", delete=False) as part:
        try:
            with urllib.request.urlopen(request) as stream:
                while data := stream.read(READ_DATA_CHUNK):
                    part.write(data)
                    digest.update(data)
            part.close()
            found = digest.hexdigest()
            if hash_prefix is not None and found[: len(hash_prefix)] != hash_prefix:
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            os.replace(part.name, target)
        finally:
            part.close()
            Path(part.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = True,
) -> Any:  # fmt: skip
    """Load the file of a URL, which is fetched once and kept in `get_dir()/checkpoints`.

    Args:
        url: with the scheme http, https or file.
        model_dir: another folder to keep it in.
        map_location: where tensors go, as for `adjit.load`.
        progress: accepted; nothing is shown.
        check_hash: whether the file's name says how its SHA-256 begins: `name-0123abcd.pth`.
        file_name: another name for the file.
        weights_only: must be true.

    Raises:
        RuntimeError: if the bytes have another hash.

    Example:
        >>> from pathlib import Path
        >>> adjit.save({"w": adjit.ones(2)}, "net.safetensors")
        >>> url = Path("net.safetensors").resolve().as_uri()
        >>> adjit.hub.load_state_dict_from_url(url, model_dir="cache")
        {'w': tensor([1., 1.])}
    """
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(unquote(urlparse(url).path))
    kept = folder / name
    if not kept.exists():
        sys.stderr.write(f'Downloading: "{url}" to {kept}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, kept, found[1] if found else None, progress)
    return load_file(kept, map_location, weights_only=weights_only)


load_url = load_state_dict_from_url  # its name in `torch.utils.model_zoo`


class _Faketqdm:
    """Takes what is told to a progress bar, and shows nothing."""

    def __init__(self, total: int | None = None, *args: Any, **kwargs: Any) -> None:
        self.total, self.n = total, 0

    def update(self, n: int = 1) -> None:
        self.n += n

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        pass

    def write(self, s: str) -> None:
        sys.stderr.write(f"{s}\n")

    def close(self) -> None:
        pass

    def __enter__(self) -> _Faketqdm:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def __getattr__(name: str) -> Any:
    """`tqdm`, which programs import from here; where it is not installed, a bar that is not shown."""
    if name != "tqdm":
        raise absent("hub", name)
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError:
        return _Faketqdm
