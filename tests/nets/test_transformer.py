import pytest
import torch

import usd3
from usd3.nets import FilmTransformer, Hollow, Transformer, _layers
from usd3.nets.options import ModelConfig


def small(**arguments) -> Transformer:
    """A small network whose last layers are not zero, as they are at the start of training."""
    torch.manual_seed(0)
    net = Transformer(**{"num_classes": 7, "dim": 16, "depth": 2, "heads": 2, "mlp": 32, "time_dim": 8} | arguments)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return net.eval()


X, T = torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(1)), torch.tensor([0.1, 0.5, 0.9])


def test_the_default_has_the_size_of_the_papers_small_network():
    with torch.device("meta"):
        ours, theirs = (sum(p.numel() for p in net(129).parameters()) for net in (Transformer, FilmTransformer))
    assert 0.99 < ours / theirs <= 1


def test_it_starts_at_the_uniform_distribution():
    torch.manual_seed(0)
    assert not Transformer(7, dim=16, depth=2, heads=2, mlp=32)(X, T).any()


def test_time_position_and_every_element_matter():
    net = small()
    logits = net(X, T)
    assert logits.shape == (3, 6, 7)
    assert (net(X, T + 0.05) - logits).abs().max() > 1e-3
    assert (net(X.flip(1), T).flip(1) - logits).abs().max() > 1e-3
    for i in range(6):
        changed = X.clone()
        changed[:, i] = (X[:, i] + 1) % 7
        assert ((net(changed, T) - logits).abs().amax((0, 2)) > 1e-5).all()


def test_distances_count_besides_places():
    """Rotary positions: without the places, shifting a sequence inside its padding changes nothing."""
    net = small()
    left, right = torch.zeros(1, 9, dtype=torch.long), torch.zeros(1, 9, dtype=torch.long)
    left[:, :6] = right[:, 3:] = X[:1]
    pad = torch.arange(9)[None] >= 6
    a, b = (net(left, T[:1], pad=pad)[:, :6], net(right, T[:1], pad=pad.flip(1))[:, 3:])
    assert (a - b).abs().max() > 1e-3
    torch.nn.init.zeros_(net.place.weight)
    a, b = (net(left, T[:1], pad=pad)[:, :6], net(right, T[:1], pad=pad.flip(1))[:, 3:])
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("axes", [1, 2])
def test_elements_that_look_alike_are_told_apart_by_their_place(axes):
    shape = (12, 10)[:axes]
    x = torch.zeros(1, *shape, dtype=torch.long)
    logits = small(axes=axes, dim=32)(x, T[:1]).reshape(-1, 7)
    apart = torch.cdist(logits, logits) + torch.eye(len(logits))
    assert apart.min() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_are_unique_up_to_65536(dtype):
    places = torch.arange(2**16)
    features = _layers.waves([places], torch.empty(0, dtype=dtype)).float()
    for apart in [2**i for i in range(16)] + [3, 100, 1000, 2**16 - 1]:
        assert (features[apart:] - features[: 2**16 - apart]).abs().amax(1).min() > 0.7
    exact = torch.cat(
        [f(places[:, None].double() * torch.pi * 0.5 ** torch.arange(16)) for f in (torch.sin, torch.cos)], 1
    )
    assert (features - exact).abs().max() < (1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("axes", [1, 2])
def test_weights_of_before_give_the_logits_of_before(axes):
    """Networks of sequences knew no places; those of several axes knew them by 8 waves each."""
    shape = (3, 9, 7)[: 1 + axes]
    x, net, loaded = torch.zeros(shape, dtype=torch.long), small(axes=axes, dim=32), small(axes=axes, dim=32)
    before = net.place.weight.detach().unflatten(1, (2 * axes, 16))
    before[..., 8:] = 0
    if axes == 1:
        before[:] = 0
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    if axes == 1:
        del weights["place.weight"]
    else:
        weights["place.weight"] = before[..., :8].flatten(1)
    loaded.load_state_dict(weights)
    assert torch.equal(loaded(x, T), net(x, T))
    headed = Hollow(small(axes=axes, dim=32), usd3.Diffusion(usd3.Uniform(7), usd3.Cosine()))
    headed.load_state_dict({f"module.{name}": value for name, value in weights.items()})
    assert torch.equal(headed.module.place.weight, net.place.weight)
    with pytest.raises(RuntimeError, match=r"Missing key.*embed.weight"):
        loaded.load_state_dict({})


def test_equal_rows_are_drawn_right_from_nothing():
    """At t = 1 with absorbing noise all elements look alike: only its place says what an element is."""
    torch.manual_seed(0)
    row = torch.tensor([0, 1, 2, 3, 0, 2, 1, 3, 3, 0])
    d = usd3.Diffusion(usd3.Absorbing(5), usd3.Linear())
    net = Transformer(5, dim=32, depth=2, heads=2, mlp=64, time_dim=16)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        d.loss(net, row.expand(16, -1)).loss.backward()
        optimizer.step()
    assert (d.sample(net.eval(), (100, 10), num_steps=20) == row).all(1).float().mean() > 0.95


def test_it_knows_what_is_given():
    net = small()
    given = torch.zeros(3, 6, dtype=torch.bool)
    torch.testing.assert_close(net(X, T, given=given), net(X, T))
    given[:, 0] = True
    assert (net(X, T, given=given) - net(X, T)).abs().max() > 1e-3


def test_padding_does_not_reach_the_other_elements():
    net, pad = small(), torch.arange(6).expand(3, -1) >= 4
    other = torch.where(pad, (X + 1) % 7, X)
    torch.testing.assert_close(net(X, T, pad=pad)[:, :4], net(other, T, pad=pad)[:, :4])


def test_objects_of_any_shape_are_read_in_row_major_order():
    net = small()
    given = X > 3
    flat = net(X, T, given=given, pad=X > 5)
    shaped = net(X.reshape(3, 2, 3), T, given=given.reshape(3, 2, 3), pad=(X > 5).reshape(3, 2, 3))
    assert torch.equal(flat.reshape(3, 2, 3, 7), shaped)


def test_the_gradient_is_that_of_finite_differences():
    net = small().double()
    weight = net.layers[0].qkv.weight

    def out(row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(
            net, {"layers.0.qkv.weight": torch.cat([row, weight[1:].detach()])}, (X, T.double())
        )

    assert torch.autograd.gradcheck(out, weight[:1].detach().clone().requires_grad_())


def test_it_learns_what_the_papers_network_does_not_in_the_same_number_of_steps():
    """A run of equal tokens, its value drawn anew: every element must be read from the others."""
    bounds = {}
    for name, kind in (("ours", Transformer), ("theirs", FilmTransformer)):
        torch.manual_seed(0)
        d = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine(), num_steps=20)
        net = kind(5, dim=32, depth=2, heads=2, mlp=64, time_dim=16)
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(150):
            optimizer.zero_grad()
            d.loss(net, torch.randint(5, (32, 1)).expand(-1, 8), stratified=True).loss.backward()
            optimizer.step()
        bounds[name] = d.bound(net.eval(), torch.arange(5)[:, None].expand(-1, 8)).mean().item()
    assert bounds["ours"] < 2.6  # log 5 = 1.61
    assert bounds["ours"] < bounds["theirs"]


@pytest.mark.parametrize("arguments", [{"dim": 30, "heads": 4}, {"dropout": -0.1}, {"num_classes": 1}, {"depth": 0}])
def test_bad_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        Transformer(**{"num_classes": 7} | arguments)


@pytest.mark.parametrize("net", [Transformer, FilmTransformer])
def test_a_projection_trains_like_logits(net):
    sizes = {"dim": 16, "depth": 1, "heads": 2, "mlp": 16, "dropout": 0.0, "time_dim": 8}
    d = usd3.Diffusion(usd3.Uniform(11), usd3.Cosine(), num_steps=20)
    x_0 = torch.randint(11, (4, 2, 3), generator=torch.Generator().manual_seed(0))
    results = []
    for projection in (False, True):
        torch.manual_seed(1)
        model = Hollow(net(11, projection=projection, **sizes), d)
        torch.nn.init.normal_(model.module.logits.weight)
        out = d.loss(model, x_0, generator=torch.Generator().manual_seed(2))
        out.loss.backward()
        results.append([out.loss.detach(), out.ce, *(p.grad for p in model.parameters() if p.grad is not None)])
        assert d.sample(model, (2, 2, 3), 3).shape == (2, 2, 3)
        assert isinstance(model(x_0, torch.full((4,), 0.5)), usd3.Projection) == projection
    assert len(results[0]) == len(results[1]) > 10
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_two_axes_are_rows_and_columns():
    """Only distances along the axes and the places themselves count, so the axes can be told apart, and both matter."""
    net = small(axes=2, dim=32)
    x = torch.randint(7, (1, 3, 4), generator=torch.Generator().manual_seed(2))
    logits = net(x, T[:1])
    assert logits.shape == (1, 3, 4, 7)
    assert (net(x.transpose(1, 2), T[:1]).transpose(1, 2) - logits).abs().max() > 1e-3
    for axis in (1, 2):
        assert (net(x.roll(1, axis), T[:1]).roll(-1, axis) - logits).abs().max() > 1e-3
    torch.nn.init.zeros_(net.place.weight)  # what is left is how far elements are apart
    pad = torch.zeros(1, 5, 6, dtype=torch.bool)
    shifted = torch.zeros(1, 5, 6, dtype=torch.long)
    shifted[:, 2:, 1:5], pad[:, 2:, 1:5] = x, True
    logits = net(shifted, T[:1], pad=~pad)[:, 2:, 1:5]
    torch.testing.assert_close(logits, net(x, T[:1]), atol=1e-5, rtol=1e-4)


def test_axes_are_those_of_the_objects():
    with pytest.raises(ValueError, match=r"x_t.shape = \(3, 6\): expected objects of 2 axes"):
        small(axes=2)(X, T)
    with pytest.raises(ValueError, match="axes = 0"):
        small(axes=0)
    with pytest.raises(ValueError, match="dim = 16: expected at least 36, 2 for each head and axis"):
        small(axes=9)
    config = ModelConfig(dim=16, depth=1, heads=2)
    diffusion = usd3.Diffusion(usd3.Uniform(7), usd3.Cosine())
    assert config.build(diffusion, (3, 4)).module.axes == 2
    assert config.build(diffusion, (12,)).module.axes == 1


# ---- a vocabulary for each element ----------------------------------------------------------------------------------


def own(length=4, **options):
    torch.manual_seed(0)
    return Transformer(5, dim=16, depth=1, heads=2, mlp=16, time_dim=8, own_vocabulary=True, length=length, **options)


def test_each_element_has_embeddings_and_outputs_of_its_own():
    """The rows of an element's own embeddings and outputs have a gradient, those of no other element."""
    net, x = own(), torch.tensor([[1, 1, 3, 0]])
    torch.nn.init.normal_(net.logits.weight)
    logits = net(x, torch.tensor([0.5]))
    assert logits.shape == (1, 4, 5)
    logits[0, 2].sum().backward()
    read = net.embed.weight.grad.reshape(4, 5, 16).abs().sum(-1) > 0
    assert read.nonzero().tolist() == [[0, 1], [1, 1], [2, 3], [3, 0]]
    assert (net.logits.weight.grad.abs().sum((1, 2)) > 0).tolist() == [False, False, True, False]
    assert (net.logits.bias.grad.abs().sum(1) > 0).tolist() == [False, False, True, False]


def test_logits_of_own_outputs_are_those_of_a_layer_for_each_element():
    net, h = own(), torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(1))
    torch.nn.init.normal_(net.logits.weight)
    torch.nn.init.normal_(net.logits.bias)
    layers = [h[:, i] @ net.logits.weight[i].T + net.logits.bias[i] for i in range(4)]
    torch.testing.assert_close(net.logits(h), torch.stack(layers, 1))


def test_objects_of_several_dimensions_have_a_vocabulary_for_each_place():
    net = own(length=6, axes=2)
    assert net(torch.zeros(2, 2, 3, dtype=torch.long), torch.rand(2)).shape == (2, 2, 3, 5)


def test_a_new_network_predicts_the_frequencies_it_starts_from():
    net = own()
    frequencies = torch.tensor([[0.5, 0.5, 0, 0, 0], [0.2] * 5, [1, 0, 0, 0, 0], [0.1, 0.2, 0.3, 0.4, 0]])
    net.start_from(frequencies.double())
    predicted = net(torch.zeros(1, 4, dtype=torch.long), torch.tensor([0.3])).softmax(-1)[0]
    torch.testing.assert_close(predicted, frequencies, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("options", [{"length": 0}, {"projection": True}])
def test_a_vocabulary_for_each_element_needs_their_number_and_forms_the_logits(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} = "):
        own(**options)


# ---- labels and absent elements ----------------------------------------------------------------------------------


def test_every_class_of_a_label_is_seen_and_no_label_is_a_class_of_its_own():
    net = small(labels=(2, 3))
    seen = [net(X, T, label=torch.tensor([[a, b]]).expand(3, 2)) for a in (-1, 0, 1) for b in (-1, 0, 1, 2)]
    for i, logits in enumerate(seen):
        assert all((logits - other).abs().max() > 1e-4 for other in seen[:i])
    assert torch.equal(net(X, T), seen[0])
    each = net(X, T, label=torch.tensor([[0, 1], [-1, -1], [1, 2]]))
    for row, number in ((0, 6 - 2 + 2), (1, 0), (2, 11)):
        torch.testing.assert_close(each[row], seen[number][row], atol=1e-5, rtol=1e-5)


def test_a_network_predicts_the_labels_from_its_elements_without_padding():
    net = small(labels=(2, 3))
    first, second = net.label_logits(X, T)
    assert (first.shape, second.shape) == ((3, 2), (3, 3))
    out = []
    net(X, T, label_out=out)
    assert torch.equal(out[0], torch.cat([first, second], -1))
    assert (net.label_logits(X, T, label=torch.tensor([[1, -1]] * 3))[1] - second).abs().max() > 1e-4
    longer, pad = torch.cat([X, torch.zeros_like(X)], 1), torch.arange(12) >= 6
    padded = net.label_logits(longer, T, pad=pad.expand(3, 12))
    torch.testing.assert_close(padded[0], first, atol=1e-4, rtol=1e-4)


def test_an_absent_element_has_no_category_and_is_not_given():
    net = small(absent=True)
    absent, other = torch.zeros(3, 6, dtype=torch.bool), X.clone()
    absent[:, 2] = True
    other[:, 2] = (X[:, 2] + 1) % 7
    given = torch.ones_like(absent)
    assert torch.equal(net(X, T, absent=absent), net(other, T, absent=absent))
    assert torch.equal(net(X, T, absent=absent, given=given), net(X, T, absent=absent, given=given & ~absent))
    assert (net(X, T, absent=absent) - net(X, T)).abs().max() > 1e-3
    assert torch.equal(net(X, T, absent=torch.zeros_like(absent)), net(X, T))


def test_a_network_without_labels_refuses_them():
    for arguments in ({"label": torch.zeros(3, 1, dtype=torch.long)}, {"absent": torch.zeros(3, 6, dtype=torch.bool)}):
        with pytest.raises(ValueError, match=f"{next(iter(arguments))} = "):
            small()(X, T, **arguments)
    with pytest.raises(ValueError, match="expected a network with labels"):
        small().label_logits(X, T)


def test_a_compiler_takes_the_rotations_as_one_operation():
    net, graphs = small(), []
    compiled = torch.compile(net, backend=lambda graph, _: (graphs.append(graph), graph.forward)[1], fullgraph=True)
    torch.testing.assert_close(compiled(X, T), net(X, T))
    (graph,) = graphs
    assert sum("rotation" in str(node.target) for node in graph.graph.nodes) == 1
