"""The scheduler of a live, face-to-face speech translator."""
