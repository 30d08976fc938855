"""`python -m nb2ddp` is the command."""

from nb2ddp.cli.main import main

if __name__ == "__main__":
    main(prog_name="nb2ddp")
