"""The command `build_records`, run on valid and on invalid files."""

import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import GOLDEN, ROOT, failure

import electra_tf.text
from electra_tf.text.record_set import open_records
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines))
    return path


def arguments(text, output, **changes):
    flags = {"input": text, "vocab": GOLDEN / "vocab.txt", "output": output, **changes}
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_lines_of_text_without_blank_lines_are_warned_of(here, tmp_path):
    lines = ["the user of the file", "with the file", "in and on the file"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "a.csv").write_text("\n".join(["id,text", *map("7,{}".format, lines)]))
    for number, (name, documents) in enumerate(
        [("a.txt", "blank_line"), ("a.txt", "line"), ("a.csv", "blank_line")]
    ):
        output = tmp_path / str(number)
        flags = arguments(tmp_path / name, output, workers=1, documents=documents)
        result = here("build_records", *flags)
        assert result.returncode == 0, result.stderr
        is_joined = number == 0
        assert ("--documents=line" in result.stderr) == is_joined
        manifest = json.loads((output / "manifest.json").read_text())
        assert manifest["documents"] == (1 if is_joined else 3)
        assert manifest["sentences"] == 3


def test_records_are_built_and_can_be_rebuilt(command, text, tmp_path, vocabulary):
    output = tmp_path / "out"
    compressed = tmp_path / "more.txt.gz"
    compressed.write_bytes(gzip.compress(text.read_bytes()))
    result = command(
        "build_records",
        *arguments(f"{text},{compressed}", output, max_length=64, workers=2, seed=3),
        "--set",
        "records.order=document",
    )
    assert result.returncode == 0, result.stderr
    tokenizer = Tokenizer(vocabulary)
    record_set = open_records(str(output), max_length=64, tokenizer=tokenizer)
    assert record_set.manifest.settings["records"]["order"] == "document"
    assert record_set.manifest.seed == 3
    assert f"{record_set.total:,} records of 64 (shards: 1)" in result.stdout
    assert "tokens/s" in result.stdout
    assert "document order: 0.0% of the tokens discarded\n" in result.stdout
    assert "text lower-cased, without accents, " in result.stdout
    assert "documents" in result.stderr  # the progress bar
    # The config and vocabulary of the folder reproduce its records.
    again = command(
        "build_records",
        *arguments(
            f"{text},{compressed}",
            tmp_path / "again",
            vocab=output / "vocab.txt",
            config=output / "config.yaml",
            workers=1,
        ),
    )
    assert again.returncode == 0, again.stderr
    assert names(tmp_path / "again") == names(output)
    for name in names(output):
        first, second = output / name, tmp_path / "again" / name
        assert first.read_bytes() == second.read_bytes(), name


BAD = {
    "no_glob": ({"input": "nothing/*.txt"}, "'nothing/*.txt'"),
    "empty_glob": ({"input": ""}, "no --input"),
    "no_vocab": ({"vocab": None}, "no --vocab"),
    "vocab_path": ({"vocab": "missing.txt"}, "missing.txt"),
    "short": ({"max_length": 7}, "greater than or equal to 8, not 7"),
    "flag": ({"max_lenght": 64}, "max_lenght"),
    "key": ({"set": "records.max_lenght=64"}, "Did you mean `records.max_length`?"),
    "config": ({"config": "missing.yaml"}, "missing.yaml"),
    "workers": ({"workers": 0}, "--workers"),
    "enum": ({"order": "random"}, "order"),
    "beam_options": ({"beam_options": "--runner=X"}, "--beam_options needs --runner"),
    "similarity": ({"duplicate_similarity": 1.5}, "duplicate_similarity"),
    "tfds": ({"input": "tfds:wikipedia/20230601.en"}, "tfds build wikipedia"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_reported_in_one_paragraph(here, text, tmp_path, name):
    changes, words = BAD[name]
    output = tmp_path / "out"
    result = here("build_records", *arguments(text, output, **changes))
    assert words in failure(result)
    assert not output.exists()


def test_positional_arguments_are_rejected(here, text, tmp_path):
    # A shell expands an unquoted wildcard to such arguments.
    result = here("build_records", *arguments(text, tmp_path / "o"), "b.txt", "c.txt")
    assert "'b.txt c.txt'" in failure(result)


VOCABULARIES = {
    "without": (["a", "b"], "[PAD] [UNK] [CLS] [SEP] [MASK]"),
    "double": (
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "a"],
        "lines 6 and 7",
    ),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_an_invalid_vocabulary_is_rejected(here, text, tmp_path, name):
    lines, words = VOCABULARIES[name]
    (tmp_path / "v.txt").write_text("\n".join(lines))
    result = here(
        "build_records",
        *arguments(text, tmp_path / "out", vocab=tmp_path / "v.txt"),
    )
    assert words in failure(result)
    assert not (tmp_path / "out").exists()


def test_settings_other_than_the_vocabularys_are_rejected(
    command, here, text, tmp_path, vocabulary
):
    from electra_tf.config.pretraining import TokenizationConfig

    path = tmp_path / "vocab.txt"
    Tokenizer(vocabulary, TokenizationConfig(lower_case=False)).save(path)
    clash = here(
        "build_records", *arguments(text, tmp_path / "o", vocab=path), "--lower_case"
    )
    assert "'lower_case': False" in failure(clash)
    assert not (tmp_path / "o").exists()
    fine = command("build_records", *arguments(text, tmp_path / "o", vocab=path))
    assert fine.returncode == 0, fine.stderr
    stored = json.loads((tmp_path / "o" / "manifest.json").read_text())["tokenizer"]
    assert stored["lower_case"] is False


def test_bad_text_stops_the_run_or_is_counted(command, text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(text.read_bytes() + b"\n\nfine\nnot \xff fine\nand \0 here\n")
    lines = text.read_bytes().count(b"\n")
    stopped = command("build_records", *arguments(bad, tmp_path / "o"))
    assert f"bad.txt:{lines + 4}: invalid UTF-8" in failure(stopped)
    assert not (tmp_path / "o").exists()
    report = arguments(bad, tmp_path / "o", on_error="report")
    result = command("build_records", *report)
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["problems"] == {"invalid UTF-8": 1, "NUL": 1}
    errors = (tmp_path / "o" / "problems.txt").read_text().splitlines()
    assert [line.split(": ")[1] for line in errors] == ["invalid UTF-8", "NUL"]
    assert "1 x NUL" in result.stdout


def test_an_output_that_cannot_be_written_is_an_error(command, text, tmp_path):
    (tmp_path / "file").write_text("mine")
    result = command("build_records", *arguments(text, tmp_path / "file"))
    assert "file" in failure(result)
    below = command("build_records", *arguments(text, tmp_path / "file" / "out"))
    assert "file" in failure(below)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_is_an_error_and_leaves_no_files(command, text, tmp_path):
    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    result = command(
        "build_records",
        *arguments(text, tmp_path / "out", workers=1),
        preexec_fn=limit_file_size,
    )
    assert "--output=" in failure(result)
    assert not (tmp_path / "out").exists()


def test_a_killed_build_is_half_written_and_can_be_repeated(command, text, tmp_path):
    big = tmp_path / "big.txt"
    big.write_text((text.read_text() + "\n\n") * 400)
    output = tmp_path / "out"
    flags = arguments(big, output, workers=2, shards=2)
    process = subprocess.Popen(
        [sys.executable, "-m", "electra_tf.build_records", *flags],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(output.glob("_building/*tfrecord*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while (
        len(workers := children(process.pid)) < 3
    ):  # and multiprocessing's resource tracker
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert names(output) == ["_building"]
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived the main process"
        time.sleep(0.02)
    assert "half-written" in failure(command("build_records", *flags))
    fine = command("build_records", *arguments(text, output), "--overwrite")
    assert fine.returncode == 0, fine.stderr
    assert "_building" not in names(output)


@pytest.mark.parametrize(
    ("send", "signal_number"),
    [
        (os.kill, signal.SIGINT),
        (os.kill, signal.SIGTERM),
        (os.killpg, signal.SIGINT),  # as a terminal does
    ],
)
def test_an_interrupted_build_removes_its_files(text, tmp_path, send, signal_number):
    big = tmp_path / "big.txt"
    big.write_text((text.read_text() + "\n\n") * 400)
    output = tmp_path / "out"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "electra_tf.build_records",
            *arguments(big, output, workers=2),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(output.glob("_building/*tfrecord*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    send(process.pid, signal_number)  # while the workers start
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in stderr
    assert stderr.strip().endswith("interrupted; nothing was overwritten")
    assert not output.exists()


def test_help_shows_every_flag_with_its_default(command):
    from electra_tf.build_records import FLAGS

    result = command("build_records", "--help")
    assert result.returncode == 0
    for name in FLAGS:
        text = re.search(
            rf"--(\[no\])?{name}:.*?(?=\n +--|\n +-[a-z]|\Z)", result.stdout, re.S
        )
        assert text, name
        if FLAGS[name].default not in (None, []):
            assert f"(default: {FLAGS[name].default_as_str})" in text[0], name


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(data, tmp_path):
    """Compare the peak memory of all processes at 25 and at 200 MB of text."""
    import lzma

    source = data / "corpus" / "wiki_en.train-00.txt.xz"
    with lzma.open(source) as file:
        text = file.read()
    peaks = []
    for megabytes in (25, 200):
        path = tmp_path / f"{megabytes}.txt"
        path.write_bytes((text * 2)[: megabytes * 1_000_000].rsplit(b"\n", 1)[0])
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "electra_tf.build_records",
                *arguments(
                    path,
                    tmp_path / f"out{megabytes}",
                    vocab=data / "vocab" / "bert_uncased_en.txt",
                    workers=2,
                ),
            ],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
        assert process.returncode == 0
        peaks.append(peak)
        shutil.rmtree(tmp_path / f"out{megabytes}")
    small, large = peaks
    assert large < small + 300e6, peaks


def resident(pid):
    """Return the resident bytes of a process and its children."""
    total, queue = 0, [str(pid)]
    while queue:
        process = queue.pop()
        try:
            with open(f"/proc/{process}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            queue += children(process)
        except OSError:
            continue
    return total


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def test_published_vocabularies_fit_real_text(command, data, tmp_path):
    result = command(
        "build_records",
        *arguments(
            data / "corpus" / "wikitext-2.valid.tokens.xz",
            tmp_path / "out",
            vocab=data / "vocab" / "bert_uncased_en.txt",
        ),
    )
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    # 217,646 tokens by white space (data/README.md), <unk> as three tokens.
    assert 217_646 < manifest["tokens"] < 1.3 * 217_646
    assert manifest["unknown_share"] < 0.001
    vocabulary = Vocabulary.read(tmp_path / "out" / "vocab.txt")
    assert len(vocabulary) == 30522


JAPANESE = "\u304c\u304e\u3050 \u6771\u4eac \u3067\u3059\n" * 50
STRIPPING = {
    "flag": ["--strip_accents=lowered"],
    "set": ["--set=tokenization.strip_accents=lowered"],
    "config": ["--config={folder}/c.yaml"],
    "never": ["--strip_accents=never"],
    "cased": ["--nolower_case"],
}


def test_accent_stripping_of_other_scripts_needs_a_flag(here, tmp_path):
    (tmp_path / "ja.txt").write_text(JAPANESE, encoding="utf-8")
    (tmp_path / "c.yaml").write_text("tokenization:\n  strip_accents: lowered\n")
    base = arguments(tmp_path / "ja.txt", tmp_path / "out", workers=1)
    message = failure(here("build_records", *base))
    for word in ("--strip_accents=never", "'\u304c\u304e\u3050'", "57.1%"):
        assert word in message
    assert not (tmp_path / "out").exists()
    for name, flags in STRIPPING.items():
        flags = [flag.format(folder=tmp_path) for flag in flags]
        result = here("build_records", *base, *flags, "--overwrite")
        assert result.returncode == 0, name
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        stripped = name in ("flag", "set", "config")
        assert (manifest["stripped_share"] > 0.5) == stripped, name
        assert ("stripping accents changes" in result.stdout) == stripped, name


def test_settings_stored_with_a_vocabulary_need_no_flag(here, tmp_path, vocabulary):
    (tmp_path / "ja.txt").write_text(JAPANESE, encoding="utf-8")
    Tokenizer(vocabulary).save(tmp_path / "v.txt")
    base = arguments(
        tmp_path / "ja.txt", tmp_path / "out", vocab=tmp_path / "v.txt", workers=1
    )
    assert here("build_records", *base).returncode == 0


def test_statistics_out_of_range_cause_warnings(here, tmp_path):
    text = "\u0e01\u0e32" * 300 + "\n\n"
    (tmp_path / "th.txt").write_text(text * 20, encoding="utf-8")
    base = arguments(tmp_path / "th.txt", tmp_path / "out", workers=1)
    result = here("build_records", *base)
    assert result.returncode == 0, result.stderr
    warnings = [x for x in result.stderr.splitlines() if x.startswith("warning: ")]
    assert len(warnings) == 2
    assert "100.0% of the tokens are [UNK]" in warnings[0]
    assert "--split_unspaced=characters" in warnings[0]
    assert "padding" in warnings[1]
    assert "20 words of more than 200 characters became [UNK], 12,000" in result.stdout
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["too_long_words"], manifest["too_long_characters"]) == (20, 12000)


def test_good_records_cause_no_warning(here, corpus_file, tmp_path):
    base = arguments(corpus_file, tmp_path / "out", workers=1, order="document")
    result = here("build_records", *base)
    assert "warning" not in result.stderr


def test_duplicates_are_dropped_and_listed(here, text, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_text("A new document.\n\n" + text.read_text())
    base = arguments(f"{text},{copy}", tmp_path / "out", workers=1)
    result = here("build_records", *base, "--deduplicate=exact")
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()
    assert (
        f"{len(lines)} documents dropped as exact duplicates: listed in"
        in result.stdout
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["duplicates"] == {"exact": len(lines)}
    assert str(copy) in lines[-1]
    assert manifest["settings"]["records"]["deduplicate"] == "exact"


@pytest.mark.parametrize("name", ["build_vocab", "build_records"])
def test_a_missing_beam_is_named(here, text, tmp_path, monkeypatch, name):
    monkeypatch.delitem(sys.modules, "electra_tf.text.beam", raising=False)
    monkeypatch.delattr(electra_tf.text, "beam", raising=False)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    flags = [f"--input={text}", f"--output={tmp_path / 'o'}", "--runner=beam"]
    if name == "build_records":
        flags.append(f"--vocab={GOLDEN / 'vocab.txt'}")
    message = failure(here(name, *flags))
    assert "electra_tf[beam]" in message
    assert not (tmp_path / "o").exists()


def test_flags_of_local_processes_do_not_apply_to_beam(here, text, tmp_path):
    base = arguments(text, tmp_path / "o", workers=2, runner="beam")
    assert "--workers needs --runner=local" in failure(here("build_records", *base))


@pytest.mark.parametrize("name", ["build_vocab", "build_records"])
def test_no_library_logs_anything(command, text, tmp_path, name):
    base = arguments(text, tmp_path / "out")
    if name == "build_vocab":
        base = [f"--input={text}", f"--output={tmp_path / 'v.txt'}", "--size=200"]
    result = command(name, *base)
    assert result.returncode == 0, result.stderr
    for word in ("absl", "I0000", "W0000", "tensorflow", "cuda", "Warning"):
        assert word not in result.stdout + result.stderr
