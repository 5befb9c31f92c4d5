"""Models: torchvision's names and numbers, and weights from local files."""

from __future__ import annotations

import hashlib
import io
import runpy

import numpy as np
import pytest

import adjit
from adjit import config, models
from adjit.models.weights import WeightsEnum

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="compares with PyTorch")

NETWORKS = {
    "resnet18": (models.resnet18, models.ResNet18_Weights, "basic", [2, 2, 2, 2]),
    "resnet34": (models.resnet34, models.ResNet34_Weights, "basic", [3, 4, 6, 3]),
    "resnet50": (models.resnet50, models.ResNet50_Weights, "bottleneck", [3, 4, 6, 3]),
    "resnet101": (models.resnet101, models.ResNet101_Weights, "bottleneck", [3, 4, 23, 3]),
    "resnet152": (models.resnet152, models.ResNet152_Weights, "bottleneck", [3, 8, 36, 3]),
}


def norm_shapes(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{part}": (channels,) for part in parts} | {f"{name}.num_batches_tracked": ()}


def names_of_torchvision(kind: str, layers: list[int]) -> dict[str, tuple[int, ...]]:
    """The state dict of a residual network in torchvision: names, in order, and shapes."""
    shapes = {"conv1.weight": (64, 3, 7, 7)} | norm_shapes("bn1", 64)
    inputs, expansion = 64, 1 if kind == "basic" else 4
    for number, (planes, blocks) in enumerate(zip((64, 128, 256, 512), layers, strict=True), 1):
        for k in range(blocks):
            at, outputs = f"layer{number}.{k}", planes * expansion
            sizes = [3, 3] if kind == "basic" else [1, 3, 1]
            widths = [inputs, *[planes] * (len(sizes) - 1), outputs]
            for i, size in enumerate(sizes):
                shapes[f"{at}.conv{i + 1}.weight"] = (widths[i + 1], widths[i], size, size)
                shapes |= norm_shapes(f"{at}.bn{i + 1}", widths[i + 1])
            if k == 0 and (number > 1 or inputs != outputs):
                shapes[f"{at}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= norm_shapes(f"{at}.downsample.1", outputs)
            inputs = outputs
    return shapes | {"fc.weight": (1000, inputs), "fc.bias": (1000,)}


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_names_and_shapes_are_those_of_torchvision(name):
    make, weights, kind, layers = NETWORKS[name]
    model = make()
    found = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    assert list(found.items()) == list(names_of_torchvision(kind, layers).items())
    assert sum(p.numel() for p in model.parameters()) == weights.DEFAULT.meta["num_params"]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_count_of_parameters_is_that_of_the_weights(name):
    _, weights, kind, layers = NETWORKS[name]
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    shapes = names_of_torchvision(kind, layers)
    count = sum(int(np.prod(s)) for key, s in shapes.items() if not key.endswith(buffers))
    for member in weights:
        assert member.meta["num_params"] == count
        assert member.meta["num_classes"] == 1000


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_made_of_their_blocks(name, monkeypatch):
    make, _, kind, layers = NETWORKS[name]
    monkeypatch.setattr(models.resnet, "ResNet", lambda *made, **options: (*made, options))
    block = models.BasicBlock if kind == "basic" else models.Bottleneck
    assert make(num_classes=2) == (block, layers, {"num_classes": 2})


# ----- the same network in PyTorch, written with torchvision's names -----


def torch_block(bottleneck, inputs, planes, stride, groups=1, dilation=1):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            outputs = planes * (4 if bottleneck else 1)
            if bottleneck:
                self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(planes)
                self.conv2 = nn.Conv2d(
                    planes, planes, 3, stride, dilation, dilation, groups, bias=False
                )
                self.bn2 = nn.BatchNorm2d(planes)
                self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
                self.bn3 = nn.BatchNorm2d(outputs)
            else:
                self.conv1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(planes)
                self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
                self.bn2 = nn.BatchNorm2d(planes)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

        def forward(self, x):
            out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            if bottleneck:
                out = self.bn3(self.conv3(torch.relu(out)))
            return torch.relu(out + (x if self.downsample is None else self.downsample(x)))

    return Block()


def torch_network(bottleneck, layers, classes):
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            inputs = 64
            for number, (planes, blocks) in enumerate(
                zip((64, 128, 256, 512), layers, strict=True), 1
            ):
                row = []
                for k in range(blocks):
                    stride = 2 if k == 0 and number > 1 else 1
                    row.append(torch_block(bottleneck, inputs, planes, stride))
                    inputs = planes * (4 if bottleneck else 1)
                setattr(self, f"layer{number}", nn.Sequential(*row))
            self.fc = nn.Linear(inputs, classes)

        def forward(self, x):
            x = torch.relu(self.bn1(self.conv1(x)))
            x = nn.functional.max_pool2d(x, 3, 2, 1)
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    torch.manual_seed(0)
    return Network()


def images(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 3, size, size)).astype(np.float32)


def file_of(state) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


@needs_torch
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_state_dict_of_pytorch_gives_the_same_logits(name):
    make, _, kind, layers = NETWORKS[name]
    theirs = torch_network(kind == "bottleneck", layers, 10)
    theirs.train()(torch.from_numpy(images(4, 32)))  # statistics that are not 0 and 1
    ours = make(num_classes=10)
    ours.load_state_dict(adjit.load(file_of(theirs.state_dict())))

    x = images(2, 32)
    with torch.no_grad(), adjit.no_grad():
        expected = theirs.eval()(torch.from_numpy(x)).numpy()
        found = ours.eval()(adjit.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())

    back = torch_network(kind == "bottleneck", layers, 10)
    state = {key: torch.from_numpy(t.numpy().copy()) for key, t in ours.state_dict().items()}
    back.load_state_dict(state)
    with torch.no_grad():
        np.testing.assert_array_equal(back.eval()(torch.from_numpy(x)).numpy(), expected)


@needs_torch
def test_training_changes_the_same_weights_and_buffers_alike():
    theirs = torch_network(False, [1, 1, 1, 1], 5)
    ours = models.ResNet(models.BasicBlock, [1, 1, 1, 1], num_classes=5)
    ours.load_state_dict(adjit.load(file_of(theirs.state_dict())))
    x, y = images(4, 32), np.arange(4)
    for library, model in ((torch, theirs), (adjit, ours)):
        optimizer = library.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            logits = model(library.from_numpy(x))
            library.nn.functional.cross_entropy(logits, library.from_numpy(y)).backward()
            if step == 0:
                model.gradients = [p.grad.numpy().copy() for p in model.parameters()]
            optimizer.step()
    for mine, other in zip(ours.gradients, theirs.gradients, strict=True):
        assert np.linalg.norm(mine - other) <= 1e-3 * np.linalg.norm(other)
    found = ours.state_dict()
    for key, value in theirs.state_dict().items():
        difference = np.linalg.norm(found[key].numpy() - value.numpy())
        assert difference <= 1e-3 * np.linalg.norm(value.numpy()), key
    assert int(found["bn1.num_batches_tracked"]) == 3


@needs_torch
def test_groups_and_dilation_are_those_of_pytorch():
    theirs = torch_block(True, 16, 4, 1, groups=2, dilation=2)
    ours = models.Bottleneck(
        16, 4, groups=2, base_width=32, dilation=2, norm_layer=adjit.nn.BatchNorm2d
    )
    ours.load_state_dict(adjit.load(file_of(theirs.state_dict())))
    x = np.random.default_rng(0).standard_normal((2, 16, 9, 9)).astype(np.float32)
    expected = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(
        ours(adjit.from_numpy(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5
    )


def test_options_of_the_network():
    small = {"layers": [1, 1, 1, 1], "num_classes": 2}
    quiet = models.ResNet(models.BasicBlock, zero_init_residual=True, **small)
    assert not quiet.layer1[0].bn2.weight.any()
    assert quiet.layer1[0].bn1.weight.all()
    wide = models.ResNet(
        models.Bottleneck, replace_stride_with_dilation=(False, True, True), **small
    )
    assert [wide.layer2[0].stride, wide.layer3[0].stride, wide.layer4[0].stride] == [2, 1, 1]
    assert wide.dilation == 4
    with pytest.raises(ValueError, match="should be None or a 3-element tuple, got"):
        models.ResNet(models.Bottleneck, replace_stride_with_dilation=(True,), **small)
    with pytest.raises(ValueError, match="only supports groups=1 and base_width=64"):
        models.ResNet(models.BasicBlock, groups=2, **small)
    with pytest.raises(NotImplementedError, match="Dilation > 1 not supported in BasicBlock"):
        models.BasicBlock(4, 4, dilation=2)


# ----- weights -----


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home for weights."""
    monkeypatch.setattr(config, "HOME", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def test_a_missing_file_is_named(home):
    with pytest.raises(FileNotFoundError) as caught:
        models.resnet18(weights=models.ResNet18_Weights.DEFAULT)
    said = str(caught.value)
    assert "ResNet18_Weights.IMAGENET1K_V1" in said
    assert "https://download.pytorch.org/models/resnet18-f37072fd.pth" in said
    assert str(home / "checkpoints" / "resnet18-f37072fd.pth") in said
    assert "ADJIT_HOME" in said


def test_the_folder_follows_the_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "HOME", None)
    monkeypatch.setattr(config, "user_cache", lambda: tmp_path)
    name = "checkpoints/resnet18-f37072fd.pth"
    assert models.ResNet18_Weights.DEFAULT.path == tmp_path / "adjit" / name
    monkeypatch.setattr(config, "HOME", str(tmp_path / "home"))
    assert models.ResNet18_Weights.DEFAULT.path == tmp_path / "home" / name
    monkeypatch.setenv("ADJIT_HOME", "somewhere")
    assert runpy.run_path(config.__file__)["HOME"] == "somewhere"


def small_weights(home, data: bytes, name: str = "") -> WeightsEnum:
    """An enum with one member, whose file is there."""
    name = name or f"small-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    (home / "checkpoints" / name).write_bytes(data)
    value = models.Weights(f"https://example.org/{name}", models.ImageClassification(224), {})
    return WeightsEnum("Small_Weights", {"V1": value}).V1


def test_weights_are_read_from_their_file(home):
    file = io.BytesIO()
    adjit.save({"a": adjit.ones(2)}, file)
    assert small_weights(home, file.getvalue()).get_state_dict()["a"].tolist() == [1, 1]


def test_a_file_that_is_another_one_is_refused(home):
    weights = small_weights(home, b"something", "small-00000000.pth")
    with pytest.raises(
        RuntimeError, match=r"its SHA-256 begins with [0-9a-f]{8}, not with 00000000"
    ):
        weights.get_state_dict()
    with pytest.raises(RuntimeError, match="no file of adjit"):
        weights.get_state_dict(check_hash=False)


def test_a_network_takes_its_weights(home, monkeypatch):
    state = models.resnet18(num_classes=1000).state_dict()
    monkeypatch.setattr(WeightsEnum, "get_state_dict", lambda self, progress: state)
    model = models.resnet18(weights="IMAGENET1K_V1")
    assert model.fc.weight.equal(state["fc.weight"])
    with pytest.raises(ValueError, match="'num_classes' expected value 1000 but got 10 instead"):
        models.resnet18(weights="DEFAULT", num_classes=10)


def test_weights_by_name_and_by_member():
    one, other = models.ResNet18_Weights, models.ResNet50_Weights
    assert one.verify(None) is None
    assert one.verify("DEFAULT") is one.verify("ResNet18_Weights.DEFAULT") is one.IMAGENET1K_V1
    assert other.DEFAULT is other.IMAGENET1K_V2
    with pytest.raises(TypeError, match="expected ResNet18_Weights but received ResNet50_Weights"):
        models.resnet18(weights=other.DEFAULT)
    with pytest.raises(KeyError, match="V9"):
        models.resnet18(weights="V9")
    assert one.DEFAULT.transforms().resize_size == 256
    assert other.DEFAULT.transforms().resize_size == 232
    assert one.DEFAULT.meta["_metrics"]["ImageNet-1K"]["acc@1"] == 69.758
