"""A page in the browser that draws from trained models: `usd3 studio`. It serves this computer alone."""
