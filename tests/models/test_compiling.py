"""Settings of ``compile``: warm-up, and the device."""

import pytest
from tests.diagnostics.models import X, Y, model

import exburn


def test_warmup():
    rates = []
    made = model(optimizer=exburn.optimizers.SGD(0.4), warmup=2)
    state = lambda: made.optimizer.rate(made._training_session.holder.opt_state)  # noqa: E731

    def watch(logs):
        rates.append(made.optimizer.get_hyperparameters()["warmup_steps"])

    made.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[watch])
    assert rates == [6]  # two epochs of three steps
    assert float(state()) == pytest.approx(0.4 * 3 / 6)
    made = model(optimizer=exburn.optimizers.SGD(0.4))
    made.fit(X, Y, batch_size=4, epochs=1, verbose=0, warmup=(1, 0.1, 0.2))
    assert made.optimizer.get_hyperparameters()["warmup_to"] == pytest.approx(0.2)


def test_device_of_compile():
    made = model(device="cpu")
    made.fit(X, Y, verbose=0)
    found = {d.platform for w in made.weights for d in w.get_value().devices()}
    assert found == {"cpu"}
