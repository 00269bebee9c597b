"""Make the model that agents prove engines with: llmgw/agent/engines/proof.gguf, the same bytes each time.

A llama of random weights, which says nothing of sense. Its matrices are stored in the forms that real models have most,
so that an engine runs through the code for each: an instruction that a processor lacks is met there, not in a sum.
"""

from pathlib import Path

import gguf
import numpy
from gguf import GGMLQuantizationType, TokenType

OUT = Path(__file__).resolve().parent.parent / "llmgw" / "agent" / "engines" / "proof.gguf"

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, CONTEXT = 2, 64, 4, 2, 128, 512
F16, Q8, Q4 = GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0


def main(path: Path = OUT) -> None:
    """Write it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("proof")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    _tensors(writer, _vocabulary(writer))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(writer: gguf.GGUFWriter) -> int:
    """Single bytes; the loader wants the space and the newline as words, too."""
    special = [b"<unk>", b"<s>", b"</s>"]
    octets = [f"<0x{octet:02X}>".encode() for octet in range(256)]
    words = ["\u2581".encode(), *(bytes([octet]) for octet in range(33, 127))]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    kinds += [TokenType.BYTE] * len(octets) + [TokenType.NORMAL] * len(words)
    writer.add_vocab_size(len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *octets, *words])
    writer.add_token_scores([0.0] * (len(special) + len(octets)) + [-float(rank) for rank in range(len(words))])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(kinds)


def _tensors(writer: gguf.GGUFWriter, tokens: int) -> None:
    draw = numpy.random.default_rng(0)
    kv_width = WIDTH // HEADS * KV_HEADS
    matrices = {"token_embd": ((tokens, WIDTH), Q8), "output": ((tokens, WIDTH), F16)}
    norms = ["output_norm"]
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        norms += [f"{name}.attn_norm", f"{name}.ffn_norm"]
        matrices |= {
            f"{name}.attn_q": ((WIDTH, WIDTH), Q4),
            f"{name}.attn_k": ((kv_width, WIDTH), Q8),
            f"{name}.attn_v": ((kv_width, WIDTH), F16),
            f"{name}.attn_output": ((WIDTH, WIDTH), Q4),
            f"{name}.ffn_gate": ((HIDDEN, WIDTH), Q8),
            f"{name}.ffn_up": ((HIDDEN, WIDTH), Q4),
            f"{name}.ffn_down": ((WIDTH, HIDDEN), Q8),
        }
    for name, (shape, form) in matrices.items():
        drawn = (draw.standard_normal(shape) * 0.05).astype(numpy.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(drawn, form), raw_dtype=form)
    for name in norms:
        writer.add_tensor(f"{name}.weight", numpy.ones(WIDTH, numpy.float32))


if __name__ == "__main__":
    main()
