import os
import pickle
import struct
import zlib
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from support.runs import memory_below
from usd3._internal.pixels import as_bytes, as_floats
from usd3.kinds.image.files import read_image, write_image
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.sets import load_images


def pixels(count: int, side: int = 32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


def numbered(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


# ---- one image


def test_bytes_survive_the_way_to_floats_and_back():
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(as_bytes(as_floats(every)), every)
    assert as_floats(every).min() == -1
    assert as_floats(every).max() == 1


@pytest.mark.parametrize("name", ["a.png", "a.BMP", "deep/a.ppm"])
def test_what_is_written_is_read(tmp_path, name):
    image = pixels(1)[0, :, :20]
    write_image(image, tmp_path / name)
    assert torch.equal(read_image(tmp_path / name), image)


def test_grey_alpha_and_deep_grey_become_colour(tmp_path):
    Image.new("L", (4, 4), 7).save(tmp_path / "grey.png")
    Image.fromarray(np.full((4, 4), 7 * 256 + 9, np.uint16)).save(tmp_path / "deep.png")
    half = np.zeros((4, 4, 4), np.uint8)
    half[..., 3] = np.array([[0], [255], [255], [51]])
    Image.fromarray(half).save(tmp_path / "alpha.png")
    assert (read_image(tmp_path / "grey.png") == 7).all()
    assert (read_image(tmp_path / "deep.png") == 7).all()
    assert read_image(tmp_path / "alpha.png")[:, :, 0].tolist() == [[255, 0, 0, 204]] * 3


def test_the_middle_square_is_scaled(tmp_path):
    wide = torch.zeros(3, 8, 20, dtype=torch.uint8)
    wide[:, :, 6:14] = torch.tensor([10, 20, 30], dtype=torch.uint8)[:, None, None]
    write_image(wide, tmp_path / "wide.png")
    found = read_image(tmp_path / "wide.png", 4)
    assert torch.equal(found, torch.tensor([10, 20, 30], dtype=torch.uint8)[:, None, None].expand(3, 4, 4))


def test_bad_images_are_refused(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(ValueError, match=r"broken.png: not a readable image"):
        read_image(tmp_path / "broken.png")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ValueError, match=r"ends in one of .png"):
        write_image(pixels(1)[0], tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"image.shape = \(1, 3, 32, 32\)"):
        write_image(pixels(1), tmp_path / "a.png")
    with pytest.raises(TypeError, match=r"image is a torch.float32 tensor"):
        write_image(pixels(1)[0].float(), tmp_path / "a.png")
    assert [file.name for file in tmp_path.iterdir()] == ["broken.png"]


def test_no_file_starts_another_program(tmp_path):
    """Pillow would let Ghostscript run a PostScript file, whatever its name."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"a.png: not a readable image \(cannot identify image file"):
        read_image(tmp_path / "a.png")


def test_an_image_of_too_many_pixels_is_refused(tmp_path):
    """A header is enough to say so."""
    Image.new("1", (8, 8)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    sizes = struct.pack(">II", 20_000, 20_000) + content[24:29]
    crc = struct.pack(">I", zlib.crc32(content[12:16] + sizes))
    (tmp_path / "a.png").write_bytes(content[:16] + sizes + crc + content[33:])
    with (
        memory_below(2**22),
        pytest.raises(ValueError, match=r"not a readable image \(Image size \(400000000 pixels\)"),
    ):
        read_image(tmp_path / "a.png")


def test_images_are_not_scaled_to_any_size(tmp_path):
    write_image(pixels(1)[0], tmp_path / "a.png")
    for read in (lambda: read_image(tmp_path / "a.png", 10**9), lambda: load_images(tmp_path, 10**9)):
        with pytest.raises(ValueError, match=r"size = 1000000000: expected an integer 1\.\.8192"):
            read()


# ---- CIFAR-10's batches


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 wrote its strings, and NumPy's names as they were then."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        raw = text.encode() if isinstance(text, str) else text
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(text)

    def save_number(self, value):
        self.write(pickle.BININT1 + bytes([value]))

    def save_name(self, value, name=None):
        module = value.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{value.__name__}\n".encode())
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string
    dispatch[bool] = save_number
    dispatch[type] = dispatch[type(len)] = save_name
    save_global = save_name


def as_python2(value, path):
    with path.open("wb") as file:
        Python2Pickler(file, protocol=2).dump(value)


def as_protocol2(value, path):
    path.write_bytes(pickle.dumps(value, protocol=2))


def write_cifar(folder, dump, batches=(1, 2)):
    folder.mkdir()
    for number in (*batches, 0):
        rows = pixels(3, seed=number).reshape(3, 3072).numpy()
        batch = {b"batch_label": b"a batch", b"data": rows, b"labels": [number % 3, 1, 2], b"filenames": [b"x.png"] * 3}
        dump(batch, folder / (f"data_batch_{number}" if number else "test_batch"))
    dump({b"label_names": [b"cat", b"dog", b"eel"], b"num_vis": 3072}, folder / "batches.meta")


@pytest.mark.parametrize("dump", [as_python2, as_protocol2])
@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_cifar_batches(tmp_path, dump, inside):
    write_cifar(tmp_path / (inside or "cifar"), dump, batches=(10, 2))
    found = load_images(tmp_path if inside else tmp_path / "cifar")
    assert torch.equal(found.train, torch.cat([pixels(3, seed=2), pixels(3, seed=10)]))
    assert torch.equal(found.test, pixels(3, seed=0))
    assert found.train_labels.tolist() == [2, 1, 2, 1, 1, 2]
    assert found.test_labels.tolist() == [0, 1, 2]
    assert found.classes == ("cat", "dog", "eel")


class Evil:
    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, protocol):
    target = tmp_path / "made"
    for evil in (Evil(os.mkdir, str(target)), Evil(eval, f"__import__('os').mkdir({str(target)!r})")):
        pickle.loads(pickle.dumps(evil, protocol=protocol))
        target.rmdir()  # an ordinary reader ran it
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": evil, b"labels": []}, protocol=protocol))
        with pytest.raises(ValueError, match=r"data_batch_1: not a readable CIFAR-10 batch \(it names "):
            load_images(tmp_path)
        assert not target.exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "a list of N labels"),
        ({b"data": np.zeros((2, 9), np.uint8), b"labels": [1, 2]}, r"data \(N, 3072\)"),
        ({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}, "array of type 'f8'"),
        ([], "not a readable CIFAR-10 batch"),
    ],
)
def test_other_pickles_are_refused(tmp_path, batch, message):
    as_protocol2(batch, tmp_path / "data_batch_1")
    with pytest.raises(ValueError, match=message):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02Nr" + struct.pack("<I", 2**22) + b".", "LONG_BINPUT 4194304, which no batch needs"),
        (b"(Np4194304\n.", "PUT 4194304, which no batch needs"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "not a readable CIFAR-10 batch"),
    ],
    ids=["a place far away", "the same as text", "many bytes"],
)
def test_a_pickle_that_asks_for_memory_is_refused(tmp_path, content, message):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_images(tmp_path)


def test_the_names_of_classes_are_words(tmp_path):
    """Lists of lists of lists would be written out as gigabytes."""
    write_cifar(tmp_path / "cifar", as_protocol2)
    names = ["cat"] * 3
    for _ in range(9):
        names = [names] * 10
    as_protocol2({b"label_names": names}, tmp_path / "cifar" / "batches.meta")
    with pytest.raises(ValueError, match=r"batches.meta: expected label_names, a list of words"):
        load_images(tmp_path / "cifar")


# ---- sheets


def write_sheet(tiles: torch.Tensor, columns: int, path) -> None:
    """Tiles row by row, pasted one after the other; white where none is left."""
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (32 * columns, 32 * rows), "white")
    for i, tile in enumerate(tiles):
        sheet.paste(Image.fromarray(tile.permute(1, 2, 0).numpy()), (32 * (i % columns), 32 * (i // columns)))
    sheet.save(path, lossless=True)


def test_sheets_in_the_order_of_their_numbers(tmp_path):
    tiles, labels = pixels(67), np.arange(67) % 5
    for number in range(11):
        write_sheet(tiles[6 * number : 6 * number + 6], 3, tmp_path / f"train_{number}.webp")
    write_sheet(tiles[66:], 3, tmp_path / "train_11.png")
    write_sheet(pixels(4, seed=1), 2, tmp_path / "test_first4.webp")
    np.savez(tmp_path / "labels.npz", train=labels.astype(np.uint8), test_first4=np.array([4, 0, 1, 2]))
    found = load_images(tmp_path)
    assert torch.equal(found.train, tiles)
    assert np.array_equal(found.train_labels, labels)
    assert torch.equal(found.test, pixels(4, seed=1))
    assert found.test_labels.tolist() == [4, 0, 1, 2]
    assert found.classes == ("0", "1", "2", "3", "4")


def test_a_missing_sheet_shifts_no_labels(tmp_path):
    tiles, labels = pixels(16), np.arange(16)
    for number in (0, 2):
        write_sheet(tiles[6 * number : 6 * number + 6], 3, tmp_path / f"train_{number}.png")
    np.savez(tmp_path / "labels.npz", train=labels)
    with pytest.warns(UserWarning, match=r"train has 16 labels, but sheets for 10 images only \(train_0.png, train_2"):
        found = load_images(tmp_path, test_fraction=0.2)
    assert len(found.test) == 2
    for images, numbers in ((found.train, found.train_labels), (found.test, found.test_labels)):
        assert torch.equal(images, tiles[numbers])
    (tmp_path / "train_0.png").unlink()
    with pytest.raises(ValueError, match=r"train_2.png: expected the sheets before it"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("count", "arrays", "message"),
    [
        (4, {"train": np.arange(3)}, r"labels of .*train_0.png = 3: expected 4, one a tile"),
        (4, {"other": np.arange(4)}, "arrays of .*labels.npz = other: expected one named train"),
        (4, {"train": np.zeros(4)}, r"labels.npz\[train\] = float64 \(4,\): expected integers"),
    ],
)
def test_sheets_without_their_labels_are_refused(tmp_path, count, arrays, message):
    write_sheet(pixels(count), 2, tmp_path / "train_0.png")
    np.savez(tmp_path / "labels.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_images(tmp_path)


# ---- folders


def test_a_folder_with_splits_and_classes(tmp_path):
    images = pixels(6, 8)
    names = ["train/b/1.png", "train/a/2.png", "train/a/1.png", "train/b/.hidden.png", "test/b/x.png", "test/a/x.png"]
    for image, name in zip(images, names):
        write_image(image, tmp_path / name)
    (tmp_path / "train" / "notes.txt").write_text("not an image")
    found = load_images(tmp_path)
    assert torch.equal(found.train, images[[2, 1, 0]])
    assert torch.equal(found.test, images[[5, 4]])
    assert found.train_labels.tolist() == [0, 0, 1]
    assert found.test_labels.tolist() == [0, 1]
    assert found.classes == ("a", "b")
    write_image(images[0], tmp_path / "train" / "loose.png")
    with pytest.raises(ValueError, match="outside of its class folders = 1: expected none"):
        load_images(tmp_path)


@pytest.mark.parametrize(("beside", "named"), [("val/x.png", "val"), ("cat/x.png", "cat"), ("x.png", "loose images")])
def test_images_beside_the_splits_are_not_dropped(tmp_path, beside, named):
    for name in ("train/1.png", "train/2.png", "test/1.png", beside):
        write_image(pixels(1, 8)[0], tmp_path / name)
    with pytest.raises(ValueError, match=rf"images beside .*train = {named}: expected none but those of test"):
        load_images(tmp_path)
    (tmp_path / beside).unlink()
    assert len(load_images(tmp_path).train) == 2


def test_a_plain_folder_is_split_with_equal_images_together(tmp_path):
    images = pixels(10, 8).repeat_interleave(2, 0)
    for i, image in enumerate(images):
        write_image(image, tmp_path / "all" / f"{i:02}.png")
    found = load_images(tmp_path, test_fraction=0.3, seed=1)
    train, test = ({image.numpy().tobytes() for image in split} for split in (found.train, found.test))
    assert (len(found.train), len(found.test), len(train), len(test)) == (14, 6, 7, 3)
    assert not train & test
    assert found.train_labels is None
    assert torch.equal(load_images(tmp_path, test_fraction=0.3, seed=1).test, found.test)
    assert not torch.equal(load_images(tmp_path, test_fraction=0.3, seed=2).test, found.test)


def test_images_of_many_sizes_need_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("usd3.kinds.image.sets._MANY", 2)
    for i, side in enumerate((8, 9, 10)):
        write_image(pixels(1, side)[0][:, :8], tmp_path / f"{i}.png")
    with pytest.raises(ValueError, match=r"0.png is 8 x 8 pixels, .*1.png is 9 x 8: give a size \(--size\)"):
        load_images(tmp_path)
    assert load_images(tmp_path, size=4).size == (4, 4)
    assert "reading images 3/3" in capsys.readouterr().err


def test_unreadable_files_are_named(tmp_path):
    write_image(pixels(1)[0], tmp_path / "good.png")
    for name in ("bad.png", "worse.jpg"):
        (tmp_path / name).write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"2 of 3 images cannot be read: .*bad.png: not .*worse.jpg: not"):
        load_images(tmp_path)


# ---- array files


@pytest.mark.parametrize("last", [True, False])
def test_array_files(tmp_path, last):
    train, test = pixels(5, 8), pixels(2, 8, seed=1)
    stored = [x.permute(0, 2, 3, 1).numpy() if last else x.numpy() for x in (train, test)]
    labels = {"train_labels": np.array([0, 1, 0, 1, 1]), "classes": np.array(["cat", "dog"])}
    np.savez(tmp_path / "some.npz", train=stored[0], test=stored[1], **labels)
    found = load_images(tmp_path / "some.npz")
    assert torch.equal(found.train, train)
    assert torch.equal(found.test, test)
    assert found.train_labels.tolist() == [0, 1, 0, 1, 1]
    assert (found.test_labels, found.classes, found.name) == (None, ("cat", "dog"), "some")
    assert load_images(tmp_path / "some.npz", size=4).test.shape == (2, 3, 4, 4)


def test_arrays_of_another_kind_are_refused(tmp_path):
    file = tmp_path / "some.npz"
    np.savez(file, train=np.zeros((2, 8, 8, 3)))
    with pytest.raises(ValueError, match=r"\[train\].dtype = float64: expected uint8"):
        load_images(file)
    np.savez(file, train=np.zeros((2, 8, 8, 1), np.uint8))
    with pytest.raises(ValueError, match=r"\[train\].shape = \(2, 8, 8, 1\)"):
        load_images(file)


def test_what_is_accepted_is_said(tmp_path):
    (tmp_path / "file.txt").write_text("")
    for path in (tmp_path, tmp_path / "file.txt"):
        with pytest.raises(ValueError, match=r"data_batch_1..5 .*labels.npz.*train/ and test/.*\.npz"):
            load_images(path)
    with pytest.raises(FileNotFoundError, match="no such file or folder; expected a folder with CIFAR-10"):
        load_images(tmp_path / "none")


def test_labels_need_a_class_each():
    for least, most in ((0, 2), (-1, 1)):
        with pytest.raises(ValueError, match=f"train_labels = {least}..{most}: expected 0..1"):
            Images("x", pixels(2), pixels(1), train_labels=numbered(least, most), classes=("a", "b"))


def test_rows_are_spread_over_all():
    rows = torch.arange(10)
    assert spread(rows, 4).tolist() == [0, 2, 5, 7]
    assert all(torch.equal(spread(rows, most), rows) for most in (10, 11, None))
