"""The parts of `recipe.evaluate`: a server, episodes played through an endpoint, verdicts, numbers."""
