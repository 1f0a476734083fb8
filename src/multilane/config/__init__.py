"""Configuration: Java property names in, frozen typed values out; nothing here opens a socket or reads a file."""
