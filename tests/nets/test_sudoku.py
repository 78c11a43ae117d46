"""The network for Sudoku: its symmetries, its sizes, and that it learns to solve."""

import pytest
import torch

from usd3._internal.compile import compiled
from usd3.kinds.board.puzzles import random_boards
from usd3.nets.sudoku import SudokuNetwork, _UnitAttention

T = torch.zeros(())


def network(num_classes=10, seed=0, **sizes):
    """A small network with random weights, also in its last layer."""
    torch.manual_seed(seed)
    net = SudokuNetwork(num_classes, **({"dim": 8, "mlp": 16, "loops": 2} | sizes))
    torch.nn.init.normal_(net.logits.weight)
    return net


def noisy_boards(number, side=9, seed=0):
    boards = torch.from_numpy(random_boards(number, side, seed)).long()
    masked = torch.rand(boards.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    return torch.where(masked, side, boards)


@torch.no_grad()
def test_whatever_sudoku_allows_to_exchange_exchanges_the_logits():
    net, x = network(), noisy_boards(4)
    logits = net(x, T)
    assert logits.std() > 0.05
    rows = torch.tensor([3, 5, 4, 8, 7, 6, 1, 0, 2])  # bands, and rows within them
    for name, moved in {
        "rows": (x[:, rows], logits[:, rows]),
        "columns": (x[:, :, rows], logits[:, :, rows]),
    }.items():
        torch.testing.assert_close(net(moved[0], T), moved[1], rtol=1e-4, atol=1e-5, msg=name)
    names = torch.tensor([4, 2, 7, 0, 8, 1, 3, 6, 5, 9])  # symbol s becomes names[s]; the mask stays
    torch.testing.assert_close(net(names[x], T)[..., names], logits, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_other_exchanges_change_what_it_says():
    """Two rows of different bands are not exchangeable; neither are rows with columns, as the weights differ."""
    net, x = network(), noisy_boards(4)
    logits = net(x, T)
    wrong = torch.tensor([3, 1, 2, 0, 4, 5, 6, 7, 8])
    assert (net(x[:, wrong], T) - logits[:, wrong]).abs().max() > 1e-3
    assert (net(x.mT, T) - logits.transpose(1, 2)).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("depth", [1, 2])
def test_with_shared_weights_a_board_turned_over_its_diagonal_is_the_same(depth):
    net, x = network(depth=depth, diagonal=True), noisy_boards(4)
    logits = net(x, T)
    torch.testing.assert_close(net(x.mT, T), logits.transpose(1, 2), rtol=1e-4, atol=1e-5)
    own = sum(weight.numel() for weight in network(depth=depth).parameters())
    assert sum(weight.numel() for weight in net.parameters()) < own


def test_in_training_boards_are_read_after_different_numbers_of_loops_and_then_after_all():
    net, x = network(loops=3, least_loops=2), noisy_boards(1).expand(40, 9, 9)
    with torch.no_grad():
        after = []
        for loops in (2, 3):
            other = network(loops=loops)
            other.load_state_dict(net.state_dict())
            after.append(other.eval()(x[:1], T)[0])
        torch.manual_seed(0)
        read = net.train()(x, T)
        is_after = torch.stack([(read - one).abs().amax((1, 2, 3)) < 1e-4 for one in after])
        assert (is_after.sum(0) == 1).all()
        assert 8 < int(is_after[0].sum()) < 32  # 20 are expected; outside with a probability below 1e-4
        torch.testing.assert_close(net.eval()(x[:1], T)[0], after[1])


@torch.no_grad()
def test_with_gradient_loops_half_of_the_boards_begin_after_the_loops_before():
    net, x = network(loops=5, gradient_loops=2), noisy_boards(1).expand(40, 9, 9)
    after = []
    for loops in (2, 5):
        other = network(loops=loops)
        other.load_state_dict(net.state_dict())
        after.append(other.eval()(x[:1], T)[0])
    torch.manual_seed(0)
    read = net.train()(x, T)
    is_after = torch.stack([(read - one).abs().amax((1, 2, 3)) < 1e-4 for one in after])
    assert (is_after.sum(0) == 1).all()
    assert 8 < int(is_after[0].sum()) < 32  # 20 are expected; outside with a probability below 1e-4
    torch.testing.assert_close(net.eval()(x[:1], T)[0], after[1])


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_gradient_passes_through_the_last_loops_alone(precision):
    """As if the states that boards begin with were data, also where autocast keeps copies of the weights."""
    net, x = network(loops=3, gradient_loops=1, diagonal=True), noisy_boards(6)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        torch.manual_seed(0)
        net(x, T).square().sum().backward()
        gradients = [weight.grad.clone() for weight in net.parameters()]
        net.zero_grad()
        start = net.embed(torch.where(x[..., None] == 9, 2, (x[..., None] == torch.arange(9)).long()))
        begun = net._states(start, 2).detach()
        torch.manual_seed(0)
        begun = torch.where(torch.rand(6, 1, 1, 1, 1) < 0.5, begun, 0)
        assert 0 < int(begun.flatten(1).any(1).sum()) < 6
        logits = net.logits(net.norm(net._states(start, 1, begun))).squeeze(-1)
        logits.square().sum().backward()
    for weight, gradient in zip(net.parameters(), gradients):
        assert gradient.abs().max() > 0
        torch.testing.assert_close(weight.grad, gradient)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("loops", [2, 6])
def test_a_compiler_sees_a_layer_once_however_often_it_is_applied(loops):
    net, x, seen = network(loops=loops, depth=1), noisy_boards(2), []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled(net.forward)  # ours, which says what stays as it is; below, torch's with another backend
    torch.testing.assert_close(torch.compile(lambda x: net(x, T) + 1, backend=backend, dynamic=False)(x), net(x, T) + 1)
    assert sum(graph.code.count("torch.softmax(") for graph in seen) == 1


@torch.no_grad()
@pytest.mark.parametrize("loops", [3, 10])
def test_a_board_that_never_settles_has_all_loops(loops):
    net, x = network(loops=loops, tolerance=1e-30).eval(), noisy_boards(3)
    settled = net(x, T)
    net.tolerance = 0.0
    torch.testing.assert_close(settled, net(x, T))


@torch.no_grad()
@pytest.mark.parametrize("tolerance", [0.0, 1e-30])
def test_boards_are_drawn_with_loops_of_their_own(tolerance):
    x = noisy_boards(3)
    drawn = network(loops=2, drawing_loops=7, tolerance=tolerance).eval()
    torch.testing.assert_close(drawn(x, T), network(loops=7).eval()(x, T))
    torch.testing.assert_close(drawn.train()(x, T), network(loops=2)(x, T))


@torch.no_grad()
def test_the_loops_of_a_board_end_once_its_answer_no_longer_changes():
    """Here the layers come to rest: each halves what it gets, so after four loops the states move by 1/16."""
    net, x = network(loops=40, depth=1, tolerance=1e-4).eval(), noisy_boards(3)
    x[0] = 9  # nothing is known, so the answer is the same after any loop
    seen = []
    net.layers[0].forward = lambda h: (seen.append(len(h)), 0.5 * h)[1]
    net.norm = torch.nn.Identity()
    found = net(x, T)
    assert seen[:4] == [3] * 4
    assert len(seen) < 40
    assert seen == sorted(seen, reverse=True)
    assert seen[8] < 3  # the empty board is left out after the second look
    net.tolerance = 0.0
    assert (found.softmax(-1) - net(x, T).softmax(-1)).abs().max() < 1e-3


@torch.no_grad()
def test_a_board_settles_alone_as_in_company():
    net, x = network(loops=24, tolerance=0.01).eval(), noisy_boards(5)
    together = net(x, T)
    for board, logits in zip(x, together):
        torch.testing.assert_close(net(board[None], T)[0], logits, rtol=1e-4, atol=1e-5)
    assert net(x[:0], T).shape == (0, 9, 9, 10)


def test_boards_in_training_have_the_loops_of_training():
    net, x = network(loops=6, tolerance=0.9), noisy_boards(3)
    trained = net(x, T)
    net.tolerance = 0.0
    assert torch.equal(trained, net(x, T))


@torch.no_grad()
def test_the_same_weights_serve_boards_of_any_size():
    large = network(17)
    small = network(5)
    small.load_state_dict(large.state_dict())
    assert small(noisy_boards(2, 4), T).shape == (2, 4, 4, 5)
    assert large(torch.randint(17, (1, 16, 16)), T).shape == (1, 16, 16, 17)


@torch.no_grad()
def test_a_cell_hears_of_its_row_column_and_box_in_one_layer_and_of_all_cells_in_two():
    x = torch.full((1, 9, 9), 9)
    for loops, expected in ((1, 21), (2, 81)):
        net = network(depth=1, loops=loops)
        before = net(x, T)
        changed = x.clone()
        changed[0, 4, 4] = 0
        differ = ((net(changed, T) - before).abs() > 1e-7)[0, ..., :9].any(-1)
        assert int(differ.sum()) == expected
        assert differ[4].all()
        assert differ[:, 4].all()
        assert differ[3:6, 3:6].all()


@torch.no_grad()
@pytest.mark.parametrize("symbols", [False, True])
def test_attention_compares_cells_by_their_symbols_or_symbols_by_their_cells(symbols):
    """Against loops over the units of a board; queries and keys are equal, so equal cells attend to each other most."""
    torch.manual_seed(0)
    attention, h = _UnitAttention(5, 2, 4, symbols), torch.randn(1, 4, 4, 4, 5)
    qkv = attention.qkv(h)[0].reshape(4, 4, 4, 3, 3, 2)  # row, column, symbol, unit, q k v, head
    found = torch.zeros(4, 4, 4, 3, 2)
    cells = {
        0: [[(r, c) for c in range(4)] for r in range(4)],
        1: [[(r, c) for r in range(4)] for c in range(4)],
        2: [[(2 * a + i, 2 * b + j) for i in range(2) for j in range(2)] for a in range(2) for b in range(2)],
    }
    for kind, units in cells.items():
        for unit in units:
            part = torch.stack([qkv[cell][:, kind] for cell in unit])  # cell, symbol, q k v, head
            part = part.transpose(0, 1) if symbols else part
            q, k, v = (part[:, :, i].flatten(1) for i in range(3))
            q, k = (torch.nn.functional.normalize(z, dim=-1) for z in (q, k))
            out = (torch.softmax(4 * q @ k.T, -1) @ v).reshape(4, 4, 2)
            out = out.transpose(0, 1) if symbols else out
            for cell, value in zip(unit, out):
                found[cell][:, kind] = value
    torch.testing.assert_close(attention(h)[0], attention.project(found.flatten(3)))


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match=r"tolerance = 1: expected a number in \[0, 1\)"):
        network(tolerance=1)
    with pytest.raises(ValueError, match=r"x_t\.shape = \(1, 9, 8\): expected \(B, 9, 9\)"):
        network()(torch.zeros(1, 9, 8, dtype=torch.long), T)
    with pytest.raises(ValueError, match=r"x_t\.shape = \(1, 6, 6\): expected"):
        network(7)(torch.zeros(1, 6, 6, dtype=torch.long), T)
    for name, value in {
        "depth": 0,
        "loops": 0,
        "num_classes": 1,
        "head": 0,
        "least_loops": 9,
        "gradient_loops": 9,
    }.items():
        with pytest.raises(ValueError, match=f"{name} = {value}"):
            SudokuNetwork(**({"num_classes": 10} | {name: value}))


def test_it_learns_to_fill_boards():
    """Boards of 4 x 4 cells with 5 masked ones: a few seconds of training beat half of the cells right."""
    boards = torch.from_numpy(random_boards(200, 4, 0)).long()
    torch.manual_seed(0)
    net = SudokuNetwork(5, dim=16, mlp=32, loops=4)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    for _ in range(60):
        x_0 = boards[torch.randint(200, (32,))]
        masked = torch.rand(x_0.shape) < 0.3
        logits = net(torch.where(masked, 4, x_0), T)[..., :4]
        loss = torch.nn.functional.cross_entropy(logits[masked], x_0[masked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = net(torch.where(masked, 4, x_0), T)[..., :4].argmax(-1)[masked] == x_0[masked]
    assert right.float().mean() > 0.9
