import pytest
import torch

import usd3
from usd3.nets.options import NETS, ModelConfig
from usd3.nets.voices import Voices


def small(**arguments) -> Voices:
    """A small network whose last layers are not zero, as they are at the start of training."""
    torch.manual_seed(0)
    net = Voices(**{"num_classes": 130, "dim": 16, "depth": 2, "heads": 2, "mlp": 32, "time_dim": 8} | arguments)
    for name, p in net.named_parameters():
        if name in ("leave", "bias", "given") or name.startswith(("final", "modulate")):
            torch.nn.init.normal_(p, std=0.3)
    return net.eval()


GENERATOR = torch.Generator().manual_seed(1)
X, T = torch.randint(130, (3, 10, 4), generator=GENERATOR), torch.tensor([0.1, 0.5, 0.9])


@torch.no_grad()
def changed(net, **other):
    """The largest difference of the logits of the first object at each element, where an argument is another one."""
    arguments = {"x_t": X, "t": T}
    return (net(**arguments | other) - net(**arguments))[0].abs().amax(-1)


def with_other(element, value=5):
    x = X.clone()
    x[(0, *element)] = value
    return x


def test_logits_of_each_voice():
    assert small()(X, T).shape == (3, 10, 4, 130)
    assert small(voices=2)(X[..., :2], T).shape == (3, 10, 2, 130)


def test_every_element_sees_every_voice_and_step():
    for element in ((0, 0), (9, 3)):
        assert (changed(small(), x_t=with_other(element)) > 1e-6).all()


def test_objects_do_not_see_each_other():
    net, x = small(), with_other((3, 1))
    with torch.no_grad():
        assert torch.equal(net(x, T)[1:], net(X, T)[1:])


def test_padding_is_not_seen_and_changes_nothing():
    net, pad = small(), torch.zeros(3, 10, 4, dtype=torch.bool)
    pad[:, 6:] = True
    with torch.no_grad():
        whole = net(X, T, pad=pad)[:, :6]
        torch.testing.assert_close(net(X[:, :6], T), whole, rtol=0, atol=1e-5)
        torch.testing.assert_close(net(torch.where(pad, 7, X), T, pad=pad)[:, :6], whole, rtol=0, atol=1e-5)
        assert not torch.allclose(net(X, T)[:, :6], whole, atol=1e-3)


def test_steps_that_are_padding_everywhere_are_not_computed():
    net, pad, seen = small(), torch.zeros(3, 10, 4, dtype=torch.bool), []
    net.layers[0].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].shape[1]))
    pad[:, 6:] = True
    pad[1, 2:] = True
    with torch.no_grad():
        logits = net(X, T, pad=pad)
        assert logits.shape == (3, 10, 4, 130)
        assert (logits[:, 6:] == 0).all()
        pad[0, 8, 2] = False
        net(X, T, pad=pad)
        net(X, T, pad=torch.ones_like(pad))
        net.train()(X, T, pad=torch.ones_like(pad))
    assert seen == [6, 9, 1, 10]


def test_one_voice_can_be_padding():
    net, pad = small(), torch.zeros(3, 10, 4, dtype=torch.bool)
    pad[..., 2] = True
    with torch.no_grad():
        assert torch.equal(net(torch.where(pad, 7, X), T, pad=pad), net(X, T, pad=pad))


def test_given_elements_and_the_time_matter():
    given = torch.zeros(3, 10, 4, dtype=torch.bool)
    assert (changed(small(), given=given) == 0).all()
    given[0, 2, 1] = True
    assert (changed(small(), given=given) > 1e-6).all()
    assert (changed(small(), t=torch.tensor([0.4, 0.5, 0.9])) > 1e-6).all()
    net = small(timeless=True)
    assert net.ignores_time
    assert (changed(net, t=torch.tensor([0.4, 0.5, 0.9])) == 0).all()


def test_the_same_pitch_in_another_voice_is_something_else():
    net, x = small(), X.clone()
    x[..., 0], x[..., 1] = X[..., 1], X[..., 0]
    with torch.no_grad():
        assert not torch.allclose(net(x, T)[..., 2:, :], net(X, T)[..., 2:, :], atol=1e-3)


def test_of_the_place_it_sees_that_in_a_bar_and_the_distances():
    net = small()
    music = torch.randint(128, (1, 48, 4), generator=torch.Generator().manual_seed(2))
    silence, t = torch.full((1, 16, 4), 128), T[:1]
    with torch.no_grad():  # one bar later, the bar before it being padding
        later, pad = torch.cat([silence, music], 1), torch.zeros(1, 64, 4, dtype=torch.bool)
        pad[:, :16] = True
        torch.testing.assert_close(net(later, t, pad=pad)[:, 16:], net(music, t), rtol=0, atol=1e-4)
        beat = net(later[:, 12:], t, pad=pad[:, 12:])[:, 4:]  # one beat later
    assert not torch.allclose(beat, net(music, t), atol=1e-3)


def test_pitches_an_octave_apart_share_a_part_of_their_vectors():
    net = small()
    assert net.class_of[[60, 72, 61, 128, 129]].tolist() == [0, 0, 1, 12, 12]
    with torch.no_grad():
        net.category.weight.zero_()
        net.own.zero_()
        assert (changed(net, x_t=with_other((0, 0), 60)) - changed(net, x_t=with_other((0, 0), 72))).abs().max() < 1e-6


def test_a_new_network_finds_all_categories_equally_likely():
    net = Voices(130, dim=16, depth=1, heads=2, mlp=32, time_dim=8)
    assert (net(X, T) == 0).all()


def test_objects_of_other_voices_are_refused():
    for x in (X[..., :3], X[..., 0]):
        with pytest.raises(ValueError, match=r"x_t\.shape .* \(B, T, 4\)"):
            small()(x, T)


def test_it_is_a_network_of_recipes():
    assert NETS["voices"] is Voices
    diffusion = usd3.Diffusion(usd3.Absorbing(130), usd3.Linear())
    config = ModelConfig(net="voices", dim=16, depth=1, heads=2, timeless=True, hollow=False)
    net = config.build(diffusion, (10, 4))
    assert isinstance(net, Voices)
    assert net.ignores_time
    nats = diffusion.bound(net.eval(), X.clamp(max=128), num_samples=4)
    assert torch.isfinite(nats).all()
    with pytest.raises(ValueError, match=r"model\.projection"):
        ModelConfig(net="voices", projection=True, hollow=False).build(diffusion, (10, 4))


def test_it_learns_what_the_voices_say_of_each_other():
    torch.manual_seed(0)
    soprano = torch.randint(60, 72, (64, 8))
    chorales = torch.stack([soprano, soprano - 4, soprano - 7, soprano - 12], -1)
    diffusion = usd3.Diffusion(usd3.Absorbing(130), usd3.Linear())
    net = Voices(130, dim=32, depth=2, heads=2, mlp=64, time_dim=8, timeless=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(80):
        loss = diffusion.loss(net, chorales, generator=torch.Generator().manual_seed(step)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hidden = chorales.clone()
    hidden[..., 1:] = 129
    with torch.no_grad():
        found = net.eval()(hidden, torch.ones(64)).argmax(-1)
    assert (found == chorales).float().mean() > 0.9
