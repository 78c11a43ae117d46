"""The same numbers on a GPU, and no hidden synchronisation. Skipped where there is none."""

import copy
import shutil
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
import yaml

import usd3
from support.cuda import synchronisations
from support.problems import NOISES, D, K, all_pairs
from support.runs import tiny_recipe, weights_of
from usd3.pipeline.batches import in_batches
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.checkpoints import find_checkpoints

pytestmark = pytest.mark.gpu


def both(noise_name, num_steps):
    noise, rows = NOISES[noise_name][0](), NOISES[noise_name][1]
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps)
    x_0, x_t = all_pairs(noise, rows)
    logits = torch.randn(*x_t.shape, K, generator=torch.Generator().manual_seed(0))
    return d, x_0, x_t, logits


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize(("num_steps", "t", "s"), [(None, 0.6, 0.2), (10, 6, 2)])
def test_losses_and_steps_match_the_cpu(name, num_steps, t, s):
    d, x_0, x_t, logits = both(name, num_steps)
    cpu, gpu = (d.loss_terms(logits.to(v), x_t.to(v), x_0.to(v), t) for v in ("cpu", "cuda"))
    for term in ("vlb", "ce", "l2", "kl2"):
        if getattr(cpu, term) is not None:
            torch.testing.assert_close(getattr(gpu, term).cpu(), getattr(cpu, term), rtol=1e-5, atol=1e-6)
    steps = [d.backward(logits.to(v), x_t.to(v), t, s).probs().cpu() for v in ("cpu", "cuda")]
    torch.testing.assert_close(steps[1], steps[0], rtol=1e-5, atol=1e-6)
    steps = [d.posterior(x_0.to(v), x_t.to(v), t, s).probs().cpu() for v in ("cpu", "cuda")]
    torch.testing.assert_close(steps[1], steps[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("sampler", ["exact", "euler", "tau_leaping", "gillespie"])
def test_a_cpu_generator_gives_the_same_samples_on_the_gpu(name, sampler):
    d, *_ = both(name, None)
    table = torch.randn(D, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = [
        d.sample(
            lambda x, t, v=v: table.to(v) + torch.nn.functional.one_hot(x, K), (64, D), 8, usd3.Corrector(2, 0.02),
            generator=torch.Generator().manual_seed(2), sampler=sampler, device=v,
        ).cpu()
        for v in ("cpu", "cuda")
    ]  # fmt: skip
    assert torch.equal(*drawn)


def test_a_cuda_generator_works():
    d, *_ = both("uniform", None)
    model = lambda x, t: torch.zeros(*x.shape, K, device=x.device)
    a, b = (
        d.sample(model, (8, D), 5, generator=torch.Generator("cuda").manual_seed(3), device="cuda") for _ in range(2)
    )
    assert torch.equal(a, b)
    assert a.is_cuda


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("num_steps", [None, 10])
def test_the_loss_does_not_synchronise_without_validation_and_once_with_it(name, num_steps):
    d, x_0, _, logits = both(name, num_steps)
    x_0, logits = x_0.cuda(), logits.cuda().requires_grad_()
    model = lambda x, t: logits
    quiet = copy.copy(d)
    quiet.validate = False
    for objective in ("usd3", "usd3*", "vlb", "ce"):
        quiet.loss(model, x_0, objective).loss.backward()  # m is copied to the device once
        with synchronisations() as seen:
            quiet.loss(model, x_0, objective).loss.backward()
        assert not seen, [str(warning.message) for warning in seen]
    d.loss(model, x_0).loss.backward()  # so are the categories of the data, which the checks compare
    with synchronisations() as seen:
        d.loss(model, x_0).loss.backward()
    assert len(seen) == 1


def test_times_and_masks_on_the_cpu_follow_the_data():
    d, x_0, _, logits = both("uniform", None)
    n = len(x_0)
    given = torch.tensor([True, False, False])
    seen = []

    def model(x, t, given):
        seen.append(given.device.type)
        return logits.cuda()

    d.loss(model, x_0.cuda(), t=torch.rand(n), given=given)
    d.bound(model, x_0.cuda(), 2, given=given)
    d.sample(model, x_0.shape, 2, given=given, given_tokens=x_0, device="cuda")
    assert set(seen) == {"cuda"}


def test_bad_categories_are_refused_before_they_reach_an_index():
    d, x_0, *_ = both("random", None)
    x_0 = x_0.cuda()
    x_0[0, 0] = 99
    with pytest.raises(ValueError, match="x_0 contains 99"):
        d.loss(lambda x, t: torch.zeros(*x.shape, K, device="cuda"), x_0)
    assert torch.ones(3, device="cuda").sum() == 3  # the device is still alive


@pytest.mark.parametrize(
    "change",
    [{}, {"compile": True}, {"cuda_graph": "never"}, {"accumulate": 2}, {"strategy": "fsdp"}],
    ids=["graph", "compiled graph", "plain", "parts", "fsdp"],
)
def test_a_run_on_the_gpu_resumes_exactly(tmp_path, change, monkeypatch):
    """In a process of its own, as fsdp starts a process group."""
    if "compile" in change:  # the compiler would choose kernels by timing them, in each process anew
        monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "1")
    recipe = tiny_recipe(tmp_path, accelerator="gpu", devices=1, precision="bf16", **change)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asdict(recipe)))
    train = [sys.executable, "-m", "usd3", "train"]
    whole = [*train, str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "whole")]
    subprocess.run(whole, check=True, timeout=300)
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    find_checkpoints(tmp_path / "part" / "checkpoints")[0].unlink()
    subprocess.run([*train, "--resume", str(tmp_path / "part")], check=True, timeout=300)
    a, b = (Pipeline.from_pretrained(tmp_path / name) for name in ("whole", "part"))
    torch.testing.assert_close(weights_of(a), weights_of(b), atol=0, rtol=0)
    assert a.device.type == "cuda"
    assert torch.equal(a.sample(5, 4), b.sample(5, 4))


def test_batches_that_do_not_fit_on_the_gpu_are_halved():
    pipeline = Pipeline(PipelineConfig(num_classes=5, shape=[6])).to("cuda")
    free = torch.cuda.mem_get_info()[0]
    sizes = []

    def work(rows: slice) -> torch.Tensor:
        sizes.append(rows.stop - rows.start)
        return torch.empty((rows.stop - rows.start) * (free // 5), dtype=torch.uint8, device="cuda")[:1].cpu()

    in_batches(work, 16, 16)
    assert sizes[:3] == [16, 8, 4]
    assert pipeline.sample(3, 2).shape == (3, 6)
