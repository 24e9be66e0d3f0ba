"""The cells of a deployment: their links, prefixes, repeated work, and limits over all of them."""
