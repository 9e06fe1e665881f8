"""What owners, developers and operators are shown of usage, earnings and nodes: questions to the records alone."""
