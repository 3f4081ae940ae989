"""What every layer may use: errors, identifiers, the clock, declared options. Imports nothing of Sparrow."""
