"""What runs inside verl's trainer process and its workers."""
