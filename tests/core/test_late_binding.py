"""Changes to layers whose code is on a level above them."""

from exburn.core import late_binding


def test_a_change_is_carried_out_by_what_supplies_it(monkeypatch):
    monkeypatch.setattr(late_binding, "_known", {})

    @late_binding.supplies("double")
    def change(layer, times, *, more=0):
        layer["units"] = layer["units"] * times + more
        return layer["units"]

    assert change({"units": 1}, 2) == 2  # the function is as it was
    layer = {"units": 3}
    assert late_binding.apply("double", layer, 2, more=1) == 7 == layer["units"]


def test_what_layers_offer_is_supplied():
    import exburn  # noqa: F401  all levels

    wanted = {"enable_lora", "pack", "pack_new", "packed_policy", "quantize"}
    assert set(late_binding._known) >= wanted
