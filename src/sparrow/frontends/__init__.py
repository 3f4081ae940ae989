"""The frontends: each translates one protocol into calls of the broker's services. Frontends never
import each other.
"""
