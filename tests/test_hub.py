"""`adjit.hub`: entries of local folders, files of URLs, and the cache folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import adjit
from adjit import hub

REPOSITORY = '''
"""Models."""
dependencies = ["math"]
import helper_of_hub
from adjit import nn as _nn


def small(width, bias=True):
    """A small one."""
    return _nn.Linear(width, helper_of_hub.OUT, bias=bias)


def _private():
    """Not an entry."""


number = 3
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(REPOSITORY)
    (tmp_path / "helper_of_hub.py").write_text("OUT = 4")
    return tmp_path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_set", None)  # an example of a docstring may have set it
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_entries_of_a_folder(folder):
    net = hub.load(str(folder), "small", 3, source="local", bias=False, trust_repo=True)
    assert net.weight.shape == (4, 3)
    assert net.bias is None
    assert hub.list(str(folder)) == ["small"]
    assert hub.help(str(folder), "small") == "A small one."


def test_what_is_no_entry_is_refused(folder):
    with pytest.raises(RuntimeError, match="Cannot find callable number in hubconf"):
        hub.load(folder, "number", source="local")
    with pytest.raises(ValueError, match="model should be a string"):
        hub.load(folder, 3, source="local")
    with pytest.raises(ValueError, match='Unknown source: "web"'):
        hub.load(folder, "small", source="web")
    with pytest.raises(NotImplementedError, match="fetches no programs: clone pytorch/vision"):
        hub.load("pytorch/vision", "resnet18")
    with pytest.raises(NotImplementedError, match="fetches no programs"):
        hub.list("pytorch/vision")
    with pytest.raises(FileNotFoundError):
        hub.load(folder / "nowhere", "small", source="local")
    (folder / "hubconf.py").write_text("dependencies = ['no_such_package_x']")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_x"):
        hub.load(folder, "small", source="local")


def test_files_of_urls_are_whole_or_not_there(tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"x" * 300_000)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    hub.download_url_to_file(source.as_uri(), str(tmp_path / "a.bin"), digest[:8], progress=False)
    assert (tmp_path / "a.bin").read_bytes() == source.read_bytes()
    with pytest.raises(RuntimeError, match=r'invalid hash value \(expected "00000000", got'):
        hub.download_url_to_file(source.as_uri(), tmp_path / "b.bin", "00000000")
    with pytest.raises(OSError, match="No such file"):
        hub.download_url_to_file((tmp_path / "none").as_uri(), tmp_path / "c.bin")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "weights.bin"]


def test_weights_are_fetched_once(tmp_path, cache, capsys):
    data = tmp_path / "net.pt"
    adjit.save({"w": adjit.ones(2)}, data)
    digest = hashlib.sha256(data.read_bytes()).hexdigest()[:8]
    named = data.rename(tmp_path / f"net-{digest}.pt")
    for _ in range(2):
        state = hub.load_state_dict_from_url(named.as_uri(), map_location="cpu", check_hash=True)
        assert state["w"].tolist() == [1.0, 1.0]
    assert capsys.readouterr().err.count("Downloading") == 1
    assert (cache / "hub" / "checkpoints" / named.name).exists()
    bad = named.rename(tmp_path / "net-00000000.pt")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(bad.as_uri(), check_hash=True)
    from adjit.utils.model_zoo import load_url

    load_url(bad.as_uri(), model_dir=str(tmp_path / "zoo"), file_name="other.pt")
    assert (tmp_path / "zoo" / "other.pt").exists()


def test_the_folder_of_what_is_fetched(tmp_path, cache, monkeypatch):
    torch = pytest.importorskip("torch")
    assert hub.get_dir() == torch.hub.get_dir() == str(cache / "hub")
    monkeypatch.delenv("TORCH_HOME")
    assert hub.get_dir() == torch.hub.get_dir()
    try:
        hub.set_dir(str(tmp_path / "mine"))
        assert hub.get_dir() == str(tmp_path / "mine")
    finally:
        hub._set = None
    assert hub.HASH_REGEX.pattern == torch.hub.HASH_REGEX.pattern
    assert Path(hub._get_torch_home()) == Path(torch.hub._get_torch_home())
