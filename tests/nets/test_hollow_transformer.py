"""No output sees its own element, every output sees all others: by derivatives, for every kind of conditioning."""

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import usd3
from support.places import ROOT
from support.small_nets import SIZES, K, L, T, X, small
from usd3.core.options import DiffusionConfig
from usd3.methods import SDDM
from usd3.nets import HollowTransformer, MaskedTransformer
from usd3.nets.options import ModelConfig
from usd3.recipes import find_recipe

MASKS = {
    "none": {},
    "prefix": {"given": "110000"},
    "suffix": {"given": "000011"},
    "scattered": {"given": "010110"},
    "all but one": {"given": "111011"},
    "nothing given": {"given": "000000"},
    "padded": {"pad": "000011"},
    "prefix, padded": {"given": "110000", "pad": "000001"},
    "scattered, padded": {"given": "100100", "pad": "010001"},
}


def masks(name):
    return {mask: torch.tensor([c == "1" for c in bits]).expand(3, L) for mask, bits in MASKS[name].items()}


def dependence(net, x, t, **masks):
    """[i, j]: the size of the derivative of the logits at i with respect to the embedding of x_j."""
    bump = torch.zeros(L, net.dim, dtype=torch.float64, requires_grad=True)
    seen = lambda module, ids, out: out + bump * (ids[0] != K)[..., None]  # not the sign of a hidden element
    hook = net.embed.register_forward_hook(seen)
    logits = net(x[:1], t[:1], **{name: mask[:1] for name, mask in masks.items()})[0]
    hook.remove()
    direction = torch.randn(K, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rows = [torch.autograd.grad(row @ direction, bump, retain_graph=True)[0].norm(dim=1) for row in logits]
    return torch.stack(rows)


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
@pytest.mark.parametrize("name", MASKS)
def test_an_output_depends_on_all_elements_but_its_own(kind, name):
    depends = dependence(small(kind), X, T.double(), **masks(name))
    given, pad = ([c == "1" for c in MASKS[name].get(mask, "0" * L)] for mask in ("given", "pad"))
    free = [i for i in range(L) if not (given[i] or pad[i])]
    assert not depends.diagonal().any()
    for i in free:
        others = [depends[i, j] for j in range(L) if j != i and not pad[j]]
        assert min(others, default=1) > 1e-6
        assert not any(depends[i, j] for j in range(L) if pad[j])


def test_no_output_moves_with_its_element_for_random_masks():
    """Real changes of categories, other masks in every object."""
    generator, net = torch.Generator().manual_seed(3), small()
    x = torch.randint(K, (40, L), generator=generator)
    t = torch.rand(40, generator=generator).double()
    given, pad = torch.rand(40, L, generator=generator) < 0.4, torch.rand(40, L, generator=generator) < 0.2
    logits = net(x, t, given=given, pad=pad)
    free = ~(given | pad)
    assert not logits[~free].any()
    for j in range(L):
        other = x.clone()
        other[:, j] = (x[:, j] + 3) % K
        moved = (net(other, t, given=given, pad=pad) != logits).any(-1)
        assert not moved[:, j].any()
        expected = free & ~pad[:, j : j + 1]
        expected[:, j] = False
        assert torch.equal(moved, expected)


def reference(net, x, t, prefix, heads):
    """SDDM's layout written out, on nn.MultiheadAttention: [C, x_1, ...] and [x_2, ..., C] with C full inside.

    C is the prefix and the time, which comes next to the free elements in both: the outermost of them read it.
    """
    angles = [1000 * t * 10000 ** (-i / (net.dim // 2 - 1)) for i in range(net.dim // 2)]
    time = torch.cat([torch.stack(angles, 1).sin(), torch.stack(angles, 1).cos()], 1)
    tokens, n = net.embed(x), L - prefix
    tokens[:, :prefix] += net.given
    position = {"right": net.rightward.positions, "left": net.leftward.positions}
    at = {"right": lambda j: position["right"][j + 1], "left": lambda j: position["left"][L - j]}
    states = []
    for side, encoder in (("right", net.rightward), ("left", net.leftward)):
        token = lambda j, side=side: tokens[:, j] + at[side](j)
        prompt, clock = [token(j) for j in range(prefix)], [time + position[side][0]]
        if side == "right":
            h = torch.stack(prompt + clock + [token(prefix + j) for j in range(n - 1)], 1)
            hidden = torch.ones(L, L).triu(1).bool()
            hidden[: prefix + 1, : prefix + 1] = False
        else:
            h = torch.stack([token(prefix + j) for j in range(1, n)] + clock + prompt, 1)
            hidden = torch.ones(L, L).tril(-1).bool()
            hidden[n - 1 :, n - 1 :] = False
        for block in encoder.blocks:
            attention = nn.MultiheadAttention(net.dim, heads, bias=False, batch_first=True, dtype=h.dtype).eval()
            attention.in_proj_weight, attention.out_proj.weight = block.qkv.weight, block.project.weight
            z = block.norm_attention(h)
            h = h + attention(z, z, z, attn_mask=hidden)[0]
            wide, narrow = block.mlp[0], block.mlp[2]
            h = h + narrow(wide(block.norm_mlp(h)).relu())
        states.append(h[:, -n:] if side == "right" else h[:, :n])
    h, readout = torch.cat(states, -1), net.readout
    film = readout.time[2](nn.functional.gelu(readout.time[0](time)))
    for mlp, norm, pair in zip(readout.mlps, readout.norms, readout.films):
        h = norm(h + mlp[2](nn.functional.gelu(mlp[0](h))))
        h = h * pair(film)[:, None, : 2 * net.dim] + pair(film)[:, None, 2 * net.dim :]
    return readout.logits(h)


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_with_a_prefix_it_computes_what_sddm_describes(prefix):
    net, given = small(), (torch.arange(L) < prefix).expand(3, L)
    with torch.no_grad():
        expected = reference(net, X, T.double(), prefix, heads=2)
        torch.testing.assert_close(net(X, T.double(), given=given)[:, prefix:], expected)
        if not prefix:
            torch.testing.assert_close(net(X, T.double()), expected)


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
def test_masks_of_nothing_change_nothing(kind):
    net, none = small(kind), torch.zeros(3, L, dtype=torch.bool)
    plain = net(X, T)
    torch.testing.assert_close(net(X, T, given=none), plain)
    torch.testing.assert_close(net(X, T, pad=none, given=none), plain)
    torch.testing.assert_close(net(X, T, pad=none), plain)


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
def test_time_position_and_what_is_given_matter(kind):
    net = small(kind)
    logits, given = net(X, T), torch.arange(L).expand(3, L) < 2
    assert (net(X, T + 0.05) - logits).abs().max() > 1e-3
    assert (net(X.flip(1), T).flip(1) - logits).abs().max() > 1e-3
    assert (net(X, T, given=given)[:, 2:] - logits[:, 2:]).abs().max() > 1e-3
    timeless = small(kind, timeless=True)
    assert timeless.ignores_time
    assert torch.equal(timeless(X, T), timeless(X, T.flip(0)))


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
def test_objects_of_any_shape_are_read_in_row_major_order(kind):
    net = small(kind)
    flat = net(X, T, given=X > 3, pad=X > 5)
    shape = (3, 2, 3)
    shaped = net(X.reshape(shape), T, given=(X > 3).reshape(shape), pad=(X > 5).reshape(shape))
    assert torch.equal(flat.reshape(*shape, K), shaped)


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
def test_evaluation_is_deterministic_and_training_drops(kind):
    net = small(kind, dropout=0.3)
    assert torch.equal(net(X, T), net(X, T))
    assert not torch.equal(net.train()(X, T), net(X, T))


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
@pytest.mark.parametrize("name", ["none", "scattered, padded"])
def test_bfloat16_stays_close_and_hollow(kind, name):
    torch.manual_seed(0)
    net = kind(**SIZES).eval()
    whole = net(X, T, **masks(name))
    with torch.autocast("cpu", torch.bfloat16):
        half, other = (net(x, T, **masks(name)) for x in (X, torch.cat([X[:, :2], (X[:, 2:3] + 1) % K, X[:, 3:]], 1)))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, atol=0.1, rtol=0.1)
    assert torch.equal(half[:, 2], other[:, 2])


@pytest.mark.parametrize("arguments", [{}, {"readout": "concat"}, {"output_blocks": 0}])
def test_every_weight_learns(arguments):
    torch.manual_seed(0)
    net = HollowTransformer(**SIZES | arguments)
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Linear())
    SDDM(d).loss(net, X, given=X > 3).loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in net.parameters())


PAPER = ROOT / "paper"


@pytest.mark.parametrize(
    ("recipe", "parameters"), [("paper-sddm", 24_924_801), (str(PAPER / "recipes" / "hollow-pop909.yaml"), 3_869_569)]
)
def test_sizes_of_the_recipes(recipe, parameters):
    """By their description, with 2 x 257 positions and the sign of given elements; the recipes name these numbers."""
    text = find_recipe(recipe).read_text()
    sddm = yaml.safe_load(find_recipe("sddm").read_text())["model"]
    config = ModelConfig(**sddm | yaml.safe_load(text)["model"])
    diffusion = DiffusionConfig().build(129)
    with torch.device("meta"):
        net = config.build(diffusion, (256,))
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert f"{parameters:,}" in text


@pytest.mark.parametrize("name", ["hollow_transformer", "masked_transformer"])
def test_a_recipe_builds_it_for_the_shape_of_the_data(name):
    diffusion = DiffusionConfig().build(5)
    config = ModelConfig(name, dim=16, depth=1, heads=2, output_blocks=3, dropout=0.25, hollow=False)
    net = config.build(diffusion, (2, 4))
    assert (net.length, net.num_classes, len(net.readout.mlps), net.embed.weight.shape[1]) == (8, 5, 3, 16)
    assert net(torch.zeros(3, 2, 4, dtype=torch.long), T).shape == (3, 2, 4, 5)
    with pytest.raises(ValueError, match=r"length = 1: expected|x_t.shape = \(3, 6\): expected 8 elements"):
        net(X, T)
    config.projection = True
    with pytest.raises(ValueError, match=f"model.projection = True: expected false for {name}"):
        config.build(diffusion, (8,))


@pytest.mark.parametrize("kind", [HollowTransformer, MaskedTransformer])
@pytest.mark.parametrize(
    "arguments", [{"dim": 30, "heads": 4}, {"dropout": -0.1}, {"num_classes": 1}, {"depth": 0}, {"length": 0}]
)
def test_bad_sizes_are_refused(kind, arguments):
    with pytest.raises(ValueError, match="expected"):
        kind(**SIZES | arguments)


def test_an_unknown_readout_is_refused():
    with pytest.raises(ValueError, match="readout = attention: expected res_concat or concat"):
        HollowTransformer(**SIZES, readout="attention")


def test_it_learns_to_read_an_element_from_the_others():
    """A run of equal tokens, its value drawn anew: log 5 nats, and 8 log 5 = 12.9 to who does not read the others."""
    torch.manual_seed(0)
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Constant(5.0))
    method, net = SDDM(d), HollowTransformer(5, 8, dim=32, depth=2, heads=2, mlp=64, dropout=0.0, output_blocks=1)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        method.loss(net, torch.randint(5, (32, 1)).expand(-1, 8), stratified=True).loss.backward()
        optimizer.step()
    bound = method.bound(net.eval(), torch.arange(5)[:, None].expand(-1, 8), 64).mean().item()
    assert np.log(5) - 0.1 < bound < 4.5
