"""The pages of the documentation, and the site that is made of them."""
