"""The diffusion itself: noise, schedules, closed forms, losses, samplers."""
