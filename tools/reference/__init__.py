"""The pages of the documentation that are made from the code; `make reference` writes them."""
