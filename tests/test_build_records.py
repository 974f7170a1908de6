"""The command `build_records`, run on valid and on invalid files."""

import gzip
import itertools
import json
import lzma
import os
import re
import signal
import sys
import time

import pytest

import electra_tf.text
from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.record_set import open_records
from tests.conftest import GOLDEN, failure, flags, full_disk
from tests.pretrain_commands import start, wait_for


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def big(text, tmp_path):
    path = tmp_path / "big.txt"
    path.write_text((text.read_text() + "\n\n") * 400)
    return path


def arguments(text, output, /, **changes):
    given = {"input": text, "vocab": GOLDEN / "vocab.txt", "output": output}
    return flags(**given | changes)


@pytest.fixture
def build(here):
    """Return a function that builds records, and returns the result and manifest."""

    def run(text, output, *more, **changes):
        given = arguments(text, output, **{"workers": 1, **changes})
        result = here("build_records", *given, *more)
        assert result.returncode == 0, result.stderr
        return result, json.loads((output / "manifest.json").read_text())

    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_records_are_built_and_can_be_rebuilt(command, build, text, tmp_path):
    output, again = tmp_path / "out", tmp_path / "again"
    compressed = tmp_path / "more.txt.gz"
    compressed.write_bytes(gzip.compress(text.read_bytes()))
    inputs = f"{text},{compressed}"
    given = arguments(inputs, output, max_length=64, workers=2, seed=3)
    result = command("build_records", *given, "--set=records.order=document")
    assert result.returncode == 0, result.stderr
    tokenizer = Tokenizer.read(GOLDEN / "vocab.txt")
    record_set = open_records(str(output), max_length=64, tokenizer=tokenizer)
    assert record_set.manifest.settings["records"]["order"] == "document"
    assert record_set.manifest.seed == 3
    assert f"{record_set.total:,} records of 64 (shards: 1)" in result.stdout
    assert "tokens/s" in result.stdout
    assert "document order: 0.0% of the tokens discarded\n" in result.stdout
    assert "text lower-cased, without accents, " in result.stdout
    for word in ("absl", "I0000", "W0000", "tensorflow", "cuda", "arning"):
        assert word not in result.stdout + result.stderr
    # The config and vocabulary of the folder reproduce its records.
    own = {"vocab": output / "vocab.txt", "config": output / "config.yaml"}
    build(inputs, again, **own)
    assert names(again) == names(output)
    for name in names(output):
        assert (output / name).read_bytes() == (again / name).read_bytes(), name


# Changes of the flags, and words of the message; {p} is the folder.
BAD = {
    "vocab_path": ({"vocab": "missing.txt"}, "missing.txt"),
    "workers": ({"workers": 0}, "--workers"),
    "beam_options": (
        {"beam_options": "--runner=X"},
        "--beam_options=--runner=X needs --runner",
    ),
    "beam": ({"workers": 2, "runner": "beam"}, "--workers=2 needs --runner=local"),
    "file": ({"output": "{p}/v.txt"}, "v.txt"),
    "below": ({"output": "{p}/v.txt/o"}, "v.txt"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_reported_in_one_paragraph(here, text, tmp_path, name):
    changes, words = BAD[name]
    changes = {n: str(value).format(p=tmp_path) for n, value in changes.items()}
    (tmp_path / "v.txt").write_text("mine")
    before = names(tmp_path)
    given = arguments(text, tmp_path / "out", **changes)
    assert words in failure(here("build_records", *given))
    assert names(tmp_path) == before


def test_settings_other_than_the_vocabularys_are_rejected(
    here, build, text, tmp_path, vocabulary
):
    path = tmp_path / "vocab.txt"
    Tokenizer(vocabulary, TokenizationConfig(lower_case=False)).save(path)
    given = arguments(text, tmp_path / "o", vocab=path)
    assert "'lower_case': False" in failure(
        here("build_records", *given, "--lower_case")
    )
    assert not (tmp_path / "o").exists()
    _, manifest = build(text, tmp_path / "o", vocab=path)
    assert manifest["tokenizer"]["lower_case"] is False


def test_bad_text_stops_the_run_or_is_counted(here, build, text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(text.read_bytes() + b"\n\nfine\nnot \xff fine\nand \0 here\n")
    lines = text.read_bytes().count(b"\n")
    stopped = here("build_records", *arguments(bad, tmp_path / "o", workers=1))
    assert f"bad.txt:{lines + 4}: invalid UTF-8" in failure(stopped)
    assert not (tmp_path / "o").exists()
    result, manifest = build(bad, tmp_path / "o", on_error="report")
    assert manifest["problems"] == {"invalid UTF-8": 1, "NUL": 1}
    errors = (tmp_path / "o" / "problems.txt").read_text().splitlines()
    assert [line.split(": ")[1] for line in errors] == ["invalid UTF-8", "NUL"]
    assert "1 x NUL" in result.stdout


def test_a_full_disk_is_an_error_and_leaves_no_files(here, text, tmp_path):
    given = arguments(text, tmp_path / "out", workers=1)
    with full_disk(20_000):
        result = here("build_records", *given)
    assert "--output=" in failure(result)
    assert not (tmp_path / "out").exists()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


@pytest.mark.runs
def test_a_killed_build_leaves_no_records_and_can_be_repeated(
    here, build, text, big, tmp_path
):
    output = tmp_path / "out"
    given = arguments(big, output, workers=2, shards=2)
    process = start(*given, command="build_records")
    wait_for(process, lambda: list(tmp_path.glob("out.partial/*tfrecord*")))
    # Two workers and the resource tracker of multiprocessing.
    wait_for(process, lambda: len(children(process.pid)) > 2)
    workers = children(process.pid)
    process.kill()
    process.communicate()
    assert not output.exists()
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        time.sleep(0.02)
    build(text, output)
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.runs
@pytest.mark.parametrize(
    ("send", "signal_number"),
    [(os.kill, signal.SIGTERM), (os.killpg, signal.SIGINT)],  # as a terminal does
)
def test_an_interrupted_build_removes_its_files(big, tmp_path, send, signal_number):
    output = tmp_path / "out"
    given = arguments(big, output, workers=2)
    process = start(*given, command="build_records", start_new_session=True)
    wait_for(process, lambda: list(tmp_path.glob("out.partial/*tfrecord*")))
    send(process.pid, signal_number)  # while the workers start
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in stderr
    assert stderr.strip().endswith("interrupted; nothing was overwritten")
    assert not output.exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(data, tmp_path):
    """Compare the peak memory of all processes at 25 and at 200 MB of text."""
    with lzma.open(data / "corpus" / "wiki_en.train-00.txt.xz") as file:
        text = file.read() * 2
    vocab, peaks = data / "vocab" / "bert_uncased_en.txt", []
    for megabytes in (25, 200):
        path, output = tmp_path / f"{megabytes}.txt", tmp_path / f"out_{megabytes}"
        path.write_bytes(text[: megabytes * 1_000_000].rsplit(b"\n", 1)[0])
        given = arguments(path, output, vocab=vocab, workers=2)
        process, peak = start(*given, command="build_records"), 0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
        assert process.returncode == 0
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 300e6, peaks


def resident(pid):
    """Return the resident bytes of a process and its children."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            own = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return own + sum(map(resident, children(pid)))
    except OSError:  # it has ended
        return 0


def test_published_vocabularies_fit_real_text(build, data, tmp_path):
    path = data / "corpus" / "wikitext-2.valid.tokens.xz"
    vocab = data / "vocab" / "bert_uncased_en.txt"
    _, manifest = build(path, tmp_path / "out", vocab=vocab)
    # 217,646 tokens by white space (data/README.md), <unk> as three tokens.
    assert 217_646 < manifest["tokens"] < 1.3 * 217_646
    assert manifest["unknown_share"] < 0.001
    assert manifest["tokenizer"]["vocabulary_size"] == 30522


def test_accent_stripping_of_other_scripts_needs_a_setting(
    here, build, tmp_path, vocabulary
):
    path, output = tmp_path / "ja.txt", tmp_path / "out"
    path.write_text("\u304c\u304e\u3050 \u6771\u4eac \u3067\u3059\n" * 50, "utf-8")
    Tokenizer(vocabulary).save(tmp_path / "stored.txt")
    message = failure(here("build_records", *arguments(path, output, workers=1)))
    for word in ("--strip_accents=never", "'\u304c\u304e\u3050'", "57.1%"):
        assert word in message
    assert not output.exists()
    for given in ({"strip_accents": "lowered"}, {"vocab": tmp_path / "stored.txt"}):
        build(path, output, "--overwrite", **given)


def test_statistics_out_of_range_cause_warnings(build, corpus_file, tmp_path):
    thai = tmp_path / "th.txt"
    thai.write_text(("\u0e01\u0e32" * 300 + "\n\n") * 20, encoding="utf-8")
    result, _ = build(thai, tmp_path / "out")
    warnings = [x for x in result.stderr.splitlines() if x.startswith("warning: ")]
    assert len(warnings) == 2
    assert "100.0% of the tokens are [UNK]" in warnings[0]
    assert "--split_unspaced=characters" in warnings[0]
    assert "padding" in warnings[1]
    good, _ = build(corpus_file, tmp_path / "good", order="document")
    assert "warning" not in good.stderr


def test_a_missing_beam_is_named(here, text, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "electra_tf.text.beam", raising=False)
    monkeypatch.delattr(electra_tf.text, "beam", raising=False)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    given = arguments(text, tmp_path / "o", runner="beam")
    assert "electra_tf[beam]" in failure(here("build_records", *given))
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(("words", "order"), [(8, "original"), (45, "document")])
def test_the_order_that_keeps_the_tokens_is_chosen(here, tmp_path, words, order):
    line = " ".join(itertools.islice(itertools.cycle(["the", "of", "and"]), words))
    text = tmp_path / "text.txt"
    text.write_text(("\n".join([line] * 40) + "\n\n") * 20)

    def build(name, *more):
        given = arguments(text, tmp_path / name, max_length=64, workers=1)
        result = here("build_records", *given, *more)
        assert result.returncode == 0, result.stderr
        return result.stdout, (tmp_path / name / "manifest.json").read_text()

    printed, measured = build("measured")
    shares = dict(re.findall(r"--order=(\w+): ([\d.]+)% of the first", printed))
    assert (float(shares["original"]) > 20) == (order == "document")
    assert shares["document"] == "0.0"
    assert f"--order={order} is used" in printed
    printed, chosen = build("set", f"--order={order}")
    assert chosen == measured
    assert "of the first" not in printed
