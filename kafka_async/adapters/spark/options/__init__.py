"""What a job says: the options of the source, where secrets are, and what Java's security options mean here."""
