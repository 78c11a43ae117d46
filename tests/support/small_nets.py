"""Small networks of SDDM, and what they are asked."""

import torch

from usd3.nets import HollowTransformer

K, L = 7, 6
SIZES = {"num_classes": K, "length": L, "dim": 16, "depth": 2, "heads": 2, "mlp": 24}
X, T = torch.randint(K, (3, L), generator=torch.Generator().manual_seed(1)), torch.tensor([0.1, 0.5, 0.9])


def small(kind=HollowTransformer, **arguments):
    """A small network whose weights are all at work."""
    torch.manual_seed(0)
    net = kind(**SIZES | arguments)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return net.double().eval()
