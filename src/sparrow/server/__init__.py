"""The server: options in, a running broker with its frontends out. See `server.py` of this
package.
"""
