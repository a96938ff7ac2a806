"""The boundary around code of the user's that training calls."""
