"""Episodes whose lengths have a long tail: what playing on while training gains, measured and simulated."""
