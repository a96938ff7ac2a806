"""tau2-bench's domains as environments: a policy, tools on a database, and a user who talks back."""
