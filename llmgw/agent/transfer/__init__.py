"""Files that come to the node: from mirrors, the control plane, other nodes and their own addresses.

download ─▶ source (http, rpc): bytes from an offset on ─▶ limit ─▶ part: on the disk, hashed ─▶ whole and right
"""
