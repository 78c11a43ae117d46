"""The VQGAN: its codebook against loops and formulas, its shapes, and tokens there and back."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from usd3.kinds.image.codebook import Codebook
from usd3.kinds.image.discriminator import Discriminator
from usd3.kinds.image.vqgan import VQGAN

KINDS = ("ema", "gradient")


def tiny(**options) -> VQGAN:
    torch.manual_seed(0)
    return VQGAN(**{"num_codes": 6, "code_dim": 4, "filters": (8, 12), "blocks": 1, **options})


def some_images(n=3, height=8, width=4):
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def vectors(n=20, dim=4, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("filters", "factor"), [((8,), 1), ((4, 8), 2), ((4, 8, 8), 4)])
def test_each_stage_but_the_first_halves_the_sides(filters, factor):
    net = tiny(filters=filters)
    tokens = net.encode_images(some_images(5, 8, 16), batch_size=2)
    assert net.factor == factor
    assert tokens.shape == (5, 8 // factor, 16 // factor)
    assert tokens.dtype == torch.int64
    images = net.decode_images(tokens.to(torch.int32), batch_size=3)
    assert (images.shape, images.dtype) == ((5, 3, 8, 16), torch.uint8)
    assert torch.equal(tokens, net.encode_images(some_images(5, 8, 16)))
    assert net.training  # as it was


def test_the_default_makes_8_by_8_tokens_out_of_512():
    with FakeTensorMode():
        net = VQGAN()
        assert net.codebook.codes.shape == (512, 256)
        assert net.encoder(torch.zeros(2, 3, 32, 32)).shape == (2, 256, 8, 8)
        assert net(torch.zeros(2, 3, 32, 32)).images.shape == (2, 3, 32, 32)
        assert Discriminator()(torch.zeros(2, 3, 32, 32)).shape == (2, 1, 8, 8)


def test_a_reconstruction_is_what_the_tokens_decode_to():
    net = tiny().eval()
    images = some_images()
    found = net(images.float() / 127.5 - 1).images
    expected = ((found + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    decoded = net.decode_images(net.encode_images(images))
    assert (decoded.int() - expected.int()).abs().max() <= 1  # z + (code - z) rounds


def test_the_nearest_code_is_the_nearest():
    book = Codebook(6, 4)
    z = vectors(30)
    by_hand = [min(range(6), key=lambda k: float((row - book.codes[k]).norm())) for row in z]
    assert book.nearest(z).tolist() == by_hand
    with torch.autocast("cpu", torch.bfloat16):
        assert book.nearest(z).tolist() == by_hand


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_passes_straight_through(kind):
    book = Codebook(6, 4, kind).eval()
    z, weights = vectors().requires_grad_(), vectors(seed=1)
    found = book(z)
    assert torch.allclose(found.vectors, book.codes[found.tokens], atol=1e-6)
    (gradient,) = torch.autograd.grad((found.vectors * weights).sum(), z)
    assert torch.equal(gradient, weights)


@pytest.mark.parametrize("kind", KINDS)
def test_the_losses_pull_as_their_formulas_say(kind):
    book = Codebook(6, 4, kind, commitment=0.5).eval()
    z = vectors().requires_grad_()
    found = book(z)
    codes = book.codes[found.tokens].detach()
    wanted = [z] if kind == "ema" else [z, book.codes]
    gradients = torch.autograd.grad(found.loss, wanted)
    assert torch.allclose(gradients[0], 0.5 * 2 * (z - codes) / z.numel())
    if kind == "gradient":
        expected = torch.zeros(6, 4)
        for row, k in zip(z.detach(), found.tokens):
            expected[k] += 2 * (book.codes[k].detach() - row) / z.numel()
        assert torch.allclose(gradients[1], expected, atol=1e-7)
    else:
        assert not list(book.parameters())


@pytest.mark.parametrize("bf16", [False, True])
def test_moving_averages_are_those_of_the_formula(bf16):
    book = Codebook(3, 4, decay=0.9)
    book.idle.zero_()
    sizes, sums = torch.ones(3), book.codes.clone()
    for seed in range(3):
        z = vectors(seed=seed)
        tokens = book.nearest(z)
        for k in range(3):
            sizes[k] = 0.9 * sizes[k] + 0.1 * (tokens == k).sum()
            sums[k] = 0.9 * sums[k] + 0.1 * z[tokens == k].sum(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found = book(z)
        assert torch.equal(found.tokens, tokens)
        assert torch.allclose(book.codes, sums / sizes[:, None], atol=1e-6)
        assert {buffer.dtype for buffer in book.buffers()} == {torch.float32}
    book.eval()
    before = book.codes.clone()
    book(z)
    assert torch.equal(book.codes, before)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_without_use_come_back_as_vectors_of_the_batch(kind):
    book = Codebook(4, 4, kind, restart_after=3)
    book.idle.zero_()
    with torch.no_grad():
        book.codes[1:] = 1e3  # nothing is near
        if kind == "ema":
            book.sums.copy_(book.codes)
    z = vectors()
    for call in range(3):
        assert (book.codes[1:] > 900).all(), call
        book(z)
    for code in book.codes[1:]:
        assert (code == z).all(1).any()
    assert book.idle.tolist() == [0.0] * 4
    if kind == "ema":
        assert torch.equal(book.sums[1:], book.codes[1:])
        assert book.sizes[1:].tolist() == [1.0] * 3
    assert len(book.nearest(z).unique()) > 1


@pytest.mark.parametrize("restart_after", [10**6, None])
def test_a_code_without_use_keeps_its_place(restart_after):
    book, z = Codebook(4, 4, decay=0.5, restart_after=restart_after), vectors()
    book(z)
    with torch.no_grad():
        book.codes[1:] = 1e3
    kept = book.codes[1:].clone()
    for _ in range(200):  # sizes and sums are 0 by then
        book(z)
    assert torch.equal(book.codes[1:], kept)
    assert torch.allclose(book.codes[0], z.mean(0), atol=1e-5)
    book(kept[:1])  # used again, it is what it stands for
    assert torch.allclose(book.codes[1:], kept)


def test_a_new_codebook_begins_at_vectors_of_its_first_batch():
    for restart_after in (100, None):
        book, z = Codebook(64, 4, restart_after=restart_after), vectors() + 50
        book(z)
        assert len(book.nearest(z).unique()) > 8


@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_and_training_without_waiting_for_the_device(kind):
    found = Codebook(6, 4, kind)(vectors())
    share = torch.bincount(found.tokens, minlength=6) / 20
    share = share[share > 0]
    assert torch.allclose(found.perplexity, (-(share * share.log()).sum()).exp())
    with FakeTensorMode():  # tensors without values: whoever asks for one raises
        net = tiny(codebook=kind)
        out = net(torch.zeros(2, 3, 4, 4))
        (out.images.mean() + out.loss).backward()
        assert out.perplexity.shape == ()


@pytest.mark.parametrize("kind", KINDS)
def test_both_kinds_learn(kind):
    net, x = tiny(codebook=kind, num_codes=16, restart_after=5), some_images(8).float() / 127.5 - 1
    x = x[:, :, ::4, ::2].repeat_interleave(4, 2).repeat_interleave(2, 3)  # patches
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.003, betas=(0.0, 0.99)), []
    for _ in range(30):
        out = net(x)
        optimizer.zero_grad()
        ((out.images - x).abs().mean() + out.loss).backward()
        optimizer.step()
        losses.append((out.images - x).abs().mean().item())
    assert losses[-1] < 0.5 * losses[0]


def test_bad_input_is_refused():
    net = tiny()
    with pytest.raises(ValueError, match=r"height and width = \(7, 4\): expected multiples of 2"):
        net.encode_images(some_images(1, 7, 4))
    with pytest.raises(TypeError, match=r"images is a torch.float32 tensor: expected a uint8 tensor"):
        net.encode_images(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"images.shape = \(1, 1, 8, 8\): expected \(N, 3, H, W\)"):
        net.encode_images(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"tokens contains 6: expected categories 0..5"):
        net.decode_images(torch.full((1, 2, 2), 6))
    with pytest.raises(ValueError, match=r"tokens.shape = \(2, 2\): expected \(N, h, w\)"):
        net.decode_images(torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(TypeError, match="expected an integer tensor"):
        net.decode_images(torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="at least one image"):
        net.encode_images(some_images(1)[:0])
    for options, message in [
        ({"num_codes": 1}, "num_codes = 1: expected an integer >= 2"),
        ({"filters": ()}, r"filters = \(\): expected at least one stage"),
        ({"codebook": "mean"}, "codebook = mean: expected ema or gradient"),
        ({"commitment": -1.0}, "commitment = -1"),
        ({"restart_after": 0}, "restart_after = 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            tiny(**options)
