"""Messages that nobody should send, and peers that send them."""
