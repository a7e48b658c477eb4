"""The wire contract as pure code: types, names, routes, batch format, chain. Standard library only, no I/O."""
