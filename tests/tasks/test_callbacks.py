"""Which epoch is kept, when a trial ends, and that a dead one goes on to the bit."""

import keras
import pytest

from electra_tf.tasks.callbacks import SelectionPolicy, TrialCheckpoint, format_scores
from electra_tf.tasks.classification.model import TextClassifier
from electra_tf.training.checkpoint import saved_steps
from tasks import tiny

TEXTS, LABELS = tiny.texts(16, longest=11, shortest=10)  # two steps an epoch
EPOCHS = 5


class KilledError(Exception):
    """What ends a process in these tests."""


@pytest.fixture(scope="module")
def model():
    classifier = TextClassifier(tiny.start(), "ab", tiny.settings())
    return tiny.compiled(classifier, 2 * EPOCHS)


@pytest.fixture
def train(model, tmp_path):
    """Trains from where the folder is, with scores that are told beforehand."""

    def run(scores, keeping, folder="trial", killed_in=None):
        model.reinitialize(tiny.start(), 0)
        after, lines = {}, []

        def measure():
            epoch = int(model.optimizer.iterations) // 2
            if epoch == killed_in:
                raise KilledError
            after[epoch] = tiny.weights(model)
            return {"dev_f1": scores[epoch - 1], "dev_f1_thresh": 3.0}

        place = str(tmp_path / folder)
        keeper = TrialCheckpoint(place, measure, "dev_f1", keeping, lines.append)
        first = keeper.resume(model)
        if not keeper.is_over and first < EPOCHS:
            model.fit(
                TEXTS,
                LABELS,
                epochs=EPOCHS,
                initial_epoch=first,
                callbacks=[keeper],
                verbose=0,
            )
        return keeper, first, after, lines

    return run


def test_the_last_epoch_or_the_best_is_kept(model, train):
    scores = [10.0, 30.0, 20.0, 30.0, 5.0]
    keeper, first, after, lines = train(scores, SelectionPolicy(best=False, patience=0))
    assert (first, len(after)) == (0, EPOCHS)
    assert keeper.finish(model)["dev_f1"] == 5.0
    assert tiny.distance(tiny.weights(model), after[5]) == 0
    assert [line.split("dev_f1 ")[1] for line in lines] == ["10", "30", "20", "30", "5"]
    assert not any("thresh" in line for line in lines)
    keeper, _, after, _ = train(scores, SelectionPolicy(best=True, patience=0), "best")
    assert keeper.finish(model)["dev_f1"] == 30.0
    assert tiny.distance(tiny.weights(model), after[2]) == 0  # the first of equals
    assert tiny.distance(after[2], after[5]) > 0
    assert [s["dev_f1"] for s in keeper.history] == scores


def test_epochs_without_a_better_score_end_a_trial(model, train):
    scores = [10.0, 30.0, float("nan"), 30.0, 99.0]
    keeper, _, after, _ = train(scores, SelectionPolicy(best=True, patience=2))
    assert sorted(after) == [1, 2, 3, 4]
    assert keeper.is_over
    assert keeper.finish(model)["dev_f1"] == 30.0
    assert tiny.distance(tiny.weights(model), after[2]) == 0
    # What is over is over after a restart too, and what it kept is still there.
    keeper, first, after_restart, _ = train(
        scores, SelectionPolicy(best=True, patience=2)
    )
    assert (first, after_restart) == (4, {})
    assert keeper.is_over
    keeper.finish(model)
    assert tiny.distance(tiny.weights(model), after[2]) == 0


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_trial_that_goes_on_ends_as_if_never_stopped(model, train, epoch):
    scores, keeping = (
        [10.0, 30.0, 20.0, 30.0, 5.0],
        SelectionPolicy(best=True, patience=0),
    )
    keeper, _, whole, _ = train(scores, keeping, "whole")
    kept = keeper.finish(model), tiny.weights(model)
    with pytest.raises(KilledError):
        train(scores, keeping, killed_in=epoch)
    keeper, first, after, _ = train(scores, keeping)
    assert first == epoch - 1
    assert sorted(after) == list(range(epoch, EPOCHS + 1))
    assert tiny.distance(after[EPOCHS], whole[EPOCHS]) == 0
    assert [s["dev_f1"] for s in keeper.history] == scores
    assert keeper.finish(model) == kept[0]
    assert tiny.distance(tiny.weights(model), kept[1]) == 0


def test_killed_between_its_two_checkpoints(model, train, monkeypatch):
    scores, keeping = (
        [10.0, 30.0, 20.0, 40.0, 5.0],
        SelectionPolicy(best=True, patience=0),
    )
    _, _, whole, _ = train(scores, keeping, "whole")
    save = TrialCheckpoint.on_epoch_end

    def die_in_the_second_save(self, epoch, logs=None):
        if epoch == 3:

            def die(*_):
                raise KilledError

            self._newest.save = die
        save(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(TrialCheckpoint, "on_epoch_end", die_in_the_second_save)
        with pytest.raises(KilledError):
            train(scores, keeping)
    keeper, first, after, _ = train(scores, keeping)
    assert first == 3
    assert keeper.finish(model)["dev_f1"] == 40.0
    assert tiny.distance(tiny.weights(model), whole[4]) == 0
    assert tiny.distance(after[5], whole[5]) == 0


def test_one_checkpoint_of_each_kind_lies_there_until_forgotten(train, tmp_path):
    keeper, *_ = train(
        [1.0, 2.0, 3.0, 2.0, 1.0], SelectionPolicy(best=True, patience=0)
    )
    assert sorted(saved_steps(str(tmp_path / "trial" / "checkpoints"))) == [10]
    assert sorted(saved_steps(str(tmp_path / "trial" / "best"))) == [6]
    keeper.forget()
    assert list((tmp_path / "trial").iterdir()) == []
    assert isinstance(keeper, keras.callbacks.Callback)


def test_counts_and_thresholds_are_not_shown():
    scores = {"dev_f1": 1.0, "dev_total": 2.0, "dev_f1_thresh": 3.0, "dev_total_f1": 4}
    assert format_scores(scores) == {"dev_f1": 1.0, "dev_total_f1": 4}
