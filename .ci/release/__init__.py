"""What a release is made of: for `make release VERSION=0.2.0`, `make wheel` and their tests."""
