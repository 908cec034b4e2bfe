"""Pages and pictures of what was generated and measured.

Each page is one file that needs no network, no script and no font.
"""
