"""`python -m prime_bench` is `prime-bench`."""

from prime_bench.cli.main import main

if __name__ == "__main__":
    main()
