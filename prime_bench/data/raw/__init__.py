"""Find, download and read raw click logs."""
