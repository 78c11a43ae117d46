import math
import sys
import types

import mpmath
import pytest
import torch
from torch import nn

from usd3.metrics import ImageMetrics, frechet_distance, image_metrics, label_score, nearest, precision_recall
from usd3.metrics import feature_sets as sets
from usd3.metrics.images import classifier_features
from usd3.metrics.inception import load_inception


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pictures(count: int, seed: int = 0, high: int = 256) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, (count, 3, 4, 4), generator=generator, dtype=torch.uint8)


class TinyClassifier(nn.Module):
    def __init__(self, labelled: bool = True):
        super().__init__()
        self.labelled = labelled
        self.weight = nn.Parameter(normal(48, 5, seed=7).float())
        self.head = nn.Parameter(normal(5, 4, seed=8).float())
        self.largest_batch = 0

    def features(self, x):
        assert torch.is_inference_mode_enabled()
        assert not self.training
        assert -1 <= x.min() <= x.max() <= 1
        self.largest_batch = max(self.largest_batch, len(x))
        return (x.flatten(1) @ self.weight).relu()

    def forward(self, x):
        return self.features(x) @ self.head


def as_floats(images: torch.Tensor) -> torch.Tensor:
    return images.float() / 127.5 - 1


# ---- Fréchet distance


def test_frechet_distance_of_commuting_covariances_has_a_closed_form():
    # standardised samples, so that means and covariances are exactly what is asked for
    x = normal(50, 3)
    x = torch.linalg.qr(x - x.mean(0)).Q * math.sqrt(49)
    turn = torch.linalg.qr(normal(3, 3, seed=1)).Q
    a, b = torch.tensor([1.0, 2.0, 0.5]).double(), torch.tensor([3.0, 0.0, 0.25]).double()
    shift = torch.tensor([1.0, -2.0, 0.5]).double()
    distance = frechet_distance((x * a) @ turn.T, (x * b) @ turn.T + shift)
    assert distance == pytest.approx(float((a - b).square().sum() + shift.square().sum()), rel=1e-12)


def test_frechet_distance_against_a_matrix_root():
    a, b = normal(12, 4) @ normal(4, 4, seed=1), normal(9, 4, seed=2) @ normal(4, 4, seed=3) + 1
    c1, c2 = (mpmath.matrix(torch.cov(x.T).tolist()) for x in (a, b))
    root = mpmath.sqrtm(c1 * c2)
    trace = sum(mpmath.re((c1 + c2 - 2 * root)[i, i]) for i in range(4))
    expected = float((a.mean(0) - b.mean(0)).square().sum()) + float(trace)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-10)
    assert frechet_distance(b.float(), a.float()) == pytest.approx(expected, rel=1e-5)


def test_frechet_distance_of_fewer_rows_than_features():
    # C = x^T x / (N - 1), so the trace of the root is a sum of singular values of x y^T, a small matrix
    a, b = normal(5, 200), 3 * normal(5, 200, seed=1) + 0.1
    x, y = a - a.mean(0), b - b.mean(0)
    cross = torch.linalg.svdvals(x @ y.T).sum()
    spread = (x.square().sum() + y.square().sum() - 2 * cross) / 4
    assert frechet_distance(a, b) == pytest.approx(float((a.mean(0) - b.mean(0)).square().sum() + spread), rel=1e-12)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-10)
    assert frechet_distance(normal(5, 1), normal(5, 1) + 2) == pytest.approx(4)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (normal(1, 3), normal(5, 3), r"a.shape = \(1, 3\): expected \(N, F\) with N >= 2"),
        (normal(5, 3), normal(5, 4), "features of the second set = 4: expected 3"),
        (normal(5, 3), normal(5, 3) / 0, "b = infinite or nan"),
    ],
)
def test_frechet_distance_refuses(a, b, message):
    with pytest.raises(ValueError, match=message):
        frechet_distance(a, b)


# ---- score of labels


def test_label_score_against_brute_force():
    p = normal(7, 4).softmax(1)
    p = torch.cat([p, torch.eye(4).double()])
    marginal = [sum(row) / 11 for row in p.T.tolist()]
    kl = [sum(x * math.log(x / m) for x, m in zip(row, marginal) if x > 0) for row in p.tolist()]
    assert label_score(p) == pytest.approx(math.exp(sum(kl) / 11), rel=1e-12)
    assert label_score(torch.eye(4).double()) == pytest.approx(4)
    assert label_score(p[:1].expand(5, 4)) == pytest.approx(1)


def test_label_score_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match=r"sum of a row of probabilities = 2.0"):
        label_score(torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"probabilities.min\(\) = -0.5"):
        label_score(torch.tensor([[-0.5, 1.5]]))


# ---- precision, recall, nearest


def share_within_reach(points: torch.Tensor, of: torch.Tensor, k: int) -> float:
    reach = [sorted(math.dist(x, y) for y in of.tolist())[k] for x in of.tolist()]
    inside = [any(math.dist(x, y) <= r for y, r in zip(of.tolist(), reach)) for x in points.tolist()]
    return sum(inside) / len(inside)


@pytest.mark.parametrize("cells", [2**24, 40])
def test_precision_and_recall_against_a_double_loop(monkeypatch, cells):
    monkeypatch.setattr(sets, "_CELLS", cells)
    real, generated = normal(23, 3), normal(23, 3, seed=1) * 0.8 + 0.8
    for k in (1, 3):
        expected = share_within_reach(generated, real, k), share_within_reach(real, generated, k)
        assert precision_recall(real, generated, k) == pytest.approx(expected)
        assert expected[0] != expected[1]


def test_few_good_samples_have_precision_but_no_recall():
    real = normal(40, 2)
    one = real[:1].expand(40, 2)  # equal points reach themselves only
    precision, recall = precision_recall(real, one)
    assert (precision, recall) == (1, 1 / 40)
    assert precision_recall(real, real) == (1, 1)
    assert precision_recall(real, real + 100) == (0, 0)


def test_the_larger_set_gives_as_many_points_always_the_same():
    real, generated = normal(60, 3), normal(20, 3, seed=1)
    both = precision_recall(real, generated)
    assert both == precision_recall(real, generated)
    chosen = sets.Manifold(real, 3, 20).points
    assert len(chosen) == 20
    assert both == (share_within_reach(generated, chosen, 3), share_within_reach(chosen, generated, 3))
    with pytest.raises(ValueError, match="number of points = 3: expected more than k = 3"):
        precision_recall(real, generated[:3])


@pytest.mark.parametrize("cells", [2**24, 30])
def test_nearest_training_rows(monkeypatch, cells):
    monkeypatch.setattr(sets, "_CELLS", cells)
    train, rows = normal(15, 4), normal(6, 4, seed=1)
    expected = [sorted(range(15), key=lambda i: math.dist(row, train[i].tolist()))[:3] for row in rows.tolist()]
    assert nearest(rows, train, 3).tolist() == expected
    assert nearest(train, train).flatten().tolist() == list(range(15))
    with pytest.raises(ValueError, match=r"k = 16: expected an integer 1..15"):
        nearest(rows, train, 16)


# ---- all of them


def test_image_metrics_are_those_of_the_features():
    classifier = TinyClassifier().train()
    real, generated = pictures(30), pictures(25, seed=1, high=200)
    a, b = ((as_floats(x).flatten(1) @ classifier.weight).relu().detach() for x in (real, generated))
    precision, recall = precision_recall(a, b)
    expected = {
        "classifier_score": label_score((b @ classifier.head).detach().softmax(1)),
        "classifier_frechet": frechet_distance(a, b),
        "precision": precision,
        "recall": recall,
    }
    assert image_metrics(generated, real, classifier, batch_size=7) == pytest.approx(expected, rel=1e-4)
    assert (classifier.training, classifier.largest_batch) == (True, 7)
    assert torch.allclose(classifier_features(generated, classifier, 4), b, atol=1e-5)


def test_real_images_are_measured_once():
    classifier = TinyClassifier(labelled=False)
    real = pictures(30)
    metrics = ImageMetrics(real, classifier)
    calls = []
    features = classifier.features
    classifier.features = lambda x: calls.append(len(x)) or features(x)
    for seed, count in ((1, 12), (2, 12), (3, 40)):
        scores = metrics(pictures(count, seed))
        assert list(scores) == ["classifier_frechet", "precision", "recall"]
    assert calls == [12, 12, 40]
    assert scores == image_metrics(pictures(40, 3), real, TinyClassifier(labelled=False))


@pytest.mark.parametrize(
    ("generated", "error", "message"),
    [
        (pictures(3), ValueError, r"generated.shape = \(3, 3, 4, 4\): expected \(N, 3, H, W\), at least 4"),
        (pictures(9)[:, :, :2], ValueError, r"generated.shape = .*: expected images as the real ones, \(3, 4, 4\)"),
        (pictures(9).float(), TypeError, r"generated is a torch.float32 tensor"),
    ],
)
def test_other_images_are_refused(generated, error, message):
    with pytest.raises(error, match=message):
        image_metrics(generated, pictures(9), TinyClassifier())


# ---- Inception


class FakeExtractor(nn.Module):
    """In the form of torch-fidelity's: loads its own weights, gives a tuple."""

    def __init__(self, name, features_list, feature_extractor_weights_path):
        super().__init__()
        assert features_list == ["2048", "logits_unbiased"]
        self.weight = nn.Parameter(torch.empty(48, 6))
        self.head = nn.Parameter(torch.empty(6, 10))
        self.load_state_dict(torch.load(feature_extractor_weights_path, weights_only=False))

    def forward(self, images):
        assert images.dtype == torch.uint8
        features = images.float().flatten(1) @ self.weight
        return features, features @ self.head


@pytest.fixture
def fake_fidelity(monkeypatch, tmp_path):
    module = types.ModuleType("torch_fidelity")
    module.FeatureExtractorInceptionV3 = FakeExtractor
    monkeypatch.setitem(sys.modules, "torch_fidelity", module)
    monkeypatch.setattr("usd3.metrics.inception.Inception.num_features", 6)
    weight, head = normal(48, 6, seed=5).float() / 100, normal(6, 10, seed=6).float() / 3
    torch.save({"weight": weight, "head": head}, tmp_path / "inception.pth")
    return tmp_path / "inception.pth", weight, head


def test_published_scores_from_inceptions_outputs(fake_fidelity):
    file, weight, head = fake_fidelity
    real, generated = pictures(30), pictures(25, seed=1, high=200)
    scores = image_metrics(generated, real, TinyClassifier(), inception=str(file), batch_size=8)
    a, b = (x.float().flatten(1) @ weight for x in (real, generated))
    assert scores["fid"] == pytest.approx(frechet_distance(a, b), rel=1e-4)
    p = (generated.float().flatten(1) @ weight @ head).softmax(1)
    parts = [p[:3], p[3:6], p[6:9], p[9:12], p[12:15], *p[15:].split(2)]
    assert scores["inception_score"] == pytest.approx(sum(map(label_score, parts)) / 10, rel=1e-5)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def test_files_that_are_not_the_weights_are_refused_and_not_run(fake_fidelity, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.pth: no such file; expected the Inception weights"):
        load_inception(tmp_path / "none.pth")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "text.pth").write_text("hello")
    torch.save({"weight": Evil(tmp_path / "made")}, tmp_path / "evil.pth")
    for name in ("other.pth", "empty.pth", "text.pth", "evil.pth"):
        with pytest.raises(ValueError, match=rf"{name}: expected the Inception weights") as error:
            load_inception(tmp_path / name)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "made").exists()


def test_without_torch_fidelity_the_error_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "inception.pth").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    with pytest.raises(ImportError, match=r"pip install 'usd3\[inception\]'"):
        image_metrics(pictures(9), pictures(9), TinyClassifier(), inception=str(tmp_path / "inception.pth"))


def test_with_the_real_inception_network(tmp_path):
    fidelity = pytest.importorskip("torch_fidelity")
    from unittest import mock

    with mock.patch.object(fidelity.FeatureExtractorInceptionV3, "load_state_dict"), mock.patch.object(torch, "load"):
        network = fidelity.FeatureExtractorInceptionV3("x", ["2048"], feature_extractor_weights_path="none")
    torch.save(network.state_dict(), tmp_path / "inception.pth")
    scores = image_metrics(pictures(5, 1), pictures(6), TinyClassifier(), inception=str(tmp_path / "inception.pth"))
    assert scores["fid"] >= 0
    assert 1 <= scores["inception_score"] <= 1008
