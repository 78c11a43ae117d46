"""The share of rests in continuations of 48 songs of POP909, every 18th of the held-out ones, and in the truth.

python paper/studies/pop909/rests.py pop909_melody_256.npz --draw pop909,0.4,16 pop909,1.0,100 --out rests.csv
"""

import argparse
import csv

import numpy as np
import torch

import usd3

PREFIX, EVERY, REST = 32, 18, 128


def main() -> None:
    """Draw with each model, temperature and number of steps, and write a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", help="the file of examples/pop909.py")
    parser.add_argument("--draw", nargs="+", required=True, help="MODEL,TEMPERATURE,STEPS")
    parser.add_argument("--every", type=int, default=EVERY, help="take every so many songs")
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args()
    songs = torch.tensor(np.load(options.data)["test"][:: options.every].astype("int64"))
    given = (torch.arange(songs.shape[1]) < PREFIX).expand(songs.shape)
    lines = [["truth", "", "", len(songs), share(songs)]]
    for model, temperature, steps in (draw.rsplit(",", 2) for draw in options.draw):
        pipeline = usd3.Pipeline.from_pretrained(model)
        drawn = pipeline.sample(tokens=songs, given=given, num_steps=int(steps), temperature=float(temperature), seed=1)
        lines.append([model, temperature, steps, len(songs), share(drawn)])
    with open(options.out, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "temperature", "sampling_steps", "songs", "share_of_rests"])
        table.writerows(lines)


def share(songs: torch.Tensor) -> str:
    """Rests among the elements that are not given."""
    return f"{(songs[:, PREFIX:] == REST).double().mean():.4f}"


if __name__ == "__main__":
    main()
