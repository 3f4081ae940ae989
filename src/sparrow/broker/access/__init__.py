"""Who may do what: users and their credentials, access rules, and the hook that every verb asks."""
