"""Tools that every part of the package uses: checks, files, processes, progress, CUDA graphs. Not public."""
