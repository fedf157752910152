"""One file per architecture, written once against the op set."""
