"""The request handlers: one module per family of APIs. A handler decodes nothing and decides
nothing: it calls the broker's services and builds the response.
"""
