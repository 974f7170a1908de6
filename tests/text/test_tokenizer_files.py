"""Vocabularies with the settings beside them: this package's and those of others."""

import json
import shutil
import uuid

import pytest
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import (
    find_tokenizer,
    local_vocabulary,
    open_tokenizer,
    write_json,
)
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary
from tests.conftest import GOLDEN

WORDS = (*SPECIAL_TOKENS, "the", "The", "##s", "cafe", "café", "Café", "中", "n", "##n")
TEXT = "The thes Café cafe\u0301 中中 " + "n" * 150


def library_tokenizer(words, lower, strip, limit):
    """Return BERT's tokenizer of the library, without special tokens."""
    ids = {word: number for number, word in enumerate(words)}
    fast = FastTokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
    )
    fast.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return fast


def write_fast(folder, *, lower=False, strip=None, limit=100, words=WORDS, **parts):
    fast = library_tokenizer(words, lower, strip, limit)
    fast.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast.add_special_tokens(list(SPECIAL_TOKENS))
    folder.mkdir(exist_ok=True)
    path = folder / "tokenizer.json"
    document = json.loads(fast.to_str())
    for name, value in parts.items():
        is_part = isinstance(value, dict)
        document[name] = {**document[name], **value} if is_part else value
    path.write_text(json.dumps(document))
    return path, fast


def ids_of(fast, text):
    return fast.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("lower", "strip", "limit"),
    [(True, None, 100), (True, False, 200), (False, True, 100), (False, None, 200)],
)
def test_settings_come_from_tokenizer_json(tmp_path, lower, strip, limit):
    path, fast = write_fast(tmp_path / "m", lower=lower, strip=strip, limit=limit)
    for source in (path, path.parent):
        stored = open_tokenizer(source)
        assert stored.vocabulary.tokens == WORDS
        assert stored.settings.lower_case == lower
        assert stored.settings.max_word_characters == limit
        assert stored.tokenizer().encode(TEXT) == ids_of(fast, TEXT)
    assert stored.base["tokenization.lower_case"] == lower
    with pytest.raises(InputError, match=f"'lower_case': {not lower}"):
        stored.check(TokenizationConfig(lower_case=not lower))


ADDED_TOKEN = {
    "id": len(WORDS), "content": "[URL]", "single_word": False, "lstrip": False,
    "rstrip": False, "normalized": False, "special": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"model": {"type": "BPE", "merges": []}}, ["model.type", "'BPE'"]),
        ({"model": {"vocab": 3}}, ["tokenizers", "tokenizer.json"]),
        ({"model": {"unk_token": "<unk>"}}, ["unk_token", "'<unk>'"]),
        ({"model": {"continuing_subword_prefix": "@@"}}, ["'@@'"]),
        ({"model": {"vocab": {"[PAD]": 0, "a": 2}}}, ["with id 2 after"]),
        ({"model": {"max_input_chars_per_word": 0}}, ["max_input_chars_per_word"]),
        ({"normalizer": None}, ["normalizer", "BertNormalizer"]),
        ({"normalizer": {"type": "Lowercase"}}, ["normalizer", "'Lowercase'"]),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}},
            ["'NFKC'"],
        ),
        ({"normalizer": {"handle_chinese_chars": False}}, ["handle_chinese_chars"]),
        ({"normalizer": {"clean_text": False}}, ["clean_text"]),
        ({"pre_tokenizer": {"type": "Whitespace"}}, ["pre_tokenizer", "'Whitespace'"]),
        ({"added_tokens": [ADDED_TOKEN | {"single_word": True}]}, ["[URL]", "single"]),
        ({"added_tokens": [ADDED_TOKEN | {"normalized": True}]}, ["[URL]", "normal"]),
    ],
)
def test_a_tokenizer_that_is_not_berts_is_refused_by_name(tmp_path, parts, words):
    path, _ = write_fast(tmp_path / "m", lower=True, **parts)
    with pytest.raises(InputError) as error:
        open_tokenizer(path)
    for word in words:
        assert word in str(error.value)


def test_a_sequence_of_one_is_read(tmp_path):
    path, fast = write_fast(tmp_path / "m", lower=True)
    fast.normalizer = normalizers.Sequence([fast.normalizer])
    fast.pre_tokenizer = pre_tokenizers.Sequence([fast.pre_tokenizer])
    fast.save(str(path))
    assert open_tokenizer(path).settings.lower_case


TOKENIZER = "tokenizer_config.json"


@pytest.mark.parametrize(
    ("file", "config", "words"),
    [
        (TOKENIZER, {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapanese"),
        (TOKENIZER, {"tokenizer_class": "XLMRobertaTokenizerFast"}, "XLMRoberta"),
        (TOKENIZER, {"tokenizer_class": "PreTrainedTokenizerFast"}, "tokenizer.json"),
        (TOKENIZER, {"word_tokenizer_type": "mecab"}, "'mecab'"),
        (TOKENIZER, {"never_split": ["[A]"]}, "never_split"),
        (TOKENIZER, {"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
        (TOKENIZER, {"do_lower_case": 1}, "do_lower_case"),
        (TOKENIZER, {"added_tokens_decoder": {"9": {"content": "[A]"}}}, r"\[A\]"),
        (TOKENIZER, {"added_tokens_decoder": {"9": {}}}, "added_tokens"),
        ("added_tokens.json", {"[A]": 20}, r"\[A\].*tokenizer\.json"),
    ],
)
def test_settings_of_another_tokenizer_are_refused(tmp_path, file, config, words):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS))
    write(tmp_path, file, config)
    for source in (path, tmp_path):
        with pytest.raises(InputError, match=words):
            open_tokenizer(source)


def test_settings_beside_vocab_txt_are_read(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS))
    assert open_tokenizer(path).settings is None
    config = {"do_lower_case": False, "strip_accents": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    expected = TokenizationConfig(lower_case=False, max_word_characters=100)
    assert open_tokenizer(path).settings == expected
    assert open_tokenizer(tmp_path).settings == expected
    # Only beside a file of that name.
    shutil.copy(path, tmp_path / "other.txt")
    assert open_tokenizer(tmp_path / "other.txt").settings is None


def test_a_tokenizer_json_decides_over_the_files_beside_it(tmp_path):
    path, fast = write_fast(tmp_path / "m")
    write(path.parent, TOKENIZER, {"do_lower_case": True, "tokenizer_class": "Other"})
    write(path.parent, "added_tokens.json", {"more": 20})
    for entries in ((*WORDS[:-1], "mine"), WORDS):
        path.with_name("vocab.txt").write_text("\r\n".join(entries))
        for source in (path, path.parent):
            stored = open_tokenizer(source)
            assert stored.vocabulary.tokens == WORDS
            assert stored.tokenizer().encode(TEXT) == ids_of(fast, TEXT)


def test_own_settings_come_first(tmp_path):
    path, _ = write_fast(tmp_path / "m", lower=True)
    cased = TokenizationConfig(lower_case=False)
    WordPieceTokenizer(Vocabulary(WORDS), cased).save(path.with_name("vocab.txt"))
    assert open_tokenizer(path.parent).settings == cased


def test_files_of_other_kinds_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (str(tmp_path), ""):  # "": of a prefix in the working directory
        assert find_tokenizer(folder) is None
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"'a\.txt'"):
        open_tokenizer(tmp_path)
    for name, kind in {"merges.txt": "BPE", "spiece.model": "SentencePiece"}.items():
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=kind):
            open_tokenizer(tmp_path)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("strip", [True, False])
def test_settings_of_keras_hub(tmp_path, lower, strip):
    shutil.copytree(GOLDEN / "interop" / "keras_hub", tmp_path / "preset")
    path = tmp_path / "preset" / "tokenizer.json"
    document = json.loads(path.read_text())
    document["config"] |= {"lowercase": lower, "strip_accents": strip}
    path.write_text(json.dumps(document))
    text = path.parent / "assets" / "tokenizer" / "vocabulary.txt"
    for source in (path, path.parent, text):
        settings = open_tokenizer(source).settings
        assert (settings.lower_case, settings.strips_accents) == (lower, strip)


@pytest.mark.parametrize("lower", [False, True])
def test_added_tokens_are_entries_that_are_kept_whole(tmp_path, lower):
    path, fast = write_fast(tmp_path / "m", lower=lower)
    fast.add_tokens([AddedToken(t, normalized=False) for t in ("[URL]", "Café")])
    fast.save(str(path))
    tokenizer = open_tokenizer(path.parent).tokenizer()
    assert tokenizer.vocabulary.tokens == (*WORDS, "[URL]")
    text = "the [url][URL] [URL]s Café cafe\u0301 cafés"
    assert tokenizer.encode(text) == ids_of(fast, text)
    assert {tokenizer.vocabulary.ids["[URL]"], 10} <= set(tokenizer.encode(text))
    assert tokenizer.graph()([text]).to_list() == [ids_of(fast, text)]


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer_config.json"])
def test_another_json_is_named(tmp_path, name):
    (tmp_path / name).write_text('{"<s>": 0, "\\u0120the": 1}')
    with pytest.raises(InputError, match=rf"{name}.*'<s>'.*vocab\.txt"):
        open_tokenizer(tmp_path / name)


def test_the_name_of_a_preset_is_its_vocabulary(tmp_path, monkeypatch):
    stored = open_tokenizer(local_vocabulary("electra_wiki_en"))
    assert len(stored.vocabulary.tokens) == 8192
    assert stored.settings.lower_case
    monkeypatch.chdir(tmp_path)
    (tmp_path / "electra_wiki_en").write_text("")
    assert local_vocabulary("electra_wiki_en") == "electra_wiki_en"
    assert local_vocabulary(None) is None


def test_a_vocabulary_is_fetched_with_its_settings():
    url = f"memory://{uuid.uuid4().hex}/folder"
    folder = ObjectFolder(url)
    folder.write("vocab.txt", "\n".join((*SPECIAL_TOKENS, "The")).encode())
    folder.write("tokenizer_config.json", b'{"do_lower_case": false}')
    for path in (f"{url}/vocab.txt", url):
        stored = open_tokenizer(local_vocabulary(path))
        assert stored.vocabulary.tokens[-1] == "The"
        assert not stored.settings.lower_case
    folder.write("other.txt", "\n".join((*SPECIAL_TOKENS, "the")).encode())
    assert open_tokenizer(local_vocabulary(f"{url}/other.txt")).settings is None
    with pytest.raises(InputError, match="absent"):
        local_vocabulary(f"{url}/absent")


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize("accents", ["lowered", "always", "never"])
@pytest.mark.parametrize("lower_case", [True, False])
def test_a_written_json_has_the_ids_of_the_library(lower_case, accents, tmp_path):
    settings = TokenizationConfig(
        lower_case=lower_case, strip_accents=accents, keep_whole=("The",)
    )
    vocabulary = Vocabulary((*Vocabulary.read(GOLDEN / "vocab.txt").tokens, "The"))
    tokenizer = WordPieceTokenizer(vocabulary, settings)
    path = str(tmp_path / "tokenizer.json")
    write_json(tokenizer, path)
    theirs = FastTokenizer.from_file(path)
    for text in (
        TEXT,
        "The list, aTHEThe; don't \U0001f600 ab\u200bc",
        "\u4e2d\u6587 caf\u00e9",
    ):
        assert ids_of(theirs, text) == tokenizer.encode(text)
        assert open_tokenizer(path).tokenizer().encode(text) == tokenizer.encode(text)


def test_a_setting_that_the_library_lacks_is_an_error(tmp_path):
    settings = TokenizationConfig(split_unspaced="characters")
    tokens = (*SPECIAL_TOKENS, "\u0e20", "\u0e32", "\u0e20\u0e32")
    tokenizer = WordPieceTokenizer(Vocabulary(tokens), settings)
    with pytest.raises(InputError, match=r"split_unspaced.*'characters'"):
        write_json(tokenizer, str(tmp_path / "tokenizer.json"))
    assert not any(tmp_path.iterdir())
