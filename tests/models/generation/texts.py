"""Tokenizers of unlike kinds, the text of tokens, and a model that plays them."""

import numpy as np
import tokenizers

import exburn
from exburn import layers
from exburn.text import Tokenizer

LINES = [
    "用户：你好，用户。",
    "naïve café 👩‍👩‍👧 🎉",
    "so it is, so it was. User: User",
] * 9


def of_bytes():
    """Tokens of one or several bytes, as GPT-2's: many end within a character."""
    return Tokenizer.train(LINES, 300, special=["<|user|>"])


def of_sentencepiece():
    """Characters, and bytes for all others, as Llama's."""
    known = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    known += ["▁", "▁so", "▁User", ":", "用", "s", "o", "i", "t", "é", "\ufffd"]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {word: number for number, word in enumerate(known)},
            [],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    made.add_special_tokens(["<s>", "</s>"])
    pre, after = tokenizers.pre_tokenizers, tokenizers.decoders
    made.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
    made.decoder = after.Sequence(
        [after.Replace("▁", " "), after.ByteFallback(), after.Fuse()]
        + [after.Strip(" ", 1, 0)]
    )
    return Tokenizer(made.to_str())


def of_words(decoder):
    """Words and their parts, whose spaces the decoder puts between them."""
    known = ["[UNK]", "so", "it", "##was", "用", "##户", "：", "is</w>", "a</w>", "."]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {word: number for number, word in enumerate(known)}, unk_token="[UNK]"
        )
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.decoder = decoder
    return Tokenizer(made.to_str())


KINDS = {
    "bytes": of_bytes(),
    "sentencepiece": of_sentencepiece(),
    "word pieces": of_words(tokenizers.decoders.WordPiece()),
    "suffixes": of_words(tokenizers.decoders.BPEDecoder()),
}


def whole_text(tokenizer, prompt, tokens, stops):
    """The text up to the first stop that is complete, character by character."""
    before = len(tokenizer.decode(prompt))
    text = tokenizer.decode([*prompt, *tokens])[before:]
    for end in range(1, len(text) + 1):
        starts = [end - len(s) for s in stops if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)]
    return text


class Player:
    """A model that writes the tokens that it is told, behind the prompt ``"so"``.

    Args:
        tokenizer: The model's.
        positions: How many tokens prompt and answer may have.
        attends: Whether it has attention, which adds nothing, and so a cache.
    """

    PROMPT = "so"

    def __init__(self, tokenizer, positions=64, attends=False):
        self.tokenizer, size = tokenizer, tokenizer.vocabulary_size
        tokens = layers.Input((None,), dtype="int32")
        vectors = layers.Embedding(size, size, "zeros")(tokens)
        self._script = layers.PositionEmbedding(positions, initializer="zeros")
        scores = layers.Add()([vectors, self._script(vectors)])
        if attends:
            attention = layers.MultiHeadAttention(1, 4, kernel_initializer="zeros")
            nothing = attention(vectors, vectors, use_causal_mask=True)
            scores = layers.Add()([scores, nothing])
        self.model = exburn.Model(tokens, scores)
        self.model.tokenizer = tokenizer
        self.prompt = tokenizer.encode(self.PROMPT).tolist()

    def learn(self, tokens):
        """Makes the model write these tokens."""
        table = np.zeros(self._script.embeddings.shape, "float32")
        table[len(self.prompt) - 1 + np.arange(len(tokens)), tokens] = 1
        self._script.set_weights([table])
