"""Raw click logs: finding, downloading and reading them."""
