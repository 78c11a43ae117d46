"""Data sets of categorical objects: arrays, melodies, image tokens, and a Markov chain to compare with.

Every loader returns a `Dataset`: the number of categories, and the objects of the training and of the test split.
The music loaders need optional libraries, which are only looked for when a loader is called.
"""

from usd3.data.arrays import load_arrays
from usd3.data.bach import load_bach
from usd3.data.dataset import Dataset, ImageSource, Sequences
from usd3.data.image_files import read_image, write_image
from usd3.data.image_sets import load_images
from usd3.data.image_tokens import load_image_tokens, write_image_tokens
from usd3.data.images import Images, as_bytes, as_floats, spread
from usd3.data.lakh import load_lakh
from usd3.data.markov import MarkovChain
from usd3.data.midi import load_midi, read_midi, write_midi
from usd3.data.scramble import scramble

__all__ = [
    "Dataset",
    "ImageSource",
    "Images",
    "MarkovChain",
    "Sequences",
    "as_bytes",
    "as_floats",
    "load_arrays",
    "load_bach",
    "load_image_tokens",
    "load_images",
    "load_lakh",
    "load_midi",
    "read_image",
    "read_midi",
    "scramble",
    "spread",
    "write_image",
    "write_image_tokens",
    "write_midi",
]
