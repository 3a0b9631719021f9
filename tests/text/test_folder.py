"""What the files of a folder say of its tokenizer: as ``transformers``, or refused."""

import copy
import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from hypothesis import given
from hypothesis import strategies as st
from tests.models.generation.texts import whole_text
from tests.text import folders

from exburn import load_model
from exburn.applications import BERT, GPT2
from exburn.errors import ArgumentError, FileFormatError
from exburn.models.generation.pieces import Pieces
from exburn.text import Tokenizer, TokenizerSettings
from exburn.text.settings import clean_part, clean_text

RECORDED = json.loads(folders.RECORDED.read_text())
CONFIG = "tokenizer_config.json"


def rows_here(folder):
    made = Tokenizer.load(folder)
    rows = [row.tolist() for row in made.encode(folders.TEXTS)]
    return {
        "rows": rows,
        "texts": made.decode(rows),
        "all": made.decode(rows, special=True),
        "end": made.end,
        "batch": {
            name: array.tolist()
            for name, array in made.batch(folders.TEXTS, max_length=5).items()
        },
    }


def compare(here, theirs):
    if theirs["end"] is None:  # then it is found by its usual names
        del here["end"]
    batch = here["batch"]
    here["batch"] = {name: batch[name] for name in theirs.get("batch", {})}
    for name, value in here.items():
        assert value == theirs.get(name, {}), name


@pytest.mark.parametrize("name", folders.CASES)
def test_rows_and_texts_are_those_of_transformers(name, tmp_path):
    kind, config, files = folders.CASES[name]
    compare(rows_here(folders.write(tmp_path, kind, config, files)), RECORDED[name])


@pytest.mark.parametrize("name", folders.CASES)
def test_the_recorded_rows_are_those_of_this_transformers(name, tmp_path):
    pytest.importorskip("transformers")
    kind, config, files = folders.CASES[name]
    folders.write(tmp_path, kind, config, files)
    assert folders.rows_of_transformers(tmp_path) == RECORDED[name]


FAST, BERTS, LLAMAS, GPT2S = folders.FAST, folders.BERT, folders.LLAMA, folders.GPT2
REFUSED = {
    "unknown": ("bytes", FAST | {"heat": 1}, "nothing is known of: 'heat'"),
    "code": (
        "bytes",
        FAST | {"auto_map": {"AutoTokenizer": ["a.B", None]}},
        "auto_map",
    ),
    "split": ("bytes", FAST | {"split_special_tokens": True}, "'split_special_tokens'"),
    "regex": ("bytes", FAST | {"fix_mistral_regex": True}, "'fix_mistral_regex'"),
    "dropout": ("bytes", FAST | {"dropout": 0.1}, "'dropout'"),
    "whole words": ("words", BERTS | {"never_split": ["so"]}, "'never_split'"),
    "no token": ("bytes", FAST | {"eos_token": 3}, "'eos_token' .* must be a token"),
    "empty token": ("bytes", FAST | {"eos_token": ""}, "'eos_token'"),
    "half a letter": ("bytes", FAST | {"eos_token": "\ud800"}, "'eos_token'"),
    "no flags": ("bytes", FAST | {"pad_token": {"content": "a", "lstrip": 1}}, "'pad_"),
    "other flags": ("bytes", FAST | {"pad_token": {"content": "a", "x": 1}}, "'pad_to"),
    "no list": (
        "bytes",
        FAST | {"extra_special_tokens": "a"},
        "'extra_special_tokens'",
    ),
    "no side": ("bytes", FAST | {"padding_side": "middle"}, "'padding_side'"),
    "no length": ("bytes", FAST | {"model_max_length": 0}, "'model_max_length'"),
    "half a length": ("bytes", FAST | {"model_max_length": 1.5}, "'model_max_length'"),
    "no mask": ("words", BERTS | {"model_input_names": ["input_ids"]}, "'model_input"),
    "more inputs": (
        "words",
        BERTS | {"model_input_names": ["input_ids", "attention_mask", "bbox"]},
        "'model_input_names'",
    ),
    "no number": (
        "bytes",
        FAST | {"added_tokens_decoder": {"0x5": folders.NEW}},
        "'added_tokens_decoder'",
    ),
    "a large number": (
        "bytes",
        FAST | {"added_tokens_decoder": {str(2**31): folders.NEW}},
        "'added_tokens_decoder'",
    ),
    "another number": (
        "bytes",
        FAST | {"added_tokens_decoder": {"5": folders.NEW}},
        "'added_tokens_decoder.5' is '<new>' .* that is token 290",
    ),
    "begins": ("bytes", FAST | {"add_bos_token": True}, "'add_bos_token' is True"),
    "does not begin": (
        "pieces",
        LLAMAS | {"add_bos_token": False},
        "'add_bos_token' is False .* the text begins with '<s>'",
    ),
    "ends": ("pieces", LLAMAS | {"add_eos_token": True}, "'add_eos_token' is True"),
    "does not end": (
        "chances",
        FAST | {"add_eos_token": False, "eos_token": "</s>"},
        "'add_eos_token' is False",
    ),
    "a space": ("bytes", FAST | {"add_prefix_space": True}, "'add_prefix_space' is Tr"),
    "no space": ("pieces", LLAMAS | {"add_prefix_space": False}, "'add_prefix_space'"),
    "old spaces": ("pieces", LLAMAS | {"legacy": True}, "'legacy' is True"),
    "unknown words": ("words", BERTS | {"unk_token": "[PAD]"}, "'unk_token'"),
    "unknown pieces": ("chances", FAST | {"unk_token": "<pad>"}, "'unk_token'"),
    "parts of words": ("words", BERTS | {"wordpieces_prefix": "@@"}, "'wordpieces_pr"),
    "ends of BERT": ("words", BERTS | {"sep_token": "[PAD]"}, "'sep_token' is '\\[PAD"),
    "cased": ("words", FAST | {"do_lower_case": False}, "'do_lower_case' is False"),
    "lower case": ("bytes", FAST | {"do_lower_case": True}, "'do_lower_case' is True"),
    "BERT of bytes": ("bytes", BERTS, "'tokenizer_class' is 'BertTokenizer'"),
    "Llama of words": ("words", LLAMAS, "'tokenizer_class' is 'LlamaTokenizer'"),
    "GPT-2 of chances": ("chances", GPT2S, "'tokenizer_class' is 'GPT2Tokenizer'"),
    "no texts": ("bytes", FAST | {"tokenizer_class": 3}, "'tokenizer_class'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused_by_name(name, tmp_path):
    kind, config, text = REFUSED[name]
    folders.write(tmp_path, kind, config)
    with pytest.raises(FileFormatError, match=text):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("special_tokens_map", {"heat": 1}, "special_tokens_map.json has an entry"),
        ("special_tokens_map", {"eos_token": 1}, "'eos_token' in special_tokens_map"),
        ("added_tokens", {"<new>": "5"}, "'<new>' in added_tokens.json"),
        ("added_tokens", {"<new>": 5}, "that is token 290"),
        ("added_tokens", {"": 290}, "no text"),
    ],
)
def test_older_files_are_checked(name, value, text, tmp_path):
    folders.write(tmp_path, "bytes", FAST, {name: value})
    with pytest.raises(FileFormatError, match=text):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("value", [3, [3], [{"id": 0}], [{"id": "0", "content": "a"}]])
def test_a_damaged_list_of_added_tokens(value, tmp_path):
    described = copy.deepcopy(folders.bytes_()) | {"added_tokens": value}
    folders.write(tmp_path, "bytes", FAST, described=described)
    with pytest.raises(FileFormatError, match="'added_tokens'"):
        Tokenizer.load(tmp_path)


def test_a_token_of_padding_that_is_none_is_refused(tmp_path):
    padding = {"pad_token": "\ud800", "direction": "Left"}
    described = copy.deepcopy(folders.bytes_()) | {"padding": padding}
    folders.write(tmp_path, "bytes", FAST, described=described)
    with pytest.raises(FileFormatError):
        Tokenizer.load(tmp_path)


def test_every_harmless_entry_is_accepted(tmp_path):
    from exburn.text.folder import _TABLE

    plain = rows_here(folders.write(tmp_path, "bytes", FAST))
    config = FAST | dict.fromkeys(_TABLE.harmless, "x")
    assert rows_here(folders.write(tmp_path, "bytes", config)) == plain
    nothing = FAST | dict.fromkeys({*_TABLE.entries, *_TABLE.only} - {*FAST})
    assert rows_here(folders.write(tmp_path, "bytes", nothing)) == plain


def test_the_class_may_be_that_of_the_model(tmp_path):
    cased = copy.deepcopy(folders.words())
    cased["normalizer"]["lowercase"] = False
    config = {"config": {"model_type": "bert"}}
    folders.write(tmp_path, "words", {}, config, cased)  # BERT's class has lower case
    assert "Émile" not in Tokenizer.load(tmp_path).to_json().partition("model")[0]
    lower = Tokenizer.load(tmp_path).encode("USER")
    assert lower.tolist() == Tokenizer.load(tmp_path).encode("user").tolist()
    alone = Tokenizer.load(tmp_path / "tokenizer.json")
    assert alone.encode("USER").tolist() != alone.encode("user").tolist()


# ---------------------------------------------------------------------- use and writing
SIZES = {"vocabulary_size": 30, "layers": 1, "width": 8, "heads": 2, "mlp_width": 8}


def bert_folder(path, config):
    model = BERT(**SIZES, positions=6, types=1)
    model.save_pretrained(path)
    return folders.write(path, "words", BERTS | config)


def test_bert_fills_up_and_cuts_as_the_folder_says(tmp_path):
    sides = {"padding_side": "left", "truncation_side": "left", "model_max_length": 4}
    model = BERT.from_pretrained(bert_folder(tmp_path, sides))
    with pytest.raises(ArgumentError, match="5 tokens, of 4"):
        model.preprocess("so it is")
    x = model.preprocess(["so it is", "it"], truncate=True)
    assert x["input_ids"].tolist() == [[2, 6, 7, 3], [0, 2, 6, 3]]
    assert x["attention_mask"].tolist() == [[1] * 4, [0, 1, 1, 1]]
    model.tokenizer = Tokenizer(
        model.tokenizer.to_json(), settings={"max_length": 9, "pad": "[MASK]"}
    )
    x = model.preprocess(["so it is it is", "it"], truncate=True)
    assert x["input_ids"].tolist() == [[2, 5, 6, 7, 6, 3], [2, 6, 3, 4, 4, 4]]


def test_parts_that_the_model_does_not_know_are_an_error(tmp_path):
    described = copy.deepcopy(folders.words())
    described["post_processor"]["single"][1]["Sequence"]["type_id"] = 1
    model = BERT.from_pretrained(bert_folder(tmp_path, {}))
    model.tokenizer = Tokenizer(json.dumps(described))
    with pytest.raises(ArgumentError, match="parts of a text up to 1, of 1"):
        model.preprocess("so")
    model.tokenizer = Tokenizer(json.dumps(described), settings={"type_ids": False})
    assert not model.preprocess("so")["token_type_ids"].any()


def test_a_folder_is_written_again_as_it_was(tmp_path):
    old = {"special_tokens_map": {"eos_token": "[SEP]"}, "added_tokens": {"<new>": 29}}
    folder = bert_folder(tmp_path / "a", {"model_max_length": 5, "pad_token": "so"})
    folders.write(folder, "words", BERTS | {"pad_token": "so"}, old)
    model = BERT.from_pretrained(folder)
    model.save_pretrained(tmp_path / "b")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(files) == 6
    assert files == {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}
    # Of another tokenizer nothing of the old one stays.
    model.tokenizer = Tokenizer(json.dumps(folders.words()), end="[CLS]")
    model.save_pretrained(tmp_path / "b")
    again = BERT.from_pretrained(tmp_path / "b").tokenizer
    assert again.end == "[CLS]" and again.number_of("<new>") is None
    assert not (tmp_path / "b" / "added_tokens.json").exists()


SETTINGS = {
    "end": "[SEP]",
    "pad": "[MASK]",
    "max_length": 5,
    "padding_side": "left",
    "truncation_side": "left",
    "type_ids": False,
    "clean_up_spaces": True,
}


def test_settings_come_back_from_folders_and_models(tmp_path):
    made = Tokenizer(json.dumps(folders.words()), settings=SETTINGS)
    assert made.settings.get_config() == SETTINGS
    made.save(tmp_path)
    assert Tokenizer.load(tmp_path) == made
    model = GPT2(30, 1, 8, 2, positions=4)
    model.tokenizer = made
    model.save(tmp_path / "m.exburn")
    again = load_model(tmp_path / "m.exburn").tokenizer
    assert again == made and hash(again) == hash(made)
    assert made != Tokenizer(made.to_json())


def test_a_token_of_words_does_not_become_special_in_a_folder(tmp_path):
    made = Tokenizer(json.dumps(folders.words()), "s", settings={"pad": "so"})
    made.save(tmp_path)  # as a special token it would be found within words
    again = Tokenizer.load(tmp_path)
    assert again.encode("so is").tolist() == made.encode("so is").tolist()


@pytest.mark.parametrize(
    "value", [3, {"heat": 1}, {"max_length": 0}, {"padding_side": "up"}, {"pad": 3}]
)
def test_bad_settings_are_errors(value):
    with pytest.raises(ArgumentError):
        Tokenizer(json.dumps(folders.words()), settings=value)
    state = {"text": json.dumps(folders.words()), "end": None, "settings": value}
    with pytest.raises(FileFormatError):
        Tokenizer.from_state(state)


def test_a_batch_has_room_for_what_the_template_adds():
    made = Tokenizer(json.dumps(folders.words()))
    assert made.batch(["so it"], max_length=2)["input_ids"].tolist() == [[2, 3]]
    with pytest.raises(ArgumentError, match="max_length"):
        made.batch(["so it"], max_length=1)
    assert made.batch([])["input_ids"].shape == (0, 0)


# ---------------------------------------------------------------------- spaces
PARTS = st.lists(st.sampled_from([*" .?!,'", "n't", "'s", " '", " n", "x"])).map(
    "".join
)


@given(PARTS, st.lists(st.integers(0, 40)))
def test_texts_are_cleaned_up_in_parts_as_in_one(text, cuts):
    told, held, at = [], "", 0
    for cut in [*sorted(cuts), len(text)]:
        clean, held = clean_part(held + text[at:cut])
        told, at = [*told, clean], max(at, cut)
    assert "".join(told) + clean_text(held) == clean_text(text)


@given(st.lists(st.integers(0, 24), max_size=10), st.lists(st.integers(0, 10)))
def test_a_stream_of_clean_text_is_the_whole(tokens, cuts):
    settings = TokenizerSettings(clean_up_spaces=True)
    described = copy.deepcopy(folders.words())
    described["decoder"]["cleanup"] = False
    plain = Tokenizer(json.dumps(described))
    clean = Tokenizer(json.dumps(described), settings=settings)
    prompt = plain.encode("so it")
    pieces = Pieces(clean, prompt)
    row = np.array(tokens, np.int32)
    told = [pieces.take(row[:cut], False) for cut in sorted(cuts)]
    told.append(pieces.take(row, True))
    assert "".join(told) == clean_text(whole_text(plain, prompt, tokens, []))


def test_many_tokens_take_no_time_in_their_square(tmp_path):
    names = [f"<{number}>" for number in range(20_000)]
    folders.write(tmp_path, "bytes", FAST | {"extra_special_tokens": names})
    made = Tokenizer.load(tmp_path, lazy=True)
    assert len(json.loads(made.to_json())["added_tokens"]) == 20_001


# ---------------------------------------------------------------------- chats
def chat_folder(folder, entry=None, files=()):
    """A folder whose templates are an entry and files."""
    entries = {"bos_token": "[CLS]", "eos_token": "[SEP]", **folders.FAST}
    entries |= {} if entry is None else {"chat_template": entry}
    folders.write(folder, "words", entries)
    for name, text in dict(files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def template_text(tokenizer, **options):
    return tokenizer.chat_template.render(
        [{"role": "user", "content": "so"}], **options
    )


NAMED = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]


@pytest.mark.parametrize(
    ("entry", "files", "texts"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", {}, ("[CLS]so", "[CLS]so")),
        (None, {"chat_template.jinja": "{{ eos_token }}\n"}, ("[SEP]", "[SEP]")),
        ("a", {"chat_template.jinja": "a"}, ("a", "a")),
        (NAMED, {}, ("d", "t")),
        (
            None,
            {
                "chat_template.jinja": "d",
                "additional_chat_templates/tool_use.jinja": "t",
            },
            ("d", "t"),
        ),
    ],
)
def test_templates_of_a_folder_are_read_and_written_again(
    tmp_path, entry, files, texts
):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    tokenizer = Tokenizer.load(chat_folder(tmp_path / "a", entry, files))
    assert (template_text(tokenizer), template_text(tokenizer, tools=[{}])) == texts
    tokenizer.save(tmp_path / "b")
    again = Tokenizer.load(tmp_path / "b")
    assert again == tokenizer and again.chat_template == tokenizer.chat_template
    names = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    for name in names:
        assert (tmp_path / "b" / name).read_bytes() == (
            tmp_path / "a" / name
        ).read_bytes()
    state = Tokenizer.from_state(json.loads(json.dumps(tokenizer.state_dict())))
    assert state == tokenizer


@pytest.mark.parametrize(
    ("entry", "files", "reason"),
    [
        ("a", {"chat_template.jinja": "b"}, "is another one than chat_template.jinja"),
        (3, {}, "chat_template"),
        ([{"name": "default"}], {}, "chat_template"),
        ([*NAMED, NAMED[0]], {}, "chat_template"),
    ],
)
def test_templates_that_contradict_or_are_none_are_refused(
    tmp_path, entry, files, reason
):
    with pytest.raises(FileFormatError, match=reason):
        Tokenizer.load(chat_folder(tmp_path, entry, files))


def test_another_template_takes_the_place_of_the_folders(tmp_path):
    (tmp_path / "b").mkdir()
    folder = chat_folder(tmp_path, "a")
    tokenizer = Tokenizer.load(folder).with_chat_template("{{ bos_token }}!")
    assert template_text(tokenizer) == "[CLS]!"
    tokenizer.save(tmp_path / "b")
    assert template_text(Tokenizer.load(tmp_path / "b")) == "[CLS]!"
    Tokenizer.load(folder).with_chat_template(None).save(folder)
    assert Tokenizer.load(folder).chat_template is None
    plain = Tokenizer(json.dumps(folders.words()), "[SEP]").with_chat_template(
        {"default": "{{ eos_token }}", "tool_use": "t"}
    )
    plain.save(tmp_path / "b")
    again = Tokenizer.load(tmp_path / "b")
    assert again.chat_template == plain.chat_template
    assert template_text(again) == "[SEP]" and template_text(again, tools=[{}]) == "t"


def test_a_models_folder_keeps_its_templates(tmp_path):
    model = GPT2(vocabulary_size=30, layers=1, width=8, heads=2, positions=4)
    model.tokenizer = Tokenizer(json.dumps(folders.words()), "[SEP]")
    model.save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "chat_template.jinja").write_text("{{ bos_token }}d")
    more = tmp_path / "a" / "additional_chat_templates"
    more.mkdir()
    (more / "rag.jinja").write_text("r")
    GPT2.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    names = [p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*")]
    assert len(names) == 6
    for name in names:
        old, new = tmp_path / "a" / name, tmp_path / "b" / name
        assert new.read_bytes() == old.read_bytes()
    model.save_pretrained(tmp_path / "b")  # of another tokenizer
    assert not list((tmp_path / "b").rglob("*.jinja"))
