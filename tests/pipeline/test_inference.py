"""The network as samplers and bounds call it."""

import torch

from usd3.nets import Transformer
from usd3.pipeline.inference import InferenceModel


def network():
    torch.manual_seed(0)
    net = Transformer(5, dim=16, depth=1, heads=2, mlp=32, labels=[3]).eval()
    torch.nn.init.normal_(net.logits.weight)
    return net


@torch.no_grad()
def test_a_large_batch_is_asked_about_in_parts_on_a_cpu():
    net, sizes = network(), []
    net.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    x, t = torch.randint(5, (40, 200)), torch.rand(40)
    masks = {"given": torch.rand(40, 200) < 0.3, "pad": torch.rand(40, 200) < 0.1, "label": torch.randint(3, (40, 1))}
    whole = net(x, t, **masks)
    sizes.clear()
    torch.testing.assert_close(InferenceModel(net, torch.device("cpu"), half=True)(x, t, **masks), whole)
    assert sizes == [20, 20]  # 4,000 elements


@torch.no_grad()
def test_objects_that_are_larger_than_a_part_are_asked_about_one_by_one():
    net, sizes = network(), []
    net.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    x = torch.zeros(2, 5000, dtype=torch.long)
    assert InferenceModel(net, torch.device("cpu"), half=False)(x, torch.zeros(2)).shape == (2, 5000, 5)
    assert sizes == [1, 1]


@torch.no_grad()
def test_a_compiled_network_gets_the_batch_that_it_was_compiled_for_whole():
    asked = []

    def compiled(model, x_t, t, **masks):
        asked.append(len(x_t))
        return torch.zeros(*x_t.shape, 5)

    model = InferenceModel(network(), torch.device("cpu"), False, compiled, num=30)
    for batch in (30, 29):
        model(torch.zeros(batch, 1000, dtype=torch.long), torch.zeros(batch))
    assert asked == [30]
