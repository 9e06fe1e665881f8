"""The bytes of the tokens of a byte-level tokenizer, as GPT-2 introduced it: each byte is spelled as one character."""

from tokenizers import Tokenizer


def _alphabet() -> dict[str, int]:
    """Character -> byte: printable bytes are themselves, the others follow from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


ALPHABET = _alphabet()


def tokens_of(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[bytes]]:
    """Ids and bytes of the text's tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return ids, [bytes(ALPHABET[character] for character in tokenizer.id_to_token(id_)) for id_ in ids]
