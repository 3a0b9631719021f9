"""Tests of ``exburn.models.lm_eval``."""

import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pytest
from tests.models import judging_recorded

from exburn.errors import ArgumentError, MissingDependencyError
from exburn.models.lm_eval import Judged

RECORDED = json.loads(judging_recorded.FILE.read_text())
PAIRS, TEXTS = judging_recorded.requests()
HAS_HARNESS = importlib.util.find_spec("lm_eval") is not None


class Alone(Judged):
    """As lm-eval makes requests of texts, without it: see ``TemplateLM``."""

    def __init__(self, *args):
        super().__init__(*args)
        self.answers = {}
        self.cache_hook = SimpleNamespace(add_partial=self.note)

    def note(self, kind, arguments, answer):
        self.answers[kind, str(arguments)] = answer

    def loglikelihood(self, pairs):
        requests = []
        for context, text in pairs:
            spaces = len(context) - len(context.rstrip())
            text, context = context[len(context) - spaces :] + text, context.rstrip()
            tokens = self.tok_encode(context)
            rest = self.tok_encode(context + text)[len(tokens) :]
            requests.append(((context, text), tokens or [self.prefix_token_id], rest))
        return self._loglikelihood_tokens(requests)


@pytest.fixture(scope="module")
def judged():
    return Alone(judging_recorded.make_model(), 3, judging_recorded.SEEN)


def ask(*rows):
    return [SimpleNamespace(args=row) for row in rows]


def test_log_likelihoods_are_those_of_hflm(judged):
    answers = judged.loglikelihood(PAIRS)
    expected = RECORDED["loglikelihood"]
    np.testing.assert_allclose(
        [a for a, _ in answers], [e for e, _ in expected], atol=1e-4
    )
    assert [g for _, g in answers] == [g for _, g in expected]


def test_log_likelihoods_of_whole_texts_are_those_of_hflm(judged):
    totals = judged.loglikelihood_rolling(ask(*((text,) for text in TEXTS)))
    np.testing.assert_allclose(totals, RECORDED["rolling"], rtol=1e-6, atol=1e-4)


def test_written_answers_are_those_of_hflm(judged):
    options = {"until": ["ish"], "max_gen_toks": 12, "do_sample": False}
    answers = judged.generate_until(ask(*((text, options) for text in TEXTS)))
    assert answers == RECORDED["written"]


def test_answers_end_at_a_stop(judged):
    options = {"until": "ul", "max_new_tokens": 12}
    (answer,) = judged.generate_until(ask((TEXTS[3], options)))
    whole = RECORDED["written"][3]
    assert answer == whole.split("ul")[0] and answer != whole


def test_answers_that_are_drawn(judged):
    options = {"until": [], "do_sample": True, "temperature": 0.7, "max_gen_toks": 4}
    for more in ({}, {"top_k": 5}, {"top_p": 0.9}):
        assert len(judged.generate_until(ask((TEXTS[0], options | more)))) == 1


def test_answers_are_told_to_the_harness_cache(judged):
    judged.answers.clear()
    judged.loglikelihood(PAIRS[:1])
    judged.loglikelihood_rolling(ask((TEXTS[0],)))
    assert {kind for kind, _ in judged.answers} == {
        "loglikelihood",
        "loglikelihood_rolling",
    }


def write(judged, **options):
    return judged.generate_until(ask((TEXTS[0], options)))


REFUSED = [
    ({"num_beams": 4}, "num_beams"),
    ({"do_sample": True, "top_k": 5, "top_p": 0.5}, "top_k together"),
    ({"max_gen_toks": 100}, "writes 100 tokens"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_options_that_generate_does_not_have_are_refused(judged, options, text):
    with pytest.raises(ArgumentError, match=text):
        write(judged, **options)


def test_a_model_without_a_tokenizer_is_refused():
    model = judging_recorded.make_model()
    model.tokenizer = None
    with pytest.raises(ArgumentError, match="no tokenizer"):
        Judged(model, 1, None)


@pytest.mark.skipif(HAS_HARNESS, reason="lm_eval is installed")
def test_without_the_harness_it_is_told_how_to_install_it(judged):
    with pytest.raises(MissingDependencyError, match=r"exburn\[lm-eval\]"):
        judged.model.as_lm_eval()


TASK = """task: endings
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{gold}}}}"
metric_list:
  - metric: acc
"""


@pytest.mark.skipif(not HAS_HARNESS, reason="needs lm_eval")
def test_a_task_of_a_local_file(judged, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import lm_eval
    from lm_eval.tasks import TaskManager

    choices = [" kato", " mes"]
    scores = judged.loglikelihood([(TEXTS[0], choice) for choice in choices])
    best = int(scores[1][0] > scores[0][0])
    rows = [{"q": TEXTS[0], "choices": choices, "gold": g} for g in (best, 1 - best)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "endings.yaml").write_text(TASK.format(file=file))
    tasks = TaskManager(include_path=str(tmp_path), include_defaults=False)
    results = lm_eval.simple_evaluate(
        judged.model.as_lm_eval(), tasks=["endings"], task_manager=tasks
    )
    assert results["results"]["endings"]["acc,none"] == 0.5
