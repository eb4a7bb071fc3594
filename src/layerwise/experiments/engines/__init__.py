"""The engines of experiments: units of work that are kept, resumed, shared among workers, and priced."""
