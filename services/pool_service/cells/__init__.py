"""The cells themselves: whether one answers, and their states as operators see and change them."""
