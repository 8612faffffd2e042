"""What a release is made of. `make release VERSION=0.2.0`, `make wheel` and the tests of releases use it."""
