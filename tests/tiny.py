"""A GGUF of random weights, half a megabyte, that llama.cpp loads in a quarter of a second and generates with.

`tiny_gguf()` makes it once and returns its path. It knows single bytes as tokens and is called "tiny"; its context was
"trained" at 512 tokens.
"""

import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


class Shape(NamedTuple):
    """Of a llama: every dimension that its file states."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 128
    context: int = 512


SLOW = Shape(layers=6, width=256, hidden=1024, context=1 << 14)
"""25 MB; a few hundred tokens a second, so that a stream of it lasts while a test does something."""


@functools.cache
def tiny_gguf(shape: Shape | None = None) -> Path:
    """A file of this shape, made on first use and kept in a cache of this user under a name of this recipe."""
    shape = shape or Shape()
    recipe = hashlib.sha256(Path(__file__).read_bytes() + repr(shape).encode()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / f"llmgw-tests-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"tiny-{recipe}.gguf"
    if not path.exists():
        # Several test processes may make it at once; each renames a whole file into place.
        descriptor, temporary = tempfile.mkstemp(dir=directory)
        os.close(descriptor)
        write(Path(temporary), shape)
        os.replace(temporary, path)
    return path


def write(path: Path, shape: Shape, seed: int = 0) -> None:
    """Write such a file of another shape or with other weights."""
    import gguf  # slow to import, needed once a recipe

    writer = gguf.GGUFWriter(path, "llama")
    tokens = _tokens(writer)
    writer.add_name("tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(tokens)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _tensors(writer, shape, tokens, seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tokens(writer) -> int:
    from gguf import TokenType

    special = [b"<unk>", b"<s>", b"</s>"]
    octets = [f"<0x{octet:02X}>".encode() for octet in range(256)]
    words = [*(bytes([octet]) for octet in range(33, 127)), "\u2581".encode()]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    kinds += [TokenType.BYTE] * len(octets) + [TokenType.NORMAL] * len(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *octets, *words])
    writer.add_token_scores([0.0] * (len(special) + len(octets)) + [-float(rank) for rank in range(len(words))])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT)
    return len(kinds)


def _tensors(writer, shape: Shape, tokens: int, seed: int) -> None:
    import numpy

    draw = numpy.random.default_rng(seed)
    width, kv_width = shape.width, shape.width // shape.heads * shape.kv_heads
    matrices = {"token_embd": (tokens, width), "output": (tokens, width)}
    norms = ["output_norm"]
    for layer in range(shape.layers):
        norms += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
        matrices |= {
            f"blk.{layer}.attn_q": (width, width),
            f"blk.{layer}.attn_k": (kv_width, width),
            f"blk.{layer}.attn_v": (kv_width, width),
            f"blk.{layer}.attn_output": (width, width),
            f"blk.{layer}.ffn_gate": (shape.hidden, width),
            f"blk.{layer}.ffn_up": (shape.hidden, width),
            f"blk.{layer}.ffn_down": (width, shape.hidden),
        }
    for name, size in matrices.items():
        writer.add_tensor(f"{name}.weight", (draw.standard_normal(size) * 0.05).astype(numpy.float32))
    for name in norms:
        writer.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))
