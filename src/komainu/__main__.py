"""`python -m komainu`."""

from komainu.cli import main

main()
